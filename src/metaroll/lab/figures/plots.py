"""Draws charts with matplotlib: as pictures (PNG, PDF, SVG), and as SVG inside a page."""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
import textwrap
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metaroll.checks import check_path
from metaroll.data.doors.plain_files import damage
from metaroll.data.folders.atomic_files import write_files
from metaroll.data.step_sequence import StepSequence
from metaroll.lab.figures.charts import (
    GRAY,
    ORANGE,
    Chart,
    Curve,
    Field,
    adaptation_chart,
    axis_label,
    distinct_text,
    group_chart,
    kind_of_tasks,
    learning_chart,
    line_styles,
    number_text,
    robustness_chart,
    shots_chart,
    tick_texts,
)
from metaroll.lab.results.robustness import RobustnessMap
from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.evaluation.evaluation_result import PolicyEvaluation
from metaroll.training.store.files import read_json, to_plain
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.run_folder import SUMMARY_FILE, TASK_SPLIT_FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "PICTURE_KINDS",
    "plot_adaptation_curve",
    "plot_groups",
    "plot_k_shot_curve",
    "plot_learning_curve",
    "plot_robustness",
    "plot_rollout",
    "svg",
]

PICTURE_KINDS = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
"""Formats of pictures, and the metadata entry of each that would make two files of one chart differ."""
_RASTER_DPI = 200
_PICTURE, _IN_PAGE = (7.2, 4.4), (5.4, 3.6)
"""Width and height in inches. Charts in a page are shown smaller than pictures, so their letters are larger."""
_LETTERS = 13.0
"""Letters of a label per inch."""
_MOST_MARKERS, _MOST_TICKS, _MOST_PLACES = 30, 6, 12
_CURVES: Mapping[str, Mapping[str, Any]] = {
    "line": {"linewidth": 1.8, "markersize": 3.5},
    "thin": {"linewidth": 0.9, "markersize": 3, "alpha": 0.6},
    "wide": {"linewidth": 5.0, "alpha": 0.4},
    "joined": {"linewidth": 1.6, "marker": "o", "markersize": 6, "zorder": 3},
    "points": {"linestyle": "none", "marker": "o", "markersize": 6, "zorder": 3},
}
"""Line styles of each kind of curve."""
_MOST_TEXTS = 100
"""Maximum number of points whose numbers fit into the picture."""
_FONT_SIZES = (8.0, 7.0, 6.0, 5.0)
"""Font sizes of numbers in fields; intervals, which have three times as many numbers, do not use the smallest."""
_DOWN, _LEFT = 11, 8
"""Markers of Matplotlib on a border that point into the picture (CARETDOWNBASE, CARETLEFTBASE)."""
_LIGHTNESS = (0.299, 0.587, 0.114)
_ROOM = (0.95, 0.85)
"""Share of a field's width and height that its text may take; the legend also needs height."""


@contextlib.contextmanager
def _plain_settings() -> Iterator[None]:
    """Context in which matplotlib draws with its own defaults.

    Otherwise it would use a settings file in the current folder, which anybody may have put there, and which could make
    it start LaTeX.

    Raises:
        DamagedFileError: A damaged settings file prevents the import of matplotlib; names the file.
    """
    with damage(_settings_file(), hint="repair the file, or remove it"):
        import matplotlib as mpl
    # A fixed salt gives equal bytes for equal charts; without math, a name with dollar signs is not a formula.
    with mpl.rc_context(mpl.rcParamsDefault), mpl.rc_context({"svg.hashsalt": "metaroll", "text.parse_math": False}):
        yield


def _settings_file() -> Path:
    """The settings file that matplotlib reads on import, which its own errors do not name."""
    name = "matplotlibrc"
    chosen = Path(os.environ.get("MATPLOTLIBRC", name))
    places = (Path(name), chosen, chosen / name, Path(os.environ.get("MPLCONFIGDIR", "~/.config/matplotlib")) / name)
    return next((path for place in places if (path := place.expanduser()).is_file()), Path(name))


# -- the pictures ------------------------------------------------------------------------------------------------------


