"""Wrappers with their own domain parameters: the common base, and initial states as domain parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.checks import plain_number
from metaroll.envs.wrappers.base import ChainWrapper, Memory, spec_of
from metaroll.errors import ShapeError, unknown_name
from metaroll.tasks.domain_access import domain_params_of, read_domain_params, set_domain_params
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import PlanTable
from metaroll.tasks.updates import env_layers
from metaroll.types import EnvUpdate, RolloutPlan

__all__ = ["InitStateWrapper", "OwnParamsWrapper"]

_OWN = "own_params"
"""Begins the name under which the extras of a plan hold own parameters, for the environments inside."""


class OwnParamsWrapper(ChainWrapper, ABC):
    """Base of wrappers that add domain parameters; all other parameters belong to the environment inside.

    Values hold from the next reset on. Of nested wrappers with parameters of one name, the outermost takes it.

    Args:
        env: Environment.
        params: Values of the parameters that are added; also their names, unless ``own_domain_params`` names more.
    """

    own_domain_params: tuple[str, ...] = ()
    batched_slots = ChainWrapper.batched_slots  # what ``reset`` does here, ``plans_in`` does for many

    def __init__(self, env: Any, params: Mapping[str, Any]) -> None:
        super().__init__(env)
        self.own_domain_params = tuple(params)
        self._own = {name: self.checked_param(name, value) for name, value in params.items()}
        self._key = f"{_OWN}/{len(list(env_layers(env)))}"

    @abstractmethod
    def checked_param(self, name: str, value: Any) -> Any:
        """``value`` of an own parameter.

        Raises:
            TypeError: It is not a number.
            ValueError: It cannot be used.
        """

    @abstractmethod
    def write_params(self, memory: Memory, rows: np.ndarray, params: Sequence[Mapping[str, Any]]) -> None:
        """Note own parameters for ``rows (k,)``, in which episodes start."""

    @abstractmethod
    def row_own(self, memory: Memory, row: int) -> dict[str, Any]:
        """The own parameters of a row."""

    def present_params(self) -> dict[str, Any]:
        """The own parameters from the next reset on."""
        return dict(self._own)

    # -- one environment ----------------------------------------------------------------------------------------------

    @property
    def domain_param(self) -> dict[str, Any]:
        """Domain parameters that the environment reports, and the wrapper's own."""
        return {**(domain_params_of(self.env) or {}), **self.present_params()}

    @domain_param.setter
    def domain_param(self, params: Mapping[str, float]) -> None:
        set_domain_params(self, params)

    def set_domain_param(self, params: Mapping[str, float]) -> None:
        """Set the own ones here, all others inside."""
        own, inner = self.split_params(params)
        if inner:
            set_domain_params(self.env, inner)
        self._own = own

    def read_domain_params(self, names: Sequence[str]) -> dict[str, float]:
        """Current values of ``names``."""
        own = self.present_params()
        inner = read_domain_params(self.env, [name for name in names if name not in own])
        return {**inner, **{name: float(own[name]) for name in names if name in own}}

    def taken_params(self, params: Mapping[str, float]) -> dict[str, Any]:
        """The values that ``params`` lead to: this wrapper's for its own parameters, those inside for the others."""
        own, inner = self.split_params(params)
        return {**super().taken_params(inner), **{name: own[name] for name in params if name in own}}

    def split_params(self, params: Mapping[str, float]) -> tuple[dict[str, Any], dict[str, float]]:
        """The own parameters with the values of ``params``, and the rest of these."""
        own, inner = dict(self._own), {}
        for name, value in params.items():
            if name in self.own_domain_params:
                own[name] = self.checked_param(name, value)
            else:
                inner[name] = value
        return own, inner

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; of the option ``domain_param``, the own ones are set here."""
        own, params = self._own, (options or {}).get("domain_param")
        if isinstance(params, Mapping):
            own, inner = self.split_params(params)
            kept = {name: value for name, value in (options or {}).items() if name != "domain_param"}
            options = {**kept, "domain_param": inner} if inner else kept or None
        before, self._own = self._own, own
        try:
            return super().reset(seed=seed, options=self.options_in(options))
        except BaseException:  # the environment inside has rejected the other options
            self._own = before
            raise

    def options_in(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Options for the reset of the environment inside."""
        return options

    # -- many ---------------------------------------------------------------------------------------------------------

    def start_rows(
        self, memory: Memory, rows: np.ndarray, env_seeds: np.ndarray | None, plans: Sequence[RolloutPlan] | None = None
    ) -> None:
        """Note the own parameters of the rows."""
        own = [self._own] * len(rows) if plans is None else [plan.extras.get(self._key, self._own) for plan in plans]
        self.write_params(memory, rows, own)

    def row_params(self, params: dict[str, Any] | None, memory: Memory, row: int) -> dict[str, Any] | None:
        """Domain parameters inside, and the wrapper's own."""
        return {**(params or {}), **self.row_own(memory, row)}

    def row_kinds(self, memory: Memory, rows: np.ndarray) -> list[Any]:
        """The own parameters."""
        return [tuple(self.row_own(memory, row).values()) for row in rows.tolist()]

    def plans_in(self, plans: Sequence[RolloutPlan]) -> Sequence[RolloutPlan]:
        """Plans without the own parameters, which are noted in their extras."""
        table = PlanTable.of(plans)
        if not any(isinstance(update, DomainParamUpdate) for update in table.updates):
            return super().plans_in(table)
        own = table.map_updates(self._own_of)
        extras = [
            {**entries, self._key: own[number]}
            for entries, number in zip(table.extras, table.update_of.tolist(), strict=True)
        ]
        return table.with_updates(table.map_updates(self.inner_update), extras=extras)

    def inner_update(self, update: EnvUpdate | None) -> EnvUpdate | None:
        """``update`` without the own parameters."""
        if not isinstance(update, DomainParamUpdate):
            return super().inner_update(update)
        inner = self.split_params(update.task)[1]
        return DomainParamUpdate(inner) if inner else None

    def _own_of(self, update: EnvUpdate | None) -> dict[str, Any]:
        return self.split_params(update.task)[0] if isinstance(update, DomainParamUpdate) else self._own


