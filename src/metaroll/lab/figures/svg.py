"""Charts of a report as SVG inside the page: they need no package, no script and no file beside it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from metaroll.lab.figures.charts import (
    ORANGE,
    Chart,
    Curve,
    Field,
    LineStyle,
    axis_label,
    distinct_text,
    line_styles,
    tick_texts,
)

__all__ = ["legend", "number_text", "svg"]

_WIDTH, _HEIGHT = 480, 290
_RIGHT, _TOP, _BOTTOM = 24, 12, 46
_LABEL, _DIGIT = 32, 8
"""Pixels to the left of the numbers at the axis, for its label, and of a character."""
_MOST_POINTS, _MOST_DOTS = 400, 25
_WIDTHS = {"thin": 1.2, "wide": 6.0}
"""Strokes of curves of some kinds, in pixels; their points are not drawn."""
_PALE = ' stroke-opacity="0.4"'
_MOST_NUMBERS, _MOST_CELLS = 9, 7
"""Cells along an axis of which each has its number, and its value at the axis."""
# From dark to bright in equal steps of lightness, also for those who do not see colors well.
_SHADES = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


def number_text(value: float) -> str:
    """A number in few characters."""
    if math.isnan(value):
        return "n/a"
    for size, divisor, unit in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size <= abs(value) < math.inf:
            return f"{value / divisor:.3g}{unit}"
    return f"{value:.0f}" if 1e3 <= abs(value) < math.inf else f"{value:.3g}"


def legend(chart: Chart) -> str:
    """What the colors and dashes of a chart mean, as a list in HTML; empty where one curve says it all."""
    strokes = ((curve.label, _key_of(curve)) for curve in chart.curves if curve.label)
    styles = line_styles([*chart.levels, *chart.marks])
    marks = [*strokes, *((name, _dashes(style)) for name, style in styles.items())]
    entries = [(name, f'<line x1="1" y1="6" x2="23" y2="6" {stroke}/>') for name, stroke in marks]
    if chart.span is not None:
        entries.append((chart.span[0], f'<rect width="24" height="12" fill="{ORANGE}" fill-opacity="0.18"/>'))
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 24 12" aria-hidden="true">{mark}</svg>{html.escape(label)}</li>'
        for label, mark in entries
    )
    return f'<ul class="legend">{items}</ul>' if len(entries) > 1 else ""


def _key_of(curve: Curve) -> str:
    """Its stroke in the legend."""
    width, pale = (8, _PALE) if curve.kind == "wide" else (3, "")
    return f'stroke="{curve.color}" stroke-width="{width}"{pale}'


def svg(chart: Chart | Field) -> str:
    """A chart as SVG; the numbers of points and fields appear where one points at them."""
    return _field(chart) if isinstance(chart, Field) else _chart(chart)


def _chart(chart: Chart) -> str:
    curves = [_thinned(curve) for curve in chart.curves]
    levels = [np.atleast_1d(np.asarray(value, dtype=float)) for value in chart.levels.values()]
    marks = list(chart.marks.values())
    x_range = _range([curve.x for curve in curves] + [np.array(marks)], 0.4 if chart.whole else 0.0, flat=0.5)
    if chart.from_zero:
        x_range = (min(0.0, x_range[0]), x_range[1])
    elif not chart.whole and any(curve.kind == "points" for curve in curves):  # none of them on the border
        room = 0.04 * (x_range[1] - x_range[0])
        x_range = (x_range[0] - room, x_range[1] + room)
    bounds = [bound for curve in curves for bound in (curve.y, curve.low, curve.high) if bound is not None]
    y_low, y_high = _range([*bounds, *levels], 0.0, flat=1.0)
    pad = 0.06 * (y_high - y_low)
    frame = _Frame(x_range, (y_low - pad, y_high + pad))
    parts = [frame.axes(chart.x_label, chart.y_label, chart.whole)]
    if chart.span is not None:
        left, right = frame.x(max(chart.span[1], x_range[0])), frame.x(min(chart.span[2], x_range[1]))
        parts.append(
            f'<rect x="{left:.1f}" y="{_TOP}" width="{max(0.0, right - left):.1f}" height="{_HEIGHT - _TOP - _BOTTOM}" '
            f'fill="{ORANGE}" fill-opacity="0.14"/>'
        )
    styles = iter(line_styles([*chart.levels, *chart.marks]).values())
    parts += [_level(frame, level, next(styles)) for level in levels]
    parts += [_dashed(frame.x(at), _TOP, frame.x(at), _HEIGHT - _BOTTOM, next(styles)) for at in marks]
    parts += [_intervals(frame, curve) for curve in curves] + [_stroke(frame, curve) for curve in curves]
    return _svg(chart.title, parts)


def _field(chart: Field) -> str:
    """Colored fields, with numbers where there is room."""
    (x_label, x), (y_label, y) = chart.axes.items()
    values = chart.values
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    x_ticks, y_ticks = _cell_ticks(x), _cell_ticks(y)
    left = _left_of([label for _, label in y_ticks])
    width, height = (_WIDTH - left - _RIGHT) / len(x), (_HEIGHT - _TOP - _BOTTOM) / len(y)
    numbered, text = max(len(x), len(y)) <= _MOST_NUMBERS, distinct_text(values, number_text)
    parts = []
    for i, j in np.ndindex(*values.shape):
        share = (float(values[i, j]) - low) / ((high - low) or 1.0)
        begin, top = left + i * width, _HEIGHT - _BOTTOM - (j + 1) * height
        color = _shade(share) if math.isfinite(share) else "#dddddd"
        place = f"{x_label} {number_text(float(x[i]))}, {y_label} {number_text(float(y[j]))}"
        hover = _hover(place, float(values[i, j]), float(chart.low[i, j]), float(chart.high[i, j]))
        parts.append(
            f'<g>{hover}<rect x="{begin:.1f}" y="{top:.1f}" width="{width + 0.3:.1f}" height="{height + 0.3:.1f}" '
            f'fill="{color}"/></g>'
        )
        if numbered:
            ink = "#000" if share > 0.6 else "#fff"
            where = f'x="{begin + width / 2:.1f}" y="{top + height / 2 + 4:.1f}" font-size="11" pointer-events="none"'
            parts.append(f'<text {where} text-anchor="middle" fill="{ink}">{text(float(values[i, j]))}</text>')
    bottom = _HEIGHT - _BOTTOM
    parts += [_text(left + (cell + 0.5) * width, bottom + 18, label, "middle") for cell, label in x_ticks]
    parts += [_text(left - 7, bottom - (cell + 0.5) * height + 5, label, "end") for cell, label in y_ticks]
    parts.append(_text((left + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, axis_label(x_label), "middle"))
    parts.append(_upright(axis_label(y_label)))
    return _svg(chart.title, parts)


def _thinned(curve: Curve) -> Curve:
    """At most some hundred points, the first and the last among them: a page cannot show more."""
    if len(curve.x) <= _MOST_POINTS:
        return curve
    keep = np.unique(np.linspace(0, len(curve.x) - 1, _MOST_POINTS).round().astype(int))
    low, high = (None if bound is None else bound[keep] for bound in (curve.low, curve.high))
    names = [curve.names[i] for i in keep] if curve.names else ()
    return replace(curve, x=curve.x[keep], y=curve.y[keep], low=low, high=high, names=names)


def _level(frame: _Frame, level: np.ndarray, style: LineStyle) -> str:
    """A level line, or one through a value at each of 1, 2, 3, ..."""
    if not np.isfinite(level).all():
        return ""
    if len(level) == 1:
        return _dashed(frame.left, frame.y(float(level[0])), _WIDTH - _RIGHT, frame.y(float(level[0])), style)
    points = " ".join(f"{frame.x(i):.1f},{frame.y(float(y)):.1f}" for i, y in enumerate(level, start=1))
    return f'<polyline points="{points}" fill="none" {_dashes(style)}/>'


def _hover(place: str, value: float, low: float = math.nan, high: float = math.nan) -> str:
    """What is shown to whoever points at a part of the chart."""
    bounds = f" [{number_text(low)}, {number_text(high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    return f"<title>{html.escape(place)}: {number_text(value)}{bounds}</title>"


class _Frame:
    """Where numbers lie in a chart."""

    def __init__(self, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
        self._x, self._y = x_range, y_range
        self._levels = _ticks(*y_range, 5)
        self._texts = tick_texts(self._levels)
        self.left = _left_of(self._texts)

    def x(self, value: float) -> float:
        low, high = self._x
        return self.left + (value - low) / (high - low) * (_WIDTH - self.left - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self, x_label: str, y_label: str, whole: bool) -> str:
        left, right, bottom = self.left, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        parts = []
        for value, text in zip(self._levels, self._texts, strict=True):
            y = self.y(value)
            parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#dfe3e8"/>')
            parts.append(_text(left - 7, y + 5, text, "end"))
        parts.append(f'<line x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#8a939d"/>')
        places = _ticks(*self._x, 6, whole)
        for value, text in zip(places, tick_texts(places), strict=True):
            x = self.x(value)
            parts.append(f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 4}" stroke="#8a939d"/>')
            parts.append(_text(x, bottom + 18, text, "middle"))
        parts.append(_text((left + right) / 2, _HEIGHT - 6, x_label, "middle", 13))
        return "".join([*parts, _upright(y_label)])


def _left_of(texts: Sequence[str]) -> float:
    """Where the chart begins, to the right of the numbers at its axis and of its label."""
    return _LABEL + _DIGIT * max(map(len, texts), default=1)


def _upright(text: str) -> str:
    """The label of the axis to the left."""
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    place = f'x="14" y="{middle:.1f}" transform="rotate(-90 14 {middle:.1f})" font-size="12"'
    return f'<text {place} text-anchor="middle" fill="#333b44">{html.escape(text)}</text>'


def _svg(name: str, parts: Iterable[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(name)}" '
        f'font-size="14">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str, size: int = 14) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="#333b44">{html.escape(text)}</text>'


def _dashed(x1: float, y1: float, x2: float, y2: float, style: LineStyle) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {_dashes(style)}/>'


def _dashes(style: LineStyle) -> str:
    dashes = " ".join(f"{length:g}" for length in style.dashes)
    begins = f' stroke-dashoffset="{style.start:g}"' if style.start else ""
    return f'stroke="{style.color}" stroke-width="1.8" stroke-dasharray="{dashes}"{begins}'


def _stroke(frame: _Frame, curve: Curve) -> str:
    """The line through the points, and the points where there are few enough to be seen, or no line."""
    known = np.isfinite(curve.y)
    pieces: list[list[str]] = [[]]
    for x, y, finite in zip(curve.x, curve.y, known, strict=True):
        if finite:
            pieces[-1].append(f"{frame.x(x):.1f},{frame.y(y):.1f}")
        elif pieces[-1]:
            pieces.append([])
    pieces = [] if curve.kind == "points" else pieces
    lines = "".join(f'<polyline points="{" ".join(piece)}"/>' for piece in pieces if len(piece) > 1)
    width = _WIDTHS.get(curve.kind, 2.2)
    pale = _PALE if curve.kind == "wide" else ""
    stroke = f'<g fill="none" stroke="{curve.color}" stroke-width="{width}"{pale} stroke-linejoin="round">{lines}</g>'
    marked = curve.kind in ("points", "joined")
    alone = all(len(piece) < 2 for piece in pieces)
    if not marked and ((len(curve.x) > _MOST_DOTS or curve.kind in _WIDTHS) and not alone):
        return stroke
    nothing = np.full(len(curve.x), math.nan)
    low, high = (nothing if bound is None else bound for bound in (curve.low, curve.high))
    places = [f"{curve.label} at {number_text(x)}".strip() for x in curve.x]
    if curve.names:
        places = [f"{name}, {curve.label}" for name in curve.names]
    dots = "".join(
        f"<g>{_hover(place, y, below, above)}"
        f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="{4.5 if marked else 2.8}"/></g>'
        for place, x, y, below, above, finite in zip(places, curve.x, curve.y, low, high, known, strict=True)
        if finite
    )
    return f'{stroke}<g fill="{curve.color}">{dots}</g>'


def _intervals(frame: _Frame, curve: Curve) -> str:
    """The intervals: a band, or a bar at each point where a band would not be seen."""
    if curve.bounds is None:
        return ""
    x, low, high = curve.bounds
    if curve.has_bars:
        bars = []
        for at, below, above in zip(x, low, high, strict=True):
            place, bottom, top = frame.x(at), frame.y(below), frame.y(above)
            ends = f"M{place - 5:.1f},{top:.1f}h10M{place - 5:.1f},{bottom:.1f}h10"
            bars.append(f"M{place:.1f},{bottom:.1f}V{top:.1f}{ends}")
        return f'<path d="{"".join(bars)}" fill="none" stroke="{curve.color}" stroke-width="1.8"/>'
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


def _cell_ticks(values: np.ndarray) -> list[tuple[float, str]]:
    """Cells, of a few each, and what stands there; of many that are evenly apart, places of round numbers."""
    steps = np.diff(values)
    if len(values) > _MOST_CELLS and steps[0] > 0.0 and np.allclose(steps, steps[0], rtol=1e-6):
        ticks = _ticks(float(values[0]), float(values[-1]), 5)
        return list(zip(np.interp(ticks, values, np.arange(len(values))).tolist(), tick_texts(ticks), strict=True))
    places = range(0, len(values), -(-len(values) // _MOST_CELLS))
    shown = [float(values[i]) for i in places]
    short = [number_text(value) for value in shown]
    return list(zip(places, short if len(set(short)) == len(set(shown)) else tick_texts(shown), strict=True))


def _shade(share: float) -> str:
    place = min(max(share, 0.0), 1.0) * (len(_SHADES) - 1)
    i = min(int(place), len(_SHADES) - 2)
    mixed = [round(a + (place - i) * (b - a)) for a, b in zip(_SHADES[i], _SHADES[i + 1], strict=True)]
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})"
