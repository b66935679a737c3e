"""Many simulations of one system as columns: NumPy, or torch on any device with gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import array_api_compat.torch as torch_namespace
import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.envs.base.simulator import map_rows, with_rows
from metaroll.envs.sims.config import SimConfig
from metaroll.envs.sims.model import Column, Columns
from metaroll.envs.sims.sim_env import SimEnv
from metaroll.envs.sims.simulator import DerivedConstants, SimSimulator, SimState, first_state, step_columns
from metaroll.errors import ShapeError
from metaroll.seeding import as_generator, torch_generator

__all__ = ["SimBatch"]


class SimBatch:
    """N simulations of one system that are stepped together, each with its own domain parameters.

    Nothing resets itself, and nothing is clipped but actions: ``reset`` what has ended before the next step. With
    torch, states, rewards and observations are differentiable in the actions, the initial states and the parameters.

    Args:
        setting: A simulated environment (``PendulumEnv()``), or its ``config``.
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
        if not isinstance(setting, SimConfig | SimEnv):
            raise TypeError(f"setting must be a simulated environment or its config, got {type(setting).__name__}")
        self.config = setting if isinstance(setting, SimConfig) else setting.config
        self.num_envs = check_whole("num_envs", num_envs)
        self._simulator = SimSimulator(self.config, dtype)
        self._dtype_name = dtype
        self.device = None if device is None else torch.device(device)
        self._numpy_generator = as_generator(generator)
        self._torch_generator = (
            None if self.device is None else torch_generator(int(self._numpy_generator.integers(2**62)), self.device)
        )
        self._columns = {name: self._filled(value) for name, value in self.config.params.items()}
        self._derived: DerivedConstants
        self.set_params(params or {})
        model, zero = self.config.model, self._filled(0.0)
        memory = tuple(zero for _ in model.memory_labels)
        horizon = self._filled(self.config.max_steps)
        self._state = SimState(tuple(zero for _ in model.state_labels), memory, zero, horizon, zero)

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
        return self.xp.stack(self._state.values, axis=1)

    @property
    def memory(self) -> Any:
        """The memory that the next step needs beyond the state, ``(N, M)`` (a copy)."""
        return self.xp.stack(self._state.memory, axis=1) if self._state.memory else self.state[:, :0]

    @property
    def steps(self) -> Any:
        """Steps since the start of each episode, ``(N,)`` (a copy)."""
        return self.xp.asarray(self._state.count, copy=True)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Domain parameters from now on: name -> number or array ``(N,)``; those not named stay."""
        columns = dict(self._columns)
        model = self.config.model
        for name, value in params.items():
            values = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
            for extreme in (values.min(), values.max()) if values.size else (math.nan,):
                model.check_params({name: float(extreme)})
            column = self._array(value)
            if tuple(column.shape) not in ((), (self.num_envs,)):
                raise ShapeError(
                    f"params[{name!r}] must be a number or have shape ({self.num_envs},), got {tuple(column.shape)}"
                )
            columns[name] = column + self._filled(0.0)
        model.check_order(columns)
        self._derived = DerivedConstants.of(model, self.config.task, columns, self.xp)
        self._columns = columns

    def reset(self, states: Any = None, *, mask: Any = None) -> Any:
        """Start new episodes; observations ``(N, O)`` of all.

        Args:
            states: Where: ``(N, S)``; ``None`` draws from the environment's initial states.
            mask: Which, bool ``(N,)``; ``None`` means all.
        """
        xp, derived = self.xp, self._derived
        columns_given = None if states is None else self._split("states", states, len(self.config.model.state_labels))
        if mask is not None:
            mask = np.asarray(mask) if self.device is None else torch.as_tensor(mask, device=self.device)
            if tuple(mask.shape) != (self.num_envs,) or mask.dtype not in (np.bool_, torch.bool):
                raise ShapeError(
                    f"mask must hold truth values of shape ({self.num_envs},), got {mask.dtype} of {tuple(mask.shape)}"
                )
        if mask is not None and self.device is None:  # draws only the numbers needed; a GPU would have to synchronize
            rows = np.flatnonzero(mask)
            part = None if columns_given is None else tuple(column[rows] for column in columns_given)
            some = derived._replace(
                constants=_ConstantsAt(derived.constants, rows)
            )  # first states depend on few of them
            new, state = self._started(part, some, len(rows)), self._state
            self._state = SimState(
                with_rows(state.values, rows, new.values),
                with_rows(state.memory, rows, new.memory),
                with_rows(state.count, rows, new.count),
                state.horizon,  # the same in all episodes of a batch
                with_rows(state.ended, rows, new.ended) if self.config.task.gives_final_reward else state.ended,
            )
            return self.observe()
        state = self._started(columns_given, derived, self.num_envs)
        if mask is not None:
            state = map_rows(lambda new, old: xp.where(mask, new, old), state, self._state)
        self._state = state
        return self.observe()

    def observe(self) -> Any:
        """Present observations ``(N, O)``."""
        return self._simulator.observe(self._state, self._derived, self.xp)

    def step(self, actions: Any) -> tuple[Any, Any, Any]:
        """Observations ``(N, O)``, rewards ``(N,)``, and which episodes have ended by success or failure, ``(N,)``.

        The horizon is ignored, except that a final reward is given there: compare ``steps`` with it. A batch may
        be stepped beyond an ending; the final reward has been given then.

        Args:
            actions: ``(N, A)``.
        """
        columns = self._split("actions", actions, len(self.config.model.action_labels))
        with np.errstate(all="ignore"):  # states may diverge, which the loop above reports
            result = step_columns(self.config, self._derived, self._state, columns, self.xp)
        self._state = result.state
        return self.observe(), result.reward, result.terminated

    # -- columns -----------------------------------------------------------------------------------------------------

    def _filled(self, value: float) -> Column:
        if self.device is None:
            return np.full(self.num_envs, value, dtype=self.dtype)
        return torch.full((self.num_envs,), value, dtype=self.dtype, device=self.device)

    def _array(self, values: Any) -> Any:
        if self.device is None:
            return np.array(values, dtype=self.dtype)
        return torch.as_tensor(values, dtype=self.dtype, device=self.device)

    def _split(self, name: str, rows: Any, width: int) -> Columns:
        """``rows (N, width)`` as columns."""
        array = self._array(rows)
        if tuple(array.shape) != (self.num_envs, width):
            raise ShapeError(f"{name} must have shape ({self.num_envs}, {width}), got {tuple(array.shape)}")
        return tuple(np.ascontiguousarray(array.T)) if self.device is None else tuple(array.unbind(1))

    def _started(self, values: Columns | None, derived: DerivedConstants, count: int) -> SimState:
        """Episodes of ``count`` rows that start with ``values``, or anywhere."""
        if values is not None:
            return first_state(self.config, values, derived, self.xp.zeros_like(values[0]), self.xp)
        shape = (self._simulator.num_uniforms, count)
        if self._torch_generator is None:
            uniforms = tuple(self._numpy_generator.random(shape, dtype=self.dtype))
        else:
            source = {"generator": self._torch_generator, "device": self.device}
            uniforms = tuple(torch.rand(shape, dtype=self.dtype, **source).unbind(0))
        return self._simulator.initial_state(uniforms, derived, self.xp)


class _ConstantsAt(Mapping[str, Column]):
    """Constants of some rows, taken when they are asked for."""

    def __init__(self, constants: Mapping[str, Column], rows: np.ndarray) -> None:
        self._constants, self._rows = constants, rows

    def __getitem__(self, name: str) -> Column:
        value = self._constants[name]
        return value[self._rows] if isinstance(value, np.ndarray) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)
