"""The settings of an episode of a simulator: model, task, time, domain parameters, initial states."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.checks import check_number, check_whole
from metaroll.envs.sims.model import Columns, SimModel
from metaroll.envs.sims.tasks import SimTask
from metaroll.errors import ShapeError
from metaroll.types import EnvSpec

__all__ = ["InitialStates", "SimConfig", "checked_init"]


@dataclass(frozen=True, eq=False)
class InitialStates:
    """A distribution of initial states; elements are states ``(S,)``, or coordinates ``(D,)`` of them.

    Attributes:
        box: Elements are uniform in it, ``(D,)``; or ``None``.
        states: The only element ``(D,)``, or those to choose from with equal chances ``(K, D)``; or ``None``. With
            neither, the model draws.
    """

    box: Box | None = None
    states: np.ndarray | None = None

    @classmethod
    def of(cls, init_space: Any, model: SimModel) -> InitialStates:
        """From a finite ``Box``, a state ``(D,)``, a list of states ``(K, D)``, or ``None`` (the model's own).

        Raises:
            ShapeError: Elements are neither states nor coordinates of initial states.
            ValueError: Infinite bounds, NaN, or no state at all.
        """
        if init_space is None:
            return cls()
        if isinstance(init_space, Box):
            if not init_space.is_bounded():
                raise ValueError(
                    f"init_space must be bounded, since initial states are drawn from it, got {init_space}"
                )
            low = checked_init(model, init_space.low, "init_space.low")
            return cls(Box(low, init_space.high.astype(np.float64), dtype=np.float64))
        try:
            states = np.array(init_space, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"init_space must be a Box, a state, a list of states of one length, or None, got {init_space!r}"
            ) from error
        if states.size == 0:
            raise ValueError("init_space must hold at least one state, got none")
        for row in np.atleast_2d(states):
            checked_init(model, row, "init_space")
        return cls(states=states)

    @property
    def num_uniforms(self) -> int | None:
        """Random numbers that an element takes; ``None``: the model draws."""
        if self.states is not None:
            return int(len(np.atleast_2d(self.states)) > 1)
        return None if self.box is None else self.box.low.size

    def elements(self, uniforms: Columns, like: Any, xp: Any) -> Columns:
        """Elements as D columns, from columns of numbers in [0, 1), unless the model draws.

        Args:
            uniforms: ``num_uniforms`` columns.
            like: A column, for number of rows, type and device.
            xp: Array namespace.
        """
        if self.box is not None:
            box = zip(self.box.low.tolist(), self.box.high.tolist(), uniforms, strict=True)
            return tuple(low + (high - low) * u for low, high, u in box)
        rows = np.atleast_2d(np.asarray(self.states)).tolist()
        chosen = xp.floor(uniforms[0] * len(rows)) if uniforms else xp.zeros_like(like)
        columns = [xp.zeros_like(like) for _ in rows[0]]
        for i, state in enumerate(rows):
            columns = [xp.where(chosen == i, value, c) for value, c in zip(state, columns, strict=True)]
        return tuple(columns)

    def shown(self) -> Any:
        """The source (a copy); ``None`` for the model's own."""
        if self.states is None:
            return copy.deepcopy(self.box)
        return self.states.copy() if self.states.ndim == 1 else list(self.states.copy())


def checked_init(model: SimModel, value: Any, name: str = "init_state") -> np.ndarray:
    """An initial state, or coordinates of one, in its own memory."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must hold numbers, got {value!r}") from error
    if array.shape != (len(model.state_labels),):
        coordinates = model.initial_bounds(model.constants(_columns(model.nominal), np))[0]
        wanted = sorted({len(model.state_labels), len(coordinates)}, reverse=True)
        if array.ndim != 1 or array.size not in wanted:
            shapes = " or ".join(f"({size},)" for size in wanted)
            labels = ", ".join(model.state_labels)
            raise ShapeError(f"{name} of the {model.name} must have shape {shapes} ({labels}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array}")
    return array


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
    initial: InitialStates = field(default_factory=InitialStates)

    def __post_init__(self) -> None:
        if self.task.needs_horizon and math.isinf(self.max_steps):
            raise ValueError(
                "max_steps must be finite for a task whose final reward counts the remaining steps, got inf; "
                "set a task without FinalRewTask(..., time_dependent=True) first"
            )

    def with_(self, **changes: Any) -> SimConfig:
        """With other values of the named attributes, which are checked.

        ``params`` names those domain parameters that change; ``initial`` is what ``InitialStates.of`` takes.
        """
        model = self.model
        if "task" in changes:
            if not isinstance(changes["task"], SimTask):
                raise TypeError(f"task must be a SimTask, got {type(changes['task']).__name__}")
            changes["task"].check(model)
        if "dt" in changes:
            changes["dt"] = check_number("dt", changes["dt"], 0.0, above_low=True)
        if changes.get("max_steps", math.inf) != math.inf:
            changes["max_steps"] = check_whole("max_steps", changes["max_steps"])
        if "params" in changes:
            changes["params"] = self.params_with(changes["params"])
        if "initial" in changes:
            changes["initial"] = InitialStates.of(changes["initial"], model)
        return replace(self, **changes)

    def params_with(self, changes: Mapping[str, Any]) -> dict[str, float]:
        """All domain parameters, those that ``changes`` names with other values, which are checked."""
        params = {**self.params, **self.model.check_params(changes)}
        self.model.check_order(params)
        return params

    def constants(self) -> dict[str, Any]:
        """Columns of one entry, computed from the domain parameters."""
        return self.model.constants(_columns(self.params), np)

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


def _columns(params: Mapping[str, float]) -> dict[str, np.ndarray]:
    return {name: np.array([value]) for name, value in params.items()}


def _numbers(bounds: tuple[Columns, Columns]) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.array([float(np.asarray(value).reshape(-1)[0]) for value in side]) for side in bounds)
    return low, high


def _box(bounds: tuple[Columns, Columns], dtype: Any) -> Box:
    low, high = _numbers(bounds)
    return Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
