"""The part of a report on whether an algorithm adapts or averages: its diagnostics, and what they mean."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from metaroll.lab.figures.charts import kind_of_tasks, number_text, series
from metaroll.lab.report.page_parts import percent, section, with_bounds
from metaroll.lab.runs.report_facts import RunFacts
from metaroll.training.evaluation.verdict import LEAST_EFFECT
from metaroll.training.store.files import number_of

__all__ = ["adapting", "tested_on"]

_EPOCHS = 10
"""Number of newest values to average: one epoch has few tasks."""
_LEARNED = {
    "inner_kl": (
        "KL of the inner step",
        "How far one inner step moves a policy, in nats. If it is near 0, the policy hardly changes.",
    ),
    "gradient_cosine": (
        "cosine between task gradients",
        "How similar the first inner steps of two tasks are. If it is near 1, all tasks pull the same way, and one "
        "policy would do for all; if it is near 0, each task has its own direction.",
    ),
    "gain": (
        "gain, training tasks",
        "Return after the inner steps minus the return before them. If it is near 0, the policy only averages over "
        "tasks.",
    ),
    "share_worse": (
        "training tasks made worse",
        "Share of tasks with a lower return after the inner steps than before.",
    ),
}
_PAIRED = "in the same test episodes"
_UNPAIRED = "which is the first exploration episode"
_DIFFERENCE = (
    "Return after adaptation minus the return in the first exploration episode. These are different episodes, so it is "
    "not the gain from adaptation."
)


def adapting(facts: RunFacts) -> str:
    """A section with a number and an explanation of each known diagnostic; empty for algorithms that do not adapt."""
    if not facts.adapts:
        return ""
    cells = [*_in_training(facts), *_held_out(facts)]
    items = "".join(
        f"<div><dt>{html.escape(label)}</dt><dd>{value}<small>{more}</small></dd>"
        f'<dd class="means">{html.escape(meaning)}</dd></div>'
        for label, value, more, meaning in cells
    )
    return section("Does it adapt, or average?", f'<dl class="numbers wide">{items}</dl>' if items else "")


def tested_on(facts: RunFacts) -> str:
    """The role of the tasks of its evaluations."""
    return kind_of_tasks(facts.evaluation, facts.summary, facts.split)


def _in_training(facts: RunFacts) -> list[tuple[str, str, str, str]]:
    rows = [row for row in facts.metrics if row["phase"] == "train" and row["task"] is None]
    if not any(row["metric"] == "gradient_cosine" for row in rows):
        return []  # there are no inner steps
    cells = []
    for name, (label, meaning) in _LEARNED.items():
        values = series(rows, name)[1][-_EPOCHS:]
        if np.isfinite(values).any():
            epochs = "last epoch" if len(values) == 1 else f"mean of the last {len(values)} epochs"
            cells.append((label, _text(name, float(np.nanmean(values))), epochs, meaning))
    return cells


def _held_out(facts: RunFacts) -> list[tuple[str, str, str, str]]:
    values = facts.numbers
    kind = tested_on(facts)
    against = (values.get("baselines") or {}).get("no adaptation") or {}
    verdict = values.get("verdict") or {}
    source: Mapping[str, Any] = next((known for known in (verdict, values) if "gain" in known), {})
    gain, low, high = (number_of(source.get(f"gain{end}")) for end in ("", "_ci_low", "_ci_high"))
    paired = bool(against or verdict or "return_unadapted" in values)
    if math.isnan(gain):
        gain, low, high = (number_of(values.get(f"change{end}")) for end in ("", "_ci_low", "_ci_high"))
        paired = False
    cells = []
    if math.isfinite(gain):
        new = ": what adaptation is worth in tasks that were not trained on" if kind == "held-out" else ""
        label, meaning = "gain", f"Return after adaptation minus the return without, {_PAIRED}{new}."
        if not paired:  # of older runs, too, which call it gain
            label, meaning = "first-to-last-episode difference", _DIFFERENCE
        cells.append((f"{label}, {kind} tasks", *with_bounds(gain, low, high), meaning))
    share, against_what = _share_worse(facts, verdict)
    if math.isfinite(share):
        meaning = f"Share of tasks with a lower return after adaptation than {against_what}."
        cells.append((f"{kind} tasks made worse", percent(share), "", meaning))
    return cells


def _share_worse(facts: RunFacts, verdict: Mapping[str, Any]) -> tuple[float, str]:
    """Share of tasks that adaptation made worse, and the reference of that comparison.

    Both come from the same source, the verdict if there is one: metrics logged in training may compare with another
    episode.
    """
    without = f"without, by more than {LEAST_EFFECT}, {_PAIRED}"
    if verdict.get("n_tasks"):
        return len(verdict["failing_tasks"]) / verdict["n_tasks"], without
    paired = bool(facts.evaluation) or "return_unadapted" in facts.numbers
    return number_of(facts.numbers.get("share_worse")), without if paired else f"before, {_UNPAIRED}"


def _text(name: str, value: float) -> str:
    if name == "share_worse":
        return percent(value)
    return with_bounds(value)[0] if name == "gain" else number_text(value)  # a KL may be tiny
