"""Batched MuJoCo behind the ``Slots`` protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from metaroll.envs.mujoco.model_params import BoundModelParams
from metaroll.envs.mujoco.rules import Rules, Step, split_state
from metaroll.envs.mujoco.simulations import Simulations
from metaroll.errors import ShapeError
from metaroll.seeding import plan_env_seed
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, SlotStep, TaskNote

__all__ = ["MujocoSetting", "MujocoSlots"]

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class MujocoSetting:
    """What simulations of one environment have in common.

    Attributes:
        model: MuJoCo's model.
        rules: Observation, reward and ending.
        env_spec: Spaces and labels.
        init_qpos: Positions around which episodes start.
        init_qvel: Velocities around which they start.
        limit: Steps after which an episode is truncated.
        task: The task of plans that set none.
        task_type: What makes the single environment, whose ``SetTaskUpdate`` can be applied; ``None``: no tasks.
        name: What rollouts call the environment.
    """

    model: Any
    rules: Rules
    env_spec: EnvSpec
    init_qpos: np.ndarray
    init_qvel: np.ndarray
    limit: int | None = None
    task: Any = None
    task_type: Callable[..., Any] | None = None
    name: str = field(default="MujocoSlots")

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether ``MujocoSlots`` can apply ``update``: nothing, entries of the model, or a task without wrappers."""
        if update is None or isinstance(update, TaskNote):
            return True
        if type(update) is DomainParamUpdate:
            params = BoundModelParams(SimpleNamespace(model=self.model))
            return all(params.claims(path) for path in update.task)
        return (
            self.task_type is not None
            and type(update) is SetTaskUpdate
            and update.env_type == self.task_type
            and update.wrapper_constructor is None
        )


class MujocoSlots:
    """Many simulations of one MuJoCo environment, stepped in a few threads; all else is done on arrays.

    Rollouts are those of the single environment, bit for bit. A simulation whose numbers are no longer finite (MuJoCo
    then starts it again from the reference position) shows an observation of NaN, so that its rollout is refused.

    Args:
        num_slots: How many.
        setting: What they have in common.
        threads: How many threads step them; ``None`` means as ``physics_threads`` says.
    """

    def __init__(self, num_slots: int, setting: MujocoSetting, *, threads: int | None = None) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, got {num_slots}")
        self.num_slots = num_slots
        self.env_spec = setting.env_spec
        self.name = setting.name
        self._setting, self._rules = setting, setting.rules
        self._simulations = Simulations(num_slots, setting.model, setting.rules, threads)
        self._limit = _NEVER if setting.limit is None else setting.limit
        self._elapsed = np.zeros(num_slots, dtype=np.int64)
        space = setting.env_spec.action_space
        self._action_shape, self._action_type = (num_slots, *(space.shape or ())), space.dtype
        self._own_task = setting.rules.task_row(setting.task)
        self._task = {name: np.stack([np.asarray(value)] * num_slots) for name, value in self._own_task.items()}
        self._params: list[dict[str, float] | None] = [None] * num_slots
        self._last = setting.rules.observe(self._simulations.now, self._task)

    @property
    def dt(self) -> np.ndarray:
        """Seconds per step of each slot ``(E,)``."""
        return self._simulations.constants["dt"].copy()

    def domain_param(self, slot: int) -> dict[str, float] | None:
        """What is set in the model of a slot."""
        params = self._params[slot]
        return None if params is None else dict(params)

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> np.ndarray:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), O)``.

        ``plan.init_state`` holds positions and velocities, ``(nq + nv,)``.
        """
        for slot, plan in zip(slots, plans, strict=True):
            try:
                self._start(slot, plan)
            except Exception as error:
                error._metaroll_slot = slot  # type: ignore[attr-defined]
                raise
        rows = list(slots)
        now = {name: values[rows] for name, values in self._simulations.now.items()}
        first = self._rules.observe(now, {name: values[rows] for name, values in self._task.items()})
        self._elapsed[rows] = 0
        self._last[rows] = first
        return first

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        """Step the simulations where ``active (E,)`` with their rows of ``actions (E, A)``."""
        actions = np.array(actions, dtype=self._action_type)
        if actions.shape != self._action_shape:
            raise ShapeError(f"actions must have shape {self._action_shape}, got {actions.shape}")
        active = np.asarray(active, dtype=bool)
        simulations, rules = self._simulations, self._rules
        controls = rules.controls(actions)
        simulations.step(np.flatnonzero(active).tolist(), controls)
        now = simulations.now
        step = Step(simulations.before, now, actions, controls, simulations.constants, self._task)
        rewards, terminated, infos = rules.reward_and_termination(step)
        observations = rules.observe(now, self._task)
        unstable = simulations.unstable()
        if unstable is not None:
            observations[unstable] = np.nan
        if not active.all():
            observations[~active], rewards[~active] = self._last[~active], 0.0
            terminated &= active
        self._last = observations.copy()
        self._elapsed += active
        return SlotStep(observations, rewards, terminated, active & (self._elapsed >= self._limit), infos)

    def close(self) -> None:
        """Nothing to release; idle threads end with the object."""

    def _start(self, slot: int, plan: RolloutPlan) -> None:
        if plan.seed is None:
            raise ValueError("plan.seed must be set before a slot is reset: the engine resolves it to a seed triple")
        setting = self._setting
        self._apply(slot, plan.env_update)
        if plan.init_state is None:
            # As Gymnasium seeds an environment.
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(plan_env_seed(plan.seed))))
            qpos, qvel = self._rules.draw(generator, setting.init_qpos, setting.init_qvel)
        else:
            qpos, qvel = split_state(plan.init_state, setting.init_qpos.size, setting.init_qvel.size)
        self._simulations.start(slot, qpos, qvel)

    def _apply(self, slot: int, update: EnvUpdate | None) -> None:
        if not self._setting.accepts_update(update):
            raise TypeError(
                f"batched {self.name} takes DomainParamUpdate of entries of the MuJoCo model, and tasks of its own "
                f"class without a wrapper, got {update!r}; step a list of environments: make_slots(..., plans=plans)"
            )
        simulations, row = self._simulations, self._own_task
        self._params[slot] = None
        if isinstance(update, SetTaskUpdate):
            row = self._rules.task_row(update.task)
        if isinstance(update, DomainParamUpdate) and update.task:
            simulations.use_params(slot, update.task)
            self._params[slot] = dict(update.task)
        elif isinstance(update, SetTaskUpdate) and self._rules.changes_model:
            simulations.use_task(slot, update.task)
        else:
            simulations.use_base(slot)
        for name, value in row.items():
            self._task[name][slot] = value
