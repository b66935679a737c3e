"""MuJoCo robots with tasks; they need the extra ``metaroll[mujoco]``.

Simulations are those of Gymnasium's environments of version 5.
"""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.mujoco import task_rules
from metaroll.envs.mujoco.gymnasium_envs import default_camera
from metaroll.envs.mujoco.library import load_mujoco
from metaroll.envs.mujoco.robot_env import RobotEnv
from metaroll.envs.mujoco.rules import Rules
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = [
    "AntDirEnv",
    "AntGoalEnv",
    "CheetahDirEnv",
    "GymnasiumRobotEnv",
    "HopperRandParamsEnv",
    "HumanoidDirEnv",
    "SwimmerVelEnv",
    "WalkerRandParamsEnv",
]

_Generator = np.random.Generator | int | None


class GymnasiumRobotEnv(RobotEnv, ABC):
    """Base: a robot from Gymnasium's files, actions in [-1, 1].

    Args:
        task: The current task; ``None`` means that of the rules.
        render_mode: ``None``, or as for Gymnasium's MuJoCo environments.
    """

    asset: ClassVar[str]
    """File of the robot."""
    camera_of: ClassVar[str]
    """Gymnasium's module whose camera is used."""
    rules_of: ClassVar[Callable[..., Rules]]
    """Class of the rules; ``needs_model``: it is called with the model."""
    needs_model: ClassVar[bool] = False
    horizon: ClassVar[int] = 200
    observation_labels: ClassVar[tuple[str, ...] | None] = None
    action_labels: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, task: Any = None, render_mode: str | None = None) -> None:
        kind = type(self)
        mujoco = load_mujoco(kind.__name__)
        folder = Path(next(iter(gymnasium.envs.__path__))) / "mujoco"
        model = mujoco.MjModel.from_xml_path(str(folder / "assets" / kind.asset))
        rules = kind.rules_of(model) if kind.needs_model else kind.rules_of()
        shape, now = (model.nu,), self._first(mujoco, model, rules)
        spec = EnvSpec(
            Box(-np.inf, np.inf, rules.observe(now, {}).shape[1:], np.float64),
            Box(-1.0, 1.0, shape, np.float32),
            kind.horizon,
            observation_labels=kind.observation_labels,
            action_labels=kind.action_labels,
        )
        camera = default_camera(kind.camera_of)
        super().__init__(model, rules, spec, task=task, render_mode=render_mode, camera=camera)

    @staticmethod
    def _first(mujoco: Any, model: Any, rules: Rules) -> dict[str, np.ndarray]:
        data = mujoco.MjData(model)
        views = {"qpos": data.qpos, "qvel": data.qvel, **rules.observed(model, data)}
        return {name: view[None].copy() for name, view in views.items()}

    def get_task(self) -> Any:
        """The current task."""
        return self._rules.task_row(None) if self._task is None else super().get_task()


class CheetahDirEnv(GymnasiumRobotEnv):
    """HalfCheetah that has to run forward or backward: reward ``direction * v - 0.05 |a|^2``, never ends.

    The task is ``{"direction": 1.0}`` or ``{"direction": -1.0}``. Observation ``(20,)`` as of ``CheetahVelEnv``.
    """

    asset, camera_of, rules_of = "half_cheetah.xml", "half_cheetah_v5", task_rules.CheetahDirRules

    @classmethod
    def sample_tasks(cls, num_tasks: int, generator: _Generator = None) -> list[dict[str, float]]:
        """Either direction with probability 1/2."""
        return [{"direction": float(d)} for d in as_generator(generator).choice((-1.0, 1.0), size=num_tasks)]


class AntDirEnv(GymnasiumRobotEnv):
    """Ant that has to run in a direction: ``v . direction - 0.5 |a|^2 - contact cost + 1``.

    Ends when its height leaves [0.2, 1]. The task is ``{"angle": radians}``. Observation ``(27,)``: positions without
    x and y (13), velocities (14).
    """

    asset, camera_of, rules_of = "ant.xml", "ant_v5", task_rules.AntDirRules

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: _Generator = None, *, forward_backward: bool = False
    ) -> list[dict[str, float]]:
        """Angles uniform in [0, 2 pi), or (``forward_backward``) 0 and pi with probability 1/2."""
        drawn = as_generator(generator)
        angles = np.pi * drawn.integers(2, size=num_tasks) if forward_backward else 2 * np.pi * drawn.random(num_tasks)
        return [{"angle": float(angle)} for angle in angles]


