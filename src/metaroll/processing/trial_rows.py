"""Trials, and episodes of one task as a trial: observations, memory and returns of a policy with memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.data.paths import TrajectoryBatch
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.policies.trial_memory import TrialMemoryPolicy, with_last_step
from metaroll.types import EnvSpec

__all__ = ["entries_told", "episode_ends", "padded_trials", "remember_trials", "trial_metrics", "trial_rows"]

_MORE = 2
"""Entries of a trial's observation besides the last action: reward and end of episode."""


def entries_told(env_spec: EnvSpec) -> int:
    """Number of entries that a trial adds to an observation: the last action, reward and ending, at its end.

    Raises:
        ValueError: ``env_spec`` is not that of a trial.
    """
    space, count = env_spec.observation_space, env_spec.act_dim + _MORE
    if isinstance(space, Box) and len(space.shape) == 1 and env_spec.obs_dim > count:
        reward, ended = (space.low[-2], space.high[-2]), (space.low[-1], space.high[-1])
        if np.isinf(reward).all() and ended == (0.0, 1.0):
            return count
    raise ValueError(
        f"env_spec of the learner must be that of a trial, EnvSpec.from_env(TrialWrapper(env, episodes_per_trial)), "
        f"whose observations end with the last action, reward and ending, got {space}"
    )


