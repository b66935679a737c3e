"""The picture of a robustness map: a curve over one domain parameter, or a field over two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metaroll.training.evaluation.robustness import RobustnessMap
from metaroll.training.figures.plots import (
    BLUE,
    GRAY,
    ORANGE,
    finish_figure,
    require_matplotlib,
    set_title,
    stacked_figure,
)

if TYPE_CHECKING:
    from metaroll.training.figures.plots import Axes, Figure

__all__ = ["plot_robustness"]

_MOST_TEXTS = 100
"""Of more points than these, the numbers would not fit into the picture."""
_FONT_SIZES = (7.0, 6.0, 5.0)
_DOWN, _LEFT = 11, 8
"""Marks of Matplotlib that stand on a border and point into the picture (CARETDOWNBASE, CARETLEFTBASE)."""
_SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))
_LIGHTNESS = (0.299, 0.587, 0.114)
_ROOM = (0.95, 0.85)
"""Share of a field's width and height that its text may take; the legend will take some of the height."""


def plot_robustness(result: RobustnessMap, path: str | Path) -> Path:
    """Draw the return over the grid, with intervals, the nominal value, and the range of training.

    Args:
        result: What ``robustness_map`` returned.
        path: Picture to write (PNG).

    Returns:
        Where the picture is.
    """
    require_matplotlib()
    figure, panels = stacked_figure(1)
    axes = panels[0]
    episodes = result.returns.shape[-1]
    level = f"{100 * result.confidence:g} % bootstrap interval"
    explanation = "mean" if result.note else f"mean over {episodes} episodes"
    if len(result.grid) == 1:
        shown = _draw_curve(axes, result)
        explanation += f"; {shown}: {level}" if shown else ""
    else:
        with_intervals = _draw_field(figure, axes, result)
        low, high = result.interval
        if with_intervals:
            explanation += f" [{level}]"
        elif episodes > 1:
            explanation += f"; widest interval: {_short(float(np.max(high - low)))}"
    name = f"{result.env}: " if result.env else ""
    said = f"{explanation}; {result.note}" if result.note else explanation
    set_title(axes, f"{name}return over {' and '.join(result.grid)}", said)
    return finish_figure(figure, axes, Path(path), {})


def _draw_curve(axes: Axes, result: RobustnessMap) -> str:
    """Draw it; the word for how the intervals are shown, empty without any."""
    ((name, values),) = result.grid.items()
    low, high = result.interval
    shown = ""
    axes.plot(values, result.mean, color=BLUE, marker="o", markersize=3.5, linewidth=1.8, label="return", zorder=3)
    if np.isfinite(low).all() and len(values) > 1:
        axes.fill_between(values, low, high, color=BLUE, alpha=0.18, linewidth=0, zorder=2)
        shown = "shaded"
    elif np.isfinite(low).all():  # a band without width would not be seen
        below, above = (result.mean - low).clip(min=0), (high - result.mean).clip(min=0)
        axes.errorbar(values, result.mean, yerr=[below, above], color=BLUE, capsize=3.5, linewidth=1.6, zorder=3)
        shown = "bar"
    if name in result.training_range:
        begin, end = result.training_range[name]
        axes.axvspan(begin, end, color=ORANGE, alpha=0.12, linewidth=0, label="range in training", zorder=1)
    if name in result.nominal:
        axes.axvline(result.nominal[name], color=GRAY, linestyle="--", linewidth=1.3, label="nominal value", zorder=1)
    axes.set_xlabel(name)
    axes.set_ylabel("return (sum of rewards in an episode)")
    return shown


def _draw_field(figure: Figure, axes: Axes, result: RobustnessMap) -> bool:
    """Draw it; whether the intervals are written into it."""
    (x_name, x), (y_name, y) = result.grid.items()
    mesh = axes.pcolormesh(_edges(x), _edges(y), result.mean.T, cmap="viridis", shading="flat")
    figure.colorbar(mesh, ax=axes, label="return (sum of rewards in an episode)")
    axes.grid(visible=False)
    _draw_range(axes, result, x_name, y_name)
    if x_name in result.nominal and y_name in result.nominal:
        _draw_nominal(axes, result.nominal[x_name], result.nominal[y_name])
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    return result.mean.size <= _MOST_TEXTS and _write_numbers(figure, axes, result, mesh)


