"""Charts of a report as SVG inside the page: they need no package, no script and no file beside it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["BLUE", "GRAY", "ORANGE", "Curve", "heat_map", "legend", "line_chart", "number_text"]

ORANGE, BLUE, GRAY = "#b84e00", "#1b6ca8", "#555f6b"
_WIDTH, _HEIGHT = 480, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 12, 46
_DASHES = ("7 5", "2 4", "9 4 2 4")
_MOST_POINTS = 400
_MOST_NUMBERS = 9
# From dark to bright in equal steps of lightness, also for those who do not see colors well.
_SHADES = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


@dataclass(frozen=True)
class Curve:
    """One curve of a chart.

    Attributes:
        label: What it shows.
        x: Where, ``(N,)``, rising.
        y: Values ``(N,)``; there is a gap where one is not finite.
        low, high: Bounds of an interval around each value, ``(N,)``.
        color: As CSS has it.
        marks: Draw each point with a bar as its interval, instead of a line with a band.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    color: str = BLUE
    marks: bool = False

    def thinned(self) -> Curve:
        """At most some hundred points, the first and the last among them: a page cannot show more."""
        if len(self.x) <= _MOST_POINTS:
            return self
        keep = np.unique(np.linspace(0, len(self.x) - 1, _MOST_POINTS).round().astype(int))
        low, high = (None if bound is None else bound[keep] for bound in (self.low, self.high))
        return Curve(self.label, self.x[keep], self.y[keep], low, high, self.color, self.marks)


def number_text(value: float) -> str:
    """A number in few characters."""
    if math.isnan(value):
        return "n/a"
    for size, divisor, unit in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size <= abs(value) < math.inf:
            return f"{value / divisor:.4g}{unit}"
    return f"{value:.4g}"


def legend(curves: Sequence[Curve], references: Iterable[str] = (), spans: Iterable[str] = ()) -> str:
    """What the colors of a chart mean, as a list in HTML."""
    entries = [
        (curve.label, f'<line x1="1" y1="6" x2="23" y2="6" stroke="{curve.color}" stroke-width="3"/>')
        for curve in curves
    ]
    entries += [
        (name, f'<line x1="1" y1="6" x2="23" y2="6" stroke="{GRAY}" stroke-width="2" stroke-dasharray="{dash}"/>')
        for name, dash in zip(references, _DASHES * 8, strict=False)
    ]
    entries += [(name, f'<rect width="24" height="12" fill="{ORANGE}" fill-opacity="0.18"/>') for name in spans]
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 24 12" aria-hidden="true">{mark}</svg>{html.escape(label)}</li>'
        for label, mark in entries
    )
    return f'<ul class="legend">{items}</ul>'


def line_chart(
    curves: Sequence[Curve],
    x_label: str,
    name: str,
    *,
    references: Mapping[str, float] | None = None,
    lines: Sequence[float] = (),
    span: tuple[float, float] | None = None,
    whole: bool = False,
) -> str:
    """Curves with their intervals over one axis.

    Args:
        curves: The curves.
        x_label: What the axis below shows.
        name: What the chart shows, for those who hear the page.
        references: Name -> value of dashed level lines.
        lines: Where dashed upright lines stand.
        span: Part of the axis below with a ground of its own.
        whole: The axis below counts: only whole numbers stand there.
    """
    curves = [curve.thinned() for curve in curves]
    levels = list((references or {}).values())
    margin = 0.4 if whole else 0.0
    x_range = _range([curve.x for curve in curves] + [np.array(lines)], margin, flat=0.5)
    bounds = [bound for curve in curves for bound in (curve.y, curve.low, curve.high) if bound is not None]
    y_low, y_high = _range([*bounds, np.array(levels)], 0.0, flat=1.0)
    pad = 0.06 * (y_high - y_low)
    frame = _Frame(x_range, (y_low - pad, y_high + pad))
    parts = [frame.axes(x_label, whole)]
    if span is not None:
        left, right = frame.x(max(span[0], x_range[0])), frame.x(min(span[1], x_range[1]))
        parts.append(
            f'<rect x="{left:.1f}" y="{_TOP}" width="{max(0.0, right - left):.1f}" height="{_HEIGHT - _TOP - _BOTTOM}" '
            f'fill="{ORANGE}" fill-opacity="0.14"/>'
        )
    dashes = iter(_DASHES * 8)
    for level in levels:
        if math.isfinite(level):
            y = frame.y(level)
            parts.append(_dashed(_LEFT, y, _WIDTH - _RIGHT, y, next(dashes)))
    parts += [_dashed(frame.x(at), _TOP, frame.x(at), _HEIGHT - _BOTTOM, next(dashes)) for at in lines]
    parts += [_band(frame, curve) for curve in curves] + [_stroke(frame, curve) for curve in curves]
    return _svg(name, parts)


