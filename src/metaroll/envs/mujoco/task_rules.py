"""Rules of the MuJoCo task families.

Velocities are mean ones over a step. Costs are of the actions as they were given, and of contact forces as Gymnasium's
environments of version 5 compute them: they were always zero in the publications of the families, whose simulators did
not compute them, so that returns of the ant and the humanoid differ from published ones by that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from metaroll.envs.mujoco.gymnasium_rules import body_mean_position
from metaroll.envs.mujoco.library import compute_again
from metaroll.envs.mujoco.rules import Arrays, Rules, Step, StepResult, as_rows, draw_uniform
from metaroll.errors import ShapeError

__all__ = [
    "AntDirRules",
    "AntGoalRules",
    "CheetahDirRules",
    "CheetahVelRules",
    "HopperParamsRules",
    "HumanoidDirRules",
    "ParamsRules",
    "SwimmerVelRules",
    "TaskRules",
    "WalkerParamsRules",
]


class TaskRules(Rules, ABC):
    """Base: where episodes start, and tasks of one number or array."""

    noise: ClassVar[float] = 0.1
    normal_velocities: ClassVar[bool] = True
    task_name: ClassVar[str]
    example: ClassVar[Any]
    """A value of the task, also the one that holds where none is set."""

    def draw(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions = draw_uniform(generator, qpos, self.noise)
        if self.normal_velocities:
            return positions, qvel + self.noise * generator.standard_normal(qvel.size)
        return positions, draw_uniform(generator, qvel, self.noise)

    def task_row(self, task: Any) -> dict[str, Any]:
        if task is None:
            return {self.task_name: np.array(self.example, dtype=np.float64)}
        name, shown = self.task_name, {self.task_name: self.example}
        if not isinstance(task, Mapping) or name not in task:
            raise ValueError(f"task must be a mapping with {name!r}, for instance {shown}, got {task!r}")
        value = np.array(task[name], dtype=np.float64)
        expected = np.shape(self.example)
        if value.size == 1 and expected == ():
            value = value.reshape(())
        if value.shape != expected:
            raise ShapeError(f"task[{name!r}] must have shape {expected}, got {value.shape}")
        if not np.isfinite(value).all():
            raise ValueError(f"{name} must be finite, got {value}")
        return {name: value}


class _Cheetah(ABC):
    """Observation ``(20,)``: positions without the forward one (8), velocities (9), position of the torso (3).

    The torso's position is the one that MuJoCo holds after a step, computed at the start of the last of its five
    sub-steps, as in oyster (Rakelly et al. 2019, arXiv:1903.08254).
    """

    frame_skip = 5

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {"torso": data.body("torso").xpos}

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"][:, 1:], now["qvel"], now["torso"]), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        x_position = step.now["qpos"][:, 0]
        velocity = (x_position - step.before["qpos"][:, 0]) / step.constants["dt"]
        forward, control = self.forward_reward(velocity, step.task), -0.05 * _squared(step.actions)
        infos = {
            "x_position": x_position.copy(),
            "x_velocity": velocity,
            "reward_forward": forward,
            "reward_ctrl": control,
        }
        return StepResult(forward + control, _never(forward), infos)

    @abstractmethod
    def forward_reward(self, velocity: np.ndarray, task: Arrays) -> np.ndarray:
        """Of the speed ``(E,)`` under the tasks."""


class CheetahVelRules(_Cheetah, TaskRules):
    """``-|v - goal| - 0.05 |a|^2``."""

    task_name, example = "velocity", 1.5

    def task_row(self, task: Any) -> dict[str, Any]:
        return {"velocity": np.array(0.0)} if task is None else super().task_row(task)

    def forward_reward(self, velocity: np.ndarray, task: Arrays) -> np.ndarray:
        return -np.abs(velocity - task["velocity"])


class CheetahDirRules(_Cheetah, TaskRules):
    """``direction * v - 0.05 |a|^2``."""

    task_name, example = "direction", 1.0

    def task_row(self, task: Any) -> dict[str, Any]:
        row = super().task_row(task)
        if abs(float(row["direction"])) != 1.0:
            raise ValueError(f"direction must be 1 (forward) or -1 (backward), got {float(row['direction'])}")
        return row

    def forward_reward(self, velocity: np.ndarray, task: Arrays) -> np.ndarray:
        return task["direction"] * velocity


class _Ant:
    """Observation of the ant, and the cost of contacts."""

    frame_skip = 5
    contacts = True

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {"cfrc_ext": data.cfrc_ext, "torso": data.body("torso").xpos}

    @staticmethod
    def contact_cost(now: Arrays) -> np.ndarray:
        return 0.5e-3 * np.square(_clipped_forces(now)).sum(axis=1)


class AntDirRules(_Ant, TaskRules):
    """``v . (cos, sin) - 0.5 |a|^2 - contact cost + 1``; ends when the height leaves [0.2, 1]."""

    task_name, example = "angle", 0.0

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"][:, 2:], now["qvel"]), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        qpos, now = step.now["qpos"], step.now
        velocity = (now["torso"][:, :2] - step.before["torso"][:, :2]) / step.constants["dt"][:, None]
        forward = np.vecdot(velocity, _unit(step.task["angle"]))
        control, contact = -0.5 * _squared(step.actions), -self.contact_cost(now)
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(now["qvel"]).all(axis=1)
        terminated = ~(finite & (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1.0))
        infos = {"reward_forward": forward, "reward_ctrl": control, "reward_contact": contact}
        return StepResult(forward + control + contact + 1.0, terminated, {**infos, **_place(now["torso"], velocity)})


class AntGoalRules(_Ant, TaskRules):
    """``-|xy - goal|_1 - 0.1 |a|^2 - contact cost``; never ends."""

    task_name, example = "goal", (1.0, 1.0)

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"], now["qvel"], _clipped_forces(now)), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        now = step.now
        velocity = (now["torso"][:, :2] - step.before["torso"][:, :2]) / step.constants["dt"][:, None]
        goal = -np.abs(now["torso"][:, :2] - step.task["goal"]).sum(axis=1)
        control, contact = -0.1 * _squared(step.actions), -self.contact_cost(now)
        infos = {"reward_goal": goal, "reward_ctrl": control, "reward_contact": contact}
        return StepResult(goal + control + contact, _never(goal), {**infos, **_place(now["torso"], velocity)})


class HumanoidDirRules(TaskRules):
    """``1.25 v . (cos, sin) - 0.1 |torques|^2 - contact cost + 5``, v of the center of mass.

    Ends when the height leaves [1, 2]. Actions in [-1, 1] are scaled to the range of the motors.
    """

    frame_skip = 5
    contacts = True
    noise = 0.01
    normal_velocities = False
    task_name, example = "angle", 0.0
    _SHOWN = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")

    def __init__(self, model: Any) -> None:
        self._scale = model.actuator_ctrlrange[:, 1].copy()

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {name: getattr(data, name) for name in (*self._SHOWN, "xipos")}

    def constants(self, model: Any) -> dict[str, Any]:
        return {"body_mass": model.body_mass, "total_mass": model.body_mass.sum()}

    def controls(self, actions: np.ndarray) -> np.ndarray:
        return self._scale * actions

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        parts = [as_rows(now[name]) for name in self._SHOWN]
        return np.concatenate((now["qpos"][:, 2:], now["qvel"], *parts), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        now, constants = step.now, step.constants
        place = body_mean_position(now, constants)
        velocity = (place - body_mean_position(step.before, constants))[:, :2] / constants["dt"][:, None]
        forward = 1.25 * np.vecdot(velocity, _unit(step.task["angle"]))
        forces = as_rows(np.square(now["cfrc_ext"])).sum(axis=1)
        control, contact = -0.1 * _squared(step.controls), -np.minimum(0.5e-6 * forces, 10.0)
        height = now["qpos"][:, 2]
        infos = {"reward_forward": forward, "reward_ctrl": control, "reward_contact": contact}
        terminated = ~((height >= 1.0) & (height <= 2.0))
        return StepResult(forward + control + contact + 5.0, terminated, {**infos, **_place(place, velocity)})


class SwimmerVelRules(TaskRules):
    """``-|v - goal| - 1e-4 |a|^2``; never ends (ProMP adds the distance to the goal)."""

    frame_skip = 4
    normal_velocities = False
    task_name, example = "velocity", 0.15

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"][:, 2:], now["qvel"]), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        qpos = step.now["qpos"]
        velocity = (qpos[:, :2] - step.before["qpos"][:, :2]) / step.constants["dt"][:, None]
        forward, control = -np.abs(velocity[:, 0] - step.task["velocity"]), -1e-4 * _squared(step.actions)
        infos = {"reward_forward": forward, "reward_ctrl": control}
        return StepResult(forward + control, _never(forward), {**infos, **_place(qpos, velocity)})


class ParamsRules(Rules, ABC):
    """``v + 1 - 0.001 |a|^2`` for robots with other bodies: a task is a factor for every entry of four attributes.

    Args:
        model: The robot whose entries are multiplied; it is not changed.
    """

    changes_model = True
    frame_skip = 4
    noise: ClassVar[float] = 0.005
    attributes: ClassVar[tuple[str, ...]] = ("body_mass", "dof_damping", "body_inertia", "geom_friction")

    def __init__(self, model: Any) -> None:
        self.nominal = {name: getattr(model, name).copy() for name in self.attributes}

    def draw(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return draw_uniform(generator, qpos, self.noise), draw_uniform(generator, qvel, self.noise)

    def task_row(self, task: Any) -> dict[str, Any]:
        if task is None:
            return {}
        if not isinstance(task, Mapping) or set(task) != set(self.attributes):
            got = list(task) if isinstance(task, Mapping) else task
            raise ValueError(f"task must be a mapping with factors for {', '.join(self.attributes)}, got {got!r}")
        for name, nominal in self.nominal.items():
            factors = np.asarray(task[name], dtype=np.float64)
            if factors.shape != nominal.shape:
                raise ShapeError(f"task[{name!r}] must have shape {nominal.shape}, got {factors.shape}")
            if not (np.isfinite(factors) & (factors > 0)).all():
                raise ValueError(f"task[{name!r}] must be positive and finite, got {factors}")
        return {}

    def set_in_model(self, model: Any, task: Any) -> None:
        """Masses, damping, inertia and friction; constants that MuJoCo derives from them are recomputed."""
        for name, nominal in self.nominal.items():
            getattr(model, name)[:] = nominal * np.asarray(task[name], dtype=np.float64)
        compute_again(model)

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"][:, 1:], np.clip(now["qvel"], -10, 10)), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        x_position = step.now["qpos"][:, 0]
        velocity = (x_position - step.before["qpos"][:, 0]) / step.constants["dt"]
        control = -1e-3 * _squared(step.actions)
        infos = {"x_position": x_position.copy(), "x_velocity": velocity, "reward_ctrl": control}
        return StepResult(velocity + control + 1.0, ~self.is_upright(step.now), infos)

    @abstractmethod
    def is_upright(self, now: Arrays) -> np.ndarray:
        """Which robots stand, bool ``(E,)``."""


class HopperParamsRules(ParamsRules):
    """Ends unless the height is above 0.7, the angle within 0.2, and all else within 100."""

    def is_upright(self, now: Arrays) -> np.ndarray:
        state = np.concatenate((now["qpos"][:, 2:], now["qvel"]), axis=1)
        height, angle = now["qpos"][:, 1], now["qpos"][:, 2]
        return (np.abs(state) < 100).all(axis=1) & (height > 0.7) & (np.abs(angle) < 0.2)


class WalkerParamsRules(ParamsRules):
    """Ends unless the height is between 0.8 and 2, and the angle within 1."""

    def is_upright(self, now: Arrays) -> np.ndarray:
        height, angle = now["qpos"][:, 1], now["qpos"][:, 2]
        return (height > 0.8) & (height < 2.0) & (np.abs(angle) < 1.0)


def _squared(actions: np.ndarray) -> np.ndarray:
    """Squared norms ``(E,)``, in double precision."""
    rows = actions.astype(np.float64)
    return np.vecdot(rows, rows)


def _never(rewards: np.ndarray) -> np.ndarray:
    return np.zeros(len(rewards), dtype=bool)


def _unit(angles: np.ndarray) -> np.ndarray:
    return np.stack((np.cos(angles), np.sin(angles)), axis=1)


def _clipped_forces(now: Arrays) -> np.ndarray:
    return as_rows(np.clip(now["cfrc_ext"], -1.0, 1.0))


def _place(position: np.ndarray, velocity: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "x_position": position[:, 0].copy(),
        "y_position": position[:, 1].copy(),
        "x_velocity": velocity[:, 0].copy(),
        "y_velocity": velocity[:, 1].copy(),
    }
