"""What an episode of a simulator is set up with: model, task, time, domain parameters, initial states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.checks import plain_number
from metaroll.envs.sims.initial_states import InitialStates
from metaroll.envs.sims.model import Columns, SimModel
from metaroll.envs.sims.tasks import SimTask
from metaroll.errors import DataError, unknown_name
from metaroll.types import EnvSpec

__all__ = ["SimSetting", "check_order", "check_params"]


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
class SimSetting:
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
    ) -> SimSetting:
        """The model's own values where none are given."""
        task.check(model)
        return cls(
            model,
            task,
            _checked_dt(model.dt if dt is None else dt),
            _checked_max_steps(model.max_steps if max_steps is None else max_steps),
            dict(model.nominal),
            InitialStates(),
        )

    def with_params(self, params: Mapping[str, Any]) -> SimSetting:
        """With other values of the named domain parameters."""
        changed = {**self.params, **check_params(self.model, params)}
        check_order(self.model, changed)
        return replace(self, params=changed)

    def with_max_steps(self, max_steps: float) -> SimSetting:
        """With another horizon."""
        return replace(self, max_steps=_checked_max_steps(max_steps))

    def with_dt(self, dt: float) -> SimSetting:
        """With another length of a step."""
        return replace(self, dt=_checked_dt(dt))

    def with_task(self, task: SimTask) -> SimSetting:
        """With another task."""
        if not isinstance(task, SimTask):
            raise TypeError(f"task must be a SimTask, got {type(task).__name__}")
        task.check(self.model)
        return replace(self, task=task)

    def with_initial(self, init_space: Any) -> SimSetting:
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


def _checked_dt(dt: Any) -> float:
    if isinstance(dt, bool) or not isinstance(dt, int | float | np.number):
        raise TypeError(f"dt must be a number of seconds, got {dt!r}")
    if not (math.isfinite(dt) and dt > 0):
        raise ValueError(f"dt must be positive and finite, got {dt}")
    return float(dt)


def _checked_max_steps(max_steps: Any) -> float:
    if max_steps == math.inf:
        return math.inf
    if isinstance(max_steps, bool) or not isinstance(max_steps, int | np.integer):
        raise TypeError(f"max_steps must be a whole number or infinity, got {max_steps!r}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    return int(max_steps)