def plot_learning_curve(
    run_dir: str | Path,
    path: str | Path | None = None,
    *,
    references: Mapping[str, Any] | None = None,
    phase: str | None = None,
    final: PolicyEvaluation | None = None,
) -> Path:
    """Draw the return of evaluations over environment steps, with 95 % intervals.

    For algorithms that adapt, it shows the return before and after adaptation. Intervals are over tasks (over episodes
    if there is only one task).

    Args:
        run_dir: Folder of the run: its ``metrics.jsonl`` is read, and what its other files say about the tasks.
        path: Picture to write; ``None`` means ``learning_curve.png`` in the run folder.
        references: Name -> return, drawn as lines (``{"oracle": -5.2, "floor": -15.9}``).
        phase: Phase of the metrics, the evaluator's ``prefix``; ``None`` means ``MetaTest`` or ``Evaluation``.
        final: A ``PolicyEvaluation`` of the finished agent, drawn if the run was too short for others.

    Returns:
        Path of the picture.
    """
    path = Path(run_dir) / "learning_curve.png" if path is None else Path(path)
    metrics = read_metrics(run_dir)
    phases = [phase] if phase is not None else ["MetaTest", "Evaluation"]
    shown = next((name for name in phases if any(row["phase"] == name for row in metrics)), None)
    if shown is None and final is not None:
        shown, metrics = final.prefix, _rows_of(final, metrics)
    return _write(learning_chart(metrics, shown, references, _kind_of_tasks(Path(run_dir))), path)


def _kind_of_tasks(folder: Path) -> str:
    """The role of a run's tasks, by its files; damaged ones are passed over, so that the curve is drawn anyway."""
    stored = []
    for name in (SUMMARY_FILE, TASK_SPLIT_FILE):
        with contextlib.suppress(OSError, ValueError):
            content = read_json(folder / name)
            stored += [content] if isinstance(content, Mapping) else []
    return kind_of_tasks(*stored)


def plot_adaptation_curve(
    result: Any, path: str | Path, references: Mapping[str, Any] | None = None, *, title: str | None = None
) -> Path:
    """Draw the return of the first, second, ... episode in a new task, with 95 % intervals over tasks.

    Args:
        result: An ``EvaluationResult``, or a dict with its ``adaptation_curve``.
        path: Picture to write.
        references: Name -> return (one number, or one per episode), drawn as lines.
        title: Title; ``None`` means a general one. The line below it explains the points and bars.

    Returns:
        ``path``.
    """
    values = result if isinstance(result, Mapping) else result.to_dict()
    return _write(adaptation_chart(values, references, title), Path(path))


def plot_k_shot_curve(study: AdaptationStudy | Mapping[str, Any], path: str | Path) -> Path:
    """Draw the return after adapting from 0, 1, 2, ... exploration episodes, with 95 % intervals over tasks.

    All points are returns in the same test episodes, and so are the baselines that there are, drawn as lines.

    Args:
        study: From ``study_adaptation``, or what ``metaroll evaluate`` wrote to ``evaluation.json``.
        path: Picture to write.

    Returns:
        ``path``.
    """
    values = study if isinstance(study, Mapping) else {**study.result.to_dict(), **study.to_dict()}
    return _write(shots_chart(values), Path(path))


def plot_robustness(result: RobustnessMap, path: str | Path) -> Path:
    """Draw the return over the grid, with intervals, the nominal value, and the range of training.

    Args:
        result: The result of ``robustness_map``.
        path: Picture to write (PNG).

    Returns:
        Where the picture is.
    """
    if not isinstance(result, RobustnessMap):
        raise TypeError(f"result must be a RobustnessMap, as robustness_map returns it, got {result!r}")
    return _write(robustness_chart(to_plain(result.to_dict())), check_path("path", path, "file"))


def plot_groups(
    curves: Mapping[str, Sequence[np.ndarray]],
    path: str | Path,
    *,
    adapts: bool = False,
    training: Mapping[str, Sequence[np.ndarray]] | None = None,
) -> Path:
    """Draw the mean curve of each group, its 95 % percentile bootstrap interval over runs, and each run thinly.

    Args:
        curves: Label -> curve ``(E, 2)`` of each run: environment steps and return of its evaluations. The mean is
            drawn over the steps at which all runs of a group have been evaluated.
        path: Picture to write.
        adapts: Whether returns are after adaptation.
        training: Label -> steps and returns of training, ``(E, 2)`` of each run.

    Returns:
        ``path``.
    """
    return _write(group_chart(curves, adapts, training), Path(path))


