"""Discrete and MultiDiscrete actions: from a network's output to probabilities and choices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import gymnasium
import numpy as np
import torch

from metaroll.functional.distributions import Categorical
from metaroll.policies.acting import choose_action, choose_on_torch
from metaroll.types import EnvSpec

__all__ = ["CategoricalHead", "LateInfos"]

_FEW = 16
"""Actions among which the likeliest is found one after the other."""


class CategoricalHead:
    """The choices that make up one action, each with a part of a network's output (the logits) to itself.

    Args:
        env_spec: Spaces; actions are Discrete or MultiDiscrete.
        policy: Name of the policy, for the error.
        instead: Name of the policy for a Box.
    """

    def __init__(self, env_spec: EnvSpec, policy: str, instead: str) -> None:
        space = env_spec.action_space
        if not isinstance(space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
            raise TypeError(
                f"{policy} needs a Discrete or MultiDiscrete action space, got {space}; {_advice(space, instead)}"
            )
        several = isinstance(space, gymnasium.spaces.MultiDiscrete)
        self.sizes = [int(n) for n in space.nvec.reshape(-1)] if several else [int(space.n)]
        """Number of possible actions of each choice."""
        self._shape = tuple(space.shape or ())

    def __len__(self) -> int:
        return len(self.sizes)

    def log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities ``(..., num_actions)`` of logits of this shape; those of several choices side by side."""
        return torch.cat([torch.log_softmax(part, dim=-1) for part in logits.split(self.sizes, dim=-1)], dim=-1)

    def distribution(self, log_probs: torch.Tensor) -> Categorical:
        """The distribution of actions ``(...)`` (or ``(..., *shape)``) with these ``log_probs (..., num_actions)``."""
        return Categorical(log_probs, tuple(self.sizes), self._shape)

    def evaluate(self, log_probs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy, both ``(...)``, of integer actions ``(...)`` (or ``(..., *shape)``)."""
        chooses = self.distribution(log_probs)
        return chooses.log_prob(action), chooses.entropy()

    def choose(
        self, logits: np.ndarray, noise: np.ndarray, deterministic: bool | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions ``(N,)`` (or ``(N, *shape)``) and probabilities ``(N, num_actions)`` of logits of this shape.

        Args:
            logits: One row per action.
            noise: Uniform numbers ``(N, choices)``, turned into choices by the inverse distribution function.
            deterministic: The likeliest action, of all rows or of some ``(N,)``.
        """
        drawn = np.asarray(noise, dtype=np.float32)
        chosen, probs, first = [], [], 0
        for i, size in enumerate(self.sizes):
            index, prob = _choose(logits[:, first : first + size], drawn[:, i : i + 1], deterministic)
            chosen.append(index)
            probs.append(prob)
            first += size
        if len(chosen) == 1 and not self._shape:
            return chosen[0], probs[0]
        return np.stack(chosen, axis=1).reshape(len(logits), *self._shape), np.concatenate(probs, axis=1)

    def likeliest(self, logits: np.ndarray) -> np.ndarray:
        """The likeliest actions ``(N,)`` (or ``(N, *shape)``), as ``choose`` chooses them deterministically."""
        edges = [0, *itertools.accumulate(self.sizes)]
        chosen = [_likeliest(logits[:, first:end].T) for first, end in itertools.pairwise(edges)]
        if len(chosen) == 1 and not self._shape:
            return chosen[0]
        return np.stack(chosen, axis=1).reshape(len(logits), *self._shape)

    def choose_on_torch(
        self, logits: torch.Tensor, noise: torch.Tensor, deterministic: bool | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``choose`` of tensors."""
        parts = [
            _choose_on_torch(part, noise[:, i : i + 1], deterministic)
            for i, part in enumerate(logits.split(self.sizes, dim=1))
        ]
        if len(parts) == 1 and not self._shape:
            return parts[0]
        chosen = torch.stack([part[0] for part in parts], dim=1).reshape(len(logits), *self._shape)
        return chosen, torch.cat([part[1] for part in parts], dim=1)


class LateInfos(Mapping[str, np.ndarray]):
    """Infos that are computed as soon as somebody looks at them: most rollouts do without.

    Args:
        make: Gives them, name -> ``(N, ...)``.
    """

    def __init__(self, make: Callable[[], dict[str, np.ndarray]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> dict[str, np.ndarray]:
        return self._make()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _choose_on_torch(
    logits: torch.Tensor, noise: torch.Tensor, deterministic: bool | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """``_choose`` of tensors."""
    likeliest = logits.argmax(dim=1)
    weight = (logits - logits.amax(dim=1, keepdim=True)).exp()
    # Summed up one by one: a device's own cumulative sum may take any order.
    below = torch.stack(list(itertools.accumulate(weight.unbind(1))), dim=1)
    total = below[:, -1:]
    chosen = torch.minimum((below <= noise * total).sum(dim=1), (below < total).sum(dim=1))
    return choose_on_torch(chosen, likeliest, deterministic), weight / total


def _choose(logits: np.ndarray, noise: np.ndarray, deterministic: bool | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choices ``(N,)`` and probabilities ``(N, n)`` of logits ``(N, n)``, by uniform numbers ``(N, 1)``.

    All of it goes by columns: a loop over a few of them takes a tenth of the time of sums over short rows.
    """
    columns = np.ascontiguousarray(logits.T)
    likeliest = None if deterministic is False else _likeliest(columns)
    weight = np.exp(columns - columns.max(axis=0))
    below = np.cumsum(weight, axis=0)
    total = below[-1]
    if deterministic is True and likeliest is not None:
        return likeliest, (weight / total).T
    threshold = noise[:, 0] * total
    # Rounding may lift the threshold to the total; the last action with a positive probability is meant then.
    chosen = np.minimum(np.count_nonzero(below <= threshold, axis=0), np.count_nonzero(below < total, axis=0))
    if likeliest is not None:
        chosen = choose_action(chosen, likeliest, np.asarray(deterministic))
    return chosen, (weight / total).T


def _likeliest(columns: np.ndarray) -> np.ndarray:
    """The first of the largest of each row, ``(N,)``, of columns ``(n, N)``."""
    if len(columns) > _FEW:
        return columns.argmax(axis=0)
    best = columns[0]
    found = np.zeros(len(best), dtype=np.int64)
    for k in range(1, len(columns)):
        best = best if k == 1 else np.maximum(best, columns[k - 1])
        better = columns[k] > best
        found = better.astype(np.int64) if k == 1 else np.where(better, k, found)
    return found


def _advice(space: gymnasium.Space, instead: str) -> str:
    """What an environment with other actions than choices can do."""
    if isinstance(space, gymnasium.spaces.Box):
        return f"see {instead}"
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return f"declare MultiDiscrete(np.full({space.shape}, 2)) as action_space, whose actions are 0 and 1, too"
    return "declare one of these as action_space, or a Box, and take actions apart in step()"
