"""The simulated systems as rows: one step of a model with its task, and the ``Slots`` of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaroll.envs.base.batched_env import BatchedEnv
from metaroll.envs.base.simulator import NextState, Rows, Simulator, stacked
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.sims.config import SimConfig, checked_init
from metaroll.envs.sims.model import Column, Columns, SimModel
from metaroll.envs.sims.tasks import SimTask, outside
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import EnvUpdate

__all__ = ["DerivedConstants", "SimOutcome", "SimSimulator", "SimSlots", "SimState", "first_state", "step_columns"]


class DerivedConstants(NamedTuple):
    """All that holds still during an episode, computed once from the domain parameters, which are among it."""

    constants: Mapping[str, Column]
    action_bounds: tuple[Columns, Columns]
    state_bounds: tuple[Columns, Columns]
    scales: dict[str, Column]

    @classmethod
    def of(cls, model: SimModel, task: SimTask, params: Mapping[str, Column], xp: Any) -> DerivedConstants:
        """The constants for ``params``."""
        constants = {**params, **model.constants(params, xp)}
        actions, states = model.action_bounds(constants), model.state_bounds(constants)
        return cls(constants, actions, states, task.scales(states, actions, xp))


class SimState(NamedTuple):
    """The state of episodes.

    Attributes:
        values: The system's state, a column per label.
        memory: Further inputs of its next step.
        count: Steps since the start.
        horizon: Steps of the episode: those of the environment, or fewer where the rollout is cut off before.
        ended: 1 once the episode has ended, so that the final reward has been given, else 0.
    """

    values: Columns
    memory: Columns
    count: Column
    horizon: Column
    ended: Column


class SimOutcome(NamedTuple):
    """The result of one step."""

    state: SimState
    applied: Columns
    """Actions within their bounds."""
    reward: Column
    terminated: Column
    truncated: Column


def first_state(config: SimConfig, values: Columns, derived: DerivedConstants, zero: Column, xp: Any) -> SimState:
    """Episodes that start with ``values``; ``zero`` is a column (or number) of zeros."""
    values = tuple(value + zero for value in values)  # numbers become columns
    memory = config.model.initial_memory(values, derived.constants, xp)
    return SimState(values, memory, zero, zero + config.max_steps, zero)


def step_columns(config: SimConfig, derived: DerivedConstants, state: SimState, action: Columns, xp: Any) -> SimOutcome:
    """One step, a pure function of columns: arrays ``(N,)`` of any library, or plain numbers.

    The reward is that of the state before the step under the action as it was given; the dynamics get the action
    within its bounds. The final reward is added once, to that of the first step that ends the episode.
    """
    model, task = config.model, config.task
    lows, highs = derived.action_bounds
    applied = tuple(xp.clip(a, low, high) for a, low, high in zip(action, lows, highs, strict=True))
    values, memory = model.step(state.values, state.memory, applied, derived.constants, config.dt, xp)
    count, ended = state.count + 1.0, state.ended
    remaining = state.horizon - count
    reward = task.step_reward(state.values, action, values, remaining, derived.scales, xp)
    failed = outside(values, derived.state_bounds)
    succeeded = task.has_succeeded(values, xp)
    terminated = failed if succeeded is None else failed | succeeded
    at_end = remaining <= 0.0
    if task.gives_final_reward:
        done = terminated | at_end
        idle = tuple(0.0 * value for value in applied)
        final = task.final_reward(values, idle, remaining, failed, succeeded, derived.scales, xp)
        reward = xp.where(done > ended, reward + final, reward)
        ended = xp.where(done, 1.0, ended)
    following = SimState(values, memory, count, state.horizon, ended)
    return SimOutcome(following, applied, reward, terminated, at_end > terminated)


class SimSimulator(Simulator):
    """A simulated environment as rows; tasks are its domain parameters.

    Args:
        config: Model, task, time, domain parameters and initial states.
        dtype: ``"float64"``, in which a row is bit-equal to the single environment, or ``"float32"``, which is faster.
        name: Name of the environment in rollouts.
    """

    takes = "DomainParamUpdate"
    runs_on_torch = True

    def __init__(self, config: SimConfig, dtype: str = "float64", name: str = "SimEnv") -> None:
        if dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
        self.config, self.name, self.dtype = config, name, np.dtype(dtype)
        self.env_spec = config.spec(self.dtype)
        own = config.initial.num_uniforms
        self.num_uniforms = config.model.num_uniforms if own is None else own

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Nothing, or domain parameters."""
        return super().accepts_update(update) or type(update) is DomainParamUpdate

    def task_of(self, update: EnvUpdate | None) -> Mapping[str, float]:
        """All domain parameters."""
        return self.config.params_with(update.task) if isinstance(update, DomainParamUpdate) else self.config.params

    def constants(self, tasks: Sequence[Mapping[str, float]], xp: Any) -> DerivedConstants:
        table = np.array([list(task.values()) for task in tasks], dtype=self.dtype).T
        params = {name: xp.asarray(np.ascontiguousarray(row)) for name, row in zip(tasks[0], table, strict=True)}
        return DerivedConstants.of(self.config.model, self.config.task, params, xp)

    def domain_param(self, task: Mapping[str, float]) -> dict[str, float]:
        return dict(task)

    def time_step(self, state: Rows, constants: Rows) -> float:
        return self.config.dt

    def initial_state(self, uniforms: Columns, constants: DerivedConstants, xp: Any) -> SimState:
        config, like = self.config, _any_column(constants)
        numbers = tuple(xp.asarray(u, dtype=like.dtype) for u in uniforms)
        if config.initial.num_uniforms is None:
            values = config.model.initial_state(numbers, constants.constants, xp)
            return first_state(config, values, constants, xp.zeros_like(like), xp)
        return self._from_elements(config.initial.elements(numbers, like, xp), constants, xp)

    def check_init_state(self, init_state: Any) -> np.ndarray:
        """A state ``(S,)``, or an element of the model's space of initial states."""
        return checked_init(self.config.model, init_state)

    def state_from_init(self, inits: np.ndarray, constants: DerivedConstants, xp: Any) -> SimState:
        columns = tuple(xp.asarray(np.ascontiguousarray(column, dtype=self.dtype)) for column in inits.T)
        return self._from_elements(columns, constants, xp)

    def limit_steps(self, state: SimState, max_steps: np.ndarray, xp: Any) -> SimState:
        """Rewards may count the remaining steps."""
        limits = xp.asarray(np.asarray(max_steps, dtype=self.dtype))
        return state._replace(horizon=xp.minimum(state.horizon, limits))

    def state_rows(self, state: SimState, xp: Any) -> Any:
        return xp.stack(state.values, axis=1)

    def observe(self, state: SimState, constants: DerivedConstants, xp: Any) -> Any:
        """Observations ``(N, O)``."""
        return self._rows(self.config.model.observe(state.values, xp), state, xp)

    def step(self, state: SimState, actions: Any, constants: DerivedConstants, noise: Columns, xp: Any) -> NextState:
        """Step with ``actions (N, A)``, which are clipped."""
        dtype = state.count.dtype
        columns = tuple(xp.asarray(actions[:, i], dtype=dtype, copy=True) for i in range(actions.shape[1]))
        result = step_columns(self.config, constants, state, columns, xp)
        infos = {"act_applied": self._rows(result.applied, state, xp)}
        return NextState(result.state, result.reward, result.terminated, result.truncated, infos)

    def _from_elements(self, elements: Columns, constants: DerivedConstants, xp: Any) -> SimState:
        model = self.config.model
        if len(elements) != len(model.state_labels):
            elements = model.state_from_init(elements, constants.constants, xp)
        return first_state(self.config, elements, constants, xp.zeros_like(_any_column(constants)), xp)

    def _rows(self, columns: Columns, state: SimState, xp: Any) -> Any:
        if xp is np:
            return stacked(columns, len(state.count), self.dtype)
        return xp.stack([column + xp.zeros_like(state.count) for column in columns], axis=1)


class SimSlots(SimulatorSlots):
    """Simulations stepped as columns; domain parameters and initial states come from the plans.

    In float64 a row is bit-equal to the single environment.

    Args:
        num_slots: How many.
        setting: A simulated environment, or its ``config``: what plans without ``env_update`` run in.
        dtype: ``"float64"``, or ``"float32"``, in which many slots are stepped faster.
        name: Name of the environment in rollouts.
    """

    def __init__(self, num_slots: int, setting: Any, *, dtype: str = "float64", name: str | None = None) -> None:
        simulator = setting.simulator if isinstance(setting, BatchedEnv) else None
        config = simulator.config if isinstance(simulator, SimSimulator) else setting
        if not isinstance(config, SimConfig):
            raise TypeError(f"setting must be a simulated environment (e.g. QCartPoleSwingUpEnv()), got {setting!r}")
        super().__init__(num_slots, SimSimulator(config, dtype, type(setting).__name__ if name is None else name))


def _any_column(derived: DerivedConstants) -> Column:
    return next(iter(derived.constants.values()))