@_plain_settings()
def plot_rollout(
    rollout: StepSequence, kind: str = "all", index: int | None = None, path: str | Path | None = None
) -> Path:
    """Draw the data of a rollout over its steps (over seconds, if it has ``time``), one panel per kind of data.

    Args:
        rollout: One rollout.
        kind: ``"observations"``, ``"states"``, ``"actions"``, ``"rewards"``, ``"dts"`` (how long steps took), or
            ``"all"`` of the first four that it has.
        index: Only this entry of observations, states or actions.
        path: Picture to write; ``None`` means ``rollout.png`` in the current folder.

    Returns:
        Where the picture is.
    """
    path = Path("rollout.png") if path is None else Path(path)
    panels = {name: _columns(rollout, name, index) for name in _panels_of(rollout, kind)}
    height = _PICTURE[1] if len(panels) == 1 else 2.1 * len(panels) + 0.6
    figure, rows = _stacked_figure(len(panels), (_PICTURE[0], height))
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
    _set_title(rows[0], str(name), f"{len(rollout)} steps, return {total:.4g}, {ending}")
    return _save(figure, path)


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


# -- charts ------------------------------------------------------------------------------------------------------------


@_plain_settings()
def _write(chart: Chart | Field, path: Path) -> Path:
    """Write a chart as a picture; return ``path``."""
    figure, explanation = _drawn(chart, _PICTURE)
    _set_title(figure.axes[0], chart.title, explanation)
    return _save(figure, path)


