"""The content of a run's charts: curves, intervals, reference lines, labels. ``figures.plots`` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from metaroll.errors import counted
from metaroll.training.evaluation.evaluation_metrics import intervals_of_means
from metaroll.training.store.files import number_of

__all__ = [
    "BLUE",
    "GRAY",
    "ORANGE",
    "REFERENCES",
    "Chart",
    "Curve",
    "Field",
    "LineStyle",
    "adaptation_chart",
    "axis_label",
    "distinct_text",
    "group_chart",
    "interval_text",
    "kind_of_tasks",
    "learning_chart",
    "line_styles",
    "number_text",
    "numbers_of",
    "robustness_chart",
    "series",
    "shots_chart",
    "tasks_chart",
    "tick_texts",
    "training_curve",
]

ORANGE, BLUE, GRAY, PALE = "#b84e00", "#1b6ca8", "#555f6b", "#b3bac2"
_GROUP_COLORS = (BLUE, "#d95f02", "#3a7d44", "#8e44ad", "#b8860b", "#c0392b", "#16a085", "#555555")
_ORACLE, _FLOOR = "oracle (has access to the task)", "floor (best without adapting)"
_NO_ADAPTATION, _MISMATCHED = "no adaptation", "mismatched context (another task's data)"
REFERENCES = {"return_oracle": _ORACLE, "return_floor": _FLOOR}
"""Entries of a summary that are drawn as lines -> their labels."""
_BASELINES = {"no adaptation": _NO_ADAPTATION, "random context": _MISMATCHED, "task oracle": _ORACLE}
Values = Mapping[str, Any]


class LineStyle(NamedTuple):
    """Style of a reference line: color, lengths of dashes and gaps, and the offset at which it begins in them."""

    color: str
    dashes: tuple[float, ...]
    start: float = 0.0


_STYLES = {
    _ORACLE: LineStyle("#1c2126", (2, 4)),
    _FLOOR: LineStyle(GRAY, (12, 4)),
    # Dots of one line are in the gaps of the other, so that both are visible if they are equal (without adaptation).
    _NO_ADAPTATION: LineStyle(ORANGE, (9, 9)),
    _MISMATCHED: LineStyle("#8e44ad", (2, 3, 2, 11), 7),
}
_OTHER_STYLES = tuple(LineStyle(GRAY, dashes) for dashes in ((7, 5), (2, 4), (9, 4, 2, 4)))
_UNITS = {
    "gravity_const": "m/s²",
    "opt_timestep": "s",
    **dict.fromkeys(("ball_mass", "beam_mass", "cart_mass", "pole_mass", "mass_rot_pole", "mass_pend_pole"), "kg"),
    **dict.fromkeys(("ball_radius", "arm_radius", "pinion_radius", "plate_length", "beam_length"), "m"),
    **dict.fromkeys(("beam_thickness", "rail_length", "pole_length", "length_rot_pole", "length_pend_pole"), "m"),
    **dict.fromkeys(("load_inertia", "motor_inertia"), "kg m²"),
    **dict.fromkeys(("motor_resistance",), "Ω"),
    **dict.fromkeys(("motor_back_emf",), "V s/rad"),
    **dict.fromkeys(("torque_thold",), "N m"),
    **dict.fromkeys(("offset_th_x", "offset_th_y", "ang_offset"), "rad"),
    **{f"voltage_thold_{end}": "V" for end in ("neg", "pos", "x_neg", "x_pos", "y_neg", "y_pos")},
}
"""Units of the domain parameters of our own systems, and (``body_mass:torso``) of MuJoCo's models."""


@dataclass(frozen=True)
class Curve:
    """One curve of a chart.

    Attributes:
        label: Label in the legend; empty for a curve without an entry there.
        x: Where, ``(N,)``, rising.
        y: Values ``(N,)``; there is a gap where one is not finite.
        low, high: Bounds of an interval around each value, ``(N,)``.
        color: Color in CSS notation.
        kind: ``"line"`` with a band as its interval (a bar where there is one point), ``"points"`` with bars,
            ``"joined"`` points with bars, a ``"thin"`` line, or a ``"wide"`` pale one, on which others are seen.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    color: str = BLUE
    kind: Literal["line", "points", "joined", "thin", "wide"] = "line"

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Positions, lower and upper bounds where both are known, ``(K,)`` each; ``None`` if there are none."""
        if self.low is None or self.high is None:
            return None
        known = np.isfinite(self.low) & np.isfinite(self.high)
        return (self.x[known], self.low[known], self.high[known]) if known.any() else None

    @property
    def has_bars(self) -> bool:
        """Whether bars show the intervals: a band over one point would not be seen."""
        return self.bounds is not None and (self.kind in ("points", "joined") or len(self.bounds[0]) == 1)