def _draw_nominal(axes: Axes, x: float, y: float) -> None:
    """Marks at the borders: one inside would lie on the numbers."""
    options = {"color": "black", "markeredgecolor": "white", "markersize": 8, "linestyle": "none", "zorder": 6}
    axes.plot(x, 1.0, marker=_DOWN, transform=axes.get_xaxis_transform(), label="nominal values", **options)
    axes.plot(1.0, y, marker=_LEFT, transform=axes.get_yaxis_transform(), **options)


def _draw_range(axes: Axes, result: RobustnessMap, x_name: str, y_name: str) -> None:
    """A frame around what was seen in training; of a single parameter two lines."""
    options = {"color": ORANGE, "linewidth": 2.0, "zorder": 3}
    x_range, y_range = result.training_range.get(x_name), result.training_range.get(y_name)
    if x_range and y_range:
        (left, right), (low, high) = x_range, y_range
        axes.plot([left, right, right, left, left], [low, low, high, high, low], label="range in training", **options)
        return
    for bounds, draw in ((x_range, axes.axvline), (y_range, axes.axhline)):
        for i, bound in enumerate(bounds or ()):
            draw(bound, label=None if i else "range in training", **options)


def _write_numbers(figure: Figure, axes: Axes, result: RobustnessMap, mesh: Any) -> bool:
    """Write the numbers as large as they fit, without the intervals if these do not; whether with intervals."""
    figure.draw_without_rendering()  # now it is known how large the fields are
    known = bool(np.isfinite(result.interval[0]).all())
    ways = (_number_and_interval, _number) if known else (_number,)
    for way in ways:
        for size in _FONT_SIZES:
            if _write_texts(axes, result, mesh, way, size):
                return way is not _number
    return False


def _write_texts(axes: Axes, result: RobustnessMap, mesh: Any, way: Callable[..., str], size: float) -> bool:
    """Write a text into each field; nothing, and False, if one of them is too large for its field."""
    edges = [_edges(values) for values in result.grid.values()]
    low, high = result.interval
    texts = []
    for i, j in np.ndindex(*result.mean.shape):
        begin, end = axes.transData.transform([(edges[0][i], edges[1][j]), (edges[0][i + 1], edges[1][j + 1])])
        color = mesh.cmap(mesh.norm(result.mean[i, j]))
        text = axes.text(0, 0, way(result.mean[i, j], low[i, j], high[i, j]), ha="center", va="center", fontsize=size)
        text.set_color("black" if np.dot(color[:3], _LIGHTNESS) > 0.45 else "white")
        text.set(zorder=5, in_layout=False)
        texts.append(text)
        extent = text.get_window_extent()
        room = (end - begin) * _ROOM - (extent.width, extent.height)
        if (room < 0).any():
            for written in texts:
                written.remove()
            return False
        place, is_clear = _clearest_place(axes, result, (begin + end) / 2, room / 2, extent)
        text.set_position(place)
        if not is_clear:  # the line is hidden behind it
            text.set_bbox({"facecolor": color, "edgecolor": "none", "pad": 1.0})
    return True


def _clearest_place(
    axes: Axes, result: RobustnessMap, middle: np.ndarray, room: np.ndarray, extent: Any
) -> tuple[Any, bool]:
    """Where in its field a text meets the fewest lines of the range in training, the middle first; whether none at all.

    Args:
        axes: Where it is written.
        result: What is drawn.
        middle: Middle of the field, in pixels.
        room: How far the text may be moved to either side, in pixels.
        extent: Size of the text.
    """
    bounds = [(axis, bound) for axis, name in enumerate(result.grid) for bound in result.training_range.get(name, ())]
    lines = [(axis, axes.transData.transform((bound, bound))[axis]) for axis, bound in bounds]
    half = np.array([extent.width, extent.height]) / 2 + 3
    places = [middle + room * shift for shift in _SHIFTS]
    met = [sum(abs(place[axis] - at) < half[axis] for axis, at in lines) for place in places]
    best = int(np.argmin(met))
    return axes.transData.inverted().transform(places[best]), met[best] == 0


def _number(mean: float, low: float, high: float) -> str:
    return _short(mean)


def _number_and_interval(mean: float, low: float, high: float) -> str:
    return f"{_short(mean)}\n[{_short(low)}, {_short(high)}]"


def _short(value: float) -> str:
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders ``(n+1,)`` of the fields around ``values (n,)``, half way between them."""
    if len(values) == 1:
        margin = 0.5 * abs(float(values[0])) or 0.5
        return np.array([values[0] - margin, values[0] + margin])
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
