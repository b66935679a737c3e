"""Simulations of one system stepped together, behind the ``Slots`` protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaroll.envs.sims.batch import SimBatch
from metaroll.envs.sims.initial_states import checked_init, states_of_inits
from metaroll.envs.sims.model import Columns, Constants
from metaroll.envs.sims.setting import SimSetting, check_order, check_params
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.types import EnvUpdate, RolloutPlan, Slots, SlotsInfo, SlotStep

__all__ = ["SimSlots", "applicable", "place_of"]


Place = Callable[[Constants, Any, Any], Columns]
"""From constants, namespace and dtype to initial states."""


def applicable(update: EnvUpdate | None) -> bool:
    """Whether batched simulations can apply ``update``: nothing, or domain parameters."""
    return update is None or type(update) in (EnvUpdate, DomainParamUpdate)


class SimSlots(Slots):
    """Simulations stepped as columns; domain parameters and initial states come from the plans.

    In float64 a row is bit-equal to the single environment.

    Args:
        num_slots: How many.
        setting: A simulated environment, or its ``setting``: what plans without ``env_update`` run in.
        dtype: ``"float64"``, or ``"float32"``, in which many slots are stepped faster.
        name: What rollouts call the environment.
    """

    def __init__(self, num_slots: int, setting: Any, *, dtype: str = "float64", name: str | None = None) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, got {num_slots}")
        self._setting: SimSetting = getattr(setting, "setting", setting)
        self._batch = SimBatch(self._setting, num_slots, dtype=dtype, generator=0)
        self.num_slots = num_slots
        self.env_spec = self._setting.spec(self._batch.dtype)
        self.info = SlotsInfo(type(setting).__name__ if name is None else name, "batched")
        self._param_index = {name: i for i, name in enumerate(self._setting.params)}
        self._own_params = np.array(list(self._setting.params.values()), dtype=np.float64)
        self._params = np.tile(self._own_params, (num_slots, 1))

    def states(self) -> np.ndarray:
        """States ``(E, S)`` (a copy)."""
        return self._batch.state

    def time_step(self, slot: int) -> float:
        """Seconds per step."""
        return self._setting.dt

    def domain_param(self, slot: int) -> dict[str, float]:
        """The domain parameters of a slot."""
        return dict(zip(self._param_index, self._params[slot].tolist(), strict=True))

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> np.ndarray:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), O)``."""
        rows = np.array(list(slots), dtype=np.int64)
        params = np.empty((len(rows), len(self._own_params)))
        inits = []
        known: dict[int, np.ndarray] = {}  # plans of a population share their updates
        for i, (slot, plan) in enumerate(zip(slots, plans, strict=True)):
            try:
                _check_seed(plan)
                key = id(plan.env_update)
                params[i] = known[key] if key in known else known.setdefault(key, self._params_of(plan))
                inits.append(None if plan.init_state is None else checked_init(self._setting.model, plan.init_state))
            except Exception as error:
                error._metaroll_slot = slot  # type: ignore[attr-defined]
                raise

        def generator_of(i: int) -> np.random.Generator:
            seed = plans[i].seed
            if seed is None:
                raise RuntimeError("a plan without a seed got through")
            return np.random.Generator(np.random.PCG64(plan_env_seed(seed)))  # as Gymnasium seeds an environment

        changed = not np.array_equal(params, self._params[rows])
        self._batch.begin(rows, params if changed else None, place_of(self._setting, generator_of, inits))
        self._params[rows] = params
        return self._batch.observe()[rows]

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        """Step the simulations where ``active (E,)`` with their rows of ``actions (E, A)``."""
        batch = self._batch
        outcome = batch.outcome(actions)
        active = np.asarray(active, dtype=bool)
        rewards = outcome.reward.astype(np.float64)
        terminated, truncated = outcome.terminated, outcome.truncated
        if active.all():
            batch.accept(outcome)
        else:
            batch.accept(outcome, active)
            rewards[~active] = 0.0
            terminated, truncated = terminated & active, truncated & active
        infos = {"act_applied": batch.rows(outcome.applied)}
        states = batch.state if self.record_states else None
        return SlotStep(batch.observe(), rewards, terminated, truncated, infos, states)

    def _params_of(self, plan: RolloutPlan) -> np.ndarray:
        update = plan.env_update
        if not applicable(update):
            raise TypeError(
                f"batched simulations take DomainParamUpdate, got {update!r}; step a list of environments: "
                "make_slots(..., plans=plans)"
            )
        if not isinstance(update, DomainParamUpdate):
            return self._own_params
        params = self._own_params.copy()
        for name, value in check_params(self._setting.model, update.task).items():
            params[self._param_index[name]] = value
        check_order(self._setting.model, dict(zip(self._param_index, params, strict=True)))
        return params


def _check_seed(plan: RolloutPlan) -> None:
    if plan.seed is None:
        raise ValueError("plan.seed must be set before a slot is reset: the engine resolves it to a seed triple")


def place_of(
    setting: SimSetting, generator_of: Callable[[int], np.random.Generator], inits: Sequence[np.ndarray | None]
) -> Place:
    """How k episodes get their initial states, for ``SimBatch.begin``.

    Args:
        setting: Says where episodes start.
        generator_of: The source of episode ``i``; only asked where something is drawn.
        inits: Where each starts, or ``None``.
    """
    model, initial = setting.model, setting.initial
    if not initial.is_own:
        inits = [initial.draw(generator_of(i)) if init is None else init for i, init in enumerate(inits)]

    def place(constants: Constants, xp: Any, dtype: Any) -> Columns:
        own = [i for i, init in enumerate(inits) if init is None]
        state = tuple(np.zeros(len(inits), dtype=dtype) for _ in model.state_labels)
        if own:
            uniforms = np.zeros((model.num_uniforms, len(inits)), dtype=dtype)
            for i in own if model.num_uniforms else ():
                uniforms[:, i] = generator_of(i).random(model.num_uniforms)
            drawn = model.initial_state(tuple(uniforms), constants, xp)
            state = tuple(column + value for column, value in zip(state, drawn, strict=True))
        told = {i: init for i, init in enumerate(inits) if init is not None}
        for width in {len(init) for init in told.values()}:
            rows = np.array([i for i, init in told.items() if len(init) == width])
            part = {name: value[rows] if isinstance(value, np.ndarray) else value for name, value in constants.items()}
            values = states_of_inits(model, np.stack([told[i] for i in rows.tolist()]), part, xp, dtype)
            for column, value in zip(state, values, strict=True):
                column[rows] = value
        return state

    return place
