"""HalfCheetah that has to run at a hidden speed (MuJoCo; needs the extra ``metaroll[mujoco]``)."""

from __future__ import annotations

import numpy as np

from metaroll.envs.mujoco.task_envs import GymnasiumRobotEnv
from metaroll.envs.mujoco.task_rules import CheetahVelRules
from metaroll.seeding import as_generator

__all__ = ["CheetahVelEnv"]

MAX_VELOCITY = 3.0

_JOINTS = ("root_z", "root_angle", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
OBSERVATION_LABELS = (
    *_JOINTS,
    "root_x_dot",
    *(f"{joint}_dot" for joint in _JOINTS),
    "torso_x",
    "torso_y",
    "torso_z",
)


class CheetahVelEnv(GymnasiumRobotEnv):
    """Reward ``-|v - goal| - 0.05 |a|^2`` with v the mean forward speed over a step of 0.05 s, in m/s. Never ends.

    Observation ``(20,)``: positions without the forward one (8), velocities (9), position of the torso (3). The task is
    ``{"velocity": v}`` with v uniform in [0, 3]. The simulation is Gymnasium's HalfCheetah-v5, bitwise; its own
    reward weighs actions with 0.1 (oyster and garage: 0.05).

    Args:
        velocity: Goal speed in m/s.
        render_mode: As for Gymnasium's HalfCheetah-v5.
    """

    asset, camera_of, rules_of = "half_cheetah.xml", "half_cheetah_v5", CheetahVelRules
    observation_labels, action_labels = OBSERVATION_LABELS, _JOINTS[2:]

    def __init__(self, velocity: float = 0.0, render_mode: str | None = None) -> None:
        super().__init__({"velocity": velocity}, render_mode)

    @classmethod
    def sample_tasks(cls, num_tasks: int, generator: np.random.Generator | int | None = None) -> list[dict[str, float]]:
        """Tasks ``{"velocity": v}``, v uniform in [0, 3] m/s."""
        return [{"velocity": float(v)} for v in as_generator(generator).uniform(0.0, MAX_VELOCITY, size=num_tasks)]

    def get_task(self) -> dict[str, float]:
        """The current task."""
        return {"velocity": float(self._task_row["velocity"])}
