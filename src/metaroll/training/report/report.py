"""``report.html``: everything about a run on one page that needs nothing beside it, no network and no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.data.atomic_files import write_atomic
from metaroll.envs.base.canvas import png_bytes
from metaroll.training.report.report_facts import RunFacts, read_facts
from metaroll.training.report.report_sections import (
    adaptation_curve,
    key_numbers,
    learning_curve,
    robustness_figures,
    shots_curve,
    table,
    task_table,
    training_curves,
)
from metaroll.training.store.files import to_plain

__all__ = ["FILE_NAME", "write_report"]

FILE_NAME = "report.html"
_STYLE = resources.files(__package__).joinpath("report.css").read_text("utf-8")
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write_report(
    run_dir: str | Path,
    path: str | Path | None = None,
    *,
    head: Mapping[str, Any] | None = None,
    pictures: Sequence[tuple[str, np.ndarray]] = (),
    notes: Sequence[str] = (),
) -> Path:
    """Write the report of a run; nothing else in its folder is changed.

    What is damaged or missing is left out, and named at the top of the page.

    Args:
        run_dir: Folder of the run.
        path: Page to write; ``None`` means ``report.html`` in the run folder.
        head: What stands below the title, name -> text.
        pictures: Pictures of the agent ``(H, W, 3)``, each with what it shows.
        notes: What else is to be named at the top.

    Returns:
        Where the page is.
    """
    facts = read_facts(run_dir)
    path = Path(run_dir) / FILE_NAME if path is None else Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, _page(facts, head or {}, pictures, notes).encode())
    return path


def _page(
    facts: RunFacts, head: Mapping[str, Any], pictures: Sequence[tuple[str, np.ndarray]], notes: Sequence[str]
) -> str:
    problems = [*facts.problems, *notes]

    def made(name: str, section: Callable[[RunFacts], Any], otherwise: Any) -> Any:
        try:
            return section(facts)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # files of another shape
            problems.append(f"{name} is left out, since a file does not hold what it should ({error!r})")
            return otherwise

    numbers = made("the summary", key_numbers, "")
    figures = [
        made("the learning curve", learning_curve, ""),
        made("the adaptation curve", adaptation_curve, "") if facts.adapts else "",
        made("the k-shot curve", shots_curve, ""),
        *made("the robustness map", robustness_figures, []),
    ]
    tasks = made("the table of tasks", task_table, "")
    training = made("training", training_curves, [])
    body = [
        numbers,
        _section("Curves", f'<div class="figures">{"".join(figures)}</div>' if any(figures) else ""),
        _section("What it does", _gallery(pictures)),
        _section("Held-out tasks", tasks),
        _section(
            "Training",
            _folded("Losses and other numbers", f'<div class="figures small">{"".join(training)}</div>')
            if training
            else "",
        ),
        _section("Configuration", made("the configuration", _configuration, "")),
        _section("Provenance", made("provenance", _provenance, "")),
    ]
    known = {**facts.summary, **facts.config}
    title = f"{known['algo']} on {known['env']}" if {"algo", "env"} <= known.keys() else facts.name
    lead = " · ".join(f"{html.escape(str(name))} {html.escape(str(value))}" for name, value in head.items())
    notices = "".join(f'<p class="note">{html.escape(problem)}</p>' for problem in problems)
    content = f'<h1>{html.escape(title)}</h1><p class="lead">{lead}</p>{notices}{"".join(body)}'
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<link rel="icon" href="data:,"><title>{html.escape(title)}</title><style>{_STYLE}</style></head>'
        f"<body><main>{content}</main></body></html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{content}</section>" if content else ""


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{content}</details>"


def _gallery(pictures: Sequence[tuple[str, np.ndarray]]) -> str:
    figures = []
    for name, picture in pictures:
        data = base64.b64encode(png_bytes(picture)).decode()
        shown = html.escape(name)
        height, width = picture.shape[:2]
        image = f'<img alt="{shown}" width="{width}" height="{height}" src="data:image/png;base64,{data}">'
        figures.append(f"<figure><figcaption><strong>{shown}</strong></figcaption>{image}</figure>")
    return f'<div class="figures">{"".join(figures)}</div>' if figures else ""


def _configuration(facts: RunFacts) -> str:
    sections = {
        name: value for name, value in facts.config.items() if isinstance(value, Mapping) and name != "versions"
    }
    plain = {name: value for name, value in facts.config.items() if not isinstance(value, Mapping)}
    tables = {**({"names": plain} if plain else {}), **sections}
    return "".join(_folded(str(name), _pairs(entries, f"Options: {name}")) for name, entries in tables.items())


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
    names = ("num_train", "num_test", "nearest", "median", "median_in_training")
    rows.update({f"task split: {name.replace('_', ' ')}": facts.split[name] for name in names if name in facts.split})
    rows.update({f"version of {name}": value for name, value in versions.items()})
    rows["report written"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, by metaroll {__version__}"
    return _pairs(rows, "Where the numbers come from")


def _pairs(rows: Mapping[Any, Any], caption: str) -> str:
    body = [[str(name), _text(value)] for name, value in rows.items()]
    return f'<div class="plain">{table(["name", "value"], body, caption)}</div>'


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(entry) for entry in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(entry)}" for name, entry in value.items())
    value = to_plain(value) if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