class InitStateWrapper(OwnParamsWrapper):
    """Entries of the initial state as domain parameters, ``init_<label>``: those that a log lacks can be inferred.

    A parameter that has been set replaces its entry of every initial state, also of one that a plan or the option
    ``init_state`` brings; other entries stay. All rollouts with one set of parameters share it, so rollouts that are
    inferred from together should have started alike.

    Args:
        env: Environment that reads ``reset(options={"init_state": ...})``.
        base: State ``(S,)`` in which rollouts start by default.
        entries: Labels (or positions) of the entries that become parameters; ``None`` means all.
        bounds: Name of a parameter -> its lowest and highest value, where they are not those of the state space; what
            is set must lie between them.

    Attributes:
        bounds: Name of each parameter -> ``(low, high)``, for a bounded prior.
    """

    def __init__(
        self,
        env: Any,
        base: Any,
        entries: Sequence[str | int] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._base = np.array(base, dtype=np.float64)
        if self._base.ndim != 1 or not np.isfinite(self._base).all():
            raise ShapeError(f"base must be a state (S,) of finite numbers, got {base!r}")
        spec = spec_of(env)
        labels = spec.state_labels or tuple(map(str, range(self._base.size)))
        if len(labels) != self._base.size:
            raise ShapeError(f"base must be a state ({len(labels)},) ({', '.join(labels)}), got {self._base.shape}")
        self._entry_of: dict[str, int] = {}
        for entry in labels if entries is None else entries:
            label = labels[entry] if isinstance(entry, int) and 0 <= entry < len(labels) else entry
            if label not in labels:
                raise unknown_name("entry of the state", str(label), labels)
            self._entry_of[f"init_{label}"] = labels.index(label)
        self.bounds = self._checked_bounds(spec.state_space, bounds or {})
        self._started = self._base
        super().__init__(env, {name: self._base[entry] for name, entry in self._entry_of.items()})
        self._own = {}
        """Those that have been set."""

    def _checked_bounds(self, space: Any, ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name in ranges:
            if name not in self._entry_of:
                raise unknown_name("parameter in bounds", str(name), self._entry_of)
        checked = {}
        for name, entry in self._entry_of.items():
            own = (-np.inf, np.inf) if space is None else (space.low[entry], space.high[entry])
            low, high = (float(bound) for bound in ranges.get(name, own))
            if not low < high:
                raise ValueError(f"bounds of {name!r} must be (low, high) with low < high, got {(low, high)}")
            checked[name] = (low, high)
        return checked

    def checked_param(self, name: str, value: Any) -> float:
        """A number within the bounds."""
        number, (low, high) = plain_number(f"domain parameter {name!r}", value), self.bounds[name]
        if not low <= number <= high:
            raise ValueError(f"domain parameter {name!r} must lie in [{low:g}, {high:g}], got {number:g}")
        return number

    def present_params(self) -> dict[str, float]:
        """Those that have been set, and entries of the state in which the last episode has started."""
        return {name: self._own.get(name, float(self._started[entry])) for name, entry in self._entry_of.items()}

    def options_in(self, options: dict[str, Any] | None) -> dict[str, Any]:
        """With the initial state."""
        self._started = self._state(self._own, (options or {}).get("init_state"))
        return {**(options or {}), "init_state": self._started}

    def plans_in(self, plans: Sequence[RolloutPlan]) -> Sequence[RolloutPlan]:
        """Plans with initial states."""
        table = PlanTable.of(super().plans_in(plans))
        states = [None] * len(table) if table.init_states is None else table.init_states
        own = [extras.get(self._key, self._own) for extras in table.extras]
        return table.with_init_states([self._state(params, state) for params, state in zip(own, states, strict=True)])

    def new_memory(self, num_rows: int) -> Memory:
        """The entries of the states in which episodes have started."""
        return {"own": np.tile(self._base[list(self._entry_of.values())], (num_rows, 1))}

    def start_rows(
        self, memory: Memory, rows: np.ndarray, env_seeds: np.ndarray | None, plans: Sequence[RolloutPlan] | None = None
    ) -> None:
        """Note where the rows start."""
        states = [self._started] * len(rows) if plans is None else [plan.init_state for plan in plans]
        memory["own"][rows] = np.array(states)[:, list(self._entry_of.values())]

    def write_params(self, memory: Memory, rows: np.ndarray, params: Sequence[Mapping[str, Any]]) -> None:
        """Nothing: ``start_rows`` does it."""

    def row_own(self, memory: Memory, row: int) -> dict[str, Any]:
        """The entries of the state in which the row has started."""
        return dict(zip(self._entry_of, memory["own"][row].tolist(), strict=True))

    def _state(self, own: Mapping[str, float], chosen: Any) -> np.ndarray:
        state = self._base.copy() if chosen is None else np.array(chosen, dtype=np.float64)
        if state.shape != self._base.shape:
            raise ShapeError(f"init_state must have shape {self._base.shape}, got {state.shape}")
        for name, value in own.items():
            state[self._entry_of[name]] = value
        return state
