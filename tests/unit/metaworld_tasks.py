"""Meta-World without Meta-World: what its task sampler reads of a benchmark, for tests that build no environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from metaroll.envs.metaworld.tasks import MetaWorldTask


def fake_benchmark(train: tuple[str, ...], test: tuple[str, ...] = (), goals: int = 50) -> Any:
    """Classes ``name -> object`` and ``goals`` tasks for each; the data of task ``i`` is ``b"i"``."""
    return SimpleNamespace(
        train_classes={name: object for name in train},
        test_classes={name: object for name in test},
        train_tasks=[MetaWorldTask(name, b"%d" % i) for name in train for i in range(goals)],
        test_tasks=[MetaWorldTask(name, b"%d" % i) for name in test for i in range(goals)],
    )
