"""What a run leaves behind: numbers of an evaluation, pictures, and the closing message."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel

from metaroll.cli.display.consoles import escape
from metaroll.cli.display.evaluation_tables import short_number, with_interval
from metaroll.cli.display.progress import duration
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.store.files import to_plain

__all__ = ["closing_panel", "draw_pictures", "evaluation_values", "print_json"]

_REFERENCES = {"return_oracle": "oracle (is told the task)", "return_floor": "floor (best without adapting)"}
_PLAIN_VALUES = ("return_mean", "return_interval", "n_test_tasks", "n_episodes", "reward_key", "returns")
_VALUES = (
    "return_before",
    "return_after",
    "return_after_interval",
    "change",
    "change_ci_low",
    "change_ci_high",
    "return_after_iqm",
    "return_after_iqm_interval",
    "success_rate",
    "success_interval",
    "n_test_tasks",
    "repetitions",
    "n_exploration_episodes",
    "n_adapted_episodes",
    "reward_key",
    "adaptation_curve",
    "per_task",
    "provenance",
)


def evaluation_values(
    result: EvaluationResult | PolicyEvaluation, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The numbers of an evaluation that tables and summaries show; with ``config`` also those of its algorithm."""
    values = result.to_dict()
    if isinstance(result, EvaluationResult):
        return {name: values[name] for name in _VALUES}
    plain = {name: values[name] for name in _PLAIN_VALUES}
    if config is None:
        return plain
    return {**plain, **get_algorithm(config["algo"]).summary_values(result.returns, config["algorithm"])}


def draw_pictures(
    adaptation: Path,
    result: EvaluationResult | PolicyEvaluation,
    console: Console,
    references: Mapping[str, float] | None = None,
    learning_of: Path | None = None,
    study: AdaptationStudy | None = None,
) -> list[Path]:
    """Draw the adaptation curve (and the learning curve of a run, the k-shot curve); where that fails say so and go on.

    Args:
        adaptation: Picture to write.
        result: Evaluation to draw.
        console: Where to say that there is no matplotlib.
        references: Summary entries, of which ``return_floor`` and ``return_oracle`` are drawn as lines.
        learning_of: Folder of the run whose learning curve is drawn, too.
        study: Its k-shot curve is drawn, too, as ``k_shot_curve.png`` beside the first picture.
    """
    from metaroll.training.figures.plots import plot_adaptation_curve, plot_k_shot_curve, plot_learning_curve

    entries = references or {}
    lines = {text: entries[name] for name, text in _REFERENCES.items() if name in entries}
    pictures: list[Path] = []
    try:
        if isinstance(result, EvaluationResult):
            pictures.append(plot_adaptation_curve(result, adaptation, references=lines))
        if learning_of is not None:
            final = result if isinstance(result, PolicyEvaluation) else None
            pictures.append(plot_learning_curve(learning_of, final=final))
        if study is not None:
            pictures.append(plot_k_shot_curve(study, adaptation.with_name("k_shot_curve.png")))
    except (ImportError, OSError, ValueError, KeyError, TypeError) as error:  # a damaged file of metrics, a full disk
        what = "no pictures" if not pictures else "no learning curve" if study is None else "no k-shot curve"
        console.print(f"[yellow]{what}:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    return pictures


def print_json(values: Mapping[str, Any]) -> None:
    """Write ``values`` to standard output as one JSON document."""
    sys.stdout.write(json.dumps(to_plain(values), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def _with_interval(summary: Mapping[str, Any], name: str) -> str:
    """The gain or change with its interval in words; a single task has none."""
    low, high = summary[f"{name}_ci_low"], summary[f"{name}_ci_high"]
    value, _, bounds = with_interval(summary[name], (low, high), sign="+").partition(" ")
    value = f"[bold green]{value}[/]"
    trained_on = summary.get("task_split", {}).get("overlaps")
    tasks = _count(summary["n_test_tasks"], "test task" if trained_on else "held-out task")
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{value} on {tasks} (too few for an interval)"
    return f"{value} {bounds}  on {tasks} (95 % bootstrap)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _returns(summary: Mapping[str, Any]) -> list[str]:
    """What a policy that does not adapt returned."""
    tasks, episodes = summary["n_test_tasks"], _count(summary["n_episodes"], "episode")
    where = f"{_count(tasks, 'held-out task')}, {episodes} each" if tasks > 1 else f"{episodes} without noise"
    value, _, bounds = with_interval(summary["return_mean"], summary["return_interval"]).partition(" ")
    lines = [f"return   [bold green]{value}[/]{bounds and ' ' + bounds}  on {where} (95 % bootstrap)"]
    if "return_cvar" in summary:
        share = f"worst {100 * summary['cvar_epsilon']:g} % of these episodes (CVaR)"
        lines.append(f"worst    [bold green]{short_number(summary['return_cvar'])}[/]  mean return of the {share}")
    return lines


def _adaptation(summary: Mapping[str, Any]) -> list[str]:
    """What an algorithm that adapts returned; its gain where it was compared with no adaptation."""
    explored = _count(summary["n_exploration_episodes"], "exploration episode")
    returns = (
        f"return in the first episode [yellow]{short_number(summary['return_before'])}[/] -> after {explored} "
        f"[bold green]{short_number(summary['return_after'])}[/]"
    )
    if "gain" not in summary:
        return [f"change over the episodes {_with_interval(summary, 'change')}", returns]
    without = summary["baselines"]["no adaptation"]["return"]
    return [
        f"adaptation gain {_with_interval(summary, 'gain')}",
        f"in the same episodes: without adaptation [yellow]{short_number(without)}[/] -> adapted "
        f"[bold green]{short_number(summary['return_after'])}[/]",
        returns,
    ]


def closing_panel(summary: Mapping[str, Any], run_dir: Path, pictures: list[Path], further: str) -> Panel:
    """The last thing on the screen: what was learned, and where it lies."""
    lines = _returns(summary) if "return_mean" in summary else _adaptation(summary)
    epoch = summary.get("epoch", summary.get("epochs"))
    if epoch is not None:
        lines.append(
            f"agent    after {_count(epoch, 'epoch')}" if epoch else "agent    before its first epoch: untrained"
        )
    if "normalized_score" in summary:
        lines += [
            f"floor {summary['return_floor']:.1f} (go to the origin)   oracle {summary['return_oracle']:.1f} "
            "(told the goal)",
            f"score between floor and oracle {summary['normalized_score']:.2f} "
            f"(lower bound {summary['normalized_score_ci_low']:.2f})",
        ]
    if "seconds" in summary:
        lines.append(f"time     {duration(summary['seconds'])}, {summary['env_steps']:,} environment steps")
    lines += [f"picture  {escape(str(picture))}" for picture in pictures if picture.name != "learning_curve.png"]
    lines += [f"run      {escape(str(run_dir))}", f"next     {escape(further)}"]
    return Panel(
        "\n".join(lines), title="what it learned" if epoch != 0 else "before training", title_align="left", expand=False
    )