@_plain_settings()
def svg(chart: Chart | Field) -> tuple[str, str]:
    """A chart as an ``svg`` element of a page, without its title, and a line that explains its numbers.

    Text stays text. Ids are unique within the chart; ``page_parts.page`` makes them unique in a page.
    """
    import matplotlib as mpl

    file = io.StringIO()
    # To keep pages small, points less than half a point from the line through their neighbors are left out.
    with (
        mpl.rc_context({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"], "path.simplify_threshold": 0.5}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the reader's browser has it
        figure, explanation = _drawn(chart, _IN_PAGE)
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=metadata, transparent=True, dpi=_RASTER_DPI)
    # The prolog is only for files, and the style, which report.css has, would apply to the whole page.
    file_text = re.sub(r"<defs>\s*<style.*?</defs>", "", file.getvalue(), count=1, flags=re.DOTALL)
    _, size, inside = re.split(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', file_text, maxsplit=1)
    inside = re.sub(r"\s+", " ", inside).replace("> <", "><")
    inside = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), inside)  # a hundredth of a point
    inside = re.sub(r' id="([^"]*)"', lambda match: match[0] if f"#{match[1]}" in inside else "", inside)
    head = f'<svg class="chart" viewBox="{size}" role="img" aria-label="{html.escape(chart.title)}">'
    return head + inside.strip(), explanation


def _drawn(chart: Chart | Field, size: tuple[float, float]) -> tuple[Figure, str]:
    """A chart of a size in inches, without its title, and the explanation of its numbers."""
    figure, (axes,) = _stacked_figure(1, size)
    explanation = chart.explanation
    if isinstance(chart, Field):
        if _draw_field(figure, axes, chart):
            explanation = f"{explanation} [{chart.interval}]"
        elif np.isfinite(chart.low).all():
            explanation += f"; widest interval: {number_text(float(np.max(chart.high - chart.low)))}"
    else:
        _draw_chart(axes, chart)
    _add_legend(figure, axes, [] if isinstance(chart, Field) else [curve.label for curve in chart.curves])
    return figure, explanation


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for curve in chart.curves:
        _draw_curve(axes, curve)
    if not chart.curves:
        axes.text(0.5, 0.5, "no evaluation yet", transform=axes.transAxes, ha="center", color=GRAY)
    for name, style in line_styles([*chart.levels, *chart.marks]).items():
        pattern = (style.start, tuple(style.dashes))
        options: dict[str, Any] = {"color": style.color, "linestyle": pattern, "linewidth": 1.3, "zorder": 1}
        if name in chart.marks:
            axes.axvline(chart.marks[name], label=name, **options)
            continue
        level = np.asarray(chart.levels[name], dtype=float)
        if level.ndim == 0:
            axes.axhline(float(level), label=name, **options)
        else:
            axes.plot(np.arange(1, len(level) + 1), level, label=name, **options)
    if chart.span is not None:
        name, low, high = chart.span
        axes.axvspan(low, high, color=ORANGE, alpha=0.12, linewidth=0, label=name, zorder=1)
    _set_labels(axes, chart.x_label, chart.y_label)
    if chart.from_zero:
        axes.set_xlim(left=0)
    if chart.whole:
        places = np.unique(np.concatenate([curve.x for curve in chart.curves]))
        margin = max(0.4, 0.04 * (places[-1] - places[0]))
        axes.set_xlim(places[0] - margin, places[-1] + margin)
        if len(places) > _MOST_PLACES:
            axes.locator_params(axis="x", integer=True)
        else:
            axes.set_xticks(_apart(places))


def _draw_curve(axes: Axes, curve: Curve) -> None:
    options: dict[str, Any] = {"color": curve.color, "label": curve.label or None, **_CURVES[curve.kind]}
    if len(curve.x) == 1 or (curve.kind == "line" and curve.label and len(curve.x) <= _MOST_MARKERS):
        options["marker"] = "o"
    if curve.has_bars and curve.low is not None and curve.high is not None:
        errors = np.nan_to_num(np.stack([curve.y - curve.low, curve.high - curve.y])).clip(min=0)
        axes.errorbar(curve.x, curve.y, yerr=errors, capsize=3.5, **options)
        return
    axes.plot(curve.x, curve.y, **options)
    if curve.bounds is not None:
        axes.fill_between(*curve.bounds, color=curve.color, alpha=0.18, linewidth=0)


def _apart(places: np.ndarray) -> list[float]:
    """The ``places`` whose labels do not overlap with the one before."""
    kept: list[float] = []
    for place in places.tolist():
        if not kept or place - kept[-1] >= (places[-1] - places[0]) / 32:
            kept.append(place)
    return kept


def _draw_field(figure: Figure, axes: Axes, chart: Field) -> bool:
    """Draw a field; returns whether its intervals are written into it."""
    (x_name, x), (y_name, y) = chart.axes.items()
    mesh = axes.pcolormesh(_edges(x), _edges(y), chart.values.T, cmap="viridis", shading="flat", rasterized=True)
    bar = figure.colorbar(mesh, ax=axes, format=_tick_formatter())
    _set_labels(bar.ax, "", chart.value_label)
    axes.grid(visible=False)
    # The range in training and the nominal values are marked at the borders: inside, they would cover the numbers. What
    # lies beyond the field is left out, since most of the picture might become empty for it.
    lines: dict[str, Any] = {"color": ORANGE, "linewidth": 6.0, "solid_capstyle": "butt", "clip_on": False, "zorder": 4}
    marks: dict[str, Any] = {"color": "black", "markeredgecolor": "white", "markersize": 8, "zorder": 6}
    labels = {name: name for name in ("range in training", "nominal values")}  # each is given once
    for name, values in chart.axes.items():
        begin, end = _edges(values)[[0, -1]]
        is_x = name == x_name
        transform = axes.get_xaxis_transform() if is_x else axes.get_yaxis_transform()
        low, high = chart.spans.get(name, (np.inf, -np.inf))
        if low <= end and high >= begin:
            inside = np.clip((low, high), begin, end)
            places = (inside, [0, 0]) if is_x else ([0, 0], inside)
            axes.plot(*places, transform=transform, label=labels.pop("range in training", None), **lines)
        if len(chart.nominal) == 2 and begin <= chart.nominal[name] <= end:
            place = (chart.nominal[name], 1) if is_x else (1, chart.nominal[name])
            marks |= {"marker": _DOWN if is_x else _LEFT, "label": labels.pop("nominal values", None)}
            axes.plot(*place, linestyle="none", transform=transform, **marks)
    _set_labels(axes, axis_label(x_name), axis_label(y_name))
    return chart.values.size <= _MOST_TEXTS and _write_numbers(figure, axes, chart, mesh)


def _write_numbers(figure: Figure, axes: Axes, chart: Field, mesh: Any) -> bool:
    """Write the numbers as large as possible, without intervals if these do not fit; returns whether they do."""
    figure.draw_without_rendering()  # computes the sizes of the fields
    known = bool(np.isfinite(chart.low).all())
    for with_intervals in (True, False) if known else (False,):
        for size in _FONT_SIZES[:-1] if with_intervals else _FONT_SIZES:
            if _write_texts(axes, chart, mesh, with_intervals, size):
                return with_intervals
    return False


def _write_texts(axes: Axes, chart: Field, mesh: Any, with_intervals: bool, size: float) -> bool:
    """Write a text into each field and return True; if one is too large for its field, write none and return False."""
    edges = [_edges(values) for values in chart.axes.values()]
    texts, text_of = [], distinct_text(chart.values, number_text)
    for i, j in np.ndindex(*chart.values.shape):
        begin, end = axes.transData.transform([(edges[0][i], edges[1][j]), (edges[0][i + 1], edges[1][j + 1])])
        color = mesh.cmap(mesh.norm(chart.values[i, j]))
        mean, low, high = (text_of(float(values[i, j])) for values in (chart.values, chart.low, chart.high))
        shown = f"{mean}\n[{low}, {high}]" if with_intervals else mean
        x, y = axes.transData.inverted().transform((begin + end) / 2)
        text = axes.text(x, y, shown, ha="center", va="center", fontsize=size)
        text.set_color("black" if np.dot(color[:3], _LIGHTNESS) > 0.45 else "white")
        text.set(zorder=5, in_layout=False)
        texts.append(text)
        extent = text.get_window_extent()
        if ((end - begin) * _ROOM < (extent.width, extent.height)).any():
            for written in texts:
                written.remove()
            return False
    return True


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders ``(n+1,)`` of the fields around ``values (n,)``, halfway between neighbors."""
    if len(values) == 1:
        margin = 0.5 * abs(float(values[0])) or 0.5
        return np.array([values[0] - margin, values[0] + margin])
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])


# -- figures -----------------------------------------------------------------------------------------------------------


def _set_title(axes: Axes, title: str, explanation: str) -> None:
    """Set the title, and below it the explanation of the numbers."""
    if explanation:
        text = axes.annotate(
            explanation, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=9, color=GRAY
        )
        text.set_in_layout(False)  # the title leaves room for its height; its length must not make the panel narrower
    axes.set_title(title, loc="left", pad=20 if explanation else None)


def _rows_of(final: PolicyEvaluation, metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A final evaluation as rows of metrics, at the last step of training."""
    steps = max((row["env_steps"] for row in metrics), default=0)
    numbers = [(None, final.summary()), *final.per_task()]
    return [
        {"env_steps": steps, "phase": final.prefix, "task": task, "metric": name, "value": value}
        for task, values in numbers
        for name, value in values.items()
    ]


def _set_labels(axes: Axes, x_label: str, y_label: str) -> None:
    """Set the labels of the axes, wrapped to the figure, and format their ticks by ``tick_texts``."""
    width, height = (pixels / axes.figure.dpi for pixels in axes.figure.bbox.size)
    axes.set_xlabel(_wrapped(x_label, width - 0.9))
    axes.set_ylabel(_wrapped(y_label, height - 1.2))
    axes.locator_params(nbins=_MOST_TICKS)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_tick_formatter())