def padded_trials(trials: Rollouts, length: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Observations of N trials side by side, float32 ``(N, length + 1, D)``, and the steps of each ``(N,)``.

    Args:
        trials: With the observation after the last step of each; later rows are zeros.
        length: Maximum number of steps; ``None`` means that of the longest one.

    Raises:
        DataError: They hold NaN or Inf.
        ShapeError: A trial lacks the observation after its last step, or is longer.
    """
    trials.require_final_observations()
    rows, lengths = np.asarray(trials.column("observations"), dtype=np.float32), trials.lengths.copy()
    if not np.isfinite(rows).all():
        raise DataError("observations of trials hold NaN or Inf")
    longest = int(lengths.max())
    if length is not None and longest > length:
        raise ShapeError(f"trials must have at most {length} steps, got {longest}")
    padded = np.zeros((len(trials), (longest if length is None else length) + 1, rows.shape[1]), dtype=np.float32)
    padded[np.arange(padded.shape[1]) <= lengths[:, None]] = rows
    return padded, lengths


def episode_ends(trials: Rollouts) -> np.ndarray:
    """Bool ``(T,)``: steps whose next observation marks the end of an episode, and the last step of a trial."""
    trials.require_final_observations()
    bounds = trials.bounds
    rows = np.asarray(trials.column("observations"))
    is_first = np.zeros(len(rows), dtype=bool)
    is_first[bounds[:-1] + np.arange(len(trials))] = True
    ends = rows[~is_first, -1] > 0.5
    ends[bounds[1:] - 1] = True
    return ends


def trial_metrics(trials: Rollouts) -> dict[str, float]:
    """Average returns of the first and the last episode of each trial, and the number of episodes per trial."""
    last = np.flatnonzero(episode_ends(trials))
    returns = np.add.reduceat(np.asarray(trials.rewards, dtype=np.float64), np.append(0, last[:-1] + 1))
    of_trial = np.searchsorted(trials.bounds, last, side="right") - 1
    firsts = np.flatnonzero(np.diff(of_trial, prepend=-1))
    lasts = np.append(firsts[1:], len(last)) - 1
    return {
        "return_first": float(returns[firsts].mean()),
        "return_last": float(returns[lasts].mean()),
        "episodes_per_trial": len(last) / len(trials),
    }


def remember_trials(policies: Sequence[Any], batches: Sequence[Any]) -> list[TrialMemoryPolicy]:
    """Policies that carry a memory of their tasks: those with the same weights are run as one batch.

    This is adaptation for a policy that identifies the task by its memory: the memory is updated on the given episodes
    step by step, as if they had been the first ones of a trial.

    Args:
        policies: One per task, from ``get_exploration_policy()`` or from here; each is modified, and returned.
        batches: One per task: a ``TrajectoryBatch``, ``StepSequence`` or a sequence of them, episodes (or whole trials)
            of a ``TrialWrapper``, oldest first.

    Raises:
        DataError: An episode lacks the observation after its last step, or holds NaN or Inf.
        ShapeError: Episodes are not of a ``TrialWrapper`` around the environment of the policy.
        TypeError: A policy is no ``TrialMemoryPolicy``.
    """
    for policy in policies:
        if not isinstance(policy, TrialMemoryPolicy):
            raise TypeError(f"exploration_policy must come from get_exploration_policy(), got {type(policy).__name__}")
    seen = [trial_rows(batch, policy.num_told) for policy, batch in zip(policies, batches, strict=True)]
    for policy, (rows, _) in zip(policies, seen, strict=True):
        if rows.shape[1] != policy.obs_dim:
            raise ShapeError(
                f"exploration_trajectories must have observations of {policy.obs_dim} numbers, those of a "
                f"TrialWrapper, got {rows.shape[1]}"
            )
    alike: dict[bytes, list[int]] = {}
    for i, policy in enumerate(policies):
        alike.setdefault(policy.acting_parameters().tobytes(), []).append(i)
    for members in alike.values():
        states = _memories(policies[members[0]].policy, [seen[i][0] for i in members])
        for place, i in enumerate(members):
            policies[i].remember({name: rows[place] for name, rows in states.items()}, seen[i][1])
    return list(policies)


def _memories(policy: Any, sequences: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of state ``(N, ...)`` after N sequences ``(L, D)``, in each of which ``policy`` began with no memory."""
    count, lengths = len(sequences), np.array([len(rows) for rows in sequences])
    padded = np.zeros((int(lengths.max()), count, sequences[0].shape[1]), dtype=sequences[0].dtype)
    for i, rows in enumerate(sequences):
        padded[: len(rows), i] = rows
    state = policy.initial_state([{}] * count, [np.random.default_rng(0)] * count)
    noise = np.zeros((count, policy.info.noise_dim), dtype=np.float32)
    for t, obs in enumerate(padded):
        _, following, _ = policy.act(obs, state, noise, True)
        continues = t < lengths
        state = {
            name: np.where(continues.reshape(-1, *[1] * (rows.ndim - 1)), rows, state[name])
            for name, rows in following.items()
        }
    return state


def trial_rows(trajectories: Any, num_told: int) -> tuple[np.ndarray, np.ndarray]:
    """The episodes of one task as the observations of one trial.

    Args:
        trajectories: A ``TrajectoryBatch``, a ``StepSequence``, or a sequence of either, of a ``TrialWrapper``: single
            episodes, or whole trials, one after the other.
        num_told: Number of trailing entries of an observation for last action, reward and ending (K).

    Returns:
        All observations before a step, ``(L, D)``, the first of an episode with the last action, reward and ending of
        the previous one; and the last action, reward and ending of the last episode, ``(K,)``.

    Raises:
        DataError: An episode lacks the observation after its last step.
        ShapeError: Observations of different widths.
        ValueError: There is no episode.
    """
    episodes = list(_episodes(trajectories))
    if not episodes:
        raise ValueError("exploration_trajectories must hold at least one step, got none")
    widths = {rows.shape[1] for rows in episodes}
    if len(widths) > 1:
        raise ShapeError(f"exploration_trajectories must have observations of one width, got {sorted(widths)}")
    last_step = np.zeros((1, num_told), dtype=episodes[0].dtype)
    parts = []
    for rows in episodes:
        parts += [with_last_step(rows[:1], last_step), rows[1:-1]]
        last_step = rows[-1:, -num_told:].copy()
        last_step[0, -1] = 1.0  # also if it was truncated: another episode follows
    seen = np.concatenate(parts)
    if not np.isfinite(seen).all():
        raise DataError("observations of exploration_trajectories hold NaN or Inf")
    return seen, last_step[0]


def _episodes(trajectories: Any) -> Iterator[np.ndarray]:
    """Flat observations ``(T + 1, D)`` of each episode, including the one after its last step."""
    if isinstance(trajectories, TrajectoryBatch):
        ends = np.cumsum(trajectories.lengths)[:-1]
        parts = np.split(np.asarray(trajectories.observations), ends)
        for rows, last in zip(parts, np.asarray(trajectories.last_observations), strict=True):
            yield np.concatenate([rows, last[None]]).reshape(len(rows) + 1, -1)
    elif isinstance(trajectories, StepSequence):
        rows, count = np.asarray(trajectories.observations), len(trajectories.rewards)
        if len(rows) != count + 1:
            raise DataError(
                f"exploration_trajectories must hold the observation after their last step, got {len(rows)} "
                f"observations of {count} steps"
            )
        yield rows.reshape(count + 1, -1)
    elif isinstance(trajectories, Sequence) and not isinstance(trajectories, str):
        for part in trajectories:
            yield from _episodes(part)
    else:
        raise TypeError(
            f"exploration_trajectories must be a TrajectoryBatch, a StepSequence or a sequence of them, got "
            f"{type(trajectories).__name__}"
        )
