"""Embeddings of time series for tests of samplers; imported by workers, too."""

from __future__ import annotations

import torch
from torch import Tensor


class Moments:
    """The sums of products of actions and changes of states, and mean and variance of these changes."""

    requires_target_domain_data = False

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.num_states, self.num_actions = num_states, num_actions
        self.calls: list[tuple[int, ...]] = []

    @property
    def dim_output(self) -> int:
        return self.num_states * (self.num_actions + 2)

    def pack(self, data: Tensor) -> Tensor:
        return data.reshape(*data.shape[:2], -1)

    def __call__(self, data: Tensor) -> Tensor:
        self.calls.append(tuple(data.shape))
        sets, rollouts, _ = data.shape
        steps = data.reshape(sets * rollouts, -1, self.num_states + self.num_actions)
        states, actions = steps[..., : self.num_states], steps[:, :-1, self.num_states :]
        changes = states.diff(dim=1)
        sums = torch.bmm(actions.transpose(1, 2), changes).flatten(1)
        return torch.cat([sums, changes.mean(1), changes.var(1, correction=0)], dim=1).reshape(sets, -1)


class Flat(Moments):
    """All states and actions as they are, of series of T steps."""

    def __init__(self, num_states: int, num_actions: int, steps: int) -> None:
        super().__init__(num_states, num_actions)
        self.steps = steps

    @property
    def dim_output(self) -> int:
        return (self.num_states + self.num_actions) * self.steps

    def __call__(self, data: Tensor) -> Tensor:
        self.calls.append(tuple(data.shape))
        return data.flatten(1)


class Distance(Flat):
    """Sum of squared differences of states from those recorded, state by state."""

    requires_target_domain_data = True

    @property
    def dim_output(self) -> int:
        return self.num_states

    def __call__(self, data: Tensor) -> Tensor:
        both = data.reshape(*data.shape[:2], self.steps, 2, self.num_states + self.num_actions)[..., : self.num_states]
        return (both[..., 0, :] - both[..., 1, :]).square().sum(2).flatten(1)


class Wrong(Moments):
    """Gives a feature too many."""

    def __call__(self, data: Tensor) -> Tensor:
        return torch.zeros(len(data), data.shape[1] * self.dim_output + 1)


class Changing(Flat):
    """Shows series that may be chained."""

    of_changes = True
