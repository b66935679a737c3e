"""Times at which the rows of a log were recorded, by a robust line fit of stamps over row numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["RowFit", "fit_rows", "median_line", "whole_ratio"]

_NEAR = 0.25
"""Stamps may be off the grid by this share of a step."""
_LOST = 1.5
"""Rows are missing in pauses longer than this multiple of the median pause."""
_FAR_ROWS = 0.1
"""Maximum share of rows that are off the grid by more than ``_NEAR``."""
_TORN = 8
"""If more than one in this many pauses is that long, rows are uneven, rather than missing."""
_BLOCK = 32
"""Rows per block whose median residual shows whether the grid has shifted."""
_CLOCK = 0.01
"""Relative difference of clocks."""
_MOST_RATIO = 1e9
"""Above this ratio, no clock is exact enough to count steps."""
_WHOLE = 0.1
"""Maximum distance of a ratio of steps from a whole number: 1.01 is 1 and 10.1 is 10, but 100.3 is not 100."""


class RowFit(NamedTuple):
    """The even grid of times to which rows belong.

    Attributes:
        step: Seconds between neighbors on the grid.
        error: Standard error of ``step``, in s.
        places: Position of each row on the grid, in steps from the first row, ``(N,)``: whole numbers, except after a
            pause that is not a whole number of steps.
        residuals: Stamps minus the grid's times, in s, ``(N,)``.
        far: Rows so far off the grid that their stamps are used instead, ``(N,)``.
    """

    step: float
    error: float
    places: np.ndarray
    residuals: np.ndarray
    far: np.ndarray

    def times(self, step: float, share: float = 0.0) -> np.ndarray:
        """Times of rows, in s from the first row, ``(N,)``, if a step takes ``step`` seconds.

        Rows that are ``far`` off the grid are at their stamps, the others on the grid plus a ``share`` of their
        residual (the part that is real, see ``real_share``). No row is later than one that follows.
        """
        places = self.places + np.where(self.far, 1.0, share) * self.residuals / self.step
        return step * np.minimum.accumulate((places - places[0])[::-1])[::-1]


def median_line(x: Any, y: Any) -> tuple[float, float]:
    """Slope and intercept of a robust line fit, which tolerates up to a quarter of outliers.

    The slope is the median of ``(y[i + h] - y[i]) / (x[i + h] - x[i])`` with ``h = N // 2``, the intercept that of
    ``y - slope x`` (Theil 1950 and Sen 1968, restricted to the O(N) pairs that are half of the series apart). With
    independent normal errors of deviation s, the standard error of the slope on ``x = 0, 1, ...`` is ``5.0 s / N^1.5``
    (least squares: 3.5).

    Args:
        x: Positions, increasing, shape ``(N,)``.
        y: Values, shape ``(N,)``.

    Raises:
        ShapeError: There are fewer than two points, or x and y differ in length.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise ShapeError(f"x and y must have one shape (N,) with N >= 2, got {x.shape} and {y.shape}")
    half = len(x) // 2
    slope = float(np.median((y[half:] - y[:-half]) / (x[half:] - x[:-half])))
    return slope, float(np.median(y - slope * x))


def fit_rows(times: Any, step: float | None = None) -> RowFit | None:
    """Fit an even grid ``a + b k`` to the stamps of a log; ``None`` if they are not on a grid.

    They are on it if nine in ten deviate by less than ``b / 4``; the others keep the times of their stamps. Pauses
    longer than 1.5 median pauses count as missing rows: the rows after such a pause have their own offset, unless it is
    near a multiple of ``b``. If ``step`` is longer than ``b``, stamps may deviate by a quarter of ``step``, as long as
    no median over 32 rows deviates by ``b / 4``: a missing row would shift all later medians by ``b``.

    Args:
        times: Stamps in s, increasing, shape ``(N,)``.
        step: Seconds per step of the series that rows are resampled to; ``None`` if unknown.

    Raises:
        ShapeError: There are fewer than two rows.
    """
    times = np.asarray(times, dtype=np.float64)
    if times.ndim != 1 or len(times) < 2:
        raise ShapeError(f"times must have shape (N,) with N >= 2, got {times.shape}")
    numbered = _numbered(times)
    if numbered is not None:
        fit = _fitted(times, *numbered)
        far = np.abs(fit.residuals) >= _NEAR * fit.step
        if far.mean() <= _FAR_ROWS:
            return fit._replace(far=far)
    fit = _fitted(times, np.arange(len(times), dtype=np.float64), len(times))
    steady = len(times) >= 2 * _BLOCK and not _shifts(fit)
    return fit if step is not None and steady and np.abs(fit.residuals).max() < _NEAR * step else None


def whole_ratio(long: float, short: float) -> int | None:
    """``long / short`` as an integer, if it is a whole number up to the errors of clocks, else ``None``.

    Clocks may differ by 1 %; for ratios above 10 the distance from the whole number must be at most 0.1.
    """
    ratio = long / short
    if not 0.5 < ratio < _MOST_RATIO:
        return None
    whole = round(ratio)
    return whole if whole >= 1 and abs(ratio - whole) <= min(_CLOCK * whole, _WHOLE) else None


def _fitted(times: np.ndarray, places: np.ndarray, span: int) -> RowFit:
    """The line through rows at ``places``; ``span`` is the number of rows over which these are certain."""
    slope, start = median_line(places, times)
    residuals = times - start - slope * places
    spread = 1.4826 * float(np.median(np.abs(residuals)))
    return RowFit(slope, 5.0 * spread / span**1.5, places, residuals, np.zeros(len(times), dtype=bool))


def _shifts(fit: RowFit) -> bool:
    """Whether medians over blocks of rows deviate from the line."""
    num_blocks = len(fit.residuals) // _BLOCK
    blocks = fit.residuals[: num_blocks * _BLOCK].reshape(num_blocks, _BLOCK)
    return bool(np.abs(np.median(blocks, axis=1)).max() >= _NEAR * fit.step)


def _numbered(times: np.ndarray) -> tuple[np.ndarray, int] | None:
    """Positions of rows on the grid ``(N,)``, missing rows counted, and the number of rows over which they are certain.

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
    places, certain = np.empty(len(times)), True
    for begin, part in zip(begins.tolist(), parts, strict=True):
        rows = np.arange(len(part))
        place = (float(np.median(part - step * rows)) - first) / step
        nearest = round(place)
        certain = certain and abs(place - nearest) < _NEAR
        places[begin : begin + len(part)] = (nearest if abs(place - nearest) < _NEAR else place) + rows
    return places, len(times) if certain else len(longest)
