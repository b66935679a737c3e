"""Arrays for meta-gradients, from rollouts in M tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.functional.distributions import DiagonalGaussian
from metaroll.functional.gradients.meta_gradients import Samples
from metaroll.functional.returns import discounted_reverse_cumsum_ragged
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.processing.baselines import LinearFeatureBaseline, LinearTimeBaseline
from metaroll.processing.on_policy import OnPolicyData, collect_on_policy, info_rewards
from metaroll.processing.path_columns import PathColumns
from metaroll.processing.task_advantages import dice_tasks, task_advantages
from metaroll.types import EnvSpec

__all__ = ["Gathered", "SampleSettings", "gather"]


_TINY = 1e-8
_LEAST_SPREAD = 1e-6
"""Minimum spread of returns in a task, relative to the largest: below it, normalizing would amplify rounding errors."""
_ROUNDING = 1e-7
"""Relative rounding error of rewards that may have been float32."""


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """Settings of the advantage estimate; ``time_rewards`` adds the rewards for ``magic_box_objective``.

    ``context_reward_key`` names the env_info that replaces the reward before adaptation; ``None`` keeps the reward.
    """

    discount: float
    gae_lambda: float
    normalize_advantages: bool
    time_rewards: bool
    context_reward_key: str | None = None


class Gathered(NamedTuple):
    """Samples of M tasks, without the old policies yet, and their metrics.

    ``returns`` are undiscounted means ``(M,)``; ``explained_variance`` is that of the baselines.
    """

    samples: Samples
    returns: np.ndarray
    explained_variance: float
    data: OnPolicyData


def gather(
    groups: Sequence[Sequence[StepSequence]],
    policy: NormalizedPolicy,
    env_spec: EnvSpec,
    settings: SampleSettings,
    device: torch.device,
    tasks: Sequence[Any] | None = None,
    *,
    is_context: bool = True,
) -> Gathered:
    """Samples of the rollouts of M tasks, ``groups[m]`` those of one task, with a baseline fitted to each task.

    The value after the end of a rollout is 0, whether terminated or truncated: values depend on the remaining time.
    ``tasks`` names the tasks in errors; ``is_context`` means that the rollouts are used for adaptation, so that
    ``context_reward_key`` applies.

    Raises:
        DataError, ShapeError: Rollouts hold NaN or Inf, or do not fit ``env_spec``.
        ValueError: A task has no rollout.
    """
    for m, group in enumerate(groups):
        if not len(group):
            name = m if tasks is None else f"{m} ({tasks[m]})"
            raise ValueError(
                f"rollouts must hold at least one per task, got none for task {name}: none was collected (a sampler "
                "that stopped early, episodes that were filtered out), or they were assigned to another task"
            )
    rollouts = Rollouts.joined(groups)
    data = _in_units_of(policy, rollouts, collect_on_policy(rollouts, env_spec), env_spec)
    episode_returns, key = data.episode_returns, settings.context_reward_key
    if is_context and key is not None:
        infos = rollouts.column("env_infos") if rollouts.has_column("env_infos") else None
        data = replace(data, rewards=info_rewards(infos, key, len(data)).astype(np.float64))
    columns = PathColumns(
        data.observations,
        data.actions,
        data.rewards,
        data.bounds,
        np.concatenate([[0], np.cumsum([len(group) for group in groups])]),
        data.terminated,
        finals=data.last_observations,
    )
    place = _Places(columns)
    # GAE with a linear baseline per task, (T,)
    estimate = task_advantages(
        columns,
        LinearFeatureBaseline(),
        discount=settings.discount,
        gae_lambda=settings.gae_lambda,
        normalize_adv=settings.normalize_advantages,
    )
    # Padded to (M, B, L); the objective of DiCE also needs rewards less their baseline
    advantages = rewards = place.dense(_without_equal_tasks(estimate.advantages, columns, estimate.returns))
    if settings.time_rewards:
        rewards = place.dense(_without_equal_tasks(_time_rewards(columns, settings), columns, estimate.returns))
    # Weights of steps, 1 / (steps of the task), 0 on padding, (M, B, L)
    counts = np.diff(columns.task_bounds)
    weights = place.dense(np.repeat(1.0 / counts, counts))
    zeros = torch.zeros_like(weights)
    score = np.add.reduceat(estimate.adj_avg_rewards, columns.task_bounds[:-1]) / counts
    samples = Samples(
        observations=place.dense(data.observations),
        actions=place.dense(data.actions),
        weights=weights,
        advantages=advantages,
        rewards=rewards,
        old=DiagonalGaussian(zeros[..., None], zeros[..., None]),  # filled in by with_old
        old_log_prob=zeros,
        score=torch.from_numpy(score.astype(np.float32)),
    ).map(lambda array: array.to(device))
    per_task = np.add.reduceat(episode_returns, columns.tasks[:-1]) / np.diff(columns.tasks)
    return Gathered(samples, per_task, float(np.mean(estimate.explained_variance)), data)


def _time_rewards(columns: PathColumns, settings: SampleSettings) -> np.ndarray:
    """Discounted rewards less the expected reward at their time in their task, ``(T,)``.

    Where paths end at different times, ended paths earn nothing: the expected rewards of the remaining time are
    subtracted from their last reward, so that paths that continue count as better than paths that end.

    If normalized, the sums of rewards from each step on have standard deviation 1 in each task, like normalized
    advantages, so that inner steps along either have the same size. (Rewards with deviation 1 would make steps grow
    with the horizon.)
    """
    length = int(columns.lengths.max())
    baseline_fit = dice_tasks(columns, LinearTimeBaseline(), length, discount=settings.discount, normalize_adv=False)
    left = baseline_fit.adjusted_rewards[baseline_fit.mask.astype(bool)]
    discounted = settings.discount**columns.times * columns.rewards
    rewards = np.empty_like(left)
    for task, (a, b) in enumerate(itertools.pairwise(columns.task_bounds.tolist())):
        first, last = columns.tasks[task : task + 2]
        times, bounds = columns.times[a:b], columns.bounds[first : last + 1] - a
        expected = np.zeros(times.max() + 1)
        expected[times] = discounted[a:b] - left[a:b]
        expected += left[a:b].mean()  # the small bias of the ridge regression
        expected_reward = expected * np.bincount(times) / (last - first)
        own = discounted[a:b] - expected_reward[times]
        own[bounds[1:] - 1] -= expected_reward.sum() - np.cumsum(expected_reward)[times[bounds[1:] - 1]]
        if settings.normalize_advantages:
            spread, whole = (
                np.asarray(discounted_reverse_cumsum_ragged(x, bounds, 1.0)) for x in (own, discounted[a:b])
            )
            own /= max(spread.std(), _LEAST_SPREAD * np.abs(whole).max()) + _TINY
        rewards[a:b] = own
    return rewards


def _without_equal_tasks(rows: np.ndarray, columns: PathColumns, returns: np.ndarray) -> np.ndarray:
    """``rows (T,)``, with zeros in tasks whose paths all have the same ``returns (T,)`` at each time.

    There is nothing to learn in them, and normalizing would amplify rounding errors.
    """
    counts, result = np.diff(columns.tasks), rows
    for task, (a, b) in enumerate(itertools.pairwise(columns.task_bounds.tolist())):
        if counts[task] > 1 and _depend_on_time_only(returns[a:b], columns.times[a:b]):
            result = result.copy() if result is rows else result
            result[a:b] = 0.0
    return result


def _depend_on_time_only(values: np.ndarray, times: np.ndarray) -> bool:
    """Whether all ``values (t,)`` at the same time are equal, up to rounding."""
    any_of_time = np.zeros(times.max() + 1)
    any_of_time[times] = values
    return bool(np.abs(values - any_of_time[times]).max() <= _ROUNDING * np.abs(values).max())


class _Places:
    """Indices of the steps of M tasks in arrays ``(M, B, L, ...)``, padded to B paths per task and L steps per path."""

    def __init__(self, columns: PathColumns) -> None:
        numbers = np.diff(columns.tasks)
        self._shape = (columns.num_tasks, int(numbers.max()), int(columns.lengths.max()))
        tasks = np.repeat(np.arange(columns.num_tasks), numbers)
        firsts = (tasks * self._shape[1] + np.arange(len(tasks)) - columns.tasks[tasks]) * self._shape[2]
        self._rows = np.repeat(firsts, columns.lengths) + columns.times
        self._is_whole = len(self._rows) == np.prod(self._shape)

    def dense(self, rows: np.ndarray) -> Tensor:
        """Rows ``(T, ...)`` as a padded tensor, with zeros on padding; floats become float32."""
        values = rows.astype(np.float32 if rows.dtype.kind == "f" else np.int64, copy=False)
        if not self._is_whole:
            padded = np.zeros((int(np.prod(self._shape)), *rows.shape[1:]), dtype=values.dtype)
            padded[self._rows] = values
            values = padded
        return torch.from_numpy(np.ascontiguousarray(values)).reshape(*self._shape, *rows.shape[1:])


def _in_units_of(policy: NormalizedPolicy, rollouts: Rollouts, data: OnPolicyData, env_spec: EnvSpec) -> OnPolicyData:
    """``data`` with unscaled actions of the network, also for rollouts from a user's own loop."""
    if not isinstance(env_spec.action_space, gymnasium.spaces.Box):
        return data
    if all("raw_action" in infos for infos in rollouts.each("policy_infos", {})):
        return data
    taken = np.asarray(rollouts.column("actions"), dtype=np.float32)
    return replace(data, actions=policy.unscaled(taken.reshape(data.actions.shape)))
