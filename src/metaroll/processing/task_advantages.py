"""Returns, fitted baselines and advantages of many tasks at once, on columns; shared by the documented processors and
the learners.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from metaroll.checks import check_unit_interval, check_whole
from metaroll.data.data_format import map_leaves
from metaroll.errors import ShapeError
from metaroll.functional.advantages import gae, shaped_advantages
from metaroll.functional.regression import explained_variance
from metaroll.functional.returns import discounted_reverse_cumsum_ragged
from metaroll.processing.baselines import fit_to_tasks
from metaroll.processing.path_columns import PathColumns, PathGroup
from metaroll.types import Baseline

__all__ = ["DiceTasks", "TaskAdvantages", "dice_tasks", "normalized_rewards", "padded", "task_advantages"]


@dataclass(frozen=True)
class TaskAdvantages:
    """T steps of M tasks.

    Attributes:
        columns: Observations, actions and rewards, bounds of paths and tasks.
        returns: Discounted rewards-to-go of each step, ``(T,)``.
        values: Prediction of the task's baseline at each step, ``(T,)``.
        advantages: Generalized advantages, normalized and shifted within each task if requested, ``(T,)``.
    """

    columns: PathColumns
    returns: np.ndarray
    values: np.ndarray
    advantages: np.ndarray

    @cached_property
    def explained_variance(self) -> np.ndarray:
        """Explained variance of ``returns`` by the baseline of each task, ``(M,)``."""
        edges = pairwise(self.columns.task_bounds.tolist())
        return np.array([explained_variance(self.values[a:b], self.returns[a:b]) for a, b in edges])

    @cached_property
    def adj_avg_rewards(self) -> np.ndarray:
        """Rewards, normalized over all tasks together, ``(T,)``: E-MAML's weights of the exploration term."""
        return normalized_rewards(self.columns.rewards)

    def by_task(self, column: Any) -> list[Any]:
        """A column ``(T, ...)`` as M views, one for each task."""
        return self.columns.by_task(column)


def task_advantages(
    paths: PathColumns | Iterable[PathGroup],
    baseline: Baseline,
    *,
    discount: float = 0.99,
    gae_lambda: float = 1.0,
    normalize_adv: bool = False,
    positive_adv: bool = False,
    bootstrap_truncated: bool = False,
) -> TaskAdvantages:
    """Generalized advantages of the paths of M tasks, with a baseline fitted to each task separately.

    Args:
        paths: The paths of each task (``Rollouts``, or lists of rollouts or path dicts), or their columns.
        baseline: Fitted to the returns of each task; afterwards it holds the fit of the last one.
        discount: In [0, 1].
        gae_lambda: In [0, 1]; 1 gives returns minus baseline.
        normalize_adv: Normalize advantages within each task.
        positive_adv: Shift the (normalized) advantages of each task so that they are positive.
        bootstrap_truncated: Bootstrap truncated paths with the baseline's value of the last observation. Otherwise the
            value after the end of any path is 0: right if all episodes have the same length.

    Raises:
        ShapeError, DataError, TypeError, ValueError: See ``PathColumns.of``.
        ValueError: ``discount`` or ``gae_lambda`` lies outside [0, 1], or with ``bootstrap_truncated`` paths lack
            ``terminated`` or their last observation.
    """
    discount, gae_lambda = check_unit_interval("discount", discount), check_unit_interval("gae_lambda", gae_lambda)
    columns = paths if isinstance(paths, PathColumns) else PathColumns.of(paths)
    if bootstrap_truncated:
        _require_ends(columns)
    returns = np.asarray(discounted_reverse_cumsum_ragged(columns.rewards, columns.bounds, discount))
    values, last_values = fit_to_tasks(baseline, columns, returns, finals=bootstrap_truncated)
    raw = _gae(columns, values, last_values, discount, gae_lambda)
    advantages = raw
    if normalize_adv or positive_adv:
        advantages = np.empty_like(raw)
        for a, b in pairwise(columns.task_bounds.tolist()):
            advantages[a:b] = shaped_advantages(raw[a:b], normalize=normalize_adv, positive=positive_adv)
    return TaskAdvantages(columns, returns, values, advantages)


@dataclass(frozen=True)
class DiceTasks:
    """N paths of M tasks, padded with zeros to L steps.

    Attributes:
        columns: Observations, actions and rewards, bounds of paths and tasks.
        mask: 1 at steps, 0 at padding, float64 ``(N, L)``.
        adjusted_rewards: Discounted rewards minus the baseline's, normalized and shifted within each task if
            requested, ``(N, L)``.
        advantages: Generalized advantages, likewise, ``(N, L)``; ``None`` without a return baseline.
        explained_variance: Explained variance of each task's discounted rewards by the reward baseline, ``(M,)``.
    """

    columns: PathColumns
    mask: np.ndarray
    adjusted_rewards: np.ndarray
    advantages: np.ndarray | None
    explained_variance: np.ndarray

    @cached_property
    def adj_avg_rewards(self) -> np.ndarray:
        """Rewards, normalized over all steps of all tasks together, ``(N, L)``; padding does not count."""
        return padded(normalized_rewards(self.columns.rewards), self.columns, self.mask.shape[1])

    def pad(self, column: Any) -> Any:
        """A column ``(T, ...)`` with a row for each path, ``(N, L, ...)``."""
        return padded(column, self.columns, self.mask.shape[1])

    def by_task(self, rows: Any) -> list[Any]:
        """Rows ``(N, ...)`` (or a dict or tuple of such) as M views, one for each task."""
        edges = pairwise(self.columns.tasks.tolist())
        return [map_leaves(lambda leaf, _, a=a, b=b: leaf[a:b], rows) for a, b in edges]


