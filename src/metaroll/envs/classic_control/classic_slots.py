"""Gymnasium's classic control behind the ``Slots`` protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from metaroll.envs.classic_control.formulas import Formula
from metaroll.errors import ShapeError
from metaroll.seeding import plan_env_seed
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, SlotStep, TaskNote

__all__ = ["ClassicControlSetting", "ClassicControlSlots"]

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class ClassicControlSetting:
    """What the slots of one environment have in common.

    Attributes:
        formula: Its steps.
        values: The attributes of the environment that ``formula`` reads, by name.
        env_spec: Spaces and time limit.
        limit: Steps after which an episode is truncated.
    """

    formula: Formula
    values: Mapping[str, float]
    env_spec: EnvSpec
    limit: int | None = None

    def accepts_plan(self, plan: RolloutPlan) -> bool:
        """Whether ``ClassicControlSlots`` can run ``plan``."""
        return plan.init_state is None and self.constants(plan.env_update) is not None

    def constants(self, update: EnvUpdate | None) -> tuple[float, ...] | None:
        """What steps need, and then seconds per step (NaN where the environment does not tell); ``None`` if ``update``
        does more than set attributes that the formula reads, or sets what cannot be stepped (a length of 0).
        """
        values = dict(self.values)
        if type(update) is DomainParamUpdate:
            for name, value in update.task.items():
                if name not in values:
                    return None
                values[name] = int(value) if type(values[name]) is int and value.is_integer() else value
        elif update is not None and not isinstance(update, TaskNote):
            return None
        dt = values.get("dt", np.nan)
        try:
            return None if dt <= 0 else (*self.formula.constants(values), dt)
        except ArithmeticError:
            return None


class ClassicControlSlots:
    """Many environments of one kind stepped as arrays; rollouts are those of the single environment, bit for bit.

    Args:
        num_slots: How many.
        setting: What they have in common.
    """

    def __init__(self, num_slots: int, setting: ClassicControlSetting) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, got {num_slots}")
        own = setting.constants(None)
        if own is None:
            raise ValueError(f"setting.values must be attributes of an environment that can be stepped, got {setting}")
        self.num_slots = num_slots
        self.env_spec = setting.env_spec
        self.name = "ClassicControlSlots"
        self._setting, self._formula = setting, setting.formula
        self._num_states = setting.formula.state_dim
        self._state = np.zeros((self._num_states + setting.formula.num_flags, num_slots))
        self._constants = np.repeat(np.array(own, dtype=np.float64)[:, None], num_slots, axis=1)
        self._last = np.zeros((num_slots, *(setting.env_spec.observation_space.shape or ())), dtype=np.float32)
        self._limit = _NEVER if setting.limit is None else setting.limit
        self._elapsed = np.zeros(num_slots, dtype=np.int64)
        self._waiting = set(range(num_slots))
        """Slots that have not been reset yet."""
        space = setting.env_spec.action_space
        self._num_choices = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else 0

    @property
    def states(self) -> np.ndarray:
        """States ``(E, S)`` (a copy)."""
        return self._state[: self._num_states].T.copy()

    @property
    def dt(self) -> np.ndarray | None:
        """Seconds per step of each slot ``(E,)``, where the environment tells."""
        return self._constants[-1].copy() if "dt" in self._setting.values else None

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> np.ndarray:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), O)``."""
        first = np.empty((len(slots), self._last.shape[1]), dtype=np.float32)
        for i, (slot, plan) in enumerate(zip(slots, plans, strict=True)):
            try:
                first[i] = self._start(slot, plan)
            except Exception as error:
                error._metaroll_slot = slot  # type: ignore[attr-defined]
                raise
        self._last[list(slots)] = first
        return first

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        """Step the environments where ``active (E,)`` with their ``actions``: ``(E, 1)``, or choices ``(E,)``."""
        active = np.asarray(active, dtype=bool)
        if self._waiting and active[list(self._waiting)].any():
            raise gymnasium.error.ResetNeeded("a slot must be reset with a plan before it is stepped")
        given = self._choices(actions, active) if self._num_choices else self._forces(actions)
        if active.all():
            self._state, observations, rewards, terminated = self._formula.advance(
                self._state, given, self._constants[:-1]
            )
        else:
            rows = np.flatnonzero(active)
            observations, rewards = self._last, np.zeros(self.num_slots)
            terminated = np.zeros(self.num_slots, dtype=bool)
            moved = self._formula.advance(self._state[:, rows], given[rows], self._constants[:-1, rows])
            self._state[:, rows], observations[rows], rewards[rows], terminated[rows] = moved
        self._last = observations.copy()
        self._elapsed += active
        return SlotStep(observations, rewards, terminated, active & (self._elapsed >= self._limit), {})

    def close(self) -> None:
        """Nothing to release."""

    def _start(self, slot: int, plan: RolloutPlan) -> np.ndarray:
        if plan.seed is None:
            raise ValueError("plan.seed must be set before a slot is reset: the engine resolves it to a seed triple")
        if plan.init_state is not None:
            raise ValueError(
                f"init_state must be None: {self.name} does not read reset(options={{'init_state': ...}}), got "
                f"{plan.init_state}"
            )
        constants = self._setting.constants(plan.env_update)
        if constants is None:
            raise TypeError(
                f"batched {self.name} takes DomainParamUpdate of {', '.join(self._setting.values)}, got "
                f"{plan.env_update!r}; step a list of environments: make_slots(..., plans=plans)"
            )
        generator = np.random.Generator(np.random.PCG64(plan_env_seed(plan.seed)))  # as Gymnasium seeds
        state = self._formula.draw(generator)
        self._constants[:, slot] = constants
        self._state[:, slot] = 0.0
        self._state[: self._num_states, slot] = state
        self._elapsed[slot] = 0
        self._waiting.discard(slot)
        return self._formula.first(state)

    def _forces(self, actions: Any) -> np.ndarray:
        """Actions of a Box as they reach the environments, ``(E,)``."""
        given = np.array(actions, dtype=np.float32)
        if given.ndim == 0 or len(given) != self.num_slots or given.size != self.num_slots:
            raise ShapeError(f"actions must have shape ({self.num_slots}, 1), got {given.shape}")
        return given.reshape(self.num_slots)

    def _choices(self, actions: Any, active: np.ndarray) -> np.ndarray:
        """Choices ``(E,)`` as whole numbers; rows that are not active are left alone."""
        given = np.asarray(actions)
        if given.shape != (self.num_slots,):
            raise ShapeError(
                f"actions must have shape ({self.num_slots},) for {self.env_spec.action_space}, got {given.shape}"
            )
        wrong = active & ~((given >= 0) & (given < self._num_choices) & (given == np.floor(given)))
        if wrong.any():
            slot = int(np.flatnonzero(wrong)[0])
            error = ValueError(
                f"actions must be indices from 0 to {self._num_choices - 1}, got {given[slot].item()!r} in slot {slot}"
            )
            error._metaroll_where = "the action given to the environment"  # type: ignore[attr-defined]
            raise error
        return given.astype(np.int64) if active.all() else np.where(active, given, 0).astype(np.int64)