class AntGoalEnv(GymnasiumRobotEnv):
    """Ant that has to get to a place: ``-|xy - goal|_1 - 0.1 |a|^2 - contact cost``, never ends.

    The task is ``{"goal": (x, y)}`` in a disc of radius 3. Observation ``(113,)``: positions (15), velocities (14),
    contact forces clipped to [-1, 1] (84).
    """

    asset, camera_of, rules_of = "ant.xml", "ant_v5", task_rules.AntGoalRules

    @classmethod
    def sample_tasks(cls, num_tasks: int, generator: _Generator = None) -> list[dict[str, np.ndarray]]:
        """Goals uniform in the disc."""
        drawn = as_generator(generator)
        angles, radii = 2 * np.pi * drawn.random(num_tasks), 3.0 * np.sqrt(drawn.random(num_tasks))
        goals = np.stack((radii * np.cos(angles), radii * np.sin(angles)), axis=1)
        return [{"goal": goal} for goal in goals]


class HumanoidDirEnv(GymnasiumRobotEnv):
    """Humanoid that has to run in a direction: ``1.25 v . direction - 0.1 |torques|^2 - contact cost + 5``.

    Ends when its height leaves [1, 2]. The task is ``{"angle": radians}``. Observation ``(376,)`` as in Gymnasium's
    version 3. Actions in [-1, 1] are scaled to the range of the motors.
    """

    asset, camera_of, rules_of = "humanoid.xml", "humanoid_v5", task_rules.HumanoidDirRules
    needs_model = True

    @classmethod
    def sample_tasks(cls, num_tasks: int, generator: _Generator = None) -> list[dict[str, float]]:
        """Angles uniform in [0, 2 pi)."""
        return [{"angle": float(angle)} for angle in 2 * np.pi * as_generator(generator).random(num_tasks)]


class SwimmerVelEnv(GymnasiumRobotEnv):
    """Swimmer that has to swim at a speed: ``-|v - goal| - 1e-4 |a|^2``, never ends.

    The task is ``{"velocity": v}`` with v uniform in [0.1, 0.2] m/s. Observation ``(8,)``: joints and velocities.
    """

    asset, camera_of, rules_of = "swimmer.xml", "swimmer_v5", task_rules.SwimmerVelRules
    horizon = 100

    @classmethod
    def sample_tasks(cls, num_tasks: int, generator: _Generator = None) -> list[dict[str, float]]:
        """Velocities uniform in [0.1, 0.2] m/s."""
        return [{"velocity": float(v)} for v in as_generator(generator).uniform(0.1, 0.2, size=num_tasks)]


class _RandomBodies:
    """Tasks that are factors of a robot's masses, damping, inertia and friction."""

    needs_model = True
    _rules: Any
    _task: Any

    def get_task(self) -> Any:
        """The current task: factors of the nominal values."""
        if self._task is None:
            return {name: np.ones_like(value) for name, value in self._rules.nominal.items()}
        return copy.deepcopy(self._task)

    def sample_tasks(self, num_tasks: int, generator: _Generator = None) -> list[dict[str, np.ndarray]]:
        """Factors ``1.5^u`` (of damping ``1.3^u``) for every entry, u uniform in [-3, 3]."""
        drawn = as_generator(generator)
        nominal: dict[str, np.ndarray] = self._rules.nominal
        return [
            {
                name: (1.3 if name == "dof_damping" else 1.5) ** drawn.uniform(-3.0, 3.0, size=value.shape)
                for name, value in nominal.items()
            }
            for _ in range(num_tasks)
        ]


class HopperRandParamsEnv(_RandomBodies, GymnasiumRobotEnv):
    """Hopper with another body in every task: ``v + 1 - 0.001 |a|^2`` until it falls.

    The task holds a factor for every entry of ``body_mass``, ``dof_damping``, ``body_inertia`` and ``geom_friction``.
    Observation ``(11,)``: positions without the forward one, velocities clipped to 10.
    """

    asset, camera_of, rules_of = "hopper.xml", "hopper_v5", task_rules.HopperParamsRules


class WalkerRandParamsEnv(_RandomBodies, GymnasiumRobotEnv):
    """Walker with another body in every task: as ``HopperRandParamsEnv``, observation ``(17,)``."""

    asset, camera_of, rules_of = "walker2d_v5.xml", "walker2d_v5", task_rules.WalkerParamsRules
