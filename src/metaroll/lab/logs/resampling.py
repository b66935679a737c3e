"""Resampling of a log's rows to steps of equal length: checks of time, gaps, interpolation, means, majorities."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaroll.errors import LogError
from metaroll.lab.logs.series.held_signals import held_majority, held_mean
from metaroll.lab.logs.series.real_delays import real_share
from metaroll.lab.logs.series.row_times import RowFit, fit_rows, whole_ratio
from metaroll.lab.logs.tables import LogTable
from metaroll.lab.logs.timing import Gap, Timing

__all__ = [
    "Grid",
    "checked_times",
    "filled",
    "gap_times",
    "held",
    "is_gap",
    "joined_spans",
    "lines",
    "make_grid",
    "unwrapped",
]

_LONG_PAUSE = 5.0
"""A pause between rows is an error if it is longer than this many typical ones, and than ``max_gap``."""
_SAME_TIME = 1e-6
"""Rows are at the times of steps if they deviate by less than this share of a step."""
_TOO_SLOW = 100.0
"""If rows are this many steps apart, the time is probably in another unit."""
_UNEVEN = 0.5
"""Share by which pauses may differ from the typical one if rows are used as steps."""
_MATTERS = 1e-3
"""Average deviation of stamps from their grid, as a share of a step, from which its cause is tested."""
_GAP = 2.0
"""If rows are not on a grid, pauses of more than this many typical ones are gaps."""


class Grid(NamedTuple):
    """Steps of a rollout.

    Attributes:
        times: Times of T steps and of the end, in s from the first row, ``(T+1,)``.
        rows: Row at each of these times, ``(T+1,)``; ``None`` if some are between rows.
        dt: Seconds per step.
        row_times: Times assigned to rows, in s from the first one, ``(rows,)``.
        timing: A report of what was done.
    """

    times: np.ndarray
    rows: np.ndarray | None
    dt: float
    row_times: np.ndarray
    timing: Timing


def checked_times(times: np.ndarray, start: float, table: LogTable, first: int, column: str, max_gap: float) -> None:
    """Raise an error unless time stamps increase.

    Args:
        times: Seconds from the first row, ``(rows,)``.
        start: Time stamp of the first row in s, for messages.
        table: For messages.
        first: Number of the first row in the table.
        column: Name of their column.
        max_gap: Longest pause that is filled.

    Raises:
        LogError: A time stamp is missing, not after the previous one, or far after it.
    """
    missing = np.flatnonzero(~np.isfinite(times))
    if missing.size:
        raise LogError(f"{table.place(first + int(missing[0]), column)}: the time stamp is missing")
    pauses = np.diff(times)
    wrong = np.flatnonzero(pauses <= 0)
    if wrong.size:
        row = int(wrong[0]) + 1
        again = "is the same as" if pauses[row - 1] == 0 else "is before"
        hint = (
            "name the column that distinguishes rollouts (episode), if a new one begins here"
            if times[row] <= 0.1 * times[:row].max()
            else "sort the rows, and remove duplicates"
        )
        raise LogError(
            f"{table.place(first + row, column)}: time stamps must increase, {start + times[row]:.9g} s {again} "
            f"{start + times[row - 1]:.9g} s; {hint}"
        )
    usual = float(np.median(pauses)) if pauses.size else 0.0
    long = np.flatnonzero(pauses > max(max_gap, _LONG_PAUSE * usual))
    if long.size:
        row = int(long[0]) + 1
        raise LogError(
            f"{table.place(first + row, column)}: {pauses[row - 1]:.6g} s have passed since the previous row, usually "
            f"{usual:.6g} s. If one run ends there and another one begins, name the column that distinguishes runs "
            "(episode: COLUMN in the mapping); otherwise cut the log there, or set max_gap to "
            f"{pauses[row - 1]:.6g} in the mapping, so that the pause is filled with interpolated values"
        )


def make_grid(
    times: np.ndarray,
    dt: float | None,
    table: LogTable,
    first: int,
    column: str,
    motion: Callable[[], tuple[list[np.ndarray], np.ndarray]],
) -> Grid:
    """Divide a rollout into steps.

    Rows that are on an even grid (``fit_rows``) get the times of that grid, whatever their single stamps are. If the
    step of the grid is ``dt``, a fraction, or a multiple of it up to the errors of clocks, it counts as exactly that.
    If the ``motion`` shows that rows really were off the grid (``real_share``), they keep the times of their stamps.

    Args:
        times: Stamps, in s from the first row, ``(rows,)``.
        dt: Seconds per step; ``None``: the rows are the steps.
        table: The log, for messages.
        first: Number of the first row in the table.
        column: Name of the column of time.
        motion: Returns the recorded series, ``(rows, O)`` each, and actions ``(rows - 1, A)``; called only if needed.

    Raises:
        LogError: The rows cover no step, are too many steps apart, or are too uneven to be steps themselves.
    """
    if len(times) < 2:
        raise LogError(f"{table.source}: a rollout needs at least two rows, got {len(times)} at row {first + 1}")
    pauses = np.diff(times)
    usual = float(np.median(pauses))
    if dt is None:
        worst = int(np.argmax(np.abs(pauses - usual)))
        if abs(pauses[worst] - usual) > _UNEVEN * usual:
            raise LogError(
                f"{table.place(first + worst + 1, column)}: {pauses[worst]:.6g} s have passed since the previous row, "
                f"usually {usual:.6g} s; set dt, so that the log is resampled"
            )
        return _rows_as_steps(times, usual)
    if usual > _TOO_SLOW * dt:
        raise LogError(
            f"{table.source}: rows are {usual:.6g} s apart, too many steps of {dt:g} s; check "
            f"the unit of {column!r}, or give a longer dt"
        )
    fit = fit_rows(times, dt)
    row_times, timing = _placed(times, fit, dt, first, motion)
    num_steps = int(row_times[-1] / dt + _SAME_TIME)
    if num_steps < 1:
        raise LogError(f"{table.source}: {times[-1]:.6g} s from row {first + 1} on are less than one step of {dt:g} s")
    grid = np.arange(num_steps + 1) * dt
    nearest = np.clip(np.searchsorted(row_times, grid - _SAME_TIME * dt), 0, len(times) - 1)
    exact = np.abs(row_times[nearest] - grid).max() <= _SAME_TIME * dt
    return Grid(grid, nearest if exact else None, dt, row_times, timing)


def _rows_as_steps(times: np.ndarray, usual: float) -> Grid:
    fit = fit_rows(times)
    if fit is None or fit.places[-1] != len(times) - 1:
        timing = Timing("rows", usual, usual)
        return Grid(times, np.arange(len(times)), usual, times, timing)
    times = fit.step * fit.places
    timing = Timing("rows", fit.step, fit.step, off=float(np.abs(fit.residuals).max()))
    return Grid(times, np.arange(len(times)), fit.step, times, timing)


def _placed(
    times: np.ndarray,
    fit: RowFit | None,
    dt: float,
    first: int,
    motion: Callable[[], tuple[list[np.ndarray], np.ndarray]],
) -> tuple[np.ndarray, Timing]:
    """Times assigned to rows, in s from the first one, ``(rows,)``, and a report."""
    pauses = np.diff(times)
    if fit is None:
        usual = float(np.median(pauses))
        return times, Timing("means", dt, usual, gaps=_gaps(pauses, pauses > _GAP * usual, first))
    report: dict[str, Any] = {"off": _off(fit), "far": int(np.count_nonzero(fit.far))}
    report["gaps"] = _gaps(pauses, np.diff(fit.places) > 1.0 + _SAME_TIME, first)
    share = 0.0
    if np.std(fit.residuals[~fit.far]) > _MATTERS * fit.step:
        aligned = np.abs(fit.places - np.rint(fit.places)) < _SAME_TIME
        offsets = np.where(fit.far | ~aligned, np.nan, fit.residuals / fit.step)
        offsets[1:][np.diff(fit.places) > 1.0 + _SAME_TIME] = np.nan  # after a pause of more than a step
        share = report["real"] = real_share(*motion(), offsets)
    gathered, repeated = whole_ratio(dt, fit.step), whole_ratio(fit.step, dt)
    if gathered is None and repeated is None:
        return fit.times(fit.step, share), Timing("means", dt, fit.step, **report)
    exact = dt / gathered if gathered is not None else dt * (repeated or 1)
    kind = "rows" if gathered == 1 else "repeated" if gathered is None else "gathered"
    kind = "means" if share else kind
    clock = fit.step / exact - 1.0
    within = abs(clock) <= 3.0 * fit.error / exact + _SAME_TIME  # then it is not a clock error
    return fit.times(exact, share), Timing(kind, dt, fit.step, clock=0.0 if within else clock, **report)


def _off(fit: RowFit) -> float:
    return float(np.abs(fit.residuals[~fit.far]).max())


def _gaps(pauses: np.ndarray, long: np.ndarray, first: int) -> tuple[Gap, ...]:
    return tuple(Gap(first + int(row) + 2, float(pauses[row])) for row in np.flatnonzero(long))


def gap_times(grid: Grid, first: int) -> list[list[float]]:
    """Begin and end, in s, of gaps longer than a step; rows of the grid begin with row ``first`` (from 0) of a log."""
    rows = [gap.row - 1 - first for gap in grid.timing.gaps]
    ends = [grid.row_times[[row - 1, row]].tolist() for row in rows]
    return [[begin, end] for begin, end in ends if is_gap(end - begin, grid)]


def is_gap(seconds: float, grid: Grid) -> bool:
    """Whether a gap of ``seconds`` is longer than a step."""
    return seconds > grid.dt * (1.0 + _SAME_TIME)


def joined_spans(spans: Sequence[Sequence[float]]) -> list[list[float]]:
    """Sort spans ``[[begin, end], ...]`` and merge those that overlap."""
    joined: list[list[float]] = []
    for begin, end in sorted((begin, end) for begin, end in spans):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


def filled(
    values: np.ndarray, times: np.ndarray, max_gap: float, hold: bool, table: LogTable, first: int, column: str
) -> np.ndarray:
    """``values (rows,)`` with gaps of up to ``max_gap`` seconds filled: interpolated, or held (``hold``).

    Raises:
        LogError: A gap is longer, or at an end.
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
        raise LogError(f"{where}: values are missing{until}, up to the {place} row; remove these rows")
    borders = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    for left, right in itertools.pairwise(borders):
        length = times[right[0]] - times[left[-1]]
        if length > max_gap * (1 + _SAME_TIME):
            gap = int(left[-1]) + 1
            until = "" if right[0] == gap + 1 else f" to row {first + int(right[0])}"
            raise LogError(
                f"{table.place(first + gap, column)}: values are missing{until} ({length:.6g} s between those that "
                f"are there); set max_gap to {length:.6g} in the mapping to have the gap filled, or cut the log"
            )
    if not hold:
        return np.interp(times, times[known], values[known])
    return values[np.maximum.accumulate(np.where(missing, 0, np.arange(len(values))))]


def unwrapped(angles: np.ndarray) -> np.ndarray:
    """Angles in rad ``(rows,)`` without jumps by full turns; NaN stays."""
    known = np.isfinite(angles)
    result = angles.copy()
    result[known] = np.unwrap(angles[known])
    return result


def lines(values: np.ndarray, grid: Grid) -> np.ndarray:
    """``values (rows,)`` at the times of the grid ``(T+1,)``, interpolated linearly."""
    return values[grid.rows] if grid.rows is not None else np.interp(grid.times, grid.row_times, values)


def held(values: np.ndarray, grid: Grid, *, choices: bool = False) -> np.ndarray:
    """``values (rows,)``, each held until the next row, during the steps of the grid ``(T,)``.

    Means over each step; for ``choices`` the value held for the longest time.
    """
    return (held_majority if choices else held_mean)(values, grid.row_times, grid.times)
