"""The result of an evaluation: the returns of all its episodes, and statistics of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import counted
from metaroll.functional.first_finished import first_finished_rates
from metaroll.functional.robust_statistics import (
    interquartile_mean,
    interval_of_iqm,
    sign_flip_interval,
    wilson_interval_of_tasks,
)
from metaroll.tasks.task_key import task_text
from metaroll.training.evaluation.evaluation_metrics import (
    Interval,
    independent_means,
    interval_method,
    interval_of_mean,
    intervals_of_means,
    without_repeats,
)
from metaroll.training.evaluation.html_table import in_notebook
from metaroll.training.evaluation.numbers import short_number, with_interval
from metaroll.training.evaluation.verdict import Verdict, least_effect
from metaroll.training.store.files import to_plain

__all__ = ["Cell", "EvaluationResult", "PolicyEvaluation"]


class Cell(NamedTuple):
    """One episode of an evaluation: where it takes place, and the seed of all its randomness."""

    task: int
    repetition: int
    episode: int
    seed: tuple[int, int, int]


@dataclass(frozen=True, repr=False)
class EvaluationResult:
    """Returns of a meta-test. Intervals are 95 % bootstrap intervals over tasks (10,000 resamples).

    Their method is BCa, for fewer than ten tasks percentile (``interval_method``): both stay in the range of the data.

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
        lengths: Steps of the episodes, in the shape of ``returns``.
        success_steps: Steps up to the first success, 0 without one, in the same shape; ``None`` where the environment
            does not report it.
        provenance: The versions and rules that the environment reports.
        rollouts: All episodes of each cell, where they were asked for.
        verdict: Whether it adapts, where that was examined (``Agent.evaluate``); printed, it is a sentence.
        all_tasks: Whether the tasks are all there are, and no sample of many: then paired differences differ by chance
            over repetitions alone.
        unadapted_returns: Returns of the exploration policy in the very episodes of the adapted one, shape
            ``(num_tasks, repetitions, num_adapted)``; ``None`` unless exploration has noise that adapted episodes lack.
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
    lengths: np.ndarray | None = field(default=None, repr=False)
    success_steps: np.ndarray | None = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    rollouts: Sequence[Sequence[StepSequence]] | None = field(default=None, repr=False)
    verdict: Verdict | None = None
    unadapted_returns: np.ndarray | None = field(default=None, repr=False)
    all_tasks: bool = False

    def __str__(self) -> str:
        """The verdict and the returns, as ``metaroll evaluate`` shows them."""
        after = with_interval(self.return_after, self.return_after_interval)
        explored, tasks = counted(self.num_exploration, "exploration episode"), counted(len(self.tasks), "task")
        returns = f"return in the first episode {short_number(self.return_before)} -> after {explored} {after}"
        text = f"{returns} on {tasks} (95 % bootstrap)"
        return text if self.verdict is None else f"{self.verdict}\n{text}"

    def __repr__(self) -> str:
        after = with_interval(self.return_after, self.return_after_interval)
        known = "" if self.verdict is None else f"; {self.verdict}"
        tasks = counted(len(self.tasks), "task")
        return f"EvaluationResult(return {short_number(self.return_before)} -> {after} on {tasks}{known})"

    def _repr_html_(self) -> str:
        """In a notebook: its text, and the returns in each task."""
        rows = zip(self.task_labels, *(map(short_number, column) for column in self._columns().values()), strict=True)
        return in_notebook(str(self), ["task", *self._columns()], rows, "Mean return in each task")

    def _columns(self) -> dict[str, list[float]]:
        """The columns of the table of tasks, by name."""
        without = self.unadapted_per_task
        columns = {"first episode": self.before_per_task, "after adaptation": self.after_per_task}
        columns |= {} if without is None else {"without adaptation": without}
        columns |= {} if self.success_per_task is None else {"successes": self.success_per_task}
        return {name: column.tolist() for name, column in columns.items()}

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
    def score(self) -> float:
        """The summary number of the evaluation: ``return_after``."""
        return self.return_after

    @property
    def score_interval(self) -> Interval:
        """Interval of ``score``."""
        return self.return_after_interval

    @property
    def change(self) -> float:
        """``return_after - return_before``: the change over the episodes of a task.

        It is no gain by adaptation, since other episodes are compared, and those of exploration may have noise that
        the adapted ones lack; that is ``gain_per_task``, or ``AdaptationStudy.gain``.
        """
        return self.return_after - self.return_before

    @property
    def unadapted_per_task(self) -> np.ndarray | None:
        """Mean return of no adaptation in each task, shape ``(M,)``, where ``unadapted_returns`` are known."""
        return None if self.unadapted_returns is None else self.unadapted_returns.mean(axis=(1, 2))

    @property
    def return_unadapted(self) -> float | None:
        """Mean return of no adaptation in the adapted episodes, where ``unadapted_returns`` are known."""
        return None if self.unadapted_returns is None else float(self.unadapted_returns.mean())

    @property
    def gain_per_task(self) -> np.ndarray | None:
        """The gain of adaptation: adapted minus no adaptation, in the same episodes of each task, shape ``(M,)``."""
        without = self.unadapted_per_task
        return None if without is None else self.after_per_task - without

    @property
    def return_after_iqm(self) -> float:
        """Interquartile mean over tasks and repetitions of the return of adapted episodes: outliers do not count."""
        return interquartile_mean(self._runs)

    @cached_property
    def return_after_iqm_interval(self) -> Interval:
        """Its stratified bootstrap interval (repetitions are redrawn in each task); NaN for one repetition."""
        return interval_of_iqm(self._runs, generator=0)

    @property
    def _runs(self) -> np.ndarray:
        """Return of adapted episodes by repetition and task."""
        return self.returns[:, :, self.num_exploration :].mean(axis=2).T

    @property
    def success_per_task(self) -> np.ndarray | None:
        """Share of adapted episodes with success at any step in each task, shape ``(M,)``, if that is known."""
        return None if self.success_steps is None else (self._first_successes > 0).mean(axis=(1, 2))

    @property
    def success_rate(self) -> float | None:
        """Share of adapted episodes with success: all planned ones count, however long they take."""
        return None if self.success_steps is None else float((self._first_successes > 0).mean())

    @property
    def success_interval(self) -> Interval | None:
        """95 % Wilson interval of ``success_rate``.

        Over tasks, or over repetitions where the tasks are all there are; over episodes where there is one of these.
        """
        if self.success_steps is None:
            return None
        flags = self._first_successes > 0
        rates = independent_means(flags.mean(axis=2), self.all_tasks)
        return wilson_interval_of_tasks(rates if len(rates) > 1 else flags.reshape(-1), flags.size)

    @property
    def _first_successes(self) -> np.ndarray:
        return np.asarray(self.success_steps)[:, :, self.num_exploration :]

    def first_finished_success_rate(self, num_episodes: int = 3) -> float:
        """The rate by the biased rule of Meta-World's evaluation (see ``first_finished_rates``), mean over names.

        Tasks of one name and their repetitions are the instances, whose adapted episodes follow one another. What it
        is above ``success_rate`` is the bias.

        Args:
            num_episodes: Episodes that count per name; at least this many adapted ones are needed per cell.
        """
        if self.success_steps is None or self.lengths is None:
            raise ValueError("the environment reports no success: give it an env_info of that name")
        first = self._first_successes.reshape(-1, self._first_successes.shape[2])
        whole = self.lengths[:, :, self.num_exploration :].reshape(first.shape)
        names = [name for name in self.task_names for _ in range(self.returns.shape[1])]
        rates = first_finished_rates(names, np.where(first > 0, first, whole), first > 0, num_episodes)
        return float(np.mean(list(rates.values())))

    @property
    def equal_lengths(self) -> bool:
        """Whether all adapted episodes have one length, so that none of them is the first to finish.

        In Meta-World they count up to the first success, where its own evaluation ends them and we do not.
        """
        if self.lengths is None:
            return False
        steps = self.lengths[:, :, self.num_exploration :]
        if self.success_steps is not None and self.provenance.get("benchmark") == "Meta-World":
            steps = np.where(self._first_successes > 0, self._first_successes, steps)
        return bool((steps == steps.flat[0]).all())

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
    def change_interval(self) -> Interval:
        """Interval of ``change`` (both returns of a task are resampled together)."""
        return self._interval(2)

    @property
    def episode_intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of ``return_per_episode``."""
        low, high = self._bounds
        return low[3:], high[3:]

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        axis = 0 if self.all_tasks else 1  # see independent_means
        parts = (self.returns[:, :, :1], self.returns[:, :, self.num_exploration :])
        before, after = (part.mean(axis=(axis, 2)) for part in parts)
        columns = [before, after, after - before, *self.returns.mean(axis=axis).T]
        return intervals_of_means(np.stack(columns, axis=1))

    def _interval(self, column: int) -> Interval:
        low, high = self._bounds
        return Interval(float(low[column]), float(high[column]))

    def summary(self) -> dict[str, float]:
        """The numbers that a log keeps: returns before and after, change, intervals, and each episode's mean.

        Where ``unadapted_returns`` are known there are ``return_unadapted`` and, paired with it, ``gain`` and
        ``share_worse``: the share of tasks with a lower return after adaptation than without, by more than
        ``verdict.least_effect``. Else ``share_worse`` compares with the first exploration episode.
        """
        values = {"return_before": self.return_before, "return_after": self.return_after, "change": self.change}
        intervals = dict(zip(values, map(self._interval, range(3)), strict=True))
        for name in intervals:
            values[f"{name}_ci_low"], values[f"{name}_ci_high"] = intervals[name]
        without, gains = self.unadapted_per_task, self.gain_per_task
        if self.unadapted_returns is None or without is None or gains is None:
            values["share_worse"] = float((self.after_per_task < self.before_per_task).mean())
        else:
            after, before = self.returns[:, :, self.num_exploration :].mean(axis=2), self.unadapted_returns.mean(axis=2)
            after, before = without_repeats(after, before) if self.all_tasks else (after, before)
            low, high = sign_flip_interval(independent_means(after - before, self.all_tasks))
            values |= {"return_unadapted": float(without.mean()), "gain": float(gains.mean())}
            values |= {"gain_ci_low": low, "gain_ci_high": high}
            values["share_worse"] = float((gains < -least_effect(self.after_per_task, without)).mean())
        values.update({f"return_episode_{i}": float(r) for i, r in enumerate(self.return_per_episode, start=1)})
        return values

    @property
    def task_labels(self) -> list[str]:
        """A short text for each task: its values (``velocity=1.42``), or its name where it has none."""
        return _task_labels(self.task_names, self.tasks)

    def task_rows(self) -> list[dict[str, Any]]:
        """A row for each task, as ``evaluation.json`` has it: ``name``, its values as ``task``, and its numbers."""
        texts = [task_text(task) for task in self.tasks]
        return [
            {"name": name, **({"task": text} if text else {}), **numbers}
            for text, (name, numbers) in zip(texts, self.per_task(), strict=True)
        ]

    def per_task(self) -> list[tuple[str, dict[str, float]]]:
        """Name of each task, its returns, and its share of successes where that is known."""
        columns = {"return_before": self.before_per_task, "return_after": self.after_per_task}
        if self.success_per_task is not None:
            columns["success_rate"] = self.success_per_task
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [(name, dict(zip(columns, row, strict=True))) for name, row in zip(self.task_names, rows, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; NaN bounds (a single task) are kept as ``nan``, which ``write_json`` can write."""
        low, high = self.episode_intervals
        mean = self.return_per_episode
        return {
            "return_before": self.return_before,
            "return_before_interval": list(self.return_before_interval),
            "return_after": self.return_after,
            "return_after_interval": list(self.return_after_interval),
            "change": self.change,
            "change_ci_low": self.change_interval.low,
            "change_ci_high": self.change_interval.high,
            "return_after_iqm": self.return_after_iqm,
            "return_after_iqm_interval": list(self.return_after_iqm_interval),
            "success_rate": self.success_rate,
            "success_interval": None if self.success_interval is None else list(self.success_interval),
            "per_task": self.task_rows(),
            "provenance": dict(self.provenance),
            "adaptation_curve": {
                "episode": list(range(1, len(mean) + 1)),
                "mean": mean.tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
                "num_exploration": self.num_exploration,
            },
            "interval_method": interval_method(self.returns.shape[1] if self.all_tasks else len(self.tasks)),
            "all_tasks": self.all_tasks,
            "n_test_tasks": len(self.tasks),
            "repetitions": int(self.returns.shape[1]),
            "n_exploration_episodes": self.num_exploration,
            "n_adapted_episodes": int(self.returns.shape[2]) - self.num_exploration,
            "reward_key": self.reward_key,
            "env_steps": self.env_steps,
            "task_names": list(self.task_names),
            "tasks": [_plain_task(task) for task in self.tasks],
            "returns": self.returns.tolist(),
            **({} if self.verdict is None else {"verdict": self.verdict.to_dict()}),
        }


