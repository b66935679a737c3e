"""From rollouts in M tasks to the arrays that meta-gradients are computed from."""

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
"""What returns in a task have to differ by, as a share of the largest: normalizing would blow up rounding and fits."""
_ROUNDING = 1e-7
"""Of rewards that may have been float32."""


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """How advantages are estimated: ``time_rewards`` asks for what ``magic_box_objective`` takes as well.

    ``context_reward_key`` names the env_info that stands for the reward before adaptation; ``None``: the reward does.
    """

    discount: float
    gae_lambda: float
    normalize_advantages: bool
    time_rewards: bool
    context_reward_key: str | None = None


class Gathered(NamedTuple):
    """Samples of M tasks, which do not know yet what made them, and what the log tells of them.

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
    """Samples of the rollouts of M tasks, ``groups[m]`` those of one; a baseline is fitted to each task by itself.

    Nothing counts after the end of a rollout, whatever ended it: values depend on the time that is left. ``tasks`` says
    what the tasks are, for errors; ``is_context``, that the rollouts are adapted to, by what may be seen then.

    Raises:
        DataError, ShapeError: Rollouts hold NaN or Inf, or do not fit ``env_spec``.
        ValueError: A task has no rollout.
    """
    for m, group in enumerate(groups):
        if not len(group):
            name = m if tasks is None else f"{m} ({tasks[m]})"
            raise ValueError(
                f"rollouts of each task must be at least one, got none of task {name}: nothing was collected there (a "
                "sampler that stopped early, episodes that were filtered out), or they went to another task"
            )
    rollouts = Rollouts.joined(groups)
    data = _in_units_of(policy, rollouts, collect_on_policy(rollouts, env_spec), env_spec)
    earned, key = data.episode_returns, settings.context_reward_key
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
    found = task_advantages(
        columns,
        LinearFeatureBaseline(),
        discount=settings.discount,
        gae_lambda=settings.gae_lambda,
        normalize_adv=settings.normalize_advantages,
    )
    advantages = rewards = place.dense(_without_equal_tasks(found.advantages, columns, found.returns))
    if settings.time_rewards:
        rewards = place.dense(_without_equal_tasks(_time_rewards(columns, settings), columns, found.returns))
    counts = np.diff(columns.task_bounds)
    weights = place.dense(np.repeat(1.0 / counts, counts))
    nothing = torch.zeros_like(weights)
    score = np.add.reduceat(found.adj_avg_rewards, columns.task_bounds[:-1]) / counts
    samples = Samples(
        observations=place.dense(data.observations),
        actions=place.dense(data.actions),
        weights=weights,
        advantages=advantages,
        rewards=rewards,
        old=DiagonalGaussian(nothing[..., None], nothing[..., None]),
        old_log_prob=nothing,
        score=torch.from_numpy(score.astype(np.float32)),
    ).map(lambda array: array.to(device))
    per_task = np.add.reduceat(earned, columns.tasks[:-1]) / np.diff(columns.tasks)
    return Gathered(samples, per_task, float(np.mean(found.explained_variance)), data)


def _time_rewards(columns: PathColumns, settings: SampleSettings) -> np.ndarray:
    """Discounted rewards less what is usual at their time in their task, ``(T,)``.

    Where paths end at different times, those that have ended earn nothing any more: what is usual then is taken off
    their last reward, or paths that go on would not count as better than those that end.

    Normalized, their sums from each step on have standard deviation 1 in each task, as normalized advantages have, so
    that inner steps along either are of one size. (Rewards of deviation 1 would make steps grow with the horizon.)
    """
    length = int(columns.lengths.max())
    found = dice_tasks(columns, LinearTimeBaseline(), length, discount=settings.discount, normalize_adv=False)
    left = found.adjusted_rewards[found.mask.astype(bool)]
    earned = settings.discount**columns.times * columns.rewards
    rewards = np.empty_like(left)
    for task, (a, b) in enumerate(itertools.pairwise(columns.task_bounds.tolist())):
        first, last = columns.tasks[task : task + 2]
        times, bounds = columns.times[a:b], columns.bounds[first : last + 1] - a
        expected = np.zeros(times.max() + 1)
        expected[times] = earned[a:b] - left[a:b]
        expected += left[a:b].mean()  # the ridge left a little of it
        usual = expected * np.bincount(times) / (last - first)
        own = earned[a:b] - usual[times]
        own[bounds[1:] - 1] -= usual.sum() - np.cumsum(usual)[times[bounds[1:] - 1]]
        if settings.normalize_advantages:
            spread, whole = (np.asarray(discounted_reverse_cumsum_ragged(x, bounds, 1.0)) for x in (own, earned[a:b]))
            own /= max(spread.std(), _LEAST_SPREAD * np.abs(whole).max()) + _TINY
        rewards[a:b] = own
    return rewards


def _without_equal_tasks(rows: np.ndarray, columns: PathColumns, returns: np.ndarray) -> np.ndarray:
    """``rows (T,)``, zeros in tasks of several paths with the same ``returns (T,)`` from each time on.

    There is nothing to learn there, and normalizing would make something of what rounding and fits leave.
    """
    numbers, found = np.diff(columns.tasks), rows
    for task, (a, b) in enumerate(itertools.pairwise(columns.task_bounds.tolist())):
        if numbers[task] > 1 and _depend_on_time_only(returns[a:b], columns.times[a:b]):
            found = found.copy() if found is rows else found
            found[a:b] = 0.0
    return found


def _depend_on_time_only(values: np.ndarray, times: np.ndarray) -> bool:
    """Whether all ``values (t,)`` of one time are the same, but for rounding."""
    any_of_time = np.zeros(times.max() + 1)
    any_of_time[times] = values
    return bool(np.abs(values - any_of_time[times]).max() <= _ROUNDING * np.abs(values).max())


class _Places:
    """Where the steps of M tasks lie in arrays ``(M, B, L, ...)``: B is the most paths of a task, L the longest."""

    def __init__(self, columns: PathColumns) -> None:
        numbers = np.diff(columns.tasks)
        self._shape = (columns.num_tasks, int(numbers.max()), int(columns.lengths.max()))
        tasks = np.repeat(np.arange(columns.num_tasks), numbers)
        firsts = (tasks * self._shape[1] + np.arange(len(tasks)) - columns.tasks[tasks]) * self._shape[2]
        self._rows = np.repeat(firsts, columns.lengths) + columns.times
        self._is_whole = len(self._rows) == np.prod(self._shape)

    def dense(self, rows: np.ndarray) -> Tensor:
        """Rows ``(T, ...)`` as a tensor, zeros on padding; numbers with a point become float32."""
        values = rows.astype(np.float32 if rows.dtype.kind == "f" else np.int64, copy=False)
        if not self._is_whole:
            padded = np.zeros((int(np.prod(self._shape)), *rows.shape[1:]), dtype=values.dtype)
            padded[self._rows] = values
            values = padded
        return torch.from_numpy(np.ascontiguousarray(values)).reshape(*self._shape, *rows.shape[1:])


def _in_units_of(policy: NormalizedPolicy, rollouts: Rollouts, data: OnPolicyData, env_spec: EnvSpec) -> OnPolicyData:
    """``data`` with actions of the network, of rollouts that somebody else's loop may have made."""
    if not isinstance(env_spec.action_space, gymnasium.spaces.Box):
        return data
    if all("raw_action" in told for told in rollouts.each("policy_infos", {})):
        return data
    taken = np.asarray(rollouts.column("actions"), dtype=np.float32)
    return replace(data, actions=policy.unscaled(taken.reshape(data.actions.shape)))
