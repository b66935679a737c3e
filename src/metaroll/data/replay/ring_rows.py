"""Arrays that mark which of their rows are new to a snapshot."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

__all__ = ["History", "RingRows"]


class History:
    """The history of a ring since it was empty, or was put into a state: the same object, the same past."""


class RingRows(np.ndarray):
    """The rows of a ring, as any other array; row k that ever came in lies at ``k % len`` of the whole ring.

    A writer that wrote them before with the same ``history`` may write less now: since ``num_written`` was N, rows
    from N - 1 on have changed, and no other (the newest row is written to once more).

    Attributes:
        num_written: Rows that ever came in.
        history: Of the ring; ``None`` for what was computed from its rows.
    """

    num_written: int
    history: History | None

    @classmethod
    def of(cls, rows: np.ndarray, num_written: int, history: History) -> Self:
        """A view of ``rows``."""
        view = rows.view(cls)
        view.num_written, view.history = num_written, history
        return view

    def __array_finalize__(self, origin: Any) -> None:
        self.num_written, self.history = 0, None
