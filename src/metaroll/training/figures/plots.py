"""Pictures of a run (PNG, PDF, SVG): learning curve and adaptation curve (needs matplotlib, the extra ``plot``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metaroll.data.atomic_files import write_files
from metaroll.data.step_sequence import StepSequence
from metaroll.training.store.metrics_log import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "GRAY",
    "ORANGE",
    "PICTURE_KINDS",
    "finish_figure",
    "plot_adaptation_curve",
    "plot_learning_curve",
    "plot_rollout",
    "require_matplotlib",
    "save_figure",
    "set_title",
    "stacked_figure",
]

ORANGE, BLUE, GRAY = "#d95f02", "#1b6ca8", "#555555"
_STYLES = ("--", ":", "-.")
PICTURE_KINDS = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
"""What pictures can be written as, and the entry of their metadata that would differ from one time to the next."""


def require_matplotlib() -> None:
    """An ``ImportError`` with the hint if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("pictures need matplotlib, which is not installed: pip install 'metaroll[plot]'")


def plot_learning_curve(
    run_dir: str | Path,
    path: str | Path | None = None,
    *,
    references: Mapping[str, Any] | None = None,
    phase: str | None = None,
    final: Any = None,
) -> Path:
    """Draw the return of evaluations over environment steps, with 95 % intervals.

    Of algorithms that adapt, return before and after adaptation; the intervals are over tasks (over episodes where
    there is but one).

    Args:
        run_dir: Folder of the run (its ``metrics.jsonl`` is read).
        path: Picture to write; ``None`` means ``learning_curve.png`` in the run folder.
        references: Name -> return, drawn as lines (``{"oracle": -5.2, "floor": -15.9}``).
        phase: Phase of the metrics, the evaluator's ``prefix``; ``None`` means ``MetaTest`` or ``Evaluation``.
        final: A ``PolicyEvaluation`` of the finished agent, drawn where the run was too short for others.

    Returns:
        Where the picture is.
    """
    require_matplotlib()
    path = Path(run_dir) / "learning_curve.png" if path is None else Path(path)
    everything = read_metrics(run_dir, phase=phase or "MetaTest")
    if not everything and phase is None:
        everything = read_metrics(run_dir, phase="Evaluation")
    if not everything and final is not None:
        everything = _rows_of(final, run_dir)
    adapts = any(row["metric"].startswith(("return_before", "return_after")) for row in everything)
    count = len({row["task"] for row in everything} - {None})
    rows = [row for row in everything if row["task"] is None]
    figure, axes = _figure()
    for name, label, color in (
        ("return_before", "before adaptation", ORANGE),
        ("return_after", "after adaptation", BLUE),
        ("return_mean", "policy without noise", BLUE),
    ):
        steps, mean = _series(rows, name)
        if not steps.size:
            continue
        low, high = _series(rows, f"{name}_ci_low")[1], _series(rows, f"{name}_ci_high")[1]
        axes.plot(steps, mean, color=color, label=label, marker="o", markersize=3.5, linewidth=1.8)
        if not len(low) == len(high) == len(mean):
            continue
        if len(steps) > 1:
            axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
        else:  # a band without width would not be seen
            axes.errorbar(steps, mean, yerr=_errors(mean, low, high), color=color, capsize=3.5, linewidth=1.6)
    if not axes.lines:
        axes.text(0.5, 0.5, "no evaluation yet", transform=axes.transAxes, ha="center", color=GRAY)
    _draw_references(axes, references)
    axes.set_xlabel("environment steps in training tasks" if adapts else "environment steps of training")
    axes.set_ylabel(_return_label(None))
    shown = "shaded" if len({row["env_steps"] for row in rows}) > 1 else "bars"
    over = f"mean over {_tasks(count)}; {shown}: 95 % bootstrap interval over tasks"
    if not count and not adapts:
        count, over = 1, f"mean over episodes; {shown}: 95 % bootstrap interval over them"
    title = "Learning to adapt to new tasks" if adapts else "Return while learning"
    set_title(axes, title, over if axes.has_data() and count else "")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(_thousands)
    return finish_figure(figure, axes, path, references or {})


