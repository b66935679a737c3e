"""Tasks of simulators: reward, success, failure and final reward, on columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.checks import array_of, check_instance, described
from metaroll.envs.sims.model import Column, Columns, Constants, SimModel
from metaroll.errors import ShapeError

__all__ = [
    "AbsErr",
    "DesStateTask",
    "ExpQuadrErr",
    "FinalRewTask",
    "LowestHeightTask",
    "NoTask",
    "QuadrErr",
    "RadiallySymmDesStateTask",
    "RewardFunction",
    "ScaledExpQuadrErr",
    "SimTask",
    "outside",
]

_TWO_PI = 2.0 * math.pi


# -- what errors and actions cost -----------------------------------------------------------------------------------


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    """``value`` as plain numbers, if it is a list of them."""
    expected = "a list of numbers"
    array = array_of(name, value, expected)
    if array.ndim != 1:
        raise TypeError(f"{name} must be {expected}, got {described(value)}")
    return tuple(array.astype(np.float64).tolist())


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
            weights = _numbers(name, getattr(self, name))
            if not all(math.isfinite(weight) and weight >= 0.0 for weight in weights):
                raise ValueError(f"{name} must be finite numbers of at least 0, got {weights}")
            object.__setattr__(self, name, weights)

    def scales(
        self, state_bounds: tuple[Columns, Columns], action_bounds: tuple[Columns, Columns], xp: Any
    ) -> dict[str, Column]:
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

    def scales(
        self, state_bounds: tuple[Columns, Columns], action_bounds: tuple[Columns, Columns], xp: Any
    ) -> dict[str, Column]:
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
    """The sum of ``terms``; zeros like a column if there are none."""
    total = None
    for term in terms:
        total = term if total is None else total + term
    return 0.0 * like if total is None else total


def _largest(bounds: tuple[Columns, Columns], xp: Any) -> Columns:
    """The larger of |low| and |high| of each entry, without ``maximum``, which numbers and columns do not share."""
    pairs = ((abs(low), abs(high)) for low, high in zip(*bounds, strict=True))
    return tuple(0.5 * (low + high + abs(low - high)) for low, high in pairs)


# -- tasks ------------------------------------------------------------------------------------------------------------


def outside(state: Columns, bounds: tuple[Columns, Columns]) -> Column:
    """Whether some entry of ``state`` lies outside its bounds: the rollout has failed. NaN does not count."""
    failed = None
    for value, low, high in zip(state, *bounds, strict=True):
        # One comparison if the bounds are symmetric, the usual case.
        symmetric = low.__class__ is float and high.__class__ is float and low == -high
        beyond = abs(value) > high if symmetric else (value < low) | (value > high)
        failed = beyond if failed is None else failed | beyond
    return failed


class SimTask(ABC):
    """Rewards of transitions. Immutable and stateless, so that one task serves any number of simulations.

    Attributes:
        gives_final_reward: Whether ``final_reward`` is to be asked when an episode ends.
        needs_horizon: Whether rewards depend on the number of remaining steps, which has to be finite.
    """

    gives_final_reward: bool = False

    @property
    def needs_horizon(self) -> bool:
        """See the class."""
        return False

    def check(self, model: SimModel) -> None:  # noqa: B027 (most fit all)
        """Raise a ShapeError or ValueError unless the task is one for ``model``."""

    def scales(
        self, state_bounds: tuple[Columns, Columns], action_bounds: tuple[Columns, Columns], xp: Any
    ) -> dict[str, Column]:
        """Columns that the reward needs and that hold for an episode: name -> column."""
        return {}

    @abstractmethod
    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        """Reward of a step.

        Args:
            state: Before the step.
            action: The action before it is clipped to its bounds.
            following: State after the step.
            remaining: Steps left after this one.
            scales: Result of ``scales``.
            xp: Array namespace.
        """

    def has_succeeded(self, state: Columns, xp: Any) -> Column | None:
        """Whether ``state`` ends the episode with success; ``None`` for a task that never does."""
        return None

    def final_reward(
        self,
        state: Columns,
        idle: Columns,
        remaining: Column,
        failed: Column,
        succeeded: Column | None,
        scales: Constants,
        xp: Any,
    ) -> Column:
        """Added once to the reward of the step that ends an episode in ``state``, at the horizon too.

        Args:
            state: The last state.
            idle: An action of zeros.
            remaining: Steps that were left.
            failed: Whether ``state`` lies outside its bounds.
            succeeded: Result of ``has_succeeded``.
            scales: Result of ``scales``.
            xp: Array namespace.
        """
        return 0.0


@dataclass(frozen=True)
class _DesiredState(SimTask, ABC):
    """A desired state: the reward is a function of how far it is, and of the action.

    Args:
        state_des: Desired state, one number per entry.
        reward: Costs of errors and actions.
    """

    state_des: tuple[float, ...]
    reward: RewardFunction

    def __post_init__(self) -> None:
        desired = _numbers("state_des", self.state_des)
        check_instance("reward", self.reward, RewardFunction, "a RewardFunction such as QuadrErr")
        if not all(math.isfinite(value) for value in desired):
            raise ValueError(f"state_des must be finite, got {desired}")
        if len(desired) != len(self.reward.state_weights):
            raise ShapeError(
                f"state_des must have one entry per state weight ({len(self.reward.state_weights)}), got {desired}"
            )
        object.__setattr__(self, "state_des", desired)

    def check(self, model: SimModel) -> None:
        for what, values, labels in (
            ("state_des", self.state_des, model.state_labels),
            ("action_weights", self.reward.action_weights, model.action_labels),
        ):
            if len(values) != len(labels):
                raise ShapeError(
                    f"{what} must have one entry for each of {', '.join(labels)} of the {model.name}, got {values}"
                )
        constants = model.constants({name: np.array([value]) for name, value in model.nominal.items()}, np)
        with np.errstate(all="ignore"):
            scales = self.scales(model.state_bounds(constants), model.action_bounds(constants), np)
        if not all(np.isfinite(value).all() and np.all(value) for value in scales.values()):
            raise ValueError(
                f"{type(self.reward).__name__} needs bounded states and actions where it has weights, which the "
                f"{model.name} lacks"
            )

    def scales(
        self, state_bounds: tuple[Columns, Columns], action_bounds: tuple[Columns, Columns], xp: Any
    ) -> dict[str, Column]:
        return self.reward.scales(state_bounds, action_bounds, xp)

    @abstractmethod
    def error(self, state: Columns, xp: Any) -> Columns:
        """Distance of the desired state from the current one."""

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        return self.reward(self.error(state, xp), action, scales, xp)


class DesStateTask(_DesiredState):
    """Be in a desired state: the reward is a function of desired minus present state, and of the action.

    Args:
        state_des: Desired state, one number per entry.
        reward: Costs of errors and actions.
    """

    def error(self, state: Columns, xp: Any) -> Columns:
        """Desired minus present state."""
        return tuple(desired - value for desired, value in zip(self.state_des, state, strict=True))


@dataclass(frozen=True)
class RadiallySymmDesStateTask(_DesiredState):
    """Be in a desired state, where some entries are angles: their errors are taken the short way round, from -pi to pi.

    Args:
        state_des: Desired state.
        reward: Costs of errors and actions.
        idcs: Which entries of the state are angles in rad; all others (velocities, too) are left unchanged.
    """

    idcs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        idcs = tuple(int(index) for index in self.idcs)
        if len(set(idcs)) != len(idcs) or not all(0 <= index < len(self.state_des) for index in idcs):
            raise ValueError(f"idcs must be different indices from 0 to {len(self.state_des) - 1}, got {self.idcs}")
        object.__setattr__(self, "idcs", idcs)

    def error(self, state: Columns, xp: Any) -> Columns:
        """Desired minus present state, angles the short way round."""
        error = [desired - value for desired, value in zip(self.state_des, state, strict=True)]
        for index in self.idcs:
            turns = xp.floor((error[index] + math.pi) * (1.0 / _TWO_PI))
            error[index] = error[index] - _TWO_PI * turns
        return tuple(error)


@dataclass(frozen=True)
class FinalRewTask(SimTask):
    """Another task with a final reward: minus ``factor`` on failure, plus ``factor`` on success.

    Args:
        task: The task.
        factor: Size of the final reward, at least 0.
        always_negative: Success earns nothing; only failure costs.
        state_dependent: Times the absolute step reward in the last state without an action.
        time_dependent: The number of remaining steps replaces ``factor``.
    """

    task: SimTask
    factor: float = 1000.0
    always_negative: bool = False
    state_dependent: bool = False
    time_dependent: bool = False
    gives_final_reward = True

    def __post_init__(self) -> None:
        if not isinstance(self.task, SimTask):
            raise TypeError(f"task must be a SimTask, got {type(self.task).__name__}")
        if not (math.isfinite(self.factor) and self.factor >= 0.0):
            raise ValueError(f"factor must be a finite number of at least 0, got {self.factor}")

    @property
    def needs_horizon(self) -> bool:
        return self.time_dependent or self.task.needs_horizon

    def check(self, model: SimModel) -> None:
        self.task.check(model)

    def scales(
        self, state_bounds: tuple[Columns, Columns], action_bounds: tuple[Columns, Columns], xp: Any
    ) -> dict[str, Column]:
        return self.task.scales(state_bounds, action_bounds, xp)

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        return self.task.step_reward(state, action, following, remaining, scales, xp)

    def has_succeeded(self, state: Columns, xp: Any) -> Column | None:
        return self.task.has_succeeded(state, xp)

    def final_reward(
        self,
        state: Columns,
        idle: Columns,
        remaining: Column,
        failed: Column,
        succeeded: Column | None,
        scales: Constants,
        xp: Any,
    ) -> Column:
        size = remaining if self.time_dependent else self.factor
        if self.state_dependent:
            size = size * abs(self.task.step_reward(state, idle, state, remaining, scales, xp))
        reward = xp.where(failed, -size, 0.0)
        if succeeded is None or self.always_negative:
            return reward
        return reward + xp.where(succeeded, size, 0.0)


@dataclass(frozen=True)
class LowestHeightTask(SimTask):
    """The reward is minus the absolute height that the step leads to, the first entry of the state."""

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        """See ``SimTask.step_reward``."""
        return -abs(following[0])

    def has_succeeded(self, state: Columns, xp: Any) -> Column:
        """Always: nothing more is to be done."""
        return state[0] == state[0]


@dataclass(frozen=True)
class NoTask(SimTask):
    """Every reward is 0."""

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        """See ``SimTask.step_reward``."""
        return 0.0 * state[0]

    def has_succeeded(self, state: Columns, xp: Any) -> Column:
        """Always: nothing more is to be done."""
        return state[0] == state[0]
