"""Heads of policies: from outputs of a body to actions. Written once over an array namespace.

``xp`` is ``numpy``, or ``array_api_compat.torch`` for tensors. Functions without it take tensors, and are
differentiable.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, final

import gymnasium
import numpy as np
import torch

from metaroll.checks import plain_number
from metaroll.functional.distributions import (
    ActionDistribution,
    Categorical,
    DiagonalGaussian,
    SquashedGaussian,
    gaussian_log_prob,
    tanh_gaussian_log_prob,
)
from metaroll.policies.scaling import ActionScaling
from metaroll.types import EnvSpec

__all__ = [
    "LOG_STD_MAX",
    "LOG_STD_MIN",
    "CategoricalHead",
    "DeterministicHead",
    "GaussianHead",
    "GreedyHead",
    "Head",
    "LateInfos",
    "SquashedHead",
    "check_box",
    "check_discrete",
]

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0

_FEW = 16
"""Number of actions up to which a loop over them finds the likeliest faster."""

Infos = Mapping[str, Any]
"""Name -> ``(N, ...)``."""


class LateInfos(Mapping[str, np.ndarray]):
    """Infos that are computed on first access.

    Args:
        make: Computes them, name -> ``(N, ...)``.
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

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def __reduce__(self) -> tuple[type[dict[str, np.ndarray]], tuple[dict[str, np.ndarray]]]:
        return dict, (self._made,)


class Head(ABC):
    """Maps the outputs of a policy's body to actions.

    Attributes:
        width: Number of outputs of the body, per row.
        num_parts: Number of equal parts of the outputs; with several, ``outputs`` are a sequence of these.
        noise_dim: Random numbers per row.
        noise_kind: Their distribution, see ``PolicyInfo``.
        own: Name of the head's own parameter in the policy; ``None``: there is none.
        acts_in_bounds: Whether actions are always within the bounds of the space.
        has_distribution: Whether ``distribution`` is implemented.
        has_entropy: Whether that distribution has an entropy.
    """

    width: int
    num_parts: ClassVar[int] = 1
    noise_kind: ClassVar[Literal["normal", "uniform"]] = "normal"
    own: ClassVar[str | None] = None
    acts_in_bounds: ClassVar[bool] = False
    has_distribution: ClassVar[bool] = False
    has_entropy: ClassVar[bool] = False

    @property
    def noise_dim(self) -> int:
        """See ``PolicyInfo``; 0 by default."""
        return 0

    def prepared(self, own: Any, xp: Any) -> Any:
        """Preprocessing of the own parameter ``(A,)`` or ``(N, A)`` for ``choose``, cached while it is unchanged."""
        return None

    @abstractmethod
    def choose(self, outputs: Any, noise: Any, deterministic: Any, own: Any, xp: Any) -> tuple[Any, Infos]:
        """Actions ``(N, ...)`` and infos ``(N, ...)``.

        Args:
            outputs: Outputs of the body, ``(N, width)``, or ``num_parts`` of ``(N, width / num_parts)``.
            noise: Random numbers ``(N, noise_dim)``, float32.
            deterministic: Whether rows act without noise: one flag, or one per row ``(N,)``.
            own: The result of ``prepared``.
            xp: Array namespace.
        """

    def parts_of(self, outputs: torch.Tensor) -> Any:
        """``outputs (..., width)`` in ``num_parts`` parts."""
        return outputs if self.num_parts == 1 else outputs.chunk(self.num_parts, dim=-1)

    def distribution(self, outputs: Any, own: torch.Tensor | None) -> ActionDistribution:
        """The distribution of actions ``(...)``.

        Args:
            outputs: ``(..., width)``, in parts.
            own: The own parameter, which broadcasts to an output.
        """
        raise TypeError(f"{type(self).__name__} has no distribution")


def _chosen(sampled: Any, mean: Any, deterministic: Any, xp: Any) -> Any:
    """Rows of ``mean`` where ``deterministic``, else of ``sampled``."""
    if isinstance(deterministic, bool):
        return mean if deterministic else sampled
    return xp.where(xp.asarray(deterministic).reshape(-1, *([1] * (sampled.ndim - 1))), mean, sampled)


def _own_memory(values: Any, xp: Any) -> Any:
    """A copy of a NumPy array; tensors unchanged."""
    return values.copy() if xp is np else values


def _of_shape(values: Any, like: Any, xp: Any) -> Any:
    """Values expanded to the shape of ``like``; new memory for NumPy."""
    if xp is not np:
        return values.expand_as(like)
    full = np.empty_like(like)
    full[...] = values
    return full


