"""The picture of a robustness map: a curve over one domain parameter, or a field over two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from metaroll.training.plots import (
    BLUE,
    GREY,
    ORANGE,
    finish_figure,
    require_matplotlib,
    set_title,
    stacked_figure,
)
from metaroll.training.robustness import RobustnessMap

if TYPE_CHECKING:
    from metaroll.training.plots import Axes, Figure

__all__ = ["plot_robustness"]

_MOST_NUMBERS = 80
"""Of more points than these, the numbers would not fit into the picture."""


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
    means = f"mean over {episodes} episode" + ("s" if episodes > 1 else "")
    if len(result.grid) == 1:
        _draw_curve(axes, result)
        explanation = f"{means} at each point; shaded: {level}"
    else:
        _draw_field(figure, axes, result)
        half = _half_widths(result)
        small = f"{means}, ± half of the {level}" if _has_numbers(result) else f"{means} at each point"
        explanation = small + (f"; widest ± {np.nanmax(half):.3g}" if np.isfinite(half).any() else "")
    name = f"{result.env}: " if result.env else ""
    set_title(axes, f"{name}return over {' and '.join(result.grid)}", explanation)
    return finish_figure(figure, axes, Path(path), {})


def _draw_curve(axes: Axes, result: RobustnessMap) -> None:
    ((name, values),) = result.grid.items()
    low, high = result.interval
    axes.plot(values, result.mean, color=BLUE, marker="o", markersize=3.5, linewidth=1.8, label="return", zorder=3)
    if np.isfinite(low).all() and len(values) > 1:
        axes.fill_between(values, low, high, color=BLUE, alpha=0.18, linewidth=0, zorder=2)
    if name in result.training_range:
        begin, end = result.training_range[name]
        axes.axvspan(begin, end, color=ORANGE, alpha=0.12, linewidth=0, label="range in training", zorder=1)
    if name in result.nominal:
        axes.axvline(result.nominal[name], color=GREY, linestyle="--", linewidth=1.3, label="nominal value", zorder=1)
    axes.set_xlabel(name)
    axes.set_ylabel("return (sum of rewards in an episode)")


def _draw_field(figure: Figure, axes: Axes, result: RobustnessMap) -> None:
    (x_name, x), (y_name, y) = result.grid.items()
    mesh = axes.pcolormesh(_edges(x), _edges(y), result.mean.T, cmap="viridis", shading="flat")
    figure.colorbar(mesh, ax=axes, label="return (sum of rewards in an episode)")
    axes.grid(visible=False)
    if _has_numbers(result):
        _write_numbers(axes, result)
    _draw_range(axes, result, x_name, y_name)
    if x_name in result.nominal and y_name in result.nominal:
        where = (result.nominal[x_name], result.nominal[y_name])
        axes.plot(
            *where,
            marker="*",
            markersize=13,
            color="white",
            markeredgecolor="black",
            linestyle="none",
            label="nominal values",
            zorder=4,
        )
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)


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


def _write_numbers(axes: Axes, result: RobustnessMap) -> None:
    (_, x), (_, y) = result.grid.items()
    mean, half = result.mean, _half_widths(result)
    low, high = float(mean.min()), float(mean.max())
    for i, at_x in enumerate(x):
        for j, at_y in enumerate(y):
            bright = high > low and (mean[i, j] - low) / (high - low) > 0.6
            text = f"{mean[i, j]:.3g}" + (f"\n± {half[i, j]:.2g}" if np.isfinite(half[i, j]) else "")
            axes.text(at_x, at_y, text, ha="center", va="center", fontsize=6, color="black" if bright else "white")


def _has_numbers(result: RobustnessMap) -> bool:
    sizes = [len(values) for values in result.grid.values()]
    return sizes[0] * sizes[1] <= _MOST_NUMBERS and max(sizes) <= 10


def _half_widths(result: RobustnessMap) -> np.ndarray:
    low, high = result.interval
    return (high - low) / 2


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders ``(n+1,)`` of the fields around ``values (n,)``, half way between them."""
    if len(values) == 1:
        margin = 0.5 * abs(float(values[0])) or 0.5
        return np.array([values[0] - margin, values[0] + margin])
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
