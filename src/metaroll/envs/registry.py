"""Families of tasks by name: an environment, how many tasks to train and to test on, and the horizon."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.envs.mujoco.cheetah_vel import CheetahVelEnv
from metaroll.envs.point_robot import PointRobotEnv, SparsePointRobotEnv
from metaroll.errors import unknown_name
from metaroll.seeding import mix_seed
from metaroll.tasks.task_sampler import draw_tasks
from metaroll.tasks.updates import SetTaskUpdate, task_key
from metaroll.types import EnvUpdate

__all__ = ["TaskFamily", "family_names", "get_family"]

_MAX_REDRAWS = 20


@dataclass(frozen=True)
class TaskFamily:
    """A distribution of tasks on one environment, with the split that publications use.

    Attributes:
        name: What the command line calls it.
        env_constructor: Makes the environment; it has ``sample_tasks`` and ``set_task``.
        num_train_tasks: Default number of training tasks.
        num_test_tasks: Default number of held-out tasks.
        horizon: Steps of an episode.
        description: One line.
    """

    name: str
    env_constructor: Callable[[], Any]
    num_train_tasks: int
    num_test_tasks: int
    horizon: int
    description: str = ""

    def split(
        self, num_train: int | None = None, num_test: int | None = None, seed: int = 0
    ) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
        """Training and held-out tasks: the first and the last of one list, all different from one another.

        Args:
            num_train: Number of training tasks; ``None`` means the family's own.
            num_test: Number of held-out tasks; ``None`` means the family's own.
            seed: The same seed and numbers give the same tasks, everywhere.
        """
        counts = {
            "num_train": self.num_train_tasks if num_train is None else num_train,
            "num_test": self.num_test_tasks if num_test is None else num_test,
        }
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
                raise ValueError(f"{name} must be a whole number of tasks, 0 or more, got {count!r}")
        tasks = self._distinct_tasks(sum(counts.values()), seed)
        updates: list[EnvUpdate] = [SetTaskUpdate(self.env_constructor, task) for task in tasks]
        return updates[: counts["num_train"]], updates[counts["num_train"] :]

    def _distinct_tasks(self, num_tasks: int, seed: int) -> list[Any]:
        generator = np.random.default_rng(mix_seed("tasks", self.name, int(seed)))
        owner = self._task_owner()
        tasks: dict[Any, Any] = {}
        for _ in range(_MAX_REDRAWS):
            for task in draw_tasks(owner, num_tasks - len(tasks), generator):
                tasks.setdefault(task_key(task), task)
            if len(tasks) == num_tasks:
                return list(tasks.values())
        raise ValueError(
            f"{self.name} must have {num_tasks} different tasks for this split, found {len(tasks)}; "
            "ask for fewer training or test tasks"
        )

    def _task_owner(self) -> Any:
        """The class where its ``sample_tasks`` needs no instance (and no simulator), otherwise an environment."""
        constructor = self.env_constructor
        if isinstance(constructor, type):
            method = inspect.getattr_static(constructor, "sample_tasks", None)
            if isinstance(method, classmethod | staticmethod):
                return constructor
        return constructor()


_FAMILIES = {
    family.name: family
    for family in (
        TaskFamily(
            "point-robot",
            PointRobotEnv,
            80,
            20,
            20,
            "a point in the plane; goals in the square [-1, 1]^2, dense reward",
        ),
        TaskFamily(
            "sparse-point-robot",
            SparsePointRobotEnv,
            80,
            20,
            20,
            "a point in the plane; goals on the unit half circle, sparse reward in the context",
        ),
        TaskFamily("cheetah-vel", CheetahVelEnv, 100, 30, 200, "HalfCheetah (MuJoCo) running at a speed in [0, 3] m/s"),
    )
}


def family_names() -> list[str]:
    """Names of all families."""
    return list(_FAMILIES)


def get_family(name: str) -> TaskFamily:
    """The family called ``name``; an unknown name gives an error with the nearest ones."""
    if name not in _FAMILIES:
        raise unknown_name("task family", name, _FAMILIES)
    return _FAMILIES[name]
