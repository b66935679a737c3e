"""The figures and tables of a report, each as a piece of HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.training.figures.report_pictures import (
    BLUE,
    GRAY,
    ORANGE,
    Curve,
    heat_map,
    legend,
    line_chart,
    number_text,
)
from metaroll.training.report.report_facts import RunFacts, number_of

__all__ = [
    "adaptation_curve",
    "key_numbers",
    "learning_curve",
    "robustness_figures",
    "shots_curve",
    "table",
    "task_table",
    "training_curves",
]

_REFERENCES = {"return_oracle": "oracle (is told the task)", "return_floor": "floor (best without adapting)"}
_INTERVAL = "95 % bootstrap interval over tasks"
_MOST_TRAINING_CURVES = 24


def key_numbers(facts: RunFacts) -> str:
    """The numbers that stand for the run."""
    newest = {row["metric"]: row["value"] for row in facts.newest()}
    values = {**newest, **facts.evaluation}
    cells: list[tuple[str, str, str]] = []
    for name, label, bounds in (
        ("return_before", "return in the first episode", "return_before_interval"),
        ("return_after", "return after adaptation", "return_after_interval"),
        ("change", "change over the episodes", ""),
        ("return_mean", "mean return", "return_interval"),
    ):
        found = "gain" if name == "change" and name not in values else name  # as older runs call it
        if found in values:
            cells.append((label, number_text(number_of(values[found])), _interval(values, found, bounds)))
    against = (facts.evaluation.get("baselines") or {}).get("no adaptation") or {}
    if "advantage" in against:
        gain = number_text(number_of(against["advantage"]))
        cells.append(("gain by adaptation", gain, _interval(against, "advantage", "")))
    for name, label in (("success_rate", "success"), ("share_worse", "tasks that adapting made worse")):
        if values.get(name) is not None and (name == "success_rate" or against):
            bounds = {"success_rate": "success_interval", "share_worse": "share_worse_interval"}[name]
            cells.append((label, _percent(values[name]), _interval(values, name, bounds, _percent)))
    if "normalized_score" in values:
        cells.append(("score between floor and oracle", number_text(number_of(values["normalized_score"])), ""))
    items = "".join(
        f"<div><dt>{html.escape(label)}</dt><dd>{number}<small>{more}</small></dd></div>"
        for label, number, more in cells
    )
    return f'<dl class="numbers">{items}</dl>' if items else "<p>There is no evaluation yet.</p>"


def learning_curve(facts: RunFacts) -> str:
    """Returns of evaluations over environment steps, with intervals."""
    rows = [row for row in facts.metrics if row["phase"] == facts.phase and row["task"] is None]
    curves = []
    if not facts.adapts:
        steps, returns = _series([row for row in facts.metrics if row["phase"] == "train"], "return")
        curves += [Curve("in training, with noise", steps, returns, color="#8a939d")] if steps.size else []
    for name, label, color in (
        ("return_before", "before adaptation", ORANGE),
        ("return_after", "after adaptation", BLUE),
        ("return_mean", "policy without noise", BLUE),
    ):
        steps, mean = _series(rows, name)
        if steps.size:
            low, high = (_series(rows, f"{name}_ci_{bound}")[1] for bound in ("low", "high"))
            whole = len(low) == len(high) == len(mean)
            curves.append(Curve(label, steps, mean, low if whole else None, high if whole else None, color))
    if not curves:
        return ""
    references = _references(facts)
    chart = line_chart(curves, "environment steps of training", "return over environment steps", references=references)
    over = _INTERVAL if facts.newest(per_task=True) else "95 % bootstrap interval over episodes"
    where = "in held-out tasks " if facts.newest(per_task=True) else ""
    said = f"Mean return {where}at each evaluation; shaded: {over}."
    if not any(row["metric"] in ("return_after", "return_mean") for row in rows):
        said = "Mean return of the episodes of each epoch; there is no evaluation in between."
    return _figure("Return while learning", said, chart, legend(curves, references))


def adaptation_curve(facts: RunFacts) -> str:
    """Return of the first, second, ... episode in a new task."""
    stored = facts.evaluation.get("adaptation_curve")
    if stored:
        episodes, mean, low, high = (_numbers(stored[name]) for name in ("episode", "mean", "low", "high"))
        explored = int(stored.get("num_exploration", 0))
    else:
        values = {row["metric"]: row["value"] for row in facts.newest()}
        mean = np.array([values[name] for name in _episode_names(values)], dtype=float)
        episodes, low, high = np.arange(1.0, len(mean) + 1), None, None
        explored = len(mean) - 1
    if not mean.size:
        return ""
    curves = []
    for part, label, color in (
        (slice(0, explored), "exploration episodes", ORANGE),
        (slice(explored, None), "adapted episodes", BLUE),
    ):
        if episodes[part].size:
            bounds = (None, None) if low is None or high is None else (low[part], high[part])
            curves.append(Curve(label, episodes[part], mean[part], *bounds, color=color, marks=True))
    references = _references(facts)
    path = Curve("", episodes, mean, color="#b3bac2")
    name = "return of each episode in a new task"
    chart = line_chart([path, *curves], "episode in the new task", name, references=references, whole=True)
    tasks = facts.evaluation.get("n_test_tasks")
    over = f" over {tasks} held-out tasks" if tasks else ""
    said = f"Mean return{over}; in the first episode nothing is known" + (f"; bars: {_INTERVAL}." if stored else ".")
    return _figure("Adapting to a new task", said, chart, legend(curves, references))


def shots_curve(facts: RunFacts) -> str:
    """Return after adaptation from k episodes, and what others return in the same episodes."""
    stored = facts.evaluation.get("k_shot_curve")
    if not stored:
        return ""
    shots, mean, low, high = (_numbers(stored[name]) for name in ("shots", "mean", "low", "high"))
    curve = Curve("adapted from k episodes", shots, mean, low, high, BLUE)
    baselines = facts.evaluation.get("baselines") or {}
    references = {str(name): number_of(entry["return"]) for name, entry in baselines.items()}
    name = "return after adaptation from k episodes"
    chart = line_chart([curve], "exploration episodes k", name, references=references, whole=True)
    said = f"Return after k episodes of exploration, and of others in the same episodes; shaded: {_INTERVAL}."
    return _figure("How many episodes it needs", said, chart, legend([curve], references))


def robustness_figures(facts: RunFacts) -> list[str]:
    """Returns over domain parameters."""
    return [_robustness(found) for found in facts.robustness]


def _robustness(found: Mapping[str, Any]) -> str:
    axes = {str(name): _numbers(values) for name, values in found["grid"].items()}
    names, mean = list(axes), _numbers(found["return_mean"])
    level = f"{100 * number_of(found.get('confidence', 0.95)):g}"
    said = f"Mean of {found.get('episodes', '?')} episodes at each point"
    said += f" ({found['note']})" if found.get("note") else ""
    title = f"Return over {' and '.join(names)}"
    if len(names) == 2:
        (x_name, x), (y_name, y) = axes.items()
        finite = mean[np.isfinite(mean)]
        if finite.size:
            said += f", from {number_text(float(finite.min()))} (dark) to {number_text(float(finite.max()))} (bright)"
        return _figure(title, f"{said}.", heat_map(x_name, x.tolist(), y_name, y.tolist(), mean, title), "")
    (name,) = names
    curve = Curve("return", axes[name], mean, _numbers(found["ci_low"]), _numbers(found["ci_high"]), BLUE)
    nominal, trained = found.get("nominal", {}).get(name), found.get("training_range", {}).get(name)
    chart = line_chart(
        [curve],
        name,
        title,
        lines=[] if nominal is None else [number_of(nominal)],
        span=None if trained is None else (number_of(trained[0]), number_of(trained[1])),
    )
    keys = legend([curve], ["nominal value"] if nominal is not None else [], ["range in training"] if trained else [])
    return _figure(title, f"{said}; shaded: {level} % bootstrap interval over them.", chart, keys)


def training_curves(facts: RunFacts) -> list[str]:
    """What else was logged in training, a small chart each."""
    rows = [row for row in facts.metrics if row["phase"] == "train" and row["task"] is None]
    figures = []
    for name in list(dict.fromkeys(row["metric"] for row in rows))[:_MOST_TRAINING_CURVES]:
        steps, values = _series(rows, name)
        if np.isfinite(values).any():
            curve = Curve(name, steps, values, color=GRAY)
            figures.append(_figure(name, "", line_chart([curve], "environment steps", name), ""))
    return figures


def task_table(facts: RunFacts) -> str:
    """The numbers of each held-out task; empty where there are none."""
    rows = [dict(row) for row in facts.evaluation.get("per_task") or []] or _tasks_in_metrics(facts)
    returns = facts.evaluation.get("returns")
    if not rows and isinstance(returns, list) and len(returns) > 1:
        per_task = [_numbers(row) for row in returns]
        rows = [
            {"name": f"task {i}", "return_mean": row.mean(), "return_min": row.min(), "return_max": row.max()}
            for i, row in enumerate(per_task)
        ]
    for row in rows:
        after = number_of(row.get("return_after"))
        if "no_adaptation" in row:
            row["gain"] = after - number_of(row["no_adaptation"])
            row["worse"] = row.pop("worse", row["gain"] < 0)
        elif "return_before" in row and "return_after" in row:
            row["change"] = after - number_of(row["return_before"])
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "name"))
    head = ["task", *(name.replace("_", " ") for name in columns)]
    body = [[str(row.get("name", "")), *(_cell(name, row.get(name)) for name in columns)] for row in rows]
    said = "Mean returns in each held-out task"
    if "gain" in columns:
        said += "; gain: after adaptation minus no adaptation, in the same episodes; worse: where it is below 0"
    elif "change" in columns:
        said += "; change: after adaptation minus before, which is the first episode"
    return table(head, body, said)


def table(head: Sequence[str], body: Iterable[Sequence[str]], caption: str) -> str:
    """A table that scrolls in a box of its own where it is too wide."""
    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    rows = ""
    for first, *others in body:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in others)
        rows += f'<tr><th scope="row">{html.escape(first)}</th>{cells}</tr>'
    label = html.escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _figure(title: str, said: str, chart: str, keys: str) -> str:
    more = f"<span>{html.escape(said)}</span>" if said else ""
    return f"<figure><figcaption><strong>{html.escape(title)}</strong>{more}</figcaption>{chart}{keys}</figure>"


def _references(facts: RunFacts) -> dict[str, float]:
    return {label: number_of(facts.evaluation[name]) for name, label in _REFERENCES.items() if name in facts.evaluation}


def _series(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    points = [(row["env_steps"], row["value"]) for row in rows if row["metric"] == metric]
    array = np.array(points, dtype=float).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _numbers(values: Any) -> np.ndarray:
    if isinstance(values, list) and values and isinstance(values[0], list):
        return np.array([_numbers(row) for row in values], dtype=float)
    return np.array([number_of(value) for value in values], dtype=float)


def _episode_names(values: Mapping[str, Any]) -> list[str]:
    names = []
    while (name := f"return_episode_{len(names) + 1}") in values:
        names.append(name)
    return names


def _tasks_in_metrics(facts: RunFacts) -> list[dict[str, Any]]:
    tasks: dict[str, dict[str, Any]] = {}
    for row in facts.newest(per_task=True):
        tasks.setdefault(str(row["task"]), {"name": row["task"]})[row["metric"]] = row["value"]
    return list(tasks.values())


def _interval(values: Mapping[str, Any], name: str, bounds: str, shown: Any = number_text) -> str:
    pair = values.get(bounds) or [values.get(f"{name}_ci_low"), values.get(f"{name}_ci_high")]
    low, high = (number_of(bound) for bound in pair)
    return f"[{shown(low)}, {shown(high)}]" if math.isfinite(low) and math.isfinite(high) else ""


def _percent(value: Any) -> str:
    return f"{100 * number_of(value):.3g} %"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return _percent(value) if name == "success_rate" else number_text(number_of(value))
