"""``report.html``: everything about a run on one self-contained page, without network and scripts."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.checks import check_path
from metaroll.data.folders.atomic_files import write_text
from metaroll.lab.figures.charts import (
    GRAY,
    REFERENCES,
    Chart,
    Curve,
    adaptation_chart,
    learning_chart,
    numbers_of,
    robustness_chart,
    series,
    shots_chart,
    tasks_chart,
)
from metaroll.lab.report.adapting_part import adapting, tested_on
from metaroll.lab.report.page_parts import (
    banner,
    figure,
    figures,
    folded,
    gallery,
    page,
    pairs,
    percent,
    section,
    table,
    with_bounds,
)
from metaroll.lab.runs.report_facts import RunFacts, named_protocol, read_facts
from metaroll.training.evaluation.verdict import LEAST_EFFECT
from metaroll.training.store.files import number_of

__all__ = ["ENDINGS", "FILE_NAME", "write_report"]

FILE_NAME = "report.html"
ENDINGS = (".html", ".htm")
"""Endings of pages."""


_MOST_TRAINING_CURVES = 24
_COLUMNS = {"random_context": "mismatched context", "change": "first-to-last difference"}


def write_report(
    run_dir: str | Path,
    path: str | Path | None = None,
    *,
    head: Mapping[str, Any] | None = None,
    pictures: Sequence[tuple[str, np.ndarray]] = (),
    notes: Sequence[str] = (),
) -> Path:
    """Write the report of a run; nothing else in its folder is changed.

    Damaged or missing parts are left out, and listed at the top of the page.

    Args:
        run_dir: Folder of the run.
        path: Page to write (``.html`` or ``.htm``); ``None`` means ``report.html`` in the run folder.
        head: Entries of the line below the title, name -> text.
        pictures: Pictures of the agent ``(H, W, 3)`` with their captions.
        notes: Further notes for the top of the page.

    Returns:
        Path of the page.

    Raises:
        FileNotFoundError: There is no run in ``run_dir``.
        IsADirectoryError: ``path`` is a folder.
        ValueError: ``path`` has another ending: only pages are replaced.
    """
    run_dir = check_path("run_dir", run_dir)
    path = run_dir / FILE_NAME if path is None else check_path("path", path, "file")
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"path must end in {' or '.join(ENDINGS)}, got {str(path)!r}")
    if path.is_dir():
        raise IsADirectoryError(f"path must name a file, and {path} is a folder")
    facts = read_facts(run_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _page(facts, head or {}, pictures, notes))
    return path


def _page(
    facts: RunFacts, head: Mapping[str, Any], pictures: Sequence[tuple[str, np.ndarray]], notes: Sequence[str]
) -> str:
    problems = [*facts.problems, *notes]

    def made(name: str, part: Callable[[RunFacts], Any], otherwise: Any) -> Any:
        try:
            return part(facts)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # files of another shape
            problems.append(f"{name} is left out, since a file does not hold what it should ({error!r})")
            return otherwise

    verdict = made("the verdict", _verdict, "")
    numbers = made("the summary", _key_numbers, "")
    curves = [
        made("the learning curve", _learning_curve, ""),
        made("the adaptation curve", _adaptation_curve, "") if facts.adapts else "",
        made("the k-shot curve", _shots_curve, ""),
        made("the chart of tasks", _tasks_figure, ""),
        *made("the robustness map", _robustness_figures, []),
    ]
    tasks = made("the table of tasks", _task_table, "")
    training = made("training", _training_curves, [])
    body = [
        numbers,
        made("whether it adapts", adapting, ""),
        section("Curves", figures(curves)),
        section("What it does", gallery(pictures)),
        section("Held-out tasks", tasks),
        section(
            "Training",
            folded("Losses and other numbers", figures(training, small=True)) if training else "",
        ),
        section("Configuration", made("the configuration", _configuration, "")),
        section("Provenance", made("provenance", _provenance, "")),
    ]
    known = {**facts.summary, **facts.config}
    title = f"{known['algo']} on {known['env']}" if {"algo", "env"} <= known.keys() else facts.name
    lead = " · ".join(f"{name} {value}" for name, value in head.items())
    notices = "".join(f'<p class="note">{html.escape(problem)}</p>' for problem in problems)
    return page(title, lead, [verdict, notices, *body])


def _configuration(facts: RunFacts) -> str:
    sections = {
        name: value for name, value in facts.config.items() if isinstance(value, Mapping) and name != "versions"
    }
    plain = {name: value for name, value in facts.config.items() if not isinstance(value, Mapping)}
    tables = {**({"names": plain} if plain else {}), **sections}
    return "".join(folded(str(name), pairs(entries, f"Options: {name}")) for name, entries in tables.items())


def _provenance(facts: RunFacts) -> str:
    from metaroll import __version__

    evaluation, summary = facts.evaluation, facts.summary
    versions = summary.get("versions") or evaluation.get("versions") or facts.config.get("versions") or {}
    rows: dict[str, Any] = {"run folder": facts.name}
    for source, names in (
        (summary, ("seed", "epochs", "env_steps", "seconds")),
        (evaluation, ("epoch", "reward_key", "n_test_tasks", "repetitions", "n_episodes")),
    ):
        rows.update({name.replace("_", " "): source[name] for name in names if source.get(name) is not None})
    rows.update({f"{name} (environment)": value for name, value in (evaluation.get("provenance") or {}).items()})
    rows.update({f"evaluation: {name}": value for name, value in named_protocol(evaluation).items()})
    names = ("num_train", "num_test", "nearest", "median", "median_in_training")
    rows.update({f"task split: {name.replace('_', ' ')}": facts.split[name] for name in names if name in facts.split})
    rows.update({f"version of {name}": value for name, value in versions.items()})
    rows["report written"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, by metaroll {__version__}"
    return pairs(rows, "Where the numbers come from")


# -- sections: HTML from the facts of a run ---------------------------------------------------------------------------


def _verdict(facts: RunFacts) -> str:
    """Whether the agent adapts, in a sentence; empty if that was not evaluated."""
    verdict = facts.evaluation.get("verdict")
    if not verdict:
        return ""
    return banner(verdict["text"], bool(verdict["adapts"]))


def _key_numbers(facts: RunFacts) -> str:
    """The key numbers of the run."""
    values = facts.numbers
    verdict = values.get("verdict") or {}
    against = (values.get("baselines") or {}).get("no adaptation") or {}
    cells: list[tuple[str, str, str]] = []
    for source, name in ((against, "advantage"), (verdict, "gain")):
        if name in source and not cells:
            cells.append(("adaptation gain (paired)", *_with_interval(source, name)))
    if "oracle_share" in verdict:
        cells.append(("of the way to the oracle", *_percent_with_interval(verdict, "oracle_share")))
    elif "normalized_score" in values:
        cells.append(("score between floor and oracle", *_with_interval(values, "normalized_score")))
    for name, label, bounds in (
        ("return_after", "return after adaptation", "return_after_interval"),
        ("return_before", "return in the first episode", "return_before_interval"),
        ("change", "first-to-last-episode difference", ""),
        ("return_mean", "mean return", "return_interval"),
    ):
        key = "gain" if name == "change" and name not in values else name  # its name in older runs
        if key in values:
            cells.append((label, *_with_interval(values, key, bounds)))
    for name, label in (("success_rate", "success"), ("share_worse", "tasks that adapting made worse")):
        if values.get(name) is not None and (name == "success_rate" or against):
            bounds = {"success_rate": "success_interval", "share_worse": "share_worse_interval"}[name]
            cells.append((label, *_percent_with_interval(values, name, bounds)))
    items = "".join(
        f"<div><dt>{html.escape(label)}</dt><dd>{number}<small>{more}</small></dd></div>"
        for label, number, more in cells
    )
    return f'<dl class="numbers">{items}</dl>' if items else "<p>There is no evaluation yet.</p>"


def _learning_curve(facts: RunFacts) -> str:
    """Returns of evaluations over environment steps, with intervals."""
    chart = learning_chart(facts.metrics, facts.phase, _references(facts), tested_on(facts))
    return figure(chart) if chart.curves else ""


def _adaptation_curve(facts: RunFacts) -> str:
    """Return of the first, second, ... episode in a new task."""
    values = facts.numbers
    if not values.get("adaptation_curve"):
        names = itertools.takewhile(values.__contains__, (f"return_episode_{i}" for i in itertools.count(1)))
        mean = [values[name] for name in names]
        unknown = [math.nan] * len(mean)
        curve = {"episode": [*range(1, len(mean) + 1)], "mean": mean, "low": unknown, "high": unknown}
        values = {"adaptation_curve": {**curve, "num_exploration": len(mean) - 1}}
    if not values["adaptation_curve"]["mean"]:
        return ""
    return figure(adaptation_chart(values, _references(facts)))


def _shots_curve(facts: RunFacts) -> str:
    """Return after adaptation from k episodes, beside the returns of baselines in the same episodes."""
    return figure(shots_chart(facts.evaluation)) if facts.evaluation.get("k_shot_curve") else ""


def _tasks_figure(facts: RunFacts) -> str:
    """Return in each task."""
    chart = tasks_chart(facts.evaluation)
    return "" if chart is None else figure(chart)


def _robustness_figures(facts: RunFacts) -> list[str]:
    """Returns over domain parameters."""
    return [figure(robustness_chart(robustness)) for robustness in facts.robustness]


def _training_curves(facts: RunFacts) -> list[str]:
    """A small chart of each metric that was logged in training."""
    rows = [row for row in facts.metrics if row["phase"] == "train" and row["task"] is None]
    shown = []
    for name in list(dict.fromkeys(row["metric"] for row in rows))[:_MOST_TRAINING_CURVES]:
        steps, values = series(rows, name)
        if np.isfinite(values).any():
            shown.append(figure(Chart(name, "", "environment steps", name, [Curve("", steps, values, color=GRAY)])))
    return shown


def _task_table(facts: RunFacts) -> str:
    """A table with the numbers of each held-out task; empty if there are none."""
    rows = facts.tasks
    returns = facts.evaluation.get("returns")
    if not rows and isinstance(returns, list) and len(returns) > 1:
        per_task = [numbers_of(row) for row in returns]
        rows = [
            {"name": f"task {i}", "return_mean": row.mean(), "return_min": row.min(), "return_max": row.max()}
            for i, row in enumerate(per_task)
        ]
    texts = facts.evaluation.get("task_values") or facts.split.get("test_tasks") or []
    if len(texts) == len(rows):
        rows = [{"task": text, **row} for text, row in zip(texts, rows, strict=True)]
    for row in rows:
        text, name = row.pop("task", ""), str(row.get("name", ""))
        row["name"] = f"{name}: {text}" if text else name
        after = number_of(row.get("return_after"))
        if "no_adaptation" in row:
            row["gain"] = after - number_of(row["no_adaptation"])
            row["worse"] = row.pop("worse", row["gain"] < 0)
        elif "return_before" in row and "return_after" in row:
            row["change"] = after - number_of(row["return_before"])
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "name"))
    head = ["task", *(_COLUMNS.get(name, name.replace("_", " ")) for name in columns)]
    body = [[str(row.get("name", "")), *(_cell(name, row.get(name)) for name in columns)] for row in rows]
    caption = f"Mean returns in each {tested_on(facts)} task"
    if "gain" in columns:
        caption += "; gain: after adaptation minus no adaptation, in the same episodes"
        caption += f"; worse: where it is below 0 by more than {LEAST_EFFECT}"
    elif "change" in columns:
        caption += "; change: after adaptation minus before, which is the first episode"
    return table(head, body, caption)


def _references(facts: RunFacts) -> dict[str, float]:
    return {label: number_of(facts.evaluation[name]) for name, label in REFERENCES.items() if name in facts.evaluation}


def _with_interval(values: Mapping[str, Any], name: str, bounds: str = "") -> tuple[str, str]:
    return with_bounds(values[name], *_bounds(values, name, bounds))


def _percent_with_interval(values: Mapping[str, Any], name: str, bounds: str = "") -> tuple[str, str]:
    low, high = _bounds(values, name, bounds)
    known = math.isfinite(low) and math.isfinite(high)
    return percent(values[name]), f"[{percent(low)}, {percent(high)}]" if known else ""


def _bounds(values: Mapping[str, Any], name: str, bounds: str) -> tuple[float, float]:
    low, high = values.get(bounds) or [values.get(f"{name}_ci_low"), values.get(f"{name}_ci_high")]
    return number_of(low), number_of(high)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return percent(value) if name == "success_rate" else with_bounds(value)[0]
