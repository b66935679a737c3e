"""What evaluators have in common: an engine of their own, and a state that a snapshot keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.training.evaluation.held_out_tasks import with_tasks
from metaroll.training.store.files import is_tree
from metaroll.types import EnvUpdate

__all__ = ["EvaluatorState"]


class EvaluatorState:
    """Seed, counter, held-out tasks and engine of an evaluator, whose constructor sets them."""

    seed: int
    test_task_sampler: TaskSampler | None
    _updates: list[EnvUpdate] | None
    _num_evaluations: int
    _engine: RolloutEngine | None

    def close(self) -> None:
        """End the engine that the evaluator made for itself."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def state_dict(self) -> dict[str, Any]:
        """Seed, counter and test tasks (where they are plain data)."""
        tasks = None if self._updates is None else [update.task for update in self._updates]
        return {
            "seed": self.seed,
            "num_evaluations": self._num_evaluations,
            "tasks": tasks if tasks is not None and is_tree(tasks) else None,
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on as the evaluator that gave ``state_dict`` would have: with its seed and test tasks."""
        self.seed = tree["seed"]
        self._num_evaluations = tree["num_evaluations"]
        if tree["tasks"] is not None and self.test_task_sampler is not None:
            self._updates = with_tasks(self.test_task_sampler.sample(len(tree["tasks"])), tree["tasks"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None}
