"""Keeps the entry after the last step (the true last observation) of every sub-rollout of a concatenation.

A field with one entry more than steps stores that entry as its last row, as long as there is one rollout. In a
concatenation the rows of all steps are contiguous, so the final entries live apart: one row per sub-rollout. Successors
therefore are exact, and never come from another rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from metaroll.data.data_format import Array, cat_arrays

__all__ = ["FinalEntries", "concat_leaves", "final_rows", "select_range", "select_rows", "successor_rows"]


class FinalEntries(NamedTuple):
    """Final entries of the sub-rollouts of one leaf: ``values (R, ...)``, of which ``present (R,)`` exist."""

    values: Array
    present: np.ndarray


def _format(leaf: Array) -> str:
    return "torch" if isinstance(leaf, torch.Tensor) else "numpy"


def _zero_rows(leaf: Array, num_rows: int) -> Array:
    if isinstance(leaf, torch.Tensor):
        return leaf.new_zeros((num_rows, *leaf.shape[1:]))
    return np.zeros((num_rows, *leaf.shape[1:]), dtype=leaf.dtype)


def select_rows(leaf: Array, index: np.ndarray) -> Array:
    """Rows ``index (K,)`` of a leaf ``(N, ...)``, as a copy ``(K, ...)``."""
    return leaf[torch.from_numpy(index).to(leaf.device)] if isinstance(leaf, torch.Tensor) else leaf[index]


def select_range(
    leaf: Array, finals: FinalEntries | None, bounds: np.ndarray, start: int, stop: int, append_final: bool
) -> tuple[Array, FinalEntries | None]:
    """Steps ``start`` to ``stop`` of a leaf, with the entry after them wherever it truly exists.

    The entry after the last step is the last row of the result if it is stored there (``stop`` lies inside a rollout,
    or at the end of the sequence), or, with ``append_final``, if the result is (the end of) one sub-rollout.

    Args:
        leaf: ``(N, ...)`` or ``(N + 1, ...)``.
        finals: Final entries of its R sub-rollouts, as far as they are not in the leaf.
        bounds: First step of every sub-rollout, then N, ``(R + 1,)``.
        start: First step.
        stop: The step behind the last one.
        append_final: See above.

    Returns:
        Rows ``(stop - start, ...)``, or one more, and the final entries that are not among them.
    """
    length = int(bounds[-1])
    if finals is None and len(leaf) == length:
        return leaf[start:stop], None
    first = int(np.searchsorted(bounds, start, side="right")) - 1
    last = int(np.searchsorted(bounds, stop, side="left")) - 1  # the sub-rollout that holds step stop - 1
    inside = bool(bounds[last + 1] != stop)
    if finals is None:
        if inside or stop == length:
            return leaf[start : stop + 1], None
        return leaf[start:stop], None
    present = finals.present[first : last + 1].copy()
    rows = finals.values[first : last + 1]
    if inside or (stop == length and len(leaf) == length + 1):
        body = leaf[start : stop + 1]
        present[-1] = False
    else:
        body = leaf[start:stop]
        if append_final and first == last and present[-1]:
            body = cat_arrays([body, rows[-1:]], _format(leaf))
            present[-1] = False
    return body, FinalEntries(rows, present) if present.any() else None


def final_rows(leaf: Array, finals: FinalEntries | None, bounds: np.ndarray) -> FinalEntries:
    """Final entries ``(R, ...)`` of all sub-rollouts, those in the leaf itself included (0 if there is none)."""
    length, num_rollouts = int(bounds[-1]), len(bounds) - 1
    stored = len(leaf) == length + 1
    if finals is None and stored and num_rollouts == 1:
        return FinalEntries(leaf[length:], np.ones(1, dtype=bool))
    if finals is None:
        values, present = _zero_rows(leaf, num_rollouts), np.zeros(num_rollouts, dtype=bool)
    else:
        values, present = finals
        if not stored:
            return finals
        values, present = values.clone() if isinstance(values, torch.Tensor) else values.copy(), present.copy()
    if stored:
        values[-1] = leaf[length]
        present[-1] = True
    return FinalEntries(values, present)


def successor_rows(leaf: Array, finals: FinalEntries | None, bounds: np.ndarray) -> tuple[Array, np.ndarray]:
    """Entries after each step, ``(N, ...)``, and which sub-rollouts ``(R,)`` lack the one after their last step."""
    length, num_rollouts = int(bounds[-1]), len(bounds) - 1
    if num_rollouts == 1 and len(leaf) == length + 1:
        return leaf[1:], np.zeros(1, dtype=bool)
    entries = final_rows(leaf, finals, bounds)
    rows = select_rows(leaf, np.minimum(np.arange(1, length + 1), len(leaf) - 1))
    ends = bounds[1:][entries.present] - 1
    values: Any = select_rows(entries.values, np.flatnonzero(entries.present))
    rows[torch.from_numpy(ends) if isinstance(rows, torch.Tensor) else ends] = values
    return rows, ~entries.present


def concat_leaves(
    leaves: Sequence[Array],
    finals: Sequence[FinalEntries | None],
    bounds: Sequence[np.ndarray],
    data_format: str,
    truncate_last: bool,
) -> tuple[Array, FinalEntries | None]:
    """One leaf of several sequences, one after the other; the final entries of all sub-rollouts stay known.

    Args:
        leaves: ``(N_i, ...)`` or ``(N_i + 1, ...)`` each.
        finals: Final entries of each.
        bounds: Bounds of each sequence, ``(R_i + 1,)``.
        data_format: "numpy" or "torch".
        truncate_last: Keep the last final entry apart, so that there is exactly one row per step.

    Returns:
        Rows ``(sum N_i, ...)``, or one more, and the final entries that are not among them.
    """
    own = [int(b[-1]) for b in bounds]
    pieces: list[Any] = [leaf[:n] for leaf, n in zip(leaves, own, strict=True)]
    if all(f is None and len(leaf) == n for leaf, f, n in zip(leaves, finals, own, strict=True)):
        return cat_arrays(pieces, data_format), None
    parts = [final_rows(leaf, f, b) for leaf, f, b in zip(leaves, finals, bounds, strict=True)]
    present = np.concatenate([part.present for part in parts])
    values = cat_arrays([part.values for part in parts], data_format)
    if not truncate_last and present[-1]:
        pieces.append(values[-1:])
        present[-1] = False
    body = cat_arrays(pieces, data_format)
    return body, FinalEntries(values, present) if present.any() else None
