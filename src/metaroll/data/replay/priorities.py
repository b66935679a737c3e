"""Priorities of the rows of a replay buffer: drawing in proportion to them, and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from metaroll.checks import check_number, described
from metaroll.errors import ShapeError
from metaroll.functional.replay.priorities import importance_weights, priority_of, sum_tree, tree_find, tree_set

__all__ = ["Priorities"]

_FLOOR = 1e-6
"""Added to errors, so that a step without one can be drawn again."""


@final
class Priorities:
    """A priority for each of a number of rows, at first 0, which are never drawn.

    Args:
        num_rows: How many.
        exponent: Power of the errors that is the priority.
    """

    def __init__(self, num_rows: int, exponent: float) -> None:
        self._exponent = check_number("priority_exponent", exponent, 0.0)
        self._num_rows = num_rows
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._tree = sum_tree(self._num_rows)
        self._largest = 1.0

    def begin(self, rows: np.ndarray, are_steps: np.ndarray) -> None:
        """Rows that were written: steps get the largest priority so far."""
        tree_set(self._tree, rows, np.where(are_steps, self._largest, 0.0))

    def update(self, rows: np.ndarray, errors: Any, are_steps: np.ndarray) -> None:
        """Priorities of errors ``(N,)`` of either sign; of a row that comes twice, the last counts."""
        values = np.asarray(errors, dtype=np.float64)
        if values.shape != rows.shape or not np.isfinite(values).all():
            raise ShapeError(f"errors must be a finite number for each of {len(rows)} indices, got {described(errors)}")
        priorities = np.where(are_steps, priority_of(values, self._exponent, _FLOOR), 0.0)
        self._largest = max(self._largest, float(priorities.max(initial=0.0)))
        unique, newest = np.unique(rows[::-1], return_index=True)
        tree_set(self._tree, unique, priorities[::-1][newest])

    def draw(self, n: int, generator: np.random.Generator, count: int, beta: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows ``(n,)``, one from each of ``n`` equal shares of the sum, and their weights among ``count`` steps."""
        rows = tree_find(self._tree, (np.arange(n) + generator.random(n)) * (self._tree[1] / n))
        shares = self._tree.take(rows + len(self._tree) // 2) / self._tree[1]
        return rows, importance_weights(shares, count, beta).astype(np.float32)

    def state_dict(self, slots: Sequence[np.ndarray]) -> dict[str, Any]:
        """Priorities of the rows of each slot, in the order in which they came."""
        leaves = self._tree[len(self._tree) // 2 :]
        return {"largest": self._largest, "slots": {str(slot): leaves[rows] for slot, rows in enumerate(slots)}}

    def load_state_dict(self, state: dict[str, Any], slots: Sequence[np.ndarray]) -> None:
        """Load a ``state_dict`` of at least this number of rows; the newest rows count."""
        self.clear()
        self._largest = float(state["largest"])
        for slot, rows in enumerate(slots):
            saved = np.asarray(state["slots"][str(slot)])
            tree_set(self._tree, rows, saved[len(saved) - len(rows) :])
