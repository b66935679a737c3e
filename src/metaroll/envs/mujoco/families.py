"""MuJoCo robots as families of tasks, with the numbers of tasks that publications use."""

from __future__ import annotations

import functools

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
from metaroll.tasks.task_sampler import SetTaskSampler

__all__: list[str] = []


def _forward_or_backward() -> SetTaskSampler:
    """Of an Ant, as Rakelly et al. 2019 describe it (section 6.1); their code draws two directions."""
    return SetTaskSampler(AntDirEnv, tasks=functools.partial(AntDirEnv.sample_tasks, forward_backward=True))


_FAMILIES = {
    "cheetah-vel": (CheetahVelEnv, 100, 30, "HalfCheetah (MuJoCo) running at a speed in [0, 3] m/s"),
    "ant-goal": (AntGoalEnv, 150, 30, "Ant (MuJoCo) running to a place in a disc of radius 3 m"),
    "humanoid-dir": (HumanoidDirEnv, 100, 30, "Humanoid (MuJoCo) running in any direction"),
    "hopper-rand-params": (HopperRandParamsEnv, 40, 10, "Hopper (MuJoCo) with another body in every task"),
    "walker-rand-params": (WalkerRandParamsEnv, 40, 10, "Walker2d (MuJoCo) with another body in every task"),
    "swimmer-vel": (SwimmerVelEnv, 40, 10, "Swimmer (MuJoCo) at a speed in [0.1, 0.2] m/s"),
}

for name, (kind, num_train, num_test, text) in _FAMILIES.items():
    register_family(TaskFamily(name, kind, num_train, num_test, kind.horizon, text))
# There are only two directions; both are used in training and in tests, as published.
_DIRECTIONS = {
    "cheetah-dir": (CheetahDirEnv, None, "HalfCheetah (MuJoCo) running forward or backward"),
    "ant-dir": (AntDirEnv, _forward_or_backward, "Ant (MuJoCo) running forward or backward"),
}
for name, (kind, source, text) in _DIRECTIONS.items():
    register_family(TaskFamily(name, kind, 2, 2, kind.horizon, text, source, same_tasks=True, all_tasks=True))
