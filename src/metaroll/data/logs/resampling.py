"""From rows of a log at their own times to steps of equal length: checks of time, gaps, lines and held values."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from metaroll.data.logs.tables import LogTable
from metaroll.errors import LogError

__all__ = ["Grid", "checked_times", "filled", "held", "lines", "make_grid", "unwrapped"]

_LONG_PAUSE = 5.0
"""A pause between rows is an error when it is longer than this many of the usual ones, and than ``max_gap``."""
_SAME_TIME = 1e-6
"""Rows are at the times of steps if they are off by less than this share of a step."""
_TOO_SLOW = 100.0
"""Pauses between rows of this many steps are no log of these steps, but time in another unit."""
_UNEVEN = 0.5
"""Rows may be off the usual pause by this share of it, if they become steps as they are."""


class Grid(NamedTuple):
    """Steps of a rollout.

    Attributes:
        times: Of T steps and of what follows, in s from the first row, ``(T+1,)``.
        rows: Which row each of these times is, ``(T+1,)``; ``None``: they lie between rows.
        dt: Seconds per step.
    """

    times: np.ndarray
    rows: np.ndarray | None
    dt: float


def checked_times(stamps: np.ndarray, table: LogTable, first: int, column: str, max_gap: float) -> np.ndarray:
    """Seconds from the first row ``(rows,)``.

    Args:
        stamps: Seconds, ``(rows,)``.
        table: For messages.
        first: Number of the first row in the table.
        column: Name of their column.
        max_gap: Longest pause that is filled.

    Raises:
        LogError: A time stamp is missing, does not come after the one before, or far after it.
    """
    missing = np.flatnonzero(~np.isfinite(stamps))
    if missing.size:
        raise LogError(f"{table.place(first + int(missing[0]), column)}: the time stamp is missing")
    times = stamps - stamps[0]
    pauses = np.diff(times)
    wrong = np.flatnonzero(pauses <= 0)
    if wrong.size:
        row = int(wrong[0]) + 1
        again = "is the same as" if pauses[row - 1] == 0 else "is before"
        hint = (
            "name the column that tells rollouts apart (episode), if a new one begins here"
            if stamps[row] <= stamps[0] + 0.1 * (stamps[:row].max() - stamps[0])
            else "sort the rows, and take out doubles"
        )
        raise LogError(
            f"{table.place(first + row, column)}: time stamps must increase, {stamps[row]:.9g} s {again} "
            f"{stamps[row - 1]:.9g} s; {hint}"
        )
    usual = float(np.median(pauses)) if pauses.size else 0.0
    long = np.flatnonzero(pauses > max(max_gap, _LONG_PAUSE * usual))
    if long.size:
        row = int(long[0]) + 1
        raise LogError(
            f"{table.place(first + row, column)}: {pauses[row - 1]:.6g} s pass since the row before, usually "
            f"{usual:.6g} s; set max_gap to {pauses[row - 1]:.6g} to bridge it, or cut the log in two"
        )
    return times


def make_grid(times: np.ndarray, dt: float | None, table: LogTable, first: int, column: str) -> Grid:
    """The steps of ``dt`` seconds that rows at ``times (rows,)`` cover; ``None``: the rows are the steps.

    Raises:
        LogError: They cover none, are far longer apart, or are too uneven to be steps themselves.
    """
    if len(times) < 2:
        raise LogError(f"{table.source}: a rollout needs at least two rows, got {len(times)} at row {first + 1}")
    pauses = np.diff(times)
    if dt is None:
        usual = float(np.median(pauses))
        worst = int(np.argmax(np.abs(pauses - usual)))
        if abs(pauses[worst] - usual) > _UNEVEN * usual:
            raise LogError(
                f"{table.place(first + worst + 1, column)}: {pauses[worst]:.6g} s pass since the row before, usually "
                f"{usual:.6g} s; set dt, so that the log is resampled"
            )
        return Grid(times, np.arange(len(times)), usual)
    usual = float(np.median(pauses))
    if usual > _TOO_SLOW * dt:
        raise LogError(
            f"{table.source}: rows are {usual:.6g} s apart, which are too many steps of {dt:g} s to tell them; check "
            f"the unit of {column!r}, or give a longer dt"
        )
    num_steps = int(times[-1] / dt + _SAME_TIME)
    if num_steps < 1:
        raise LogError(f"{table.source}: {times[-1]:.6g} s from row {first + 1} on are less than one step of {dt:g} s")
    grid = np.arange(num_steps + 1) * dt
    nearest = np.clip(np.searchsorted(times, grid - _SAME_TIME * dt), 0, len(times) - 1)
    exact = np.abs(times[nearest] - grid).max() <= _SAME_TIME * dt
    return Grid(grid, nearest if exact else None, dt)


def filled(
    values: np.ndarray, times: np.ndarray, max_gap: float, hold: bool, table: LogTable, first: int, column: str
) -> np.ndarray:
    """``values (rows,)`` with gaps of at most ``max_gap`` seconds filled: by lines, or by what was before (``hold``).

    Raises:
        LogError: A gap is longer, or lies at an end.
    """
    missing = ~np.isfinite(values)
    if not missing.any():
        return values
    known = np.flatnonzero(~missing)
    begin = int(np.argmax(missing))
    after = known[known > begin]
    end = int(after[0]) if after.size else len(values)
    where = table.place(first + begin, column)
    until = "" if end == begin + 1 else f" to row {first + end}"
    if begin == 0 or end == len(values):
        place = "first" if begin == 0 else "last"
        raise LogError(f"{where}: values are missing{until}, up to the {place} row; take these rows away")
    borders = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    for left, right in itertools.pairwise(borders):
        length = times[right[0]] - times[left[-1]]
        if length > max_gap * (1 + _SAME_TIME):
            gap = int(left[-1]) + 1
            until = "" if right[0] == gap + 1 else f" to row {first + int(right[0])}"
            raise LogError(
                f"{table.place(first + gap, column)}: values are missing{until} ({length:.6g} s between those that "
                f"are there); set max_gap to {length:.6g} to have the gap filled, or cut the log"
            )
    if not hold:
        return np.interp(times, times[known], values[known])
    return values[np.maximum.accumulate(np.where(missing, 0, np.arange(len(values))))]


def unwrapped(angles: np.ndarray) -> np.ndarray:
    """Angles in rad ``(rows,)`` without jumps by full turns; NaN stays."""
    known = np.isfinite(angles)
    found = angles.copy()
    found[known] = np.unwrap(angles[known])
    return found


def lines(values: np.ndarray, times: np.ndarray, grid: Grid) -> np.ndarray:
    """``values (rows,)`` at the times of the grid ``(T+1,)``: by lines between rows."""
    return values[grid.rows] if grid.rows is not None else np.interp(grid.times, times, values)


def held(values: np.ndarray, times: np.ndarray, grid: Grid) -> np.ndarray:
    """``values (rows,)`` during the steps of the grid ``(T,)``: of the last row at or before each (zero-order hold)."""
    if grid.rows is not None:
        return values[grid.rows[:-1]]
    return values[np.searchsorted(times, grid.times[:-1] + _SAME_TIME * grid.dt, side="right") - 1]
