"""Many simulations of one system as columns: NumPy, or torch on any device with gradients (specs/sampling.md 16.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import array_api_compat.torch as torch_namespace
import numpy as np
import torch

from metaroll.envs.sims.model import Column, Columns, SimModel
from metaroll.envs.sims.setting import SimSetting, check_order, check_params
from metaroll.envs.sims.tasks import SimTask, outside
from metaroll.errors import ShapeError
from metaroll.seeding import as_generator, torch_generator

__all__ = ["SimBatch", "SimOutcome", "SimSituation", "advance"]


class SimSituation(NamedTuple):
    """All that holds still during an episode, computed once from the domain parameters."""

    constants: dict[str, Column]
    action_bounds: tuple[Columns, Columns]
    state_bounds: tuple[Columns, Columns]
    scales: dict[str, Column]

    @classmethod
    def of(cls, model: SimModel, task: SimTask, params: Mapping[str, Column], xp: Any) -> SimSituation:
        """The situation under ``params``."""
        constants = model.constants(params, xp)
        actions, states = model.action_bounds(constants), model.state_bounds(constants)
        return cls(constants, actions, states, task.scales(states, actions, xp))

    def write(self, rows: Any, other: SimSituation) -> None:
        """Overwrite ``rows`` of the columns by those of ``other``; what is a plain number belongs to the model."""
        pairs = [(self.constants[name], other.constants[name]) for name in self.constants]
        pairs += [(self.scales[name], other.scales[name]) for name in self.scales]
        for mine, theirs in ((self.action_bounds, other.action_bounds), (self.state_bounds, other.state_bounds)):
            pairs += [*zip(mine[0], theirs[0], strict=True), *zip(mine[1], theirs[1], strict=True)]
        for column, values in pairs:
            if isinstance(column, np.ndarray):
                column[rows] = values


class SimOutcome(NamedTuple):
    """What one step of all simulations leads to."""

    state: Columns
    memory: Columns
    count: Column
    """Steps since the start of the episode."""
    applied: Columns
    """Actions within their bounds."""
    reward: Column
    terminated: Column
    truncated: Column


def advance(
    setting: SimSetting,
    situation: SimSituation,
    state: Columns,
    memory: Columns,
    count: Column,
    action: Columns,
    xp: Any,
) -> SimOutcome:
    """One step, a pure function of columns: arrays ``(N,)`` of any library, or plain numbers.

    The reward is that of the state before the step under the action as it was given; the dynamics get the action
    within its bounds (specs/sampling.md 16.2).
    """
    model, task = setting.model, setting.task
    lows, highs = situation.action_bounds
    applied = tuple(xp.clip(a, low, high) for a, low, high in zip(action, lows, highs, strict=True))
    following, memory = model.step(state, memory, applied, situation.constants, setting.dt, xp)
    count = count + 1.0
    remaining = setting.max_steps - count
    reward = task.step_reward(state, action, following, remaining, situation.scales, xp)
    failed = outside(following, situation.state_bounds)
    succeeded = task.has_succeeded(following, xp)
    terminated = failed if succeeded is None else failed | succeeded
    at_end = remaining <= 0.0
    if task.gives_final_reward:
        done = terminated | at_end
        idle = tuple(0.0 * value for value in applied)
        final = task.final_reward(following, idle, remaining, failed, succeeded, situation.scales, xp)
        reward = xp.where(done, reward + final, reward)
    return SimOutcome(following, memory, count, applied, reward, terminated, at_end > terminated)


class SimBatch:
    """N simulations of one system that are stepped together, each with its own domain parameters.

    Nothing resets itself, and nothing is clipped but actions: ``reset`` what has ended before the next step. With
    torch, states, rewards and observations are differentiable in the actions, the initial states and the parameters.

    Args:
        setting: A simulated environment (``PendulumEnv()``), or its ``setting``.
        num_envs: N.
        params: Domain parameters that differ from the environment's: name -> number or array ``(N,)``.
        dtype: ``"float64"`` or ``"float32"``.
        device: ``None`` for NumPy, or a device of torch (``"cpu"``, ``"cuda"``).
        generator: Source of initial states.
    """

    def __init__(
        self,
        setting: Any,
        num_envs: int,
        *,
        params: Mapping[str, Any] | None = None,
        dtype: str = "float64",
        device: str | torch.device | None = None,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        self.setting: SimSetting = getattr(setting, "setting", setting)
        if not isinstance(self.setting, SimSetting):
            raise TypeError(f"setting must be a simulated environment or its setting, got {type(setting).__name__}")
        if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ValueError(f"num_envs must be a whole number of at least 1, got {num_envs!r}")
        if dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
        self.num_envs = int(num_envs)
        self._dtype_name = dtype
        self.device = None if device is None else torch.device(device)
        self._numpy_generator = as_generator(generator)
        self._torch_generator = (
            None if self.device is None else torch_generator(int(self._numpy_generator.integers(2**62)), self.device)
        )
        self._columns = {name: self._filled(value) for name, value in self.setting.params.items()}
        self._situation: SimSituation
        self.set_params(params or {})
        zero = self._filled(0.0)
        self._state: Columns = tuple(zero for _ in self.setting.model.state_labels)
        self._memory: Columns = tuple(zero for _ in self.setting.model.memory_labels)
        self._count: Column = zero

    @property
    def xp(self) -> Any:
        """The array namespace."""
        return np if self.device is None else torch_namespace

    @property
    def dtype(self) -> Any:
        """The type of all columns, of NumPy or torch."""
        return getattr(np if self.device is None else torch, self._dtype_name)

    @property
    def params(self) -> dict[str, Any]:
        """Domain parameters, name -> ``(N,)`` (copies)."""
        return {name: self.xp.asarray(column, copy=True) for name, column in self._columns.items()}

    @property
    def state(self) -> Any:
        """States ``(N, S)`` (a copy)."""
        return self.xp.stack(self._state, axis=1)

    @property
    def memory(self) -> Any:
        """What the next step needs beyond the state, ``(N, M)`` (a copy)."""
        return self.xp.stack(self._memory, axis=1) if self._memory else self.state[:, :0]

    @property
    def steps(self) -> Any:
        """Steps since the start of each episode, ``(N,)`` (a copy)."""
        return self.xp.asarray(self._count, copy=True)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Domain parameters from now on: name -> number or array ``(N,)``; those not named stay."""
        columns = dict(self._columns)
        for name, value in params.items():
            self._check_range(name, value)
            columns[name] = self._column(f"params[{name!r}]", value)
        check_order(self.setting.model, columns)
        situation = self._situation_of(columns)
        self._columns, self._situation = columns, situation

    def reset(self, states: Any = None, *, mask: Any = None) -> Any:
        """Start new episodes; observations ``(N, O)`` of all.

        Args:
            states: Where: ``(N, S)``; ``None`` draws from the environment's initial states.
            mask: Which, bool ``(N,)``; ``None`` means all.
        """
        model, xp = self.setting.model, self.xp
        if states is not None:
            states = self._split("states", states, len(model.state_labels))
        mask = None if mask is None else self._checked_mask(mask)
        if mask is not None and self.device is None:  # draws only what is needed; a GPU would have to be waited for
            rows = np.flatnonzero(mask)
            part = {name: _taken(value, rows) for name, value in self._situation.constants.items()}
            given = None if states is None else tuple(column[rows] for column in states)
            self._restart(rows, self._drawn(part, len(rows)) if given is None else given, part)
            return self.observe()
        constants = self._situation.constants
        state = self._drawn(constants, self.num_envs) if states is None else states
        state = tuple(value + self._filled(0.0) for value in state)  # what a model keeps constant, as columns
        memory = model.initial_memory(state, constants, xp)
        if mask is not None:
            state = tuple(xp.where(mask, new, old) for new, old in zip(state, self._state, strict=True))
            memory = tuple(xp.where(mask, new, old) for new, old in zip(memory, self._memory, strict=True))
        self._state, self._memory = state, memory
        self._count = self._filled(0.0) if mask is None else xp.where(mask, self._filled(0.0), self._count)
        return self.observe()

    def observe(self) -> Any:
        """Present observations ``(N, O)``."""
        return self.rows(self.setting.model.observe(self._state, self.xp))

    def step(self, actions: Any) -> tuple[Any, Any, Any]:
        """Observations ``(N, O)``, rewards ``(N,)``, and which episodes have ended by success or failure, ``(N,)``.

        The horizon is not looked at, except that a final reward is given there: compare ``steps`` with it.

        Args:
            actions: ``(N, A)``.
        """
        outcome = self.outcome(actions)
        self.accept(outcome)
        return self.observe(), outcome.reward, outcome.terminated

    def outcome(self, actions: Any) -> SimOutcome:
        """What ``actions (N, A)`` would lead to; nothing changes."""
        columns = self._split("actions", actions, len(self.setting.model.action_labels))
        where = (self._situation, self._state, self._memory, self._count)
        if self.device is not None:
            return advance(self.setting, *where, columns, self.xp)
        with np.errstate(all="ignore"):  # states may diverge: the loop above says so
            return advance(self.setting, *where, columns, self.xp)

    def accept(self, outcome: SimOutcome, active: Any = None) -> None:
        """Go on from ``outcome``, everywhere or where ``active (N,)``."""
        new = (outcome.state, outcome.memory, (outcome.count,))
        if active is not None:
            old = (self._state, self._memory, (self._count,))
            new = tuple(
                tuple(self.xp.where(active, a, b) for a, b in zip(after, before, strict=True))
                for after, before in zip(new, old, strict=True)
            )
        self._state, self._memory, (self._count,) = new

    def begin(self, rows: np.ndarray, params: np.ndarray | None, place: Any) -> None:
        """Start episodes in some rows (NumPy only).

        Args:
            rows: Indices ``(k,)``.
            params: All domain parameters ``(k, P)`` in the order of ``setting.params``; ``None``: as they are.
            place: Function from constants, namespace and dtype to states, columns ``(k,)``.
        """
        model, task = self.setting.model, self.setting.task
        if params is None:
            taken = {name: column[rows] for name, column in self._columns.items()}
        else:
            taken = {name: np.array(params[:, i], dtype=self.dtype) for i, name in enumerate(self._columns)}
        with np.errstate(all="ignore"):
            situation = SimSituation.of(model, task, taken, np)
            state = place(situation.constants, np, self.dtype)
        if params is not None:
            self._situation.write(rows, situation)
            for name, values in taken.items():
                self._columns[name][rows] = values
        self._restart(rows, state, situation.constants)

    def take_over(self, other: SimBatch) -> None:
        """Go on from the states of ``other``, a batch of the same model and size."""
        self._state, self._memory, self._count = other._state, other._memory, other._count

    # -- columns -----------------------------------------------------------------------------------------------------

    def _filled(self, value: float) -> Column:
        if self.device is None:
            return np.full(self.num_envs, value, dtype=self.dtype)
        return torch.full((self.num_envs,), value, dtype=self.dtype, device=self.device)

    def _column(self, name: str, value: Any) -> Column:
        if self.device is None:
            column = np.array(value, dtype=self.dtype)
        else:
            column = torch.as_tensor(value, dtype=self.dtype, device=self.device)
        if tuple(column.shape) not in ((), (self.num_envs,)):
            raise ShapeError(f"{name} must be a number or have shape ({self.num_envs},), got {tuple(column.shape)}")
        return column + self._filled(0.0)

    def _split(self, name: str, rows: Any, width: int) -> Columns:
        if self.device is None:
            rows = np.asarray(rows)
        elif not isinstance(rows, torch.Tensor):
            rows = torch.as_tensor(np.asarray(rows))
        if tuple(rows.shape) != (self.num_envs, width):
            raise ShapeError(f"{name} must have shape ({self.num_envs}, {width}), got {tuple(rows.shape)}")
        if self.device is None:
            return tuple(np.array(rows[:, i], dtype=self.dtype) for i in range(width))
        return tuple(rows.to(dtype=self.dtype, device=self.device).unbind(1))

    def _checked_mask(self, mask: Any) -> Any:
        array: Any = np.asarray(mask) if self.device is None else torch.as_tensor(mask, device=self.device)
        if tuple(array.shape) != (self.num_envs,) or array.dtype not in (np.bool_, torch.bool):
            raise ShapeError(
                f"mask must hold truth values of shape ({self.num_envs},), got {array.dtype} of {tuple(array.shape)}"
            )
        return array

    def rows(self, columns: Columns) -> Any:
        """Columns as rows ``(N, ...)``, in memory of their own."""
        if self.device is not None:
            return torch.stack([column + self._filled(0.0) for column in columns], dim=1)
        rows = np.empty((self.num_envs, len(columns)), dtype=self.dtype)
        for i, column in enumerate(columns):
            rows[:, i] = column
        return rows

    def _check_range(self, name: str, value: Any) -> None:
        values = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        for extreme in (values.min(), values.max()) if values.size else (math.nan,):
            check_params(self.setting.model, {name: float(extreme)})

    def _situation_of(self, params: Mapping[str, Column]) -> SimSituation:
        found = SimSituation.of(self.setting.model, self.setting.task, params, self.xp)
        if self.device is not None:
            return found
        # Memory of its own, into which ``begin`` writes.
        own = lambda value: np.array(value) if isinstance(value, np.ndarray) else value  # noqa: E731
        pair = lambda bounds: (tuple(map(own, bounds[0])), tuple(map(own, bounds[1])))  # noqa: E731
        constants = {name: own(value) for name, value in found.constants.items()}
        scales = {name: own(value) for name, value in found.scales.items()}
        return SimSituation(constants, pair(found.action_bounds), pair(found.state_bounds), scales)

    def _restart(self, rows: np.ndarray, state: Columns, constants: Mapping[str, Column]) -> None:
        """Episodes that begin in ``rows (k,)`` of columns of NumPy, with ``state`` and ``constants`` of these."""
        memory = self.setting.model.initial_memory(state, constants, np)
        self._state = tuple(_with_rows(column, rows, new) for column, new in zip(self._state, state, strict=True))
        self._memory = tuple(_with_rows(column, rows, new) for column, new in zip(self._memory, memory, strict=True))
        self._count = _with_rows(self._count, rows, 0.0)

    def _drawn(self, constants: Mapping[str, Column], count: int) -> Columns:
        model, initial = self.setting.model, self.setting.initial
        if initial.is_own:
            return model.initial_state(self._uniforms(model.num_uniforms, count), constants, self.xp)
        inits = np.stack([initial.draw(self._numpy_generator) for _ in range(count)]) if count else np.zeros((0, 0))
        if self.device is not None:
            columns = tuple(torch.as_tensor(inits, dtype=self.dtype, device=self.device).unbind(1))
        else:
            columns = tuple(np.array(column, dtype=self.dtype) for column in inits.T)
        if len(columns) == len(model.state_labels):
            return columns
        return model.state_from_init(columns, constants, self.xp)

    def _uniforms(self, num: int, count: int) -> Columns:
        if self._torch_generator is None:
            return tuple(self._numpy_generator.random((num, count), dtype=self.dtype))
        shape, device = (num, count), self.device
        return tuple(torch.rand(shape, generator=self._torch_generator, dtype=self.dtype, device=device).unbind(0))


def _taken(value: Column, rows: np.ndarray) -> Column:
    return value[rows] if isinstance(value, np.ndarray) else value


def _with_rows(column: np.ndarray, rows: np.ndarray, values: Any) -> np.ndarray:
    column = column.copy()  # a model may hand out what it was given
    column[rows] = values
    return column
