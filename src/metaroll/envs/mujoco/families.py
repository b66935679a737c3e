"""MuJoCo robots as families of tasks, with the numbers of tasks that publications use."""

from __future__ import annotations

from metaroll.envs.base.task_family import TaskFamily, register_family
from metaroll.envs.mujoco.cheetah_vel import CheetahVelEnv
from metaroll.envs.mujoco.task_envs import (
    AntDirEnv,
    AntGoalEnv,
    CheetahDirEnv,
    HopperRandParamsEnv,
    HumanoidDirEnv,
    SwimmerVelEnv,
    WalkerRandParamsEnv,
)

__all__: list[str] = []

_FAMILIES = {
    "cheetah-vel": (CheetahVelEnv, 100, 30, "HalfCheetah (MuJoCo) running at a speed in [0, 3] m/s"),
    "ant-dir": (AntDirEnv, 2, 2, "Ant (MuJoCo) running in any direction"),
    "ant-goal": (AntGoalEnv, 150, 30, "Ant (MuJoCo) running to a place in a disc of radius 3 m"),
    "humanoid-dir": (HumanoidDirEnv, 100, 30, "Humanoid (MuJoCo) running in any direction"),
    "hopper-rand-params": (HopperRandParamsEnv, 40, 10, "Hopper (MuJoCo) with another body in every task"),
    "walker-rand-params": (WalkerRandParamsEnv, 40, 10, "Walker2d (MuJoCo) with another body in every task"),
    "swimmer-vel": (SwimmerVelEnv, 40, 10, "Swimmer (MuJoCo) at a speed in [0.1, 0.2] m/s"),
}

for name, (kind, num_train, num_test, text) in _FAMILIES.items():
    register_family(TaskFamily(name, kind, num_train, num_test, kind.horizon, text))
# Both directions are trained and tested on, as published.
_TEXT = "HalfCheetah (MuJoCo) running forward or backward"
register_family(TaskFamily("cheetah-dir", CheetahDirEnv, 2, 2, CheetahDirEnv.horizon, _TEXT, same_tasks=True))