@dataclass(frozen=True)
class Chart:
    """Curves over one axis.

    Attributes:
        title: What it shows.
        explanation: How the numbers came about, in a line.
        x_label: Label of the horizontal axis.
        y_label: Label of the vertical axis.
        curves: The curves.
        levels: Name -> value of reference lines, or values at 1, 2, 3, ...
        marks: Name -> where reference lines stand upright.
        span: Name and bounds of a part of the axis below.
        whole: The axis below counts: only whole numbers stand there.
        from_zero: The axis below begins at 0.
    """

    title: str
    explanation: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    levels: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    span: tuple[str, float, float] | None = None
    whole: bool = False
    from_zero: bool = False


@dataclass(frozen=True)
class Field:
    """Values over two axes.

    Attributes:
        title: What it shows.
        explanation: How the numbers came about, in a line.
        value_label: Label of the values.
        axes: Name -> values ``(n1,)`` and ``(n2,)``, rising: the axis below, then the axis to the left.
        values: Values ``(n1, n2)``.
        low, high: Bounds of their intervals, ``(n1, n2)``; NaN without any.
        interval: Description of the intervals.
        nominal: Name -> value of the axes that is the usual one.
        spans: Name -> bounds of the parts of the axes that were seen in training.
    """

    title: str
    explanation: str
    value_label: str
    axes: Mapping[str, np.ndarray]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    interval: str
    nominal: Mapping[str, float] = field(default_factory=dict)
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)


# -- numbers of files --------------------------------------------------------------------------------------------------


def numbers_of(values: Any) -> np.ndarray:
    """Numbers from JSON, in lists of lists, as an array; arrays are returned unchanged."""
    if isinstance(values, np.ndarray):
        return values.astype(float)
    if len(values) and isinstance(values[0], list):
        return np.array([numbers_of(row) for row in values], dtype=float)
    return np.array([number_of(value) for value in values], dtype=float)


