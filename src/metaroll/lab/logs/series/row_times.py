"""When the rows of a log were made: a line of time over row numbers, fitted so that single stamps do not move it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["RowFit", "fit_rows", "median_line", "whole_ratio"]

_NEAR = 0.25
"""Share of a step by which stamps may be off a grid on which they lie."""
_LOST = 1.5
"""Pauses of more than this many usual ones hold rows that were lost."""
_FAR_ROWS = 0.1
"""Share of rows that may be off the grid by more."""
_TORN = 8
"""Where more than one of this many pauses is that long, rows are uneven, and not lost."""
_BLOCK = 32
"""Rows whose median residual shows whether the grid has moved."""
_CLOCK = 0.01
"""Share by which clocks may differ."""
_MOST_RATIO = 1e9
"""Beyond, no clock tells how many they are."""
_WHOLE = 0.1
"""How far a ratio of steps may be from a whole number: 1.01 is 1 and 10.1 is 10, but 100.3 is not 100."""


class RowFit(NamedTuple):
    """The grid on which rows lie.

    Attributes:
        step: Seconds between neighbors.
        error: Standard error of ``step``, in s.
        places: Of each row on the grid, in steps from the first one, ``(N,)``. Whole numbers, but for rows after a
            pause that is no whole number of steps.
        residuals: Stamps without the grid's times, in s, ``(N,)``.
        far: Which rows are so far off the grid that their stamps count, ``(N,)``.
    """

    step: float
    error: float
    places: np.ndarray
    residuals: np.ndarray
    far: np.ndarray

    def times(self, step: float, share: float = 0.0) -> np.ndarray:
        """When rows were made, in s from the first one, ``(N,)``, if steps take ``step`` seconds.

        Rows are on the grid, those that are ``far`` off it where their stamps are, yet after none that follows. Of what
        the others are off it, a ``share`` is real (``real_share``).
        """
        places = self.places + np.where(self.far, 1.0, share) * self.residuals / self.step
        return step * np.minimum.accumulate((places - places[0])[::-1])[::-1]


def median_line(x: Any, y: Any) -> tuple[float, float]:
    """Slope and intercept of a line through points, of which a quarter may lie anywhere.

    The slope is the median of ``(y[i + h] - y[i]) / (x[i + h] - x[i])`` with ``h = N // 2``, the intercept that of
    ``y - slope x`` (Theil 1950 and Sen 1968, of the pairs that are half of the series apart alone: O(N) of them). With
    independent normal errors its standard error is ``5.0 s / N^1.5`` on ``x = 0, 1, ...``, of least squares 3.5.

    Args:
        x: Places, increasing, shape ``(N,)``.
        y: Values, shape ``(N,)``.

    Raises:
        ShapeError: There are fewer than two points, or not as many values.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise ShapeError(f"x and y must have one shape (N,) with N >= 2, got {x.shape} and {y.shape}")
    half = len(x) // 2
    slope = float(np.median((y[half:] - y[:-half]) / (x[half:] - x[:-half])))
    return slope, float(np.median(y - slope * x))


def fit_rows(times: Any, step: float | None = None) -> RowFit | None:
    """The grid ``a + b k`` of the stamps of a log, ``None`` where they lie on none.

    They do if nine of ten are off it by less than ``b / 4``; the others are where their stamps are. Rows are taken for
    lost in pauses above 1.5 of the usual ones: those after such a pause have an offset of their own, unless it is near
    a whole number of ``b``. If ``step`` is longer than ``b``, stamps may be off by a quarter of ``step``, as long as
    the median over 32 rows is not off by ``b / 4``: a row that was lost would move it by ``b`` for good.

    Args:
        times: Stamps in s, increasing, shape ``(N,)``.
        step: Seconds per step into which rows are to be gathered.

    Raises:
        ShapeError: There are fewer than two rows.
    """
    times = np.asarray(times, dtype=np.float64)
    if times.ndim != 1 or len(times) < 2:
        raise ShapeError(f"times must have shape (N,) with N >= 2, got {times.shape}")
    found = _counted(times)
    if found is not None:
        fit = _fitted(times, *found)
        far = np.abs(fit.residuals) >= _NEAR * fit.step
        if far.mean() <= _FAR_ROWS:
            return fit._replace(far=far)
    fit = _fitted(times, np.arange(len(times), dtype=np.float64), len(times))
    steady = len(times) >= 2 * _BLOCK and not _moves(fit)
    return fit if step is not None and steady and np.abs(fit.residuals).max() < _NEAR * step else None


def whole_ratio(long: float, short: float) -> int | None:
    """How many ``short`` make a ``long``, if that is a whole number up to the errors of clocks, else ``None``.

    These are 1 %, or less where the ratio is above 10: it must be within 0.1 of the whole number.
    """
    ratio = long / short
    if not 0.5 < ratio < _MOST_RATIO:
        return None
    whole = round(ratio)
    return whole if whole >= 1 and abs(ratio - whole) <= min(_CLOCK * whole, _WHOLE) else None


def _fitted(times: np.ndarray, places: np.ndarray, span: int) -> RowFit:
    """The line through rows at ``places``; the longest stretch in which these are known for sure has ``span`` rows."""
    slope, start = median_line(places, times)
    residuals = times - start - slope * places
    spread = 1.4826 * float(np.median(np.abs(residuals)))
    return RowFit(slope, 5.0 * spread / span**1.5, places, residuals, np.zeros(len(times), dtype=bool))


def _moves(fit: RowFit) -> bool:
    """Whether medians over blocks of rows leave the line."""
    whole = len(fit.residuals) // _BLOCK
    blocks = fit.residuals[: whole * _BLOCK].reshape(whole, _BLOCK)
    return bool(np.abs(np.median(blocks, axis=1)).max() >= _NEAR * fit.step)


def _counted(times: np.ndarray) -> tuple[np.ndarray, int] | None:
    """Places of rows ``(N,)``, those that were lost counted, and over how many of them these are known for sure.

    ``None`` if there are so many long pauses that rows are uneven.
    """
    pauses = np.diff(times)
    cuts = np.flatnonzero(pauses > _LOST * np.median(pauses)) + 1
    if not cuts.size:
        return np.arange(len(times), dtype=np.float64), len(times)
    if cuts.size * _TORN > len(times):
        return None
    begins = np.append(0, cuts)
    parts = np.split(times, cuts)
    longest = max(parts, key=len)
    step = median_line(np.arange(len(longest)), longest)[0]
    first = float(np.median(parts[0] - step * np.arange(len(parts[0]))))
    places, sure = np.empty(len(times)), True
    for begin, part in zip(begins.tolist(), parts, strict=True):
        rows = np.arange(len(part))
        place = (float(np.median(part - step * rows)) - first) / step
        whole = round(place)
        sure = sure and abs(place - whole) < _NEAR
        places[begin : begin + len(part)] = (whole if abs(place - whole) < _NEAR else place) + rows
    return places, len(times) if sure else len(longest)
