"""What a student has seen, done, and should have done: the newest rollouts, as many as there is room for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metaroll.errors import SnapshotError

__all__ = ["LabeledRollouts"]

_COLUMNS = ("observations", "taken", "labels")


class LabeledRollouts:
    """Whole rollouts, one after the other; the oldest go when there are more than ``most_steps`` steps.

    Attributes:
        observations: As the environment gave them, ``(T, obs_dim)``.
        taken: Actions that were taken ``(T, ...)``.
        labels: Actions of the teacher ``(T, ...)``.
        bounds: First step of every rollout, then T, ``(R+1,)``.
    """

    def __init__(self, most_steps: int) -> None:
        self._most_steps = most_steps
        self.observations = self.taken = self.labels = np.zeros((0, 0), dtype=np.float32)
        self.bounds = np.zeros(1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.observations)

    def add(self, observations: np.ndarray, taken: np.ndarray, labels: np.ndarray, bounds: np.ndarray) -> None:
        """Append rollouts, and forget the oldest ones beyond ``most_steps``; the newest rollout always stays."""
        ends = np.concatenate([self.bounds[1:], bounds[1:] + len(self)])
        starts = np.concatenate([[0], ends[:-1]])
        cut = int(starts[min(int(np.searchsorted(starts, ends[-1] - self._most_steps)), len(starts) - 1)])
        for name, rows in zip(_COLUMNS, (observations, taken, labels), strict=True):
            old = getattr(self, name)
            joined = np.concatenate([old, rows]) if len(old) else np.array(rows)
            setattr(self, name, joined[cut:].copy())
        self.bounds = np.concatenate([[0], ends[ends > cut] - cut])

    def state_dict(self) -> dict[str, Any]:
        """All arrays."""
        return {name: getattr(self, name) for name in (*_COLUMNS, "bounds")}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""
        missing = {*_COLUMNS, "bounds"} - set(tree)
        if missing:
            raise SnapshotError(f"the saved rollouts of a distillation lack {sorted(missing)}")
        for name in (*_COLUMNS, "bounds"):
            setattr(self, name, np.array(tree[name]))