def plot_adaptation_curve(
    result: Any, path: str | Path, references: Mapping[str, Any] | None = None, *, title: str | None = None
) -> Path:
    """Draw the return of the first, second, ... episode in a new task, with 95 % intervals over tasks.

    Args:
        result: An ``EvaluationResult``, or a dict with its ``adaptation_curve``.
        path: Picture to write.
        references: Name -> return (one number, or one per episode), drawn as lines.
        title: Title; ``None`` means a general one. What the points and bars are is said below it.

    Returns:
        ``path``.
    """
    require_matplotlib()
    values = result if isinstance(result, Mapping) else result.to_dict()
    curve = values["adaptation_curve"]
    episodes = np.asarray(curve["episode"], dtype=int)
    mean, low, high = (np.array(curve[k], dtype=float) for k in ("mean", "low", "high"))  # None becomes NaN
    explored = int(curve.get("num_exploration", 0))
    figure, axes = _figure()
    axes.plot(episodes, mean, color=GRAY, linewidth=1.4, zorder=2)
    errors = _errors(mean, low, high)
    for part, label, color in (
        (slice(0, explored), "exploration episodes", ORANGE),
        (slice(explored, None), "adapted episodes", BLUE),
    ):
        if episodes[part].size:
            axes.errorbar(
                episodes[part],
                mean[part],
                yerr=errors[:, part],
                fmt="o",
                color=color,
                capsize=3.5,
                markersize=6,
                linewidth=1.6,
                label=label,
                zorder=3,
            )
    _draw_references(axes, references)
    axes.set_xlabel("episode in the new task (in the first nothing is known about it)")
    axes.set_ylabel(_return_label(values.get("reward_key")))
    axes.set_xlim(episodes[0] - 0.5, episodes[-1] + 0.5)
    axes.set_xticks(episodes if len(episodes) <= 20 else episodes[:: len(episodes) // 10])
    count, repetitions = values.get("n_test_tasks"), values.get("repetitions", 1)
    over = f"mean over {_tasks(count)}" if count else ""
    over += f" ({repetitions} repetitions each)" if over and repetitions > 1 else ""
    over += "; bars: 95 % bootstrap interval over tasks" if over and errors.any() else ""
    set_title(axes, "Adapting to a new task" if title is None else title, over)
    return finish_figure(figure, axes, Path(path), references or {})


def plot_rollout(
    rollout: StepSequence, kind: str = "all", index: int | None = None, path: str | Path | None = None
) -> Path:
    """Draw what happened in a rollout over its steps (over seconds, if it has ``time``), one panel per kind of data.

    Args:
        rollout: One rollout.
        kind: ``"observations"``, ``"states"``, ``"actions"``, ``"rewards"``, ``"dts"`` (how long steps took), or
            ``"all"`` of the first four that it has.
        index: Only this entry of observations, states or actions.
        path: Picture to write; ``None`` means ``rollout.png`` in the current folder.

    Returns:
        Where the picture is.
    """
    require_matplotlib()
    path = Path("rollout.png") if path is None else Path(path)
    panels = {name: _columns(rollout, name, index) for name in _panels_of(rollout, kind)}
    figure, rows = stacked_figure(len(panels))
    seconds = np.asarray(rollout.time) if "time" in rollout.data_names else None
    spec = (rollout.rollout_info or {}).get("env_spec")
    for axes, (name, columns) in zip(rows, panels.items(), strict=True):
        for label, values in _labeled(name, columns, spec, index):
            at = np.arange(len(values)) if seconds is None else seconds[: len(values)]
            axes.plot(
                at, values, label=label, linewidth=1.4, drawstyle="steps-post" if name == "actions" else "default"
            )
        axes.set_ylabel("seconds" if name == "dts" else name)
        if len(axes.lines) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    rows[-1].set_xlabel("step" if seconds is None else "time in seconds")
    ending = "terminated" if rollout.terminated[-1] else "truncated" if rollout.truncated[-1] else "cut out"
    name = (rollout.rollout_info or {}).get("env_name", "rollout")
    total = float(np.sum(np.asarray(rollout.rewards)))
    set_title(rows[0], str(name), f"{len(rollout)} steps, return {total:.4g}, {ending}")
    return save_figure(figure, path)


_PANELS = ("observations", "states", "actions", "rewards")
_DTS = ("dts_policy", "dts_step", "dts_remainder")
_MOST_LINES = 12


def _panels_of(rollout: StepSequence, kind: str) -> list[str]:
    if kind == "all":
        return [name for name in _PANELS if name in rollout.data_names]
    if kind not in (*_PANELS, "dts"):
        raise ValueError(f"kind must be 'all', 'dts' or one of {_PANELS}, got {kind!r}")
    if (_DTS[0] if kind == "dts" else kind) not in rollout.data_names:
        hint = "; record them with rollout(..., record_dts=True)" if kind == "dts" else ""
        raise ValueError(f"the rollout has no {kind}{hint}")
    return [kind]


def _columns(rollout: StepSequence, name: str, index: int | None) -> np.ndarray:
    """Values ``(T, D)`` of one panel."""
    if name == "dts":
        return np.stack([np.asarray(getattr(rollout, part)) for part in _DTS], axis=1)
    data = getattr(rollout, name)
    if isinstance(data, dict | tuple):
        raise ValueError(f"{name} of a structured space cannot be drawn")
    columns = np.asarray(data).reshape(len(data), -1)
    if index is None or name == "rewards":
        return columns[:, :_MOST_LINES]
    if not 0 <= index < columns.shape[1]:
        raise IndexError(f"index must be from 0 to {columns.shape[1] - 1} for {name}, got {index}")
    return columns[:, index : index + 1]


def _labeled(name: str, columns: np.ndarray, spec: Any, index: int | None) -> list[tuple[str, np.ndarray]]:
    labels = getattr(spec, f"{name.removesuffix('s')}_labels", None)
    if name == "dts":
        labels = tuple(part.removeprefix("dts_") for part in _DTS)
    first = 0 if index is None or name in ("rewards", "dts") else index
    return [
        (str(labels[first + i]) if labels else f"{name.removesuffix('s')} {first + i}", columns[:, i])
        for i in range(columns.shape[1])
    ]


def _errors(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Lengths of error bars; none where there is no interval."""
    return np.nan_to_num(np.stack([mean - low, high - mean])).clip(min=0)


def _tasks(count: int) -> str:
    return f"{count} held-out task" + ("" if count == 1 else "s")


def _return_label(reward_key: str | None) -> str:
    return f"return (sum of {reward_key or 'rewards'} in an episode)"


def set_title(axes: Axes, title: str, explanation: str) -> None:
    """A title, and below it what is drawn."""
    if explanation:
        text = axes.annotate(
            explanation, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=9, color=GRAY
        )
        text.set_in_layout(False)  # the title leaves room for its height; its length must not make the panel narrower
    axes.set_title(title, loc="left", pad=20 if explanation else None)


def _rows_of(final: Any, run_dir: str | Path) -> list[dict[str, Any]]:
    """A final evaluation as rows of metrics, at the last step of training."""
    steps = max((row["env_steps"] for row in read_metrics(run_dir)), default=0)
    numbers = [(None, final.summary()), *final.per_task()]
    return [
        {"env_steps": steps, "task": task, "metric": name, "value": value}
        for task, values in numbers
        for name, value in values.items()
    ]


def _series(rows: list[dict[str, Any]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    points = [(row["env_steps"], row["value"]) for row in rows if row["metric"] == metric]
    array = np.array(points, dtype=float).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _figure() -> tuple[Figure, Axes]:
    figure, rows = stacked_figure(1)
    return figure, rows[0]


def stacked_figure(count: int) -> tuple[Figure, list[Axes]]:
    """Panels one below the other."""
    # A figure of its own, without pyplot: no global figure list, backend or settings are touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4 if count == 1 else 2.1 * count + 0.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    rows = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    for axes in rows:
        axes.grid(axis="y", color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure, rows


def _draw_references(axes: Axes, references: Mapping[str, Any] | None) -> None:
    for (name, value), style in zip((references or {}).items(), _STYLES * 8, strict=False):
        level = np.asarray(value, dtype=float)
        if level.ndim == 0:
            axes.axhline(float(level), color=GRAY, linestyle=style, linewidth=1.3, label=name, zorder=1)
        else:
            axes.plot(np.arange(1, len(level) + 1), level, color=GRAY, linestyle=style, linewidth=1.3, label=name)


def _thousands(value: float, position: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"


def finish_figure(figure: Figure, axes: Axes, path: Path, references: Mapping[str, Any]) -> Path:
    """Add a legend of what has labels (lines named in ``references`` last), and write the picture."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        # Below the curves rather than on them, data before reference lines; two rows where one would be too wide.
        order = sorted(range(len(labels)), key=lambda i: labels[i] in references)
        columns = len(labels) if sum(map(len, labels)) + 8 * len(labels) < 84 else 2
        figure.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            fontsize=9,
        )
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write the picture in one piece, as what its ending says; ``path``."""
    kind = path.suffix[1:].lower()
    if kind not in PICTURE_KINDS:
        raise ValueError(f"path must end in .png, .pdf or .svg, got {str(path)!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {PICTURE_KINDS[kind]: None}
    write_files({path: lambda file: figure.savefig(file, format=kind, metadata=metadata)})
    return path
