"""What an episode of a simulator is set up with: model, task, time, domain parameters, initial states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.checks import check_number, check_whole, plain_number
from metaroll.envs.sims.model import Columns, SimModel
from metaroll.envs.sims.tasks import SimTask
from metaroll.errors import DataError, ShapeError, unknown_name
from metaroll.types import EnvSpec

__all__ = ["InitialStates", "SimConfig", "check_order", "check_params", "checked_init"]


@dataclass(frozen=True, eq=False)
class InitialStates:
    """A distribution of initial states; elements are states ``(S,)``, or coordinates ``(D,)`` that stand for them.

    Attributes:
        low: Lowest entries of a box ``(D,)``, or ``None``.
        high: Highest entries of it.
        choices: States to choose from with equal chances, ``(K, D)``, or ``None``. With neither, the model draws.
        single: Whether ``choices`` was given as one state.
    """

    low: np.ndarray | None = None
    high: np.ndarray | None = None
    choices: np.ndarray | None = None
    single: bool = False

    @classmethod
    def of(cls, init_space: Any, model: SimModel) -> InitialStates:
        """From a finite ``Box``, a state ``(D,)``, a list of states ``(K, D)``, or ``None`` (the model's own).

        Raises:
            ShapeError: Elements are neither states nor coordinates of initial states.
            ValueError: Infinite bounds, NaN, or no state at all.
        """
        if init_space is None or isinstance(init_space, cls):
            return cls() if init_space is None else init_space
        if isinstance(init_space, Box):
            low = checked_init(model, init_space.low, "init_space.low", finite=False)
            high = checked_init(model, init_space.high, "init_space.high", finite=False)
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                raise ValueError(
                    f"init_space must be bounded, since initial states are drawn from it, got {init_space}"
                )
            return cls(low, high)
        try:
            array = np.array(init_space, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"init_space must be a Box, a state, a list of states of one length, or None, got {init_space!r}"
            ) from error
        rows = np.atleast_2d(array)
        if array.size == 0:
            raise ValueError("init_space must hold at least one state, got none")
        choices = np.stack([checked_init(model, row, "init_space") for row in rows])
        return cls(choices=choices, single=array.ndim == 1)

    @property
    def is_own(self) -> bool:
        """Whether the model draws."""
        return self.low is None and self.choices is None

    @property
    def num_uniforms(self) -> int | None:
        """Random numbers that an element takes; ``None``: the model draws."""
        if self.choices is not None:
            return int(len(self.choices) > 1)
        return None if self.low is None else len(self.low)

    def elements(self, uniforms: Columns, like: Any, xp: Any) -> Columns:
        """Elements as D columns, from columns of numbers in [0, 1).

        Args:
            uniforms: ``num_uniforms`` columns.
            like: A column, for number of rows, type and device.
            xp: Array namespace.
        """
        if self.choices is not None:
            if len(self.choices) == 1:
                return tuple(xp.zeros_like(like) + value for value in self.choices[0].tolist())
            chosen = xp.floor(uniforms[0] * len(self.choices))
            columns = [xp.zeros_like(like) for _ in self.choices[0]]
            for i, state in enumerate(self.choices.tolist()):
                columns = [xp.where(chosen == i, value, c) for value, c in zip(state, columns, strict=True)]
            return tuple(columns)
        if self.low is None or self.high is None:
            raise RuntimeError("the model draws its initial states itself")
        box = zip(self.low.tolist(), self.high.tolist(), uniforms, strict=True)
        return tuple(low + (high - low) * u for low, high, u in box)

    def shown(self) -> Any:
        """What it was made of (a copy); ``None`` for the model's own."""
        if self.choices is not None:
            return self.choices[0].copy() if self.single else list(self.choices.copy())
        if self.low is None or self.high is None:
            return None
        return Box(self.low, self.high, dtype=np.float64)


def checked_init(model: SimModel, value: Any, name: str = "init_state", *, finite: bool = True) -> np.ndarray:
    """An initial state, or coordinates of one, in memory of its own."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must hold numbers, got {value!r}") from error
    if array.shape != (len(model.state_labels),):
        wanted = sorted({len(model.state_labels), _num_coordinates(model)}, reverse=True)
        if array.ndim != 1 or array.size not in wanted:
            shapes = " or ".join(f"({size},)" for size in wanted)
            labels = ", ".join(model.state_labels)
            raise ShapeError(f"{name} of the {model.name} must have shape {shapes} ({labels}), got {array.shape}")
    if finite and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array}")
    return array


def check_params(model: SimModel, params: Mapping[str, Any]) -> dict[str, float]:
    """``params`` as plain numbers.

    Raises:
        DataError: A name (a ``KeyError``, too) that the model does not know; the message lists the nearest ones.
        TypeError: Not a number.
        ValueError: Not finite, or outside the range of the parameter.
    """
    if not isinstance(params, Mapping):
        raise TypeError(f"domain_param must be a dict of names and numbers, got {type(params).__name__}")
    return {name: _checked_param(model, name, value) for name, value in params.items()}


def check_order(model: SimModel, params: Mapping[str, Any]) -> None:
    """Error if one of two domain parameters that are the ends of a range lies on the wrong side of the other.

    Args:
        model: Knows the pairs.
        params: All domain parameters: numbers, or columns ``(N,)``.
    """
    for low, high in model.ordered:
        wrong = params[low] > params[high]
        if wrong if isinstance(wrong, bool) else bool(wrong.any()):
            raise ValueError(
                f"domain parameter {low!r} of the {model.name} must not be above {high!r}, got {params[low]} and "
                f"{params[high]}"
            )


def _checked_param(model: SimModel, name: str, value: Any) -> float:
    if name not in model.nominal:
        raise DataError(str(unknown_name(f"domain parameter of the {model.name}", str(name), model.nominal)))
    if type(value) is not float:  # randomizers deliver arrays and tensors of one entry
        value = plain_number(f"domain parameter {name!r}", value)
    low, high = model.ranges.get(name, (-math.inf, math.inf))
    if not math.isfinite(value):
        raise ValueError(f"domain parameter {name!r} must be finite, got {value}")
    if value < low or value > high or (low == 0.0 and value == 0.0):
        wanted = "positive" if (low, high) == (0.0, math.inf) else _interval(low, high)
        raise ValueError(f"domain parameter {name!r} of the {model.name} must {_be(wanted)}, got {value}")
    return value


def _be(wanted: str) -> str:
    return f"be {wanted}" if wanted == "positive" else f"lie in {wanted}"


def _interval(low: float, high: float) -> str:
    shown = 0.0 if low == -math.ulp(0.0) else low  # the smallest number below 0 lets 0 in
    return f"{'(' if low == 0.0 else '['}{shown:g}, {high:g}{')' if math.isinf(high) else ']'}"


@dataclass(frozen=True)
class SimConfig:
    """All that an environment can be configured with. Immutable: a change makes another one, or raises.

    Attributes:
        model: The physics.
        task: Rewards.
        dt: Length of a step in s.
        max_steps: Steps of an episode, or infinity.
        params: All domain parameters.
        initial: Where episodes start.
    """

    model: SimModel
    task: SimTask
    dt: float
    max_steps: float
    params: Mapping[str, float]
    initial: InitialStates

    def __post_init__(self) -> None:
        if self.task.needs_horizon and math.isinf(self.max_steps):
            raise ValueError(
                "max_steps must be finite for a task whose final reward counts the remaining steps, got inf; "
                "set a task without FinalRewTask(..., time_dependent=True) first"
            )

    @classmethod
    def of(
        cls, model: SimModel, task: SimTask, *, dt: float | None = None, max_steps: float | None = None
    ) -> SimConfig:
        """The model's own values where none are given."""
        task.check(model)
        return cls(
            model,
            task,
            check_number("dt", model.dt if dt is None else dt, 0.0, above_low=True),
            _checked_max_steps(model.max_steps if max_steps is None else max_steps),
            dict(model.nominal),
            InitialStates(),
        )

    def with_params(self, params: Mapping[str, Any]) -> SimConfig:
        """With other values of the named domain parameters."""
        changed = {**self.params, **check_params(self.model, params)}
        check_order(self.model, changed)
        return replace(self, params=changed)

    def with_max_steps(self, max_steps: float) -> SimConfig:
        """With another horizon."""
        return replace(self, max_steps=_checked_max_steps(max_steps))

    def with_dt(self, dt: float) -> SimConfig:
        """With another length of a step."""
        return replace(self, dt=check_number("dt", dt, 0.0, above_low=True))

    def with_task(self, task: SimTask) -> SimConfig:
        """With another task."""
        if not isinstance(task, SimTask):
            raise TypeError(f"task must be a SimTask, got {type(task).__name__}")
        task.check(self.model)
        return replace(self, task=task)

    def with_initial(self, init_space: Any) -> SimConfig:
        """With other initial states (see ``InitialStates.of``)."""
        return replace(self, initial=InitialStates.of(init_space, self.model))

    def constants(self) -> dict[str, Any]:
        """Columns of one entry, computed from the domain parameters."""
        return self.model.constants({name: np.array([value]) for name, value in self.params.items()}, np)

    def initial_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest elements of the model's own space of initial states."""
        return _numbers(self.model.initial_bounds(self.constants()))

    def spec(self, dtype: Any = np.float64) -> EnvSpec:
        """Spaces and labels."""
        model, constants = self.model, self.constants()
        return EnvSpec(
            _box(model.observation_bounds(constants), dtype),
            _box(model.action_bounds(constants), dtype),
            None if math.isinf(self.max_steps) else int(self.max_steps),
            _box(model.state_bounds(constants), dtype),
            observation_labels=model.observation_labels,
            action_labels=model.action_labels,
            state_labels=model.state_labels,
        )


def _numbers(bounds: tuple[Columns, Columns]) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.array([float(np.asarray(value).reshape(-1)[0]) for value in side]) for side in bounds)
    return low, high


def _box(bounds: tuple[Columns, Columns], dtype: Any) -> Box:
    low, high = _numbers(bounds)
    return Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def _checked_max_steps(max_steps: Any) -> float:
    return math.inf if max_steps == math.inf else check_whole("max_steps", max_steps)


def _num_coordinates(model: SimModel) -> int:
    nominal = {name: np.array([value]) for name, value in model.nominal.items()}
    return len(model.initial_bounds(model.constants(nominal, np))[0])
