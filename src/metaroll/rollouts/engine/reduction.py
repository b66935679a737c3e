"""Reductions of rollouts in the process where they ran, so that nothing else of them has to be kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.checks import check_whole, described
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.errors import ShapeError
from metaroll.tasks.plan_table import PlanTable

__all__ = ["Reduce", "ReducedRows", "Reduction", "check_reduce"]

Reduce = Callable[[dict[str, Any], np.ndarray], np.ndarray]
"""From columns and bounds of N rollouts to ``(N, ...)``; each row depends on its own rollout only."""

_BY_NAME = ("policy_infos", "env_infos")
"""Fields that are dicts."""


@dataclass(frozen=True)
class Reduction:
    """A function of rollouts, and its needs.

    Attributes:
        function: From columns (a dict of those in ``fields``) and bounds ``(N * group + 1,)`` to ``(N, ...)``.
        fields: Names of columns (e.g. ``"states"``, ``"actions_applied"``); nothing else is recorded. ``None``: all.
            ``"seeds"`` are the seed triples of the plans, ``(N * group, 3)``.
        group: How many consecutive plans make one row. Where one of them is dropped, the row holds NaN.
    """

    function: Reduce
    fields: tuple[str, ...] | None = None
    group: int = 1

    @classmethod
    def of(cls, reduce: Any) -> Reduction:
        """``reduce`` itself, or the reduction of a plain function.

        Raises:
            TypeError: It is neither.
        """
        if isinstance(reduce, Reduction):
            check_whole("group", reduce.group)
            return reduce
        if not callable(reduce):
            raise TypeError(f"reduce must be a function of columns and bounds, got {described(reduce)}")
        function: Any = reduce
        return cls(function)

    def whole_groups(self, size: int, count: int) -> int:
        """How many of ``count`` plans a unit of about ``size`` gets, so that no group is cut apart.

        Raises:
            ValueError: There is part of a group.
        """
        if count % self.group:
            raise ValueError(f"plans must come in groups of {self.group}, got {count}")
        return max(size // self.group, 1) * self.group

    def rows_of(self, columns: RolloutColumns, kept: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """The rows ``(n, ...)`` of all groups of which nothing was dropped, and which groups these are, ``(n,)``.

        Args:
            columns: The rollouts that were kept, in the order of their plans.
            kept: Places of these plans, ``(N,)``.

        Raises:
            ShapeError, TypeError, ValueError: The function raises, returns something else than rows of numbers, or
                gives the first group another row alone than among others (the others are not checked).
        """
        groups, counts = np.unique(kept // self.group, return_counts=True)
        whole = counts == self.group
        if not whole.any():
            return None, groups[:0]
        if not whole.all():
            columns = _rollouts_of(columns, np.flatnonzero(np.repeat(whole, counts)))
        rows = self._rows(columns)
        self._check_first_row(columns, rows)
        return rows, groups[whole]

    def _rows(self, columns: RolloutColumns) -> np.ndarray:
        """``function(columns, bounds)``, checked: one row for each of the N groups, ``(N, ...)``."""
        arrays, count = _arrays_of(columns, self.fields), len(columns) // self.group
        try:
            returned = self.function(arrays, columns.bounds)
        except Exception as error:
            raise ValueError(
                f"reduce(columns, bounds) raised {type(error).__name__}: {error}; columns are "
                f"{', '.join(sorted(arrays))}, bounds have shape {columns.bounds.shape}"
            ) from error
        try:
            rows = np.asarray(returned)
        except ValueError as error:
            raise ShapeError(f"reduce(columns, bounds) must return an array with equal rows: {error}") from error
        if rows.dtype.kind not in "biuf":
            raise TypeError(
                f"reduce(columns, bounds) must return an array of numbers, got {type(returned).__name__} {returned!r}"
            )
        if rows.ndim == 0 or len(rows) != count:
            raise ShapeError(
                f"reduce(columns, bounds) must return one row per {'rollout' if self.group == 1 else 'group'} "
                f"({count}, ...), got shape {rows.shape}"
            )
        return rows

    def _check_first_row(self, columns: RolloutColumns, rows: np.ndarray) -> None:
        """``ValueError`` where the first of several groups gives another row alone than in ``rows``: a cheap check."""
        if len(rows) < 2:
            return
        alone = self._rows(columns.first(self.group))
        scale = np.max(np.abs(rows[0]), initial=0.0, where=np.isfinite(rows[0]))
        if alone.shape[1:] != rows.shape[1:] or not np.allclose(  # a product of other width may have other last bits
            alone[0], rows[0], rtol=1e-3, atol=1e-3 * float(scale), equal_nan=True
        ):
            raise ValueError(
                f"reduce(columns, bounds) must treat rollouts one by one, but a rollout gives {_short(alone[0])} alone "
                f"and {_short(rows[0])} among {len(columns)}; use bounds (e.g. np.add.reduceat(x, bounds[:-1]))"
            )


class ReducedRows:
    """The rows that a reduction has made of units so far, and the places of their groups of plans."""

    def __init__(self, group: int = 1) -> None:
        self.count = 0
        """Groups of all parts that are done."""
        self._group = group
        self._entries: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, piece: np.ndarray, groups: np.ndarray, rows: np.ndarray | None) -> None:
        """Take over the ``rows`` of some ``groups`` of a unit, whose plans have the places ``piece`` in their part."""
        if rows is not None and len(groups):
            self._entries.append((piece[groups * self._group] // self._group + self.count, rows))

    def joined(self) -> np.ndarray:
        """All rows in the order of their plans ``(count, ...)``."""
        entries, count = self._entries, self.count
        shapes = {rows.shape[1:] for _, rows in entries}
        if len(shapes) > 1:
            raise ShapeError(f"reduce(columns, bounds) must return rows of one shape, got {sorted(shapes)}")
        if not entries:
            return np.full((count, *([0] if not count else [])), np.nan)
        dtype = np.result_type(*(rows.dtype for _, rows in entries))
        if sum(len(places) for places, _ in entries) < count and dtype.kind != "f":
            dtype = np.dtype(np.float64)
        rows = np.full((count, *shapes.pop()), np.nan if dtype.kind == "f" else 0, dtype=dtype)
        for places, part in entries:
            rows[places] = part
        return rows

    def attach_to(self, error: BaseException) -> None:
        """Attach the rows so far to an error: ``reduced`` and ``kept``, of the first shape where there are several."""
        entries = [entry for entry in self._entries if entry[1].shape[1:] == self._entries[0][1].shape[1:]]
        kept, rows = np.zeros(0, dtype=np.int64), np.zeros(0)
        if entries:
            kept, rows = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        order = np.argsort(kept)
        vars(error).update(reduced=rows[order], kept=kept[order])


def check_reduce(reduce: Reduce, rollouts: Rollouts) -> None:
    """Whether ``reduce`` treats rollouts one by one, as it must: it is called with other numbers of them at a time.

    Args:
        reduce: From columns and bounds of N rollouts to ``(N, ...)``.
        rollouts: The result of a ``RolloutEngine``, two rollouts at least.

    Raises:
        ValueError: A row depends on which rollouts it is computed with.
    """
    if not callable(reduce):
        hint = "; it comes first: check_reduce(reduce, rollouts)" if callable(rollouts) else ""
        raise TypeError(f"reduce must be a function of columns and bounds, got {described(reduce)}{hint}")
    rollouts = Rollouts.of(rollouts)
    if len(rollouts) < 2:
        raise ValueError(f"rollouts must hold at least two rollouts, got {len(rollouts)}")
    reduction = Reduction(reduce)
    whole = rollouts.sorted_by(np.arange(len(rollouts))).parts[0]
    together = reduction._rows(whole)
    for number in range(len(rollouts)):
        alone = reduction._rows(_rollouts_of(whole, np.array([number])))
        if alone.shape[1:] != together.shape[1:] or not np.array_equal(alone[0], together[number], equal_nan=True):
            raise ValueError(
                f"reduce(columns, bounds) must treat rollouts one by one, but rollout {number} gives {alone[0]} alone "
                f"and {together[number]} among {len(rollouts)}; use bounds (e.g. np.add.reduceat(x, bounds[:-1]))"
            )


def _rollouts_of(columns: RolloutColumns, numbers: np.ndarray) -> RolloutColumns:
    """The rollouts ``numbers`` in their own columns."""
    return Rollouts([columns]).take(numbers).sorted_by(np.arange(len(numbers))).parts[0]


def _arrays_of(columns: RolloutColumns, fields: tuple[str, ...] | None) -> dict[str, Any]:
    """The arrays for a function: those of ``fields`` that exist, or all."""
    arrays = {**columns.fields, "terminated": columns.terminated, "truncated": columns.truncated}
    if columns.own is not None:  # reports of lists of environments are kept by rollout
        for name in set.intersection(*(set(own) for own in columns.own)) - set(_BY_NAME):
            arrays[name] = np.concatenate(list(columns.values(name, 0, len(columns))))
    if fields is not None and "seeds" in fields and columns.plans is not None:
        arrays["seeds"] = PlanTable.of(columns.plans).seeds
    return arrays if fields is None else {name: arrays[name] for name in fields if name in arrays}


def _short(row: np.ndarray) -> str:
    return np.array2string(row, threshold=8)
