"""What an agent does in held-out tasks, filmed: before and after adaptation, or simply a policy at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.rollouts.single.video import drawing_env, film
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.figures.video import Panel

__all__ = ["record_video", "tasks_to_film"]


def tasks_to_film(algo: Any, evaluator: MetaEvaluator | PolicyEvaluator) -> tuple[int, str]:
    """How many tasks ``record_video`` can choose from, and what they are: held-out tasks, or episodes without any."""
    updates = evaluator.prepare(algo)
    if updates or isinstance(evaluator, MetaEvaluator):
        return len(updates), "held-out tasks"
    return evaluator.num_episodes, "episodes"


def record_video(
    algo: Any, evaluator: MetaEvaluator | PolicyEvaluator, env: Any, tasks: Sequence[int] = (0,)
) -> list[list[Panel]]:
    """One row of panels per held-out task, of the very episodes that the evaluation consists of.

    Of an algorithm that adapts: the first episode in the task, of which nothing is known yet, and the first adapted
    one. Of others one episode; without held-out tasks ``tasks`` are the numbers of episodes.

    Args:
        algo: The algorithm.
        evaluator: Its evaluator.
        env: The environment that ``evaluator`` runs: an id, or what makes one.
        tasks: Which tasks, counted from 0.

    Raises:
        ValueError: The environment cannot be drawn, or there are fewer tasks.
    """
    updates = evaluator.prepare(algo)
    count, what = tasks_to_film(algo, evaluator)
    for task in tasks:
        if not 0 <= task < count:
            raise ValueError(f"tasks must be from 0 to {count - 1}, since there are {count} {what}, got {task}")
    # What cannot be drawn is found before the evaluation, which may take long.
    drawing_env(env, updates[tasks[0]] if updates else None).close()
    if isinstance(evaluator, PolicyEvaluator):
        episodes = evaluator.evaluate(algo, keep_rollouts=True).rollouts or ()
        spots = [(task, 0) if updates else (0, task) for task in tasks]
        shown = [
            [(_title(task, bool(updates)), episodes[row][column])]
            for task, (row, column) in zip(tasks, spots, strict=True)
        ]
    else:
        result = evaluator.evaluate(algo, keep_rollouts=True)
        cells, explored = result.rollouts or (), result.num_exploration
        after = f"after {explored} episode" + ("" if explored == 1 else "s")
        shown = [
            [
                (f"{result.task_names[task]}: before adaptation", cells[task * evaluator.repetitions][0]),
                (f"{result.task_names[task]}: {after}", cells[task * evaluator.repetitions][explored]),
            ]
            for task in tasks
        ]
    key = evaluator.return_reward_key
    return [
        [
            Panel(title, film(rollout, env, updates[task] if updates else None), _rewards(rollout, key))
            for title, rollout in row
        ]
        for task, row in zip(tasks, shown, strict=True)
    ]


def _title(number: int, is_task: bool) -> str:
    return f"task {number}" if is_task else f"episode {number + 1}"


def _rewards(rollout: StepSequence, key: str | None) -> np.ndarray:
    return np.asarray(rollout.rewards if key is None else rollout.env_infos[key], dtype=float)