def series(rows: Sequence[Values], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Environment steps and values ``(N,)`` of a metric, of lines of ``metrics.jsonl``."""
    points = [(row["env_steps"], row["value"]) for row in rows if row["metric"] == metric]
    array = np.array(points, dtype=float).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def training_curve(rows: Sequence[Values]) -> np.ndarray:
    """Environment steps and returns of training ``(E, 2)``, after adaptation if there is one; none: ``(0, 2)``.

    Args:
        rows: Lines of ``metrics.jsonl``.
    """
    trained = [row for row in rows if row["phase"] == "train"]
    for name in ("return_after", "return_last", "return"):
        steps, returns = series(trained, name)
        if steps.size:
            return np.stack([steps, returns], axis=1)
    return np.zeros((0, 2))


def number_text(value: float) -> str:
    """A number in few characters."""
    if math.isnan(value):
        return "n/a"
    for size, divisor, unit in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size <= abs(value) < math.inf:
            return f"{value / divisor:.3g}{unit}"
    return f"{value:.0f}" if 1e3 <= abs(value) < math.inf else f"{value:.3g}"


def tick_texts(values: Sequence[float]) -> list[str]:
    """Texts of the numbers at an axis, rising, with as many decimals as tell each from the next.

    ``0, 20k, 40k`` and ``7500.2, 7500.4``: thousands and millions are written short where that loses nothing.
    """
    numbers = [float(value) for value in values]
    largest = max((abs(value) for value in numbers), default=0.0)
    gaps = [later - earlier for earlier, later in pairwise(numbers) if later > earlier]
    step = min(gaps, default=abs(largest) or 1.0)
    for least, divisor, unit in ((1e6, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, "")):
        decimals = _decimals(numbers, divisor, step)
        if largest >= least and (not unit or decimals <= 2):
            break
    if decimals > _MOST_DECIMALS:
        return [f"{value:.15g}" for value in numbers]
    return [f"{value / divisor + 0.0:.{decimals}f}{unit if value else ''}" if value else "0" for value in numbers]


_MOST_DECIMALS = 6


def _decimals(numbers: Sequence[float], divisor: float, step: float) -> int:
    """The fewest decimals at which rounding changes none of the numbers by more than a hundredth of ``step``."""
    for decimals in range(_MOST_DECIMALS + 1):
        if all(abs(round(value / divisor, decimals) * divisor - value) <= 0.01 * step for value in numbers):
            return decimals
    return _MOST_DECIMALS + 1


def distinct_text(values: Any, short: Callable[[float], str]) -> Callable[[float], str]:
    """``short``, or with so many decimals that values ``(...)`` look different where they are: ``7500.31``."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    spread = float(finite.max() - finite.min()) if finite.size else 0.0
    if spread <= 1e-9 * float(np.abs(finite).max(initial=0.0)) or spread > 0.02 * float(np.abs(finite).max()):
        return short
    decimals = max(0, 1 - math.floor(math.log10(spread)))
    return lambda value: f"{value:.{decimals}f}" if math.isfinite(value) else short(value)


def axis_label(name: str) -> str:
    """Name of a domain parameter, with its unit where that is known."""
    unit = _UNITS.get(name) or ("kg" if name.startswith("body_mass:") else None)
    return name if unit is None else f"{name} ({unit})"


def line_styles(names: Sequence[str]) -> dict[str, LineStyle]:
    """Styles of reference lines by name, the same in all charts."""
    others = cycle(_OTHER_STYLES)
    return {name: _STYLES.get(name) or next(others) for name in names}


def interval_text(values: Values, over: str = "tasks") -> str:
    """A description of the intervals of an evaluation; over repetitions if the family has no other tasks.

    It does not name the kind of bootstrap (``interval_method``): the files of a run do not hold it, and a chart has the
    same text, whether it is drawn from these or from the evaluation itself.
    """
    return f"95 % bootstrap interval over {'repetitions' if values.get('all_tasks') else over}"


def _tasks(count: int, kind: str) -> str:
    return counted(count, f"{kind} task")


def kind_of_tasks(*stored: Values) -> str:
    """The role of the tasks of an evaluation: ``held-out`` or ``training``, or ``test`` if nothing is stored.

    Args:
        stored: What is stored about it: its numbers, those of other evaluations of the run, ``task_split.json``.
    """
    for values in stored:
        if "tested_on" in values:
            return str(values["tested_on"])
    if any((values.get("task_split") or values).get("overlaps") for values in stored):
        return "training"
    return "held-out" if any(stored) else "test"


def _repetitions(values: Values) -> str:
    count = values.get("repetitions", 1)
    return f" ({count} repetitions each)" if count > 1 else ""


def _return_label(reward_key: str | None = None) -> str:
    return f"return (sum of {reward_key or 'rewards'} in an episode)"


# -- the charts --------------------------------------------------------------------------------------------------------


def learning_chart(
    metrics: Sequence[Values], phase: str | None, references: Mapping[str, Any] | None = None, tested_on: str = "test"
) -> Chart:
    """Returns of evaluations and of training over environment steps.

    Args:
        metrics: Lines of ``metrics.jsonl``.
        phase: Phase of the evaluations.
        references: Name -> return.
        tested_on: The role of the tasks, which the metrics do not tell.
    """
    evaluated = [row for row in metrics if row["phase"] == phase]
    rows = [row for row in evaluated if row["task"] is None]
    adapts = any(row["metric"].startswith(("return_before", "return_after")) for row in rows)
    curves: list[Curve] = []
    for name, label, color in (
        ("return_before", "before adaptation", ORANGE),
        ("return_after", "after adaptation", BLUE),
        ("return_mean", "deterministic policy", BLUE),
    ):
        steps, mean = series(rows, name)
        if steps.size:
            low, high = (series(rows, f"{name}_ci_{bound}")[1] for bound in ("low", "high"))
            whole = len(low) == len(high) == len(mean)
            curves.append(Curve(label, steps, mean, low if whole else None, high if whole else None, color))
    trained, where = training_curve(metrics), "in training tasks" if adapts else "in training"
    if len(trained):
        drawn: Any = {"color": "#8a939d", "kind": "thin"} if curves else {}  # a single line is the main line
        curves.insert(0, Curve(f"{where}, with noise", *trained.T, **drawn))
    count = len({row["task"] for row in evaluated} - {None})
    over, among = (f"mean over {_tasks(count, tested_on)}", "tasks") if count else ("mean over episodes", "them")
    if not rows:
        over = "mean over the episodes of each epoch" if curves else ""
    elif adapts and not count:
        over = ""
    elif any(curve.bounds is not None for curve in curves):
        shown = "bars" if any(curve.has_bars for curve in curves) else "shaded"
        over += f"; {shown}: {interval_text({}, among)}"
    return Chart(
        "Learning to adapt to new tasks" if adapts else "Return while learning",
        over,
        "environment steps in training tasks" if adapts else "environment steps of training",
        _return_label(),
        curves,
        references or {},
        from_zero=True,
    )


def adaptation_chart(values: Values, references: Mapping[str, Any] | None = None, title: str | None = None) -> Chart:
    """Return of the first, second, ... episode in a new task.

    Args:
        values: Numbers of an evaluation with ``adaptation_curve``, see ``EvaluationResult.to_dict``.
        references: Name -> return, or one per episode.
        title: Title; ``None`` means a general one.
    """
    curve = values["adaptation_curve"]
    episodes, mean, low, high = (numbers_of(curve[name]) for name in ("episode", "mean", "low", "high"))
    explored = int(curve.get("num_exploration", 0))
    curves = [Curve("", episodes, mean, color=PALE)]
    for part, label, color in (
        (slice(0, explored), "exploration episodes", ORANGE),
        (slice(explored, None), "adapted episodes", BLUE),
    ):
        if episodes[part].size:
            curves.append(Curve(label, episodes[part], mean[part], low[part], high[part], color, "points"))
    count = values.get("n_test_tasks")
    over = f"mean over {_tasks(count, kind_of_tasks(values))}{_repetitions(values)}" if count else ""
    over += f"; bars: {interval_text(values)}" if over and any(c.bounds is not None for c in curves) else ""
    return Chart(
        "Adapting to a new task" if title is None else title,
        over,
        "episode in the new task (nothing is known about it in the first one)",
        _return_label(values.get("reward_key")),
        curves,
        references or {},
        whole=True,
    )


def shots_chart(values: Values) -> Chart:
    """Return after adapting from 0, 1, 2, ... exploration episodes or rounds, and of others in the same test episodes.

    Args:
        values: Numbers of a study with ``k_shot_curve``, see ``AdaptationStudy.to_dict``.
    """
    shots, mean, low, high = (numbers_of(values["k_shot_curve"][name]) for name in ("shots", "mean", "low", "high"))
    curve = Curve("adapted to the task's own data", shots, mean, low, high, BLUE, "joined")
    rounds = values["k_shot_curve"].get("unit") == "rounds"
    baselines = values.get("baselines") or {}
    count = values.get("n_test_tasks")
    over = [f"mean over {_tasks(count, kind_of_tasks(values))}{_repetitions(values)}"] if count else []
    over += [f"bars: {interval_text(values)}"] if curve.bounds is not None else []
    return Chart(
        f"Return after k {'rounds of adaptation' if rounds else 'exploration episodes'}",
        "; ".join(over),
        f"{'rounds of adaptation' if rounds else 'exploration episodes seen'} (0: nothing is known about the task)",
        _return_label(values.get("reward_key")),
        [curve],
        {_BASELINES.get(name, str(name)): number_of(entry["return"]) for name, entry in baselines.items()},
        whole=True,
    )


def robustness_chart(values: Values) -> Chart | Field:
    """Return over one or two domain parameters.

    Args:
        values: See ``RobustnessMap.to_dict``.
    """
    axes = {str(name): numbers_of(grid) for name, grid in values["grid"].items()}
    mean, low, high = (numbers_of(values[name]) for name in ("return_mean", "ci_low", "ci_high"))
    named = f"return over {' and '.join(axes)}"
    env = values.get("env")
    title = f"{env}: {named}" if env else named.capitalize()
    note, episodes = values.get("note"), values.get("episodes", "?")
    over = "mean" if note else f"mean over {episodes} episodes"
    level = f"{100 * number_of(values.get('confidence', 0.95)):g} % bootstrap interval"
    warning = f"; {note}" if note else ""
    nominal = {str(name): number_of(value) for name, value in (values.get("nominal") or {}).items() if name in axes}
    spans = {
        str(name): (number_of(low), number_of(high))
        for name, (low, high) in (values.get("training_range") or {}).items()
        if name in axes
    }
    if len(axes) == 2:
        return Field(title, over + warning, _return_label(), axes, mean, low, high, level, nominal, spans)
    ((name, x),) = axes.items()
    curve = Curve("return", x, mean, low, high, BLUE)
    shown = f"; {'bar' if curve.has_bars else 'shaded'}: {level}" if curve.bounds is not None else ""
    marks = {"nominal value": nominal[name]} if name in nominal else {}
    span = ("range in training", *spans[name]) if name in spans else None
    label = axis_label(name)
    return Chart(title, over + shown + warning, label, _return_label(), [curve], marks=marks, span=span)


def tasks_chart(values: Values) -> Chart | None:
    """Return in each held-out task, over the value of the task where that is a single number; ``None`` without tasks.

    Args:
        values: Numbers of an evaluation with ``per_task``, see ``AdaptationStudy.to_dict``.
    """
    rows = [row for row in values.get("per_task") or [] if "return_after" in row]
    if len(rows) < _FEWEST_TASKS:
        return None
    name, places = _places(rows)
    order = np.argsort(places, kind="stable")
    kinds = (
        ("no_adaptation", _NO_ADAPTATION, ORANGE),
        ("return_after", "adapted", BLUE),
        ("task_oracle", _ORACLE, _STYLES[_ORACLE].color),
    )
    curves = [
        Curve(label, places[order], numbers_of([rows[i][key] for i in order]), color=color, kind="points")
        for key, label, color in kinds
        if all(key in row for row in rows)
    ]
    tasks = f"{_tasks(len(rows), kind_of_tasks(values))}{_repetitions(values)}"
    return Chart(
        f"Return in each {kind_of_tasks(values)} task",
        f"mean over the test episodes of each of {tasks}",
        axis_label(name) if name else f"task, from the lowest to the highest {_rank_key(rows[0])}",
        _return_label(values.get("reward_key")),
        curves,
        whole=not name,
    )


_FEWEST_TASKS = 2


def _places(rows: Sequence[Values]) -> tuple[str, np.ndarray]:
    """Positions of tasks in a chart ``(M,)``: name and values of their single number, or no name and their rank."""
    pairs = [str(row.get("task", "")).split("=") for row in rows]
    heads = {pair[0] for pair in pairs}
    if len(heads) == 1 and all(len(pair) == 2 and _is_number(pair[1]) for pair in pairs):
        return heads.pop(), np.array([float(pair[1]) for pair in pairs])
    gains = [number_of(row["gain" if _rank_key(row) == "gain" else "return_after"]) for row in rows]
    places = np.empty(len(rows))
    places[np.argsort(gains, kind="stable")] = np.arange(1, len(rows) + 1)
    return "", places


def _rank_key(row: Values) -> str:
    return "gain" if "gain" in row else "return"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def group_chart(
    groups: Mapping[str, Sequence[np.ndarray]],
    adapts: bool = False,
    training: Mapping[str, Sequence[np.ndarray]] | None = None,
) -> Chart:
    """The mean curve of each group of runs, its interval over runs, and each run thinly.

    Args:
        groups: Label -> curve ``(E, 2)`` of each run: environment steps and return of its evaluations. The mean is
            over the steps at which all runs of a group have been evaluated.
        adapts: Whether returns are after adaptation.
        training: The same of the returns of training, drawn thin and pale: of most runs there are more of them.
    """
    if not groups or not all(len(runs) for runs in groups.values()):
        raise ValueError("curves must hold at least one group with at least one run")
    curves: list[Curve] = []
    pale = training is not None and any(len(run) for runs in training.values() for run in runs)
    for number, (label, runs) in enumerate(groups.items()):
        color = _GROUP_COLORS[number % len(_GROUP_COLORS)]
        trained = [] if training is None else [run for run in training.get(label, ()) if len(run)]
        curves += [Curve("", *run.T, color=_pale(color), kind="thin") for run in trained]
        curves += [Curve("", run[:, 0], run[:, 1], color=color, kind="thin") for run in runs if len(runs) > 1]
        steps = runs[0][:, 0]
        for run in runs[1:]:
            steps = np.intersect1d(steps, run[:, 0])
        returns = np.stack([run[np.searchsorted(run[:, 0], steps), 1] for run in runs])
        several = len(runs) > 1 and steps.size
        low, high = intervals_of_means(returns, method="percentile") if several else (None, None)
        count = counted(len(runs), "seed")
        curves.append(Curve(f"{label} ({count})", steps, returns.mean(axis=0), low, high, color))
    return Chart(
        "Return while learning",
        "mean over seeds; shaded: 95 % percentile bootstrap interval; thin: runs"
        + ("; pale: in training, with noise" if pale else ""),
        "environment steps of training",
        "return after adaptation" if adapts else "return in evaluations",
        curves,
        from_zero=True,
    )


def _pale(color: str) -> str:
    """``#rrggbb``, mixed with as much white."""
    return "#" + "".join(f"{(int(color[at : at + 2], 16) + 255) // 2:02x}" for at in (1, 3, 5))