def heat_map(x_label: str, x: Sequence[float], y_label: str, y: Sequence[float], values: np.ndarray, name: str) -> str:
    """Values ``(len(x), len(y))`` as colored fields, with numbers where there is room."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    width, height = (_WIDTH - _LEFT - _RIGHT) / len(x), (_HEIGHT - _TOP - _BOTTOM) / len(y)
    numbered = max(len(x), len(y)) <= _MOST_NUMBERS
    parts = []
    for i in range(len(x)):
        for j in range(len(y)):
            share = (float(values[i, j]) - low) / ((high - low) or 1.0)
            left, top = _LEFT + i * width, _HEIGHT - _BOTTOM - (j + 1) * height
            color = _shade(share) if math.isfinite(share) else "#dddddd"
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{width + 0.3:.1f}" height="{height + 0.3:.1f}" '
                f'fill="{color}"/>'
            )
            if numbered:
                ink = "#000" if share > 0.6 else "#fff"
                where = f'x="{left + width / 2:.1f}" y="{top + height / 2 + 4:.1f}" font-size="11"'
                parts.append(f'<text {where} text-anchor="middle" fill="{ink}">{values[i, j]:.3g}</text>')
    every_x, every_y = -(-len(x) // 7), -(-len(y) // 7)
    bottom = _HEIGHT - _BOTTOM
    parts += [
        _text(_LEFT + (i + 0.5) * width, bottom + 18, number_text(x[i]), "middle") for i in range(0, len(x), every_x)
    ]
    parts += [
        _text(_LEFT - 7, bottom - (j + 0.5) * height + 5, number_text(y[j]), "end") for j in range(0, len(y), every_y)
    ]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, f"{x_label} → (upwards: {y_label})", "middle"))
    return _svg(name, parts)


class _Frame:
    """Where numbers lie in a chart."""

    def __init__(self, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
        self._x, self._y = x_range, y_range

    def x(self, value: float) -> float:
        low, high = self._x
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self, x_label: str, whole: bool) -> str:
        parts = []
        for value in _ticks(*self._y, 5):
            y = self.y(value)
            parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#dfe3e8"/>')
            parts.append(_text(_LEFT - 7, y + 5, number_text(value), "end"))
        bottom = _HEIGHT - _BOTTOM
        parts.append(f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="#8a939d"/>')
        for value in _ticks(*self._x, 6, whole):
            x = self.x(value)
            parts.append(f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 4}" stroke="#8a939d"/>')
            parts.append(_text(x, bottom + 18, number_text(value), "middle"))
        parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, x_label, "middle"))
        return "".join(parts)


def _svg(name: str, parts: Iterable[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(name)}" '
        f'font-size="14">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333b44">{html.escape(text)}</text>'


def _dashed(x1: float, y1: float, x2: float, y2: float, dash: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{GRAY}" stroke-width="1.6" stroke-dasharray="{dash}"/>'


def _stroke(frame: _Frame, curve: Curve) -> str:
    points = [(frame.x(x), frame.y(y)) if math.isfinite(y) else None for x, y in zip(curve.x, curve.y, strict=True)]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>' for x, y in filter(None, points))
    if curve.marks:
        return f'<g fill="{curve.color}">{dots}</g>'
    pieces: list[list[str]] = [[]]
    for point in points:
        if point is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{point[0]:.1f},{point[1]:.1f}")
    lines = "".join(f'<polyline points="{" ".join(piece)}"/>' for piece in pieces if len(piece) > 1)
    alone = dots if len(points) <= 25 or all(len(piece) < 2 for piece in pieces) else ""
    style = f'fill="none" stroke="{curve.color}" stroke-width="2.2" stroke-linejoin="round"'
    return f'<g {style}>{lines}</g><g fill="{curve.color}">{alone.replace("4.5", "2.8")}</g>'


def _band(frame: _Frame, curve: Curve) -> str:
    """The intervals: a band, or a bar at each point where a band would not be seen."""
    if curve.low is None or curve.high is None:
        return ""
    known = np.isfinite(curve.low) & np.isfinite(curve.high)
    x, low, high = curve.x[known], curve.low[known], curve.high[known]
    if curve.marks or len(x) == 1:
        bars = []
        for at, below, above in zip(x, low, high, strict=True):
            place, bottom, top = frame.x(at), frame.y(below), frame.y(above)
            ends = f"M{place - 5:.1f},{top:.1f}h10M{place - 5:.1f},{bottom:.1f}h10"
            bars.append(f"M{place:.1f},{bottom:.1f}V{top:.1f}{ends}")
        return f'<path d="{"".join(bars)}" fill="none" stroke="{curve.color}" stroke-width="1.8"/>' if bars else ""
    if len(x) < 2:
        return ""
    there = [f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in zip(x, high, strict=True)]
    back = [f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in zip(x[::-1], low[::-1], strict=True)]
    return f'<polygon points="{" ".join(there + back)}" fill="{curve.color}" fill-opacity="0.18"/>'


def _range(arrays: Sequence[np.ndarray], margin: float, flat: float) -> tuple[float, float]:
    """Lowest and highest finite value; ``flat`` to both sides where they are equal."""
    values = np.concatenate([np.asarray(array, dtype=float).ravel() for array in arrays])
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()) - margin, float(values.max()) + margin
    # Bounds so near to one another that nothing can be told apart between them count as equal.
    return (low, high) if high - low > 1e-9 * max(abs(low), abs(high)) else (low - flat, high + flat)


def _ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """About ``count`` round numbers from ``low`` to ``high``."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(1.0, round(step)) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _shade(share: float) -> str:
    place = min(max(share, 0.0), 1.0) * (len(_SHADES) - 1)
    i = min(int(place), len(_SHADES) - 2)
    mixed = [round(a + (place - i) * (b - a)) for a, b in zip(_SHADES[i], _SHADES[i + 1], strict=True)]
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})"
