"""What an error and an action cost, as pure functions of columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants

__all__ = ["AbsErr", "ExpQuadrErr", "QuadrErr", "RewardFunction", "ScaledExpQuadrErr"]


@dataclass(frozen=True)
class RewardFunction(ABC):
    """Reward of an error (wanted minus present state) and an action. Immutable.

    Args:
        state_weights: One weight per entry of the state, at least 0 (the diagonal of Q, or q).
        action_weights: One weight per entry of the action, at least 0 (the diagonal of R, or r).
    """

    state_weights: tuple[float, ...]
    action_weights: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("state_weights", "action_weights"):
            object.__setattr__(self, name, _checked_weights(name, getattr(self, name)))

    def scales(self, state_bounds: tuple[Columns, Columns], action_bounds: tuple[Columns, Columns], xp: Any) -> dict:
        """Columns that the reward needs and that hold for an episode: name -> column."""
        return {}

    @abstractmethod
    def __call__(self, error: Columns, action: Columns, scales: Constants, xp: Any) -> Column:
        """The reward."""


class QuadrErr(RewardFunction):
    """``-(e' Q e + a' R a)``."""

    def __call__(self, error: Columns, action: Columns, scales: Constants, xp: Any) -> Column:
        return -_quadratic(self, error, action)


class ExpQuadrErr(RewardFunction):
    """``exp(-(e' Q e + a' R a))``, in (0, 1]."""

    def __call__(self, error: Columns, action: Columns, scales: Constants, xp: Any) -> Column:
        return xp.exp(-_quadratic(self, error, action))


@dataclass(frozen=True)
class ScaledExpQuadrErr(RewardFunction):
    """``exp(-c (e' Q e + a' R a))``, with c such that the reward is ``min_reward`` where |e| and |a| are largest.

    The largest are those of the bounds of state and action, which may depend on domain parameters.

    Args:
        state_weights: The diagonal of Q.
        action_weights: The diagonal of R.
        min_reward: Between 0 and 1.
    """

    min_reward: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any((*self.state_weights, *self.action_weights)):
            raise ValueError("state_weights and action_weights must not all be 0: there is nothing to scale")
        if not 0.0 < self.min_reward < 1.0:
            raise ValueError(f"min_reward must lie in (0, 1), got {self.min_reward}")

    def scales(self, state_bounds: tuple[Columns, Columns], action_bounds: tuple[Columns, Columns], xp: Any) -> dict:
        most = _quadratic(self, _largest(state_bounds, xp), _largest(action_bounds, xp))
        return {"reward_scale": -math.log(self.min_reward) / most}

    def __call__(self, error: Columns, action: Columns, scales: Constants, xp: Any) -> Column:
        return xp.exp(-scales["reward_scale"] * _quadratic(self, error, action))


class AbsErr(RewardFunction):
    """``-(q . |e| + r . |a|)``."""

    def __call__(self, error: Columns, action: Columns, scales: Constants, xp: Any) -> Column:
        weights = (*self.state_weights, *self.action_weights)
        columns = (*error, *action)
        return -_total((w * abs(c) for w, c in zip(weights, columns, strict=True) if w), columns[0])


def _quadratic(weights: RewardFunction, error: Columns, action: Columns) -> Column:
    columns = (*error, *action)
    pairs = zip((*weights.state_weights, *weights.action_weights), columns, strict=True)
    return _total((weight * (column * column) for weight, column in pairs if weight), columns[0])


def _total(terms: Iterable[Column], like: Column) -> Column:
    """The sum of ``terms``; zeros like a column where there are none."""
    total = None
    for term in terms:
        total = term if total is None else total + term
    return 0.0 * like if total is None else total


def _largest(bounds: tuple[Columns, Columns], xp: Any) -> Columns:
    """The larger of |low| and |high| of each entry, without ``maximum``, which numbers and columns do not share."""
    pairs = ((abs(low), abs(high)) for low, high in zip(*bounds, strict=True))
    return tuple(0.5 * (low + high + abs(low - high)) for low, high in pairs)


def _checked_weights(name: str, weights: Sequence[float]) -> tuple[float, ...]:
    checked = tuple(float(weight) for weight in weights)
    if not all(math.isfinite(weight) and weight >= 0.0 for weight in checked):
        raise ValueError(f"{name} must be finite numbers of at least 0, got {checked}")
    return checked
