"""The figures and tables of a report, each as a piece of HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.training.figures.charts import (
    GRAY,
    Chart,
    Curve,
    Field,
    adaptation_chart,
    learning_chart,
    numbers_of,
    robustness_chart,
    series,
    shots_chart,
)
from metaroll.training.figures.svg import legend, number_text, svg
from metaroll.training.report.report_facts import RunFacts
from metaroll.training.store.files import number_of

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
    chart = learning_chart(facts.metrics, facts.phase, _references(facts))
    return _figure(chart) if chart.curves else ""


def adaptation_curve(facts: RunFacts) -> str:
    """Return of the first, second, ... episode in a new task."""
    values = facts.evaluation
    if not values.get("adaptation_curve"):
        newest = {row["metric"]: row["value"] for row in facts.newest()}
        mean = [newest[name] for name in _episode_names(newest)]
        unknown = [math.nan] * len(mean)
        curve = {"episode": [*range(1, len(mean) + 1)], "mean": mean, "low": unknown, "high": unknown}
        values = {"adaptation_curve": {**curve, "num_exploration": len(mean) - 1}}
    if not values["adaptation_curve"]["mean"]:
        return ""
    return _figure(adaptation_chart(values, _references(facts)))


def shots_curve(facts: RunFacts) -> str:
    """Return after adaptation from k episodes, and what others return in the same episodes."""
    return _figure(shots_chart(facts.evaluation)) if facts.evaluation.get("k_shot_curve") else ""


def robustness_figures(facts: RunFacts) -> list[str]:
    """Returns over domain parameters."""
    return [_figure(robustness_chart(found)) for found in facts.robustness]


def training_curves(facts: RunFacts) -> list[str]:
    """What else was logged in training, a small chart each."""
    rows = [row for row in facts.metrics if row["phase"] == "train" and row["task"] is None]
    figures = []
    for name in list(dict.fromkeys(row["metric"] for row in rows))[:_MOST_TRAINING_CURVES]:
        steps, values = series(rows, name)
        if np.isfinite(values).any():
            figures.append(_figure(Chart(name, "", "environment steps", name, [Curve("", steps, values, color=GRAY)])))
    return figures


def task_table(facts: RunFacts) -> str:
    """The numbers of each held-out task; empty where there are none."""
    rows = [dict(row) for row in facts.evaluation.get("per_task") or []] or _tasks_in_metrics(facts)
    returns = facts.evaluation.get("returns")
    if not rows and isinstance(returns, list) and len(returns) > 1:
        per_task = [numbers_of(row) for row in returns]
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
    caption = "Mean returns in each held-out task"
    if "gain" in columns:
        caption += "; gain: after adaptation minus no adaptation, in the same episodes; worse: where it is below 0"
    elif "change" in columns:
        caption += "; change: after adaptation minus before, which is the first episode"
    return table(head, body, caption)


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


def _figure(chart: Chart | Field) -> str:
    explanation = chart.explanation
    if isinstance(chart, Field) and np.isfinite(chart.values).any():
        low, high = number_text(float(np.nanmin(chart.values))), number_text(float(np.nanmax(chart.values)))
        explanation += f", from {low} (dark) to {high} (bright)"
    more = f"<span>{html.escape(explanation)}</span>" if explanation else ""
    keys = "" if isinstance(chart, Field) else legend(chart)
    return (
        f"<figure><figcaption><strong>{html.escape(chart.title)}</strong>{more}</figcaption>{svg(chart)}{keys}</figure>"
    )


def _references(facts: RunFacts) -> dict[str, float]:
    return {label: number_of(facts.evaluation[name]) for name, label in _REFERENCES.items() if name in facts.evaluation}


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