@dataclass(frozen=True, repr=False)
class PolicyEvaluation:
    """Returns of an evaluation.

    Attributes:
        returns: Undiscounted returns, shape ``(num_tasks, num_episodes)``; one row for the environment as it is.
        tasks: The tasks, in the order of ``returns``; ``None`` for the environment as it is.
        task_names: Their names.
        reward_key: The env_info that was summed; ``None`` means the reward.
        env_steps: Steps that the evaluation took.
        metrics: ``<prefix>/Average/<name>`` -> number, of all episodes (see ``log_performance``).
        prefix: First part of these names.
        rollouts: All episodes, task by task, where they were asked for.
    """

    returns: np.ndarray
    tasks: list[Any]
    task_names: list[str]
    reward_key: str | None = None
    env_steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict, repr=False)
    prefix: str = "Evaluation"
    rollouts: Sequence[Sequence[StepSequence]] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        tasks, episodes = self.returns.shape
        each = counted(episodes, "episode")
        where = f"{counted(tasks, 'task')}, {each} each" if tasks > 1 else each
        return f"PolicyEvaluation(return {with_interval(self.return_mean, self.return_interval)} on {where})"

    def _repr_html_(self) -> str:
        """In a notebook: its text, and the return in each task."""
        labels, means = _task_labels(self.task_names, self.tasks), self.returns.mean(axis=1).tolist()
        ends = zip(self.returns.min(axis=1).tolist(), self.returns.max(axis=1).tolist(), strict=True)
        rows = [
            (label, short_number(mean), short_number(low), short_number(high))
            for label, mean, (low, high) in zip(labels, means, ends, strict=True)
        ]
        return in_notebook(str(self), ["task", "return", "lowest", "highest"], rows, "Mean return in each task")

    @property
    def return_mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @cached_property
    def return_interval(self) -> Interval:
        """95 % bootstrap interval of ``return_mean``: over tasks, or over the episodes where there is one task.

        Its method is that of ``EvaluationResult``.
        """
        return interval_of_mean(self._samples)

    @property
    def _samples(self) -> np.ndarray:
        return self.returns.mean(axis=1) if len(self.returns) > 1 else self.returns[0]

    @property
    def score(self) -> float:
        """The summary number of the evaluation: ``return_mean``."""
        return self.return_mean

    @property
    def score_interval(self) -> Interval:
        """Interval of ``score``."""
        return self.return_interval

    def summary(self) -> dict[str, float]:
        """The numbers that a log keeps."""
        low, high = self.return_interval
        return {
            "return_mean": self.return_mean,
            "return_mean_ci_low": low,
            "return_mean_ci_high": high,
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
        }

    def per_task(self) -> list[tuple[str, dict[str, float]]]:
        """Name of each task, and its numbers; empty for the nominal environment."""
        if len(self.returns) == 1 and self.tasks[0] is None:
            return []
        means = self.returns.mean(axis=1).tolist()
        return [(name, {"return_mean": mean}) for name, mean in zip(self.task_names, means, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        texts = [task_text(task) for task in self.tasks]
        return {
            "return_mean": self.return_mean,
            "return_interval": list(self.return_interval),
            "interval_method": interval_method(len(self._samples)),
            "n_test_tasks": len(self.returns),
            "n_episodes": int(self.returns.shape[1]),
            "reward_key": self.reward_key,
            "env_steps": self.env_steps,
            "task_names": list(self.task_names),
            **({"task_values": texts, "tasks": [_plain_task(task) for task in self.tasks]} if any(texts) else {}),
            "returns": self.returns.tolist(),
        }


def _task_labels(names: Sequence[str], tasks: Sequence[Any]) -> list[str]:
    return [task_text(task) or name for name, task in zip(names, tasks, strict=True)]


def _plain_task(task: Any) -> Any:
    try:
        return to_plain(task)
    except TypeError:
        return repr(task)
