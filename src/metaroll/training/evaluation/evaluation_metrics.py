"""Numbers of an evaluation: statistics of episodes under their usual names, and bootstrap intervals over tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from metaroll.checks import check_fraction
from metaroll.data.paths import TrajectoryBatch
from metaroll.data.rollouts import Rollouts
from metaroll.errors import ShapeError
from metaroll.functional.bootstrap import Interval, bca_bounds, interval_bounds, resamples

__all__ = [
    "Interval",
    "episode_outcomes",
    "episode_returns",
    "independent_means",
    "interval_method",
    "interval_of_mean",
    "interval_of_normalized_score",
    "intervals_of_means",
    "log_multitask_performance",
    "log_performance",
    "normalized_score",
    "without_repeats",
]

_NUM_RESAMPLES = 10_000
_FEWEST_FOR_BCA = 10


class _Episode(NamedTuple):
    rewards: np.ndarray
    terminated: bool
    env_infos: Mapping[str, Any]


# -- statistics of episodes --------------------------------------------------------------------------------------------


def episode_returns(rollouts: Any, reward_key: str | None = None) -> np.ndarray:
    """Undiscounted returns ``(N,)`` of rollouts (or of a ``TrajectoryBatch``).

    Args:
        rollouts: Sequence of ``StepSequence``, or a ``TrajectoryBatch``.
        reward_key: Name of an env_info to sum instead of the rewards.
    """
    return np.array([_rewards(e, reward_key).sum() for e in _episodes(rollouts)], dtype=np.float64)


def episode_outcomes(history: Sequence[Sequence[Any]], num_tasks: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Lengths and first successes of the episodes of all cells.

    Args:
        history: Rollouts of each cell, the same number of them.
        num_tasks: Number of tasks, to which the cells belong one after the other.

    Returns:
        Lengths, and steps up to the first success, shape ``(num_tasks, repetitions, episodes)`` each. The latter are 0
        without success, and ``None`` where the environment does not report ``success``.
    """
    shape = (num_tasks, len(history) // num_tasks, -1)
    episodes = [episode for rollouts in history for episode in _episodes(rollouts)]
    lengths = np.array([len(e.rewards) for e in episodes]).reshape(shape)
    if not all("success" in e.env_infos for e in episodes):
        return lengths, None
    flags = [_array(e.env_infos["success"]).astype(bool) for e in episodes]
    first = np.array([int(np.argmax(flag)) + 1 if flag.any() else 0 for flag in flags])
    return lengths, first.reshape(shape)


def log_performance(itr: int, batch: Any, discount: float, prefix: str = "Evaluation") -> dict[str, float]:
    """Statistics of whole episodes, as ``<prefix>/<name>`` -> number.

    Names are Iteration, NumTrajs, AverageDiscountedReturn, AverageReturn, StdReturn, MaxReturn, MinReturn,
    CompletionRate (share of episodes that the environment ended) and, where the environment reports ``success``,
    SuccessRate (share of episodes with success at any step), SuccessAtEndRate (at the last step) and StepsToSuccess
    (mean over the episodes with success of the steps up to the first one). Without episodes they are NaN, as
    StepsToSuccess is without success.

    Args:
        itr: Iteration to report.
        batch: ``TrajectoryBatch``, or sequence of ``StepSequence``.
        discount: Discount factor of AverageDiscountedReturn.
        prefix: First part of the names.

    Note:
        garage's function writes to a global table and returns the list of returns; here it returns what it would
        write, and ``episode_returns`` gives the list.
    """
    return _statistics(itr, list(_episodes(batch)), discount, prefix)


def log_multitask_performance(
    itr: int, batch: Any, discount: float, name_map: Mapping[int, str] | None = None, prefix: str = ""
) -> dict[str, float]:
    """``log_performance`` of every task, and of all episodes under the name ``Average``.

    A task's name is the first ``task_name`` of its episodes' env_infos, else the entry of ``name_map`` for their
    ``task_id`` (``Task #<id>`` without one), else ``__unnamed_task__``. Names of ``name_map`` without episodes are
    reported as NaN with 0 episodes.

    Args:
        itr: Iteration to report.
        batch: ``TrajectoryBatch``, or sequence of ``StepSequence``.
        discount: Discount factor.
        name_map: Task id -> name.
        prefix: Put before the task names, as ``<prefix>/<task>/<name>``.
    """
    episodes = list(_episodes(batch))
    names: dict[str, list[_Episode]] = {name: [] for name in (name_map or {}).values()}
    for episode in episodes:
        names.setdefault(_task_name(episode, name_map or {}), []).append(episode)
    head = f"{prefix}/" if prefix else ""
    metrics: dict[str, float] = {}
    for name, members in names.items():
        metrics.update(_statistics(itr, members, discount, head + name))
    metrics.update(_statistics(itr, episodes, discount, f"{head}Average"))
    return metrics


def _statistics(itr: int, episodes: Sequence[_Episode], discount: float, prefix: str) -> dict[str, float]:
    values: dict[str, float] = {"Iteration": itr, "NumTrajs": len(episodes)}
    returns = np.array([e.rewards.sum() for e in episodes]) if episodes else np.array([math.nan])
    discounted = [float(np.polynomial.polynomial.polyval(discount, e.rewards)) for e in episodes]
    values["AverageDiscountedReturn"] = float(np.mean(discounted)) if episodes else math.nan
    values["AverageReturn"] = float(returns.mean())
    values["StdReturn"] = float(returns.std())
    values["MaxReturn"] = float(returns.max())
    values["MinReturn"] = float(returns.min())
    values["CompletionRate"] = float(np.mean([e.terminated for e in episodes])) if episodes else math.nan
    flags = [_array(e.env_infos["success"]).astype(bool) for e in episodes if "success" in e.env_infos]
    if flags:
        first = [int(np.argmax(flag)) + 1 for flag in flags if flag.any()]
        values["SuccessRate"] = len(first) / len(flags)
        values["SuccessAtEndRate"] = float(np.mean([bool(flag[-1]) for flag in flags]))
        values["StepsToSuccess"] = float(np.mean(first)) if first else math.nan
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _task_name(episode: _Episode, name_map: Mapping[int, str]) -> str:
    infos = episode.env_infos
    if "task_name" in infos:
        return str(infos["task_name"][0])
    if "task_id" in infos:
        task_id = int(_array(infos["task_id"])[0])
        return name_map.get(task_id, f"Task #{task_id}")
    return "__unnamed_task__"


def _episodes(batch: Any) -> Iterator[_Episode]:
    if isinstance(batch, TrajectoryBatch):
        rewards, terminals = _array(batch.rewards), _array(batch.terminals)
        stop = 0
        for length in batch.lengths:
            start, stop = stop, stop + int(length)
            infos = {name: values[start:stop] for name, values in batch.env_infos.items()}
            yield _Episode(rewards[start:stop], bool(terminals[start:stop].any()), infos)
        return
    rollouts = Rollouts.of(batch)
    columns = rollouts.each("rewards"), rollouts.each("terminated"), rollouts.each("env_infos", {})
    for rewards, terminated, infos in zip(*columns, strict=True):
        yield _Episode(rewards.astype(np.float64, copy=False), bool(terminated.any()), infos)


def _rewards(episode: _Episode, key: str | None) -> np.ndarray:
    if key is None:
        return episode.rewards
    if key not in episode.env_infos:
        known = ", ".join(sorted(map(str, episode.env_infos))) or "none"
        raise ValueError(f"reward key {key!r} is not among the env_infos of the rollouts (they have: {known})")
    return _array(episode.env_infos[key]).astype(np.float64).reshape(-1)


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


# -- intervals over tasks ----------------------------------------------------------------------------------------------


def interval_method(num_tasks: int) -> str:
    """Method of intervals over this many tasks: ``"bca"``, ``"percentile"`` for few, whose skewness is unknown.

    Both stay in the range of the data. The basic bootstrap of ``bootstrap_ci`` does not: of 20 tasks with skewed
    returns, none above 0, it gives an upper bound above 0.
    """
    return "bca" if num_tasks >= _FEWEST_FOR_BCA else "percentile"


def independent_means(returns: np.ndarray, all_tasks: bool) -> np.ndarray:
    """Of returns (or differences) by task and repetition ``(M, R)`` those that differ from each other by chance.

    Means over repetitions of each task, ``(M,)``, where tasks are a sample of many; over all tasks of each repetition,
    ``(R,)``, where they are all there are.
    """
    return np.asarray(returns, dtype=np.float64).mean(axis=0 if all_tasks else 1)


def without_repeats(*returns: np.ndarray) -> list[np.ndarray]:
    """Returns by task and repetition ``(M, R)`` each, ``(M, 1)`` where all repetitions are equal in every bit.

    Those of a deterministic agent in a deterministic environment carry no more information than one.
    """
    arrays = [np.asarray(one, dtype=np.float64) for one in returns]
    return [one[:, :1] for one in arrays] if all((one == one[:, :1]).all() for one in arrays) else arrays


def interval_of_mean(values: Any, *, confidence: float = 0.95, method: str = "auto", seed: int = 0) -> Interval:
    """Bootstrap interval of the mean of ``values (M,)``, one per task; see ``intervals_of_means``."""
    values = np.asarray(values, dtype=np.float64).reshape(-1)
    low, high = intervals_of_means(values[:, None], confidence=confidence, method=method, seed=seed)
    return Interval(float(low[0]), float(high[0]))


def intervals_of_means(
    values: Any, *, confidence: float = 0.95, method: str = "auto", seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds ``(K,)``, ``(K,)`` of the means of K columns of ``values (M, K)``; rows (tasks) are resampled.

    Args:
        values: One row per task.
        confidence: Level of the intervals.
        method: ``"bca"``, ``"percentile"``, ``"basic"``, or ``"auto"`` for ``interval_method(M)``.
        seed: Seed of the resampling.

    Raises:
        ShapeError: ``values`` is no such table.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or not len(values):
        raise ShapeError(f"values must have shape (M, K) with at least one task, got {values.shape}")
    return _intervals(values, lambda rows: rows.mean(axis=-2), confidence, method, seed)


def _intervals(
    samples: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    confidence: float,
    method: str,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds ``(K,)`` of a statistic ``(..., M, D) -> (..., K)`` of ``samples (M, D)``; NaN for a single task."""
    tail = (1.0 - check_fraction("confidence", confidence)) / 2.0
    blocks = resamples(samples, _NUM_RESAMPLES, seed)
    estimate = statistic(samples)
    if len(samples) == 1:
        nothing = np.full(len(estimate), math.nan)
        return nothing, nothing.copy()
    replications = np.concatenate([statistic(block) for block in blocks])
    method = interval_method(len(samples)) if method == "auto" else method
    if method != "bca":
        return interval_bounds(estimate, replications, tail, method)
    left_out = np.stack([statistic(np.delete(samples, i, axis=0)) for i in range(len(samples))])
    return bca_bounds(estimate, replications, left_out, tail)


def normalized_score(after: Any, floor: Any, oracle: Any) -> float:
    """``(mean after - mean floor) / (mean oracle - mean floor)`` of returns per task, shape ``(M,)`` each.

    0 is as good as the floor, 1 as good as the oracle; NaN where these two are equal.
    """
    return float(_score(*_per_task(after, floor, oracle)))


def interval_of_normalized_score(after: Any, floor: Any, oracle: Any, *, seed: int = 0) -> Interval:
    """95 % bootstrap interval of ``normalized_score``; the three returns of a task are resampled together."""
    samples = np.stack(_per_task(after, floor, oracle), axis=1)
    if math.isnan(_score(*samples.T)):
        return Interval(math.nan, math.nan)
    low, high = _intervals(samples, lambda rows: _score(*np.moveaxis(rows, -1, 0))[..., None], 0.95, "auto", seed)
    return Interval(float(low[0]), float(high[0]))


def _score(after: np.ndarray, floor: np.ndarray, oracle: np.ndarray) -> np.ndarray:
    base = floor.mean(axis=-1)
    room = oracle.mean(axis=-1) - base
    return np.divide(after.mean(axis=-1) - base, room, out=np.full(np.shape(room), math.nan), where=room != 0)


def _per_task(after: Any, floor: Any, oracle: Any) -> tuple[np.ndarray, ...]:
    arrays = tuple(np.asarray(a, dtype=np.float64) for a in (after, floor, oracle))
    if arrays[0].ndim != 1 or not len(arrays[0]) or len({a.shape for a in arrays}) != 1:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"after, floor and oracle must have one return per task, shape (M,) each, got {shapes}")
    return arrays
