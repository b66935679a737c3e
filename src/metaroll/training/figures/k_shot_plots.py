"""The k-shot curve as a picture: how much exploration an agent needs before it acts well."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.figures.plots import (
    BLUE,
    GRAY,
    ORANGE,
    finish_figure,
    require_matplotlib,
    set_title,
    stacked_figure,
)

__all__ = ["plot_k_shot_curve"]

_BASELINES = {
    "random context": ("adapted to another task's data", ORANGE, "--"),
    "task oracle": ("told the task", GRAY, ":"),
}


def plot_k_shot_curve(study: AdaptationStudy | Mapping[str, Any], path: str | Path) -> Path:
    """Draw the return after adapting from 0, 1, 2, ... exploration episodes, with 95 % intervals over tasks.

    All points are returns in the same test episodes. Baselines that there are (data of another task, the task itself)
    are drawn as lines.

    Args:
        study: From ``study_adaptation``, or what ``metaroll evaluate`` wrote to ``evaluation.json``.
        path: Picture to write.

    Returns:
        ``path``.
    """
    require_matplotlib()
    values = study if isinstance(study, Mapping) else {**study.result.to_dict(), **study.to_dict()}
    curve = values["k_shot_curve"]
    shots = np.asarray(curve["shots"], dtype=int)
    mean, low, high = (np.array(curve[name], dtype=float) for name in ("mean", "low", "high"))  # None becomes NaN
    errors = np.nan_to_num(np.stack([mean - low, high - mean])).clip(min=0)  # one task has no interval
    figure, panels = stacked_figure(1)
    axes = panels[0]
    label = "adapted to the task's own data"
    axes.errorbar(shots, mean, yerr=errors, fmt="o-", color=BLUE, capsize=3.5, markersize=6, linewidth=1.6, label=label)
    names = []
    for name, (text, color, style) in _BASELINES.items():
        if name in values["baselines"]:
            level = values["baselines"][name]["return"]
            axes.axhline(level, color=color, linestyle=style, linewidth=1.4, label=text, zorder=1)
            names.append(text)
    axes.set_xlabel("exploration episodes seen (0: nothing is known about the task)")
    axes.set_ylabel(f"return (sum of {values.get('reward_key') or 'rewards'} in an episode)")
    margin = max(0.4, 0.04 * shots[-1])
    axes.set_xlim(shots[0] - margin, shots[-1] + margin)
    axes.set_xticks(_spread(shots))
    set_title(axes, "Return after k exploration episodes", _explanation(values, bool(errors.any())))
    return finish_figure(figure, axes, Path(path), dict.fromkeys(names))


def _spread(shots: np.ndarray) -> list[int]:
    """Those of ``shots`` whose labels do not run into the one before."""
    kept: list[int] = []
    for k in shots.tolist():
        if not kept or k - kept[-1] >= (shots[-1] - shots[0]) / 32:
            kept.append(k)
    return kept


def _explanation(values: Mapping[str, Any], has_bars: bool) -> str:
    count, repetitions = values["n_test_tasks"], values["repetitions"]
    text = f"mean over {count} test task" + ("" if count == 1 else "s")
    text += f" ({repetitions} repetitions each)" if repetitions > 1 else ""
    return text + ("; bars: 95 % bootstrap interval over tasks" if has_bars else "")
