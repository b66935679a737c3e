"""Learning curves of groups of runs that differ in their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from metaroll.training.evaluation.evaluation_metrics import intervals_of_means
from metaroll.training.figures.plots import finish_figure, require_matplotlib, set_title, stacked_figure

__all__ = ["plot_groups"]

_COLORS = ("#1b6ca8", "#d95f02", "#3a7d44", "#8e44ad", "#b8860b", "#c0392b", "#16a085", "#555555")


def plot_groups(curves: Mapping[str, Sequence[np.ndarray]], path: str | Path, *, adapts: bool = False) -> Path:
    """Draw the mean curve of each group, its 95 % percentile bootstrap interval over runs, and each run thinly.

    Args:
        curves: Label -> curve ``(E, 2)`` of each run: environment steps and return of its evaluations. The mean is
            drawn over the steps at which all runs of a group have been evaluated.
        path: Picture to write.
        adapts: Whether returns are after adaptation.

    Returns:
        ``path``.
    """
    require_matplotlib()
    if not curves or not all(len(runs) for runs in curves.values()):
        raise ValueError("curves must hold at least one group with at least one run")
    figure, panels = stacked_figure(1)
    axes = panels[0]
    for number, (label, runs) in enumerate(curves.items()):
        color = _COLORS[number % len(_COLORS)]
        for curve in runs if len(runs) > 1 else ():
            axes.plot(curve[:, 0], curve[:, 1], color=color, linewidth=0.7, alpha=0.35)
        steps, returns = _common(runs)
        count = f"{len(runs)} seed" + ("" if len(runs) == 1 else "s")
        mark = "o" if len(steps) == 1 else ""  # of runs that were evaluated once there is no line to see
        axes.plot(steps, returns.mean(axis=0), color=color, linewidth=1.9, marker=mark, label=f"{label} ({count})")
        if len(runs) > 1 and steps.size:
            low, high = intervals_of_means(returns, method="percentile")
            axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
    axes.set_xlabel("environment steps of training")
    axes.set_ylabel("return after adaptation" if adapts else "return in evaluations")
    axes.set_xlim(left=0)
    set_title(axes, "Return while learning", "mean over seeds; shaded: 95 % percentile bootstrap interval; thin: runs")
    return finish_figure(figure, axes, Path(path), {})


def _common(runs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Steps ``(E,)`` that all runs have, and their returns there, ``(runs, E)``."""
    steps = runs[0][:, 0]
    for curve in runs[1:]:
        steps = np.intersect1d(steps, curve[:, 0])
    return steps, np.stack([curve[np.searchsorted(curve[:, 0], steps), 1] for curve in runs])