@final
@dataclass(frozen=True)
class GaussianHead(Head):
    """A diagonal Gaussian with the outputs as mean; ``log_std (A,)`` is a parameter, with a lower bound.

    Infos are ``mean`` and ``log_std``.
    """

    width: int
    min_log_std: float
    own = "log_std"
    has_distribution = has_entropy = True

    @classmethod
    def of(cls, env_spec: EnvSpec, policy: str, init_std: float, min_std: float) -> Self:
        """For the actions of ``env_spec``, a Box; ``policy`` is the name for the error."""
        check_box(env_spec, policy)
        init_std, min_std = plain_number("init_std", init_std), plain_number("min_std", min_std)
        if not 0.0 < min_std <= init_std:
            raise ValueError(f"min_std and init_std must satisfy 0 < min_std <= init_std, got {min_std}, {init_std}")
        return cls(env_spec.act_dim, math.log(min_std))

    @property
    def noise_dim(self) -> int:
        return self.width

    def prepared(self, own: Any, xp: Any) -> tuple[Any, Any]:
        """The bounded ``log_std``, and its exponential."""
        log_std = np.maximum(own, self.min_log_std) if xp is np else own.clamp(min=self.min_log_std)
        return log_std, xp.exp(log_std)

    def choose(self, outputs: Any, noise: Any, deterministic: Any, own: Any, xp: Any) -> tuple[Any, Infos]:
        log_std, std = own
        infos = {"mean": outputs, "log_std": _of_shape(log_std, outputs, xp)}
        if deterministic is True:
            return _own_memory(outputs, xp), infos
        return _chosen(std * noise + outputs, outputs, deterministic, xp), infos

    def moments(self, outputs: torch.Tensor, own: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean, and the logarithm of the standard deviation."""
        return outputs, own.clamp(min=self.min_log_std)

    def distribution(self, outputs: Any, own: Any) -> DiagonalGaussian:
        return DiagonalGaussian(*self.moments(outputs, own))

    def drawn(
        self, normal: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(..., A)`` of numbers from the Gaussian, and their log-densities ``(...)``."""
        return normal, gaussian_log_prob(normal, mean, log_std)


@final
@dataclass(frozen=True)
class SquashedHead(Head):
    """``tanh`` of a diagonal Gaussian, scaled to the bounds of the space; mean and log_std are halves of the outputs.

    Infos are ``mean``, the deterministic action, and ``log_std`` before tanh.

    Attributes:
        log_std_bounds: Bounds that ``log_std`` is clamped to.
        scaling: From [-1, 1] to the bounds of the space; ``None``: none.
    """

    width: int
    log_std_bounds: tuple[float, float]
    scaling: ActionScaling | None
    num_parts = 2
    acts_in_bounds = True
    has_distribution = True

    @classmethod
    def of(cls, env_spec: EnvSpec, policy: str, log_std_bounds: tuple[float, float]) -> Self:
        """For the actions of ``env_spec``, a Box; ``policy`` is the name for the error."""
        check_box(env_spec, policy)
        low, high = log_std_bounds
        if not low < high:
            raise ValueError(f"log_std_bounds must be (low, high) with low < high, got {log_std_bounds}")
        scaling = ActionScaling.of_squashed(env_spec.action_space)
        return cls(2 * env_spec.act_dim, (float(low), float(high)), scaling)

    @property
    def noise_dim(self) -> int:
        return self.width // 2

    def choose(self, outputs: Any, noise: Any, deterministic: Any, own: Any, xp: Any) -> tuple[Any, Infos]:
        pre_mean, unbounded = outputs
        if xp is np:  # numpy.clip, or bounds as Python numbers, would take three times as long
            low, high = self._limits
            log_std = np.minimum(np.maximum(unbounded, low), high)
        else:
            log_std = unbounded.clamp(*self.log_std_bounds)
        mean = self._squashed(pre_mean, xp)
        infos = {"mean": mean, "log_std": log_std}
        if deterministic is True:
            return _own_memory(mean, xp), infos
        sampled = self._squashed(xp.exp(log_std) * noise + pre_mean, xp)
        return _chosen(sampled, mean, deterministic, xp), infos

    @cached_property
    def _limits(self) -> tuple[np.ndarray, np.ndarray]:
        """``log_std_bounds`` as arrays ``()``."""
        low, high = (np.array(bound, dtype=np.float32) for bound in self.log_std_bounds)
        return low, high

    def _squashed(self, pre_tanh: Any, xp: Any) -> Any:
        action = xp.tanh(pre_tanh)
        return action if self.scaling is None else self.scaling.scaled(action, xp)

    def moments(self, outputs: Any, own: None) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log standard deviation of the Gaussian before tanh."""
        mean, log_std = outputs
        return mean, log_std.clamp(*self.log_std_bounds)

    def distribution(self, outputs: Any, own: Any) -> SquashedGaussian:
        mean, log_std = self.moments(outputs, own)
        if self.scaling is None:
            return SquashedGaussian(mean, log_std, mean.new_zeros(mean.shape[-1]), mean.new_ones(mean.shape[-1]))
        return SquashedGaussian(mean, log_std, *self._center_and_half_range(self.scaling, mean))

    def drawn(
        self, normal: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(..., A)`` of numbers from the Gaussian, and their log-densities ``(...)``."""
        log_prob, action = tanh_gaussian_log_prob(normal, mean, log_std), torch.tanh(normal)
        if self.scaling is None:
            return action, log_prob
        center, half_range = self._center_and_half_range(self.scaling, action)
        return center + half_range * action, log_prob - half_range.log().sum()

    @staticmethod
    def _center_and_half_range(scaling: ActionScaling, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Center and half range of the interval that [-1, 1] is mapped to, ``(A,)``, as tensors like ``like``."""
        center, half_range = (torch.as_tensor(part).to(like) for part in (scaling.center, scaling.half_range))
        return center, half_range


@final
@dataclass(frozen=True)
class DeterministicHead(Head):
    """The outputs, in [-1, 1], scaled to the bounds of the space; there are no infos.

    Attributes:
        scaling: From [-1, 1] to the bounds of the space; ``None``: none.
    """

    width: int
    scaling: ActionScaling | None
    acts_in_bounds = True

    @classmethod
    def of(cls, env_spec: EnvSpec, policy: str) -> Self:
        """For the actions of ``env_spec``, a Box; ``policy`` is the name for the error."""
        check_box(env_spec, policy)
        return cls(env_spec.act_dim, ActionScaling.of_squashed(env_spec.action_space))

    def choose(self, outputs: Any, noise: Any, deterministic: Any, own: Any, xp: Any) -> tuple[Any, Infos]:
        return outputs if self.scaling is None else self.scaling.scaled(outputs, xp), {}


@final
@dataclass(frozen=True)
class GreedyHead(Head):
    """The action with the highest value, or, after a first output, the highest advantage; there are no infos."""

    width: int
    dueling: bool
    noise_kind = "uniform"

    def choose(self, outputs: Any, noise: Any, deterministic: Any, own: Any, xp: Any) -> tuple[Any, Infos]:
        return outputs[:, int(self.dueling) :].argmax(axis=1), {}


@final
@dataclass(frozen=True)
class CategoricalHead(Head):
    """One choice or several, each with its own part of the outputs (the logits). The info is ``prob``.

    Noise is one uniform number per row and choice, mapped to the choice by the inverse distribution function; without
    noise the likeliest action is chosen.

    Attributes:
        sizes: Number of possible actions of each choice.
        shape: Shape of one action; ``()`` where it is one integer.
    """

    width: int
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    noise_kind = "uniform"
    has_distribution = has_entropy = True

    @classmethod
    def of(cls, env_spec: EnvSpec, policy: str, instead: str) -> Self:
        """For the actions of ``env_spec``, which are Discrete or MultiDiscrete.

        Args:
            env_spec: Spaces.
            policy: Name of the policy, for the error message.
            instead: Name of the policy for a Box.
        """
        space = env_spec.action_space
        if not isinstance(space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
            raise TypeError(
                f"{policy} needs a Discrete or MultiDiscrete action space, got {space}; {_advice(space, instead)}"
            )
        several = isinstance(space, gymnasium.spaces.MultiDiscrete)
        sizes = [int(n) for n in space.nvec.reshape(-1)] if several else [int(space.n)]
        return cls(sum(sizes), tuple(sizes), tuple(space.shape or ()))

    @property
    def noise_dim(self) -> int:
        return len(self.sizes)

    def choose(self, outputs: Any, noise: Any, deterministic: Any, own: Any, xp: Any) -> tuple[Any, Infos]:
        parts = [_columns(outputs[:, part], xp) for part in self._parts]
        mean = None if deterministic is False else self._joined([_likeliest(columns, xp) for columns in parts], xp)
        if deterministic is True:
            return mean, LateInfos(lambda: {"prob": xp.concat([_probabilities(part, xp)[0] for part in parts], axis=1)})
        drawn = [_drawn(columns, noise[:, i], xp) for i, columns in enumerate(parts)]
        sampled = self._joined([chosen for chosen, _ in drawn], xp)
        prob = drawn[0][1] if len(drawn) == 1 else xp.concat([prob for _, prob in drawn], axis=1)
        return _chosen(sampled, mean, deterministic, xp), {"prob": prob}

    @cached_property
    def _parts(self) -> list[slice]:
        """Slices of the logits of each choice."""
        edges = itertools.pairwise(itertools.accumulate(self.sizes, initial=0))
        return [slice(first, end) for first, end in edges]

    def _joined(self, chosen: Sequence[Any], xp: Any) -> Any:
        """Actions ``(N,)``, or ``(N, *shape)``, of one choice ``(N,)`` or several."""
        if len(chosen) == 1 and not self.shape:
            return chosen[0]
        return xp.stack(chosen, axis=1).reshape(len(chosen[0]), *self.shape)

    def log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities ``(..., width)`` of logits of this shape; concatenated for several choices."""
        return torch.cat([torch.log_softmax(part, dim=-1) for part in logits.split(self.sizes, dim=-1)], dim=-1)

    def distribution(self, outputs: Any, own: Any) -> Categorical:
        return Categorical(self.log_probs(outputs), self.sizes, self.shape)


def _columns(logits: Any, xp: Any) -> Any:
    """Logits ``(N, n)`` as ``(n, N)``: in NumPy a loop over a few columns takes a tenth of the time of short rows."""
    return np.ascontiguousarray(logits.T) if xp is np else logits.T


def _probabilities(columns: Any, xp: Any) -> tuple[Any, Any]:
    """Probabilities ``(N, n)`` of logits ``(n, N)``, and running sums ``(n, N)`` of unnormalized ones."""
    weight = xp.exp(columns - xp.max(columns, axis=0))
    below = _running_sums(weight, xp)
    return (weight / below[-1]).T, below


def _drawn(columns: Any, noise: Any, xp: Any) -> tuple[Any, Any]:
    """Choices ``(N,)`` from uniform numbers ``(N,)``, and probabilities ``(N, n)``, of logits ``(n, N)``."""
    prob, below = _probabilities(columns, xp)
    total = below[-1]
    # Rounding may raise the threshold to the total: then take the last action with a positive probability.
    return xp.minimum((below <= noise * total).sum(axis=0), (below < total).sum(axis=0)), prob


def _running_sums(columns: Any, xp: Any) -> Any:
    """Cumulative sums of columns ``(n, N)`` in a fixed order; that of a device's own cumsum is undefined."""
    return columns.cumsum(axis=0) if xp is np else xp.stack(list(itertools.accumulate(columns.unbind(0))), axis=0)


def _likeliest(columns: Any, xp: Any) -> Any:
    """Index of the first maximum of each row, ``(N,)``, of columns ``(n, N)``."""
    if xp is not np or len(columns) > _FEW:
        return columns.argmax(axis=0)
    best = columns[0]
    index = np.zeros(len(best), dtype=np.int64)
    for k in range(1, len(columns)):
        best = best if k == 1 else np.maximum(best, columns[k - 1])
        better = columns[k] > best
        index = better.astype(np.int64) if k == 1 else np.where(better, k, index)
    return index


def check_box(env_spec: EnvSpec, policy: str) -> None:
    """Raise unless actions are a Box.

    Raises:
        TypeError: They are not.
    """
    if not isinstance(env_spec.action_space, gymnasium.spaces.Box):
        raise TypeError(f"{policy} needs a Box action space, got {env_spec.action_space}; see CategoricalMLPPolicy")


def check_discrete(env_spec: EnvSpec, policy: str) -> int:
    """Number of actions.

    Raises:
        TypeError: Actions are not Discrete.
    """
    space = env_spec.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise TypeError(f"{policy} needs a Discrete action space, got {space}")
    return int(space.n)


def _advice(space: gymnasium.Space, instead: str) -> str:
    """Hint for an environment whose actions are not choices."""
    if isinstance(space, gymnasium.spaces.Box):
        return f"see {instead}"
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return f"declare MultiDiscrete(np.full({space.shape}, 2)) as action_space, which also has actions 0 and 1"
    return "declare one of these as action_space, or a Box, and split actions in step()"
