"""What a meta-test found: returns of all episodes of all cells, and what to read from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from metaroll.training.evaluation_metrics import Interval, intervals_of_means
from metaroll.training.files import to_plain

__all__ = ["Cell", "EvaluationResult"]


class Cell(NamedTuple):
    """One episode of an evaluation: where it takes place, and the seed of all its randomness."""

    task: int
    repetition: int
    episode: int
    seed: tuple[int, int, int]


@dataclass(frozen=True)
class EvaluationResult:
    """Returns of a meta-test. Intervals are 95 % bootstrap intervals over tasks (10,000 resamples, basic method).

    Attributes:
        returns: Undiscounted returns, shape ``(num_tasks, repetitions, num_exploration + num_adapted)``.
        num_exploration: Episodes before the adapted ones.
        tasks: The tasks, in the order of ``returns``.
        task_names: Their names.
        cells: Seeds of all episodes, in the order of ``returns.ravel()``.
        reward_key: The env_info that was summed; ``None`` means the reward.
        env_steps: Steps that the evaluation took.
        metrics: ``<prefix>/<group>/<name>`` -> number (see ``log_multitask_performance``), of the adapted episodes.
        prefix: First part of these names.
    """

    returns: np.ndarray
    num_exploration: int
    tasks: list[Any]
    task_names: list[str]
    cells: list[Cell] = field(repr=False)
    reward_key: str | None = None
    env_steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict, repr=False)
    prefix: str = "MetaTest"

    @property
    def before_per_task(self) -> np.ndarray:
        """Mean return of the first exploration episode in each task, shape ``(M,)``."""
        return self.returns[:, :, 0].mean(axis=1)

    @property
    def after_per_task(self) -> np.ndarray:
        """Mean return of the adapted episodes in each task, shape ``(M,)``."""
        return self.returns[:, :, self.num_exploration :].mean(axis=(1, 2))

    @property
    def return_before(self) -> float:
        """Mean return of first exploration episodes."""
        return float(self.before_per_task.mean())

    @property
    def return_after(self) -> float:
        """Mean return of adapted episodes."""
        return float(self.after_per_task.mean())

    @property
    def gain(self) -> float:
        """``return_after - return_before``."""
        return self.return_after - self.return_before

    @property
    def return_per_episode(self) -> np.ndarray:
        """Mean return of the first, second, ... episode, shape ``(num_exploration + num_adapted,)``."""
        return self.returns.mean(axis=(0, 1))

    @property
    def return_before_interval(self) -> Interval:
        """Interval of ``return_before``."""
        return self._interval(0)

    @property
    def return_after_interval(self) -> Interval:
        """Interval of ``return_after``."""
        return self._interval(1)

    @property
    def gain_interval(self) -> Interval:
        """Interval of ``gain`` (both returns of a task are resampled together)."""
        return self._interval(2)

    @property
    def episode_intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of ``return_per_episode``."""
        low, high = self._bounds
        return low[3:], high[3:]

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        before, after = self.before_per_task, self.after_per_task
        columns = [before, after, after - before, *self.returns.mean(axis=1).T]
        return intervals_of_means(np.stack(columns, axis=1))

    def _interval(self, column: int) -> Interval:
        low, high = self._bounds
        return Interval(float(low[column]), float(high[column]))

    def summary(self) -> dict[str, float]:
        """The numbers that a log keeps: returns before and after, gain, intervals, and each episode's mean."""
        values = {"return_before": self.return_before, "return_after": self.return_after, "gain": self.gain}
        for name in list(values):
            interval = getattr(self, f"{name}_interval")
            values[f"{name}_ci_low"], values[f"{name}_ci_high"] = interval
        values.update({f"return_episode_{i}": float(r) for i, r in enumerate(self.return_per_episode, start=1)})
        return values

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; NaN bounds (a single task) are kept as ``nan``, which ``write_json`` can write."""
        low, high = self.episode_intervals
        mean = self.return_per_episode
        return {
            "return_before": self.return_before,
            "return_before_interval": list(self.return_before_interval),
            "return_after": self.return_after,
            "return_after_interval": list(self.return_after_interval),
            "gain": self.gain,
            "gain_ci_low": self.gain_interval.low,
            "gain_ci_high": self.gain_interval.high,
            "adaptation_curve": {
                "episode": list(range(1, len(mean) + 1)),
                "mean": mean.tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
                "num_exploration": self.num_exploration,
            },
            "n_test_tasks": len(self.tasks),
            "repetitions": int(self.returns.shape[1]),
            "n_exploration_episodes": self.num_exploration,
            "n_adapted_episodes": int(self.returns.shape[2]) - self.num_exploration,
            "reward_key": self.reward_key,
            "env_steps": self.env_steps,
            "task_names": list(self.task_names),
            "tasks": [_plain_task(task) for task in self.tasks],
            "returns": self.returns.tolist(),
        }


def _plain_task(task: Any) -> Any:
    try:
        return to_plain(task)
    except TypeError:
        return repr(task)
