"""Episodes of one task as the rows that a policy with memory would have seen in one trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from metaroll.data.paths import TrajectoryBatch
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.policies.trial_memory import told_in_place

__all__ = ["trial_rows"]


def trial_rows(trajectories: Any, num_told: int) -> tuple[np.ndarray, np.ndarray]:
    """What the episodes of one task look like as one trial.

    Args:
        trajectories: A ``TrajectoryBatch``, a ``StepSequence``, or a sequence of either, of a ``TrialWrapper``: single
            episodes, or whole trials, one after the other.
        num_told: How many of the last entries of an observation are last action, reward and ending (K).

    Returns:
        All observations before a step, ``(L, D)``, the first of an episode with what the one before ended with; and
        what the last one ended with, ``(K,)``.

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
    told = np.zeros((1, num_told), dtype=episodes[0].dtype)
    parts = []
    for rows in episodes:
        parts += [told_in_place(rows[:1], told), rows[1:-1]]
        told = rows[-1:, -num_told:].copy()
        told[0, -1] = 1.0  # whoever cut it off: another one follows
    seen = np.concatenate(parts)
    if not np.isfinite(seen).all():
        raise DataError("observations of exploration_trajectories hold NaN or Inf")
    return seen, told[0]


def _episodes(trajectories: Any) -> Iterator[np.ndarray]:
    """Flat observations ``(T + 1, D)`` of each episode, the one after its last step included."""
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