def _wrapped(text: str, inches: float) -> str:
    """``text`` in lines of similar length, of at most ``inches``."""
    room = int(_LETTERS * inches)
    lines = -(-len(text) // room)
    return textwrap.fill(text, min(room, len(text) // lines + 5)) if lines > 1 else text


def _stacked_figure(count: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Panels stacked vertically."""
    # Without pyplot, no global figure list, backend or settings are touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    rows = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    for axes in rows:
        axes.grid(axis="y", color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure, rows


def _tick_formatter() -> Any:
    """A formatter of ticks that uses ``tick_texts``."""
    from matplotlib.ticker import Formatter

    class TickTexts(Formatter):
        def format_ticks(self, values: Any) -> list[str]:
            return tick_texts(values)

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:.4g}"

    return TickTexts()


def _add_legend(figure: Figure, axes: Axes, first: Collection[str]) -> None:
    """Add a legend of everything that has a label: those in ``first``, then reference lines and the like."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    # Below the curves rather than on them, in as many columns as fit.
    order = sorted(range(len(labels)), key=lambda i: labels[i] not in first)
    shown = [_wrapped(labels[i], figure.get_figwidth()) for i in order]
    options: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 9}
    options |= {"handlelength": 2.8, "columnspacing": 1.4}  # long enough to show dashes
    for columns in range(len(labels), 0, -1):
        legend = figure.legend([handles[i] for i in order], shown, ncols=columns, **options)
        if columns == 1 or legend.get_window_extent().width < figure.bbox.width:
            break
        legend.remove()


def _save(figure: Figure, path: Path) -> Path:
    """Write the picture atomically, in the format of its extension; return ``path``."""
    kind = path.suffix[1:].lower()
    if kind not in PICTURE_KINDS:
        raise ValueError(f"path must end in .png, .pdf or .svg, got {str(path)!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {PICTURE_KINDS[kind]: None}
    write_files({path: lambda file: figure.savefig(file, format=kind, metadata=metadata)})
    return path
