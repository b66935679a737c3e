"""Plans of the rollouts that a run keeps going over calls: each a function of its number alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from metaroll.seeding import derive_seed
from metaroll.tasks.task_sampler import OwnDraws, TaskSampler
from metaroll.types import EnvUpdate, RolloutPlan

__all__ = ["LivePlans"]

_BLOCK = 32
"""Tasks that are drawn at a time (a sampler may have to make an environment for that)."""

_MOST_BLOCKS = 64


class LivePlans:
    """From a number to the plan of that number, for ``RolloutEngine.open``; picklable if the tasks are.

    Args:
        seed: Seed of the run.
        tasks: Source of the environments' updates: a task sampler that draws from a given generator, or that has a
            list of its tasks (a ``DomainRandomizer``, ``SetTaskSampler``, ...), or such a list. ``None``: no updates.
        max_steps: Maximum number of steps of a rollout.
        deterministic: Act by the deterministic policy.

    Raises:
        TypeError: ``tasks`` is something else.
        ValueError: ``tasks`` is an empty list.
    """

    def __init__(
        self,
        seed: int,
        tasks: TaskSampler | Sequence[EnvUpdate] | None,
        max_steps: int | None,
        deterministic: bool = False,
    ) -> None:
        self._seed, self._sub_seed = seed, derive_seed("live rollouts")
        if isinstance(tasks, EnvUpdate) or not (tasks is None or isinstance(tasks, TaskSampler | Iterable)):
            raise TypeError(f"env_updates must be a list of EnvUpdates, or a task sampler, got {tasks!r}")
        self._tasks = tasks if tasks is None or isinstance(tasks, TaskSampler) else list(tasks)
        self._max_steps, self._deterministic = max_steps, deterministic
        self._blocks: dict[int, list[EnvUpdate]] = {}
        if isinstance(self._tasks, list):
            if not self._tasks:
                raise ValueError("env_updates must hold at least one update, got an empty list")
            for update in self._tasks:
                if not isinstance(update, EnvUpdate):
                    raise TypeError(f"env_updates must hold EnvUpdates, got {update!r}")
        elif self._tasks is not None and isinstance(self._tasks.drawing(), OwnDraws):
            raise TypeError(
                f"env_updates must be a list, or a sampler that draws from a given generator, and "
                f"{type(self._tasks).__name__} only has its own; give it a method drawing(), or pass what its "
                "sample(n) returns"
            )

    def __call__(self, number: int) -> RolloutPlan:
        return RolloutPlan(
            index=number,
            seed=(self._seed, self._sub_seed, number),
            env_update=None if self._tasks is None else self._update(self._tasks, number),
            max_steps=self._max_steps,
            deterministic=self._deterministic,
        )

    def described(self) -> dict[str, Any]:
        """Arguments that calls after a resume must repeat, as plain data."""
        tasks = self._tasks
        kind = f"a list of {len(tasks)}" if isinstance(tasks, list) else type(tasks).__name__
        return {"env_updates": "None" if tasks is None else kind, "deterministic": self._deterministic}

    def _update(self, tasks: TaskSampler | list[EnvUpdate], number: int) -> EnvUpdate:
        block, place = divmod(number, _BLOCK)
        if block not in self._blocks:
            generator = np.random.default_rng(derive_seed("live tasks", self._seed, block))
            if isinstance(tasks, list):
                drawn = [tasks[i] for i in generator.integers(len(tasks), size=_BLOCK).tolist()]
            else:
                with tasks.drawing() as draw:
                    drawn = draw(_BLOCK, generator)
            while len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.pop(next(iter(self._blocks)))
            self._blocks[block] = drawn
        return self._blocks[block][place]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_blocks": {}}