def dice_tasks(
    paths: PathColumns | Iterable[PathGroup],
    baseline: Baseline,
    max_path_length: int,
    *,
    discount: float = 0.99,
    gae_lambda: float = 1.0,
    normalize_adv: bool = True,
    positive_adv: bool = False,
    return_baseline: Baseline | None = None,
    bootstrap_truncated: bool = False,
) -> DiceTasks:
    """Inputs of the DICE objective for M tasks (Foerster et al. 2018, arXiv:1802.05098; baselines as in ProMP).

    The adjusted reward of step ``t`` is ``discount^t r_t`` minus the prediction of a time-dependent baseline, fitted to
    these within each task. Statistics are over true steps only, and padding is 0.

    Args:
        paths: See ``task_advantages``.
        baseline: Fitted to discounted rewards.
        max_path_length: L; no path may be longer.
        discount, gae_lambda, normalize_adv, positive_adv: See ``task_advantages``.
        return_baseline: Fitted to returns, for generalized advantages; ``None``: none are computed.
        bootstrap_truncated: For these advantages, see ``task_advantages``.

    Raises:
        ShapeError: A path is longer than ``max_path_length``.
        ShapeError, DataError, TypeError, ValueError: See ``task_advantages``.
    """
    length = check_whole("max_path_length", max_path_length)
    discount = check_unit_interval("discount", discount)
    columns = paths if isinstance(paths, PathColumns) else PathColumns.of(paths)
    longest = int(np.argmax(columns.lengths))
    if columns.lengths[longest] > length:
        raise ShapeError(
            f"paths must have at most max_path_length={length} steps, but {columns.name_of(longest)} has "
            f"{columns.lengths[longest]}"
        )
    rewards = discount**columns.times * columns.rewards
    values, _ = fit_to_tasks(baseline, columns, rewards, key="discounted_rewards")
    mask = np.arange(length) < columns.lengths[:, None]
    adjusted = _shaped_rows(rewards - values, columns, mask, normalize_adv, positive_adv)
    advantages = None
    if return_baseline is not None:
        estimate = task_advantages(
            columns, return_baseline, discount=discount, gae_lambda=gae_lambda, bootstrap_truncated=bootstrap_truncated
        )
        advantages = _shaped_rows(estimate.advantages, columns, mask, normalize_adv, positive_adv)
    else:
        check_unit_interval("gae_lambda", gae_lambda)
    edges = pairwise(columns.task_bounds.tolist())
    explained = np.array([explained_variance(values[a:b], rewards[a:b]) for a, b in edges])
    return DiceTasks(columns, mask.astype(np.float64), adjusted, advantages, explained)


def padded(column: Any, columns: PathColumns, length: int) -> Any:
    """A column ``(T, ...)`` (or a dict or tuple of such), as zero-padded rows, one per path: ``(N, length, ...)``."""
    mask = np.arange(length) < columns.lengths[:, None]

    def in_rows(leaf: np.ndarray, _: Any) -> np.ndarray:
        rows = np.zeros((*mask.shape, *leaf.shape[1:]), dtype=leaf.dtype)
        rows[mask] = leaf
        return rows

    return map_leaves(in_rows, column)


def normalized_rewards(rewards: np.ndarray) -> np.ndarray:
    """Rewards ``(T,)`` minus their mean, divided by their standard deviation."""
    return shaped_advantages(rewards, normalize=True, positive=False)


def _shaped_rows(
    column: np.ndarray, columns: PathColumns, mask: np.ndarray, normalize: bool, positive: bool
) -> np.ndarray:
    """A column ``(T,)``, shaped within each task and padded, ``(N, L)``."""
    rows = padded(column, columns, mask.shape[1])
    for a, b in pairwise(columns.tasks.tolist()):
        rows[a:b] = shaped_advantages(rows[a:b], normalize=normalize, positive=positive, mask=mask[a:b])
    return rows


def _gae(
    columns: PathColumns, values: np.ndarray, last_values: np.ndarray | None, discount: float, gae_lambda: float
) -> np.ndarray:
    if last_values is None:  # the value after the end of a path is 0
        terminated = np.zeros(len(values), dtype=bool)
        terminated[columns.bounds[1:] - 1] = True
    else:
        assert columns.terminated is not None
        terminated = columns.terminated
    options: dict[str, Any] = {"terminated": terminated, "bounds": columns.bounds, "final_values": last_values}
    return np.asarray(gae(columns.rewards, values, discount=discount, gae_lambda=gae_lambda, **options))


def _require_ends(columns: PathColumns) -> None:
    if columns.terminated is None or columns.last_observations is None:
        lacking = "terminated" if columns.terminated is None else "final_observation"
        raise ValueError(
            f"bootstrap_truncated needs paths that tell how they ended, but not all have {lacking!r}; give rollouts of "
            "a sampler of metaroll, or path dicts with 'terminated' (t,) and 'final_observation'"
        )
