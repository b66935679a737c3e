"""Greedy policies without noise, for critics; wrappers explore around them (``policies.exploration``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from metaroll.policies.acting import ActingPolicy
from metaroll.policies.bodies import Perceptron
from metaroll.policies.heads import DeterministicHead, GreedyHead, check_discrete
from metaroll.policies.networks import MLP
from metaroll.types import EnvSpec

__all__ = ["DeterministicMLPPolicy", "GreedyQPolicy"]


class DeterministicMLPPolicy(ActingPolicy):
    """``tanh(MLP(obs))``, scaled from [-1, 1] to the bounds of the action space.

    An entry without one of its bounds stays in [-1, 1], clipped to the other. There are no infos.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (256, 256),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = DeterministicHead.of(spec, type(self).__name__)
        super().__init__(spec, encoder=encoder, body=Perceptron(), head=head)
        self.net = MLP(
            self.feature_dim,
            head.width,
            hidden_sizes,
            hidden_nonlinearity,
            "tanh",
            init=init,
            generator=generator,
        )
        self.action_bounds = None if head.scaling is None else head.scaling.bounds

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Actions ``(..., act_dim)`` in the policy's own units, [-1, 1], for ``obs (..., obs_dim)``."""
        return self.net(self.features(obs))


class GreedyQPolicy(ActingPolicy):
    """Action values by an MLP, and the action with the highest value; there are no infos.

    Args:
        env_spec: Spaces; actions are Discrete.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        dueling: The network outputs the state value and the advantages of the actions, less their mean (Wang et al.
            2016, arXiv:1511.06581, equation 9; both are outputs of one network).
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (256, 256),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        dueling: bool = False,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        num_actions = check_discrete(spec, type(self).__name__)
        head = GreedyHead(num_actions + bool(dueling), bool(dueling))
        super().__init__(spec, encoder=encoder, body=Perceptron(), head=head)
        self.num_actions, self.dueling = num_actions, head.dueling
        self.net = MLP(
            self.feature_dim,
            head.width,
            hidden_sizes,
            hidden_nonlinearity,
            init=init,
            generator=generator,
        )

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Values of all actions, ``(..., num_actions)``, for ``obs (..., obs_dim)``."""
        return self.values_of(self.net(self.features(obs)))

    def values_of(self, outputs: torch.Tensor) -> torch.Tensor:
        """Values ``(..., num_actions)`` from the network's outputs."""
        if not self.dueling:
            return outputs
        # Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a') (Wang et al. 2016, equation 9)
        advantages = outputs[..., 1:]
        return outputs[..., :1] + advantages - advantages.mean(dim=-1, keepdim=True)

    def pull_values(self, grad: torch.Tensor) -> torch.Tensor:
        """Gradient w.r.t. the network's outputs, from that w.r.t. ``values_of`` ``(..., num_actions)``."""
        if not self.dueling:
            return grad
        # dL/dV = sum_a dL/dQ(a), dL/dA(a) = dL/dQ(a) - mean_a' dL/dQ(a')
        total = grad.sum(dim=-1, keepdim=True)
        return torch.cat((total, grad - total / self.num_actions), dim=-1)
