"""Shows an evaluation: its numbers, tables, pictures, and the closing panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from metaroll.errors import counted
from metaroll.lab.display.consoles import escape, print_table
from metaroll.lab.display.timing import after_epoch, duration
from metaroll.lab.figures.charts import REFERENCES, kind_of_tasks
from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.evaluation.numbers import short_number, with_interval
from metaroll.training.evaluation.verdict import LEAST_EFFECT

__all__ = [
    "closing_panel",
    "draw_pictures",
    "plain_table",
    "show_closing",
    "show_study",
]

_BASELINES = {
    "no adaptation": ("no adaptation", "the same policy before it has seen any data"),
    "random context": ("mismatched context", "adapted to the data of another task"),
    "task oracle": ("task oracle", "has access to the task"),
}
_COLUMNS = {"no adaptation": "none", "random context": "other", "task oracle": "oracle"}
_MOST_TASKS = 20
_PANEL_EDGES = 4
"""Columns that a panel itself takes."""


# -------------------------------------------------------------------------------------------------------------- tables
def plain_table(*columns: str) -> Table:
    """A table with names in the first column and numbers in the others, which never wrap, for ``print_table``."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", style="" if position else "cyan")
        table.columns[-1].no_wrap, table.columns[-1].overflow = bool(position), "fold"
    return table


def show_study(console: Console, study: AdaptationStudy, success: Mapping[str, Any]) -> None:
    """Print the tables: k-shot curve, baselines, success by two rules, and the results per task.

    Args:
        console: Where to print.
        study: The measurements.
        success: From ``success_values``.
    """
    curve, rounds = study.k_shot_curve, study.shot_unit == "rounds"
    over = "repetitions" if study.result.all_tasks else "tasks"
    table = plain_table("rounds" if rounds else "episodes seen", f"return, 95 % over {over}")
    for k, *numbers in zip(curve["shots"], curve["mean"], curve["low"], curve["high"], strict=True):
        table.add_row(str(k), with_interval(numbers[0], numbers[1:]))
    shot_unit = "rounds of exploration" if rounds else "exploration episodes"
    console.print(f"[bold]k-shot curve[/]: adapted on the first k {shot_unit}, same test episodes")
    print_table(console, table)
    table = plain_table("baseline", "return", "improvement by adaptation")
    for name in study.baselines:
        gap, bounds = study.advantage(name)
        mean = short_number(study.per_task[name].mean())
        title, meaning = _BASELINES[name]
        table.add_row(f"{title}\n[dim]{meaning}[/]", mean, with_interval(gap, bounds, sign="+"))
    table.add_row("[bold]adapted[/]", f"[bold]{short_number(study.result.return_after)}[/]", "")
    title = f"[bold]baselines[/]: on the same test episodes, so that differences are paired; 95 % over {over}"
    console.print(title)
    print_table(console, table)
    _show_success(console, study.result, success)
    _show_tasks(console, study)


def _show_success(console: Console, result: EvaluationResult, success: Mapping[str, Any]) -> None:
    if result.success_rate is None or result.success_interval is None:
        return
    rate = with_interval(result.success_rate, result.success_interval, 2)
    rule = f"the first {success.get('first_finished_episodes')} episodes to finish per name"
    if not success:
        note = "[dim]--adapted-episodes 3 also shows the rate by Meta-World's rule[/]"
    elif result.equal_lengths:
        note = f"[dim]all episodes have the same length, so Meta-World's rule ({rule}) has no bias here[/]"
    else:
        rates = f"{success['first_finished_success_rate']:.2f}, bias {success['first_finished_bias']:+.2f}"
        note = f"by Meta-World's rule ({rule}, which is biased): {rates}"
    console.print(f"[bold]success[/]: {rate} of all planned episodes (Wilson)\n{note}\n", soft_wrap=True)


def _show_tasks(console: Console, study: AdaptationStudy) -> None:
    columns, worse, gains = study.per_task, study.worse_per_task, study.gain_per_task
    share = with_interval(float(worse.mean()), study.share_worse_interval, 2)
    order = sorted(range(len(worse)), key=lambda i: gains[i])
    hidden = len(order) > _MOST_TASKS
    note = f"; {_MOST_TASKS} of {len(order)} shown, all are in evaluation.json" if hidden else ""
    console.print(
        f"[bold]tasks[/], worst first: {int(worse.sum())} of {len(worse)} got worse by adapting (by more than "
        f"{LEAST_EFFECT}), {share} (Wilson); none: no adaptation; other: mismatched context; own: adapted; "
        f"gain: own minus none{note}",
        soft_wrap=True,
    )
    names = [*study.baselines, "adapted"]
    rates = study.result.success_per_task
    titles = [_COLUMNS[name] for name in study.baselines]
    table = plain_table("task", *titles, "own", "gain", *(["success"] if rates is not None else []))
    labels = _task_cells(study.result)
    for i in order[:_MOST_TASKS]:
        gain = short_number(gains[i], sign="+")
        row = [*(short_number(columns[name][i]) for name in names), f"[bold red]{gain}[/]" if worse[i] else gain]
        table.add_row(escape(labels[i]), *row, *([] if rates is None else [f"{rates[i]:.2f}"]))
    print_table(console, table)


def _task_cells(result: EvaluationResult) -> list[str]:
    """Number (or name) and values of each task: ``8: velocity=1.42``."""
    pairs = zip(result.task_names, result.task_labels, strict=True)
    return [name if label == name else f"{name.removeprefix('task ')}: {label}" for name, label in pairs]


# ----------------------------------------------------------------------------------------------- pictures, last message
def draw_pictures(
    adaptation: Path,
    result: EvaluationResult | PolicyEvaluation,
    console: Console,
    references: Mapping[str, float] | None = None,
    learning_of: Path | None = None,
    study: AdaptationStudy | None = None,
    tested_on: str = "held-out",
) -> list[Path]:
    """Draw the adaptation curve (and a run's learning curve, the k-shot curve); failures are printed, not raised.

    Args:
        adaptation: Picture to write.
        result: Evaluation to draw.
        console: Where to print that drawing failed.
        references: Summary entries, of which ``return_floor`` and ``return_oracle`` are drawn as lines.
        learning_of: Folder of the run whose learning curve is drawn as well.
        study: Its k-shot curve is drawn as well, as ``k_shot_curve.png`` beside the first picture.
        tested_on: The role of the tasks of the evaluation.
    """
    from metaroll.lab.figures.plots import plot_adaptation_curve, plot_k_shot_curve, plot_learning_curve

    entries = references or {}
    lines = {text: entries[name] for name, text in REFERENCES.items() if name in entries}
    pictures: list[Path] = []
    try:
        if isinstance(result, EvaluationResult):
            values = {**result.to_dict(), "tested_on": tested_on}
            pictures.append(plot_adaptation_curve(values, adaptation, references=lines))
        if learning_of is not None:
            final = result if isinstance(result, PolicyEvaluation) else None
            pictures.append(plot_learning_curve(learning_of, final=final))
        if study is not None:
            values = {**study.result.to_dict(), **study.to_dict(), "tested_on": tested_on}
            pictures.append(plot_k_shot_curve(values, adaptation.with_name("k_shot_curve.png")))
    except (OSError, ValueError, KeyError, TypeError) as error:  # damaged metrics, a full disk
        missing = "no pictures" if not pictures else "no learning curve" if study is None else "no k-shot curve"
        console.print(f"[yellow]{missing}:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    return pictures


def show_closing(
    console: Console, summary: Mapping[str, Any], run_dir: Path, pictures: Sequence[Path], further: str
) -> None:
    """Print the end of the output: the result of training, and where it is stored.

    Paths and the next command stand below the panel if they do not fit into it: broken by it they could not be copied.
    """
    lines = [f"picture  {escape(str(picture))}" for picture in pictures if picture.name != "learning_curve.png"]
    lines += [f"run      {escape(str(run_dir))}", f"next     {escape(further)}"]
    inside = max(map(cell_len, lines)) <= console.width - _PANEL_EDGES
    console.print(closing_panel(summary, lines if inside else ()))
    for line in () if inside else lines:
        console.print(line, soft_wrap=True)


def closing_panel(summary: Mapping[str, Any], places: Sequence[str]) -> Panel:
    """The result of training, and below it lines about where it is stored."""
    lines = _returns(summary) if "return_mean" in summary else _adaptation(summary)
    verdict = summary.get("verdict")
    if verdict is not None:
        style = "bold green" if verdict["adapts"] else "bold yellow"
        lines.insert(0, f"[{style}]{escape(verdict['text'])}[/]")
    epoch = summary.get("epoch", summary.get("epochs"))
    if epoch is not None:
        lines.append(f"agent    {after_epoch(epoch)}")
    if "normalized_score" in summary:
        lines += [
            f"floor {short_number(summary['return_floor'])} (go to the origin)   "
            f"oracle {short_number(summary['return_oracle'])} (has access to the goal)",
            f"score between floor and oracle {summary['normalized_score']:.2f} "
            f"(lower bound {summary['normalized_score_ci_low']:.2f})",
        ]
    if "seconds" in summary:
        lines.append(f"time     {duration(summary['seconds'])} of training, {summary['env_steps']:,} environment steps")
    lines += places
    title = "summary" if epoch != 0 else "before training"
    return Panel("\n".join(lines), title=title, title_align="left", expand=False)


def _returns(summary: Mapping[str, Any]) -> list[str]:
    """The returns of a policy that does not adapt."""
    tasks, episodes = summary["n_test_tasks"], counted(summary["n_episodes"], "episode")
    where = (
        f"{counted(tasks, f'{kind_of_tasks(summary)} task')}, {episodes} each"
        if tasks > 1
        else f"{episodes}, deterministic policy"
    )
    value, _, bounds = with_interval(summary["return_mean"], summary["return_interval"]).partition(" ")
    lines = [f"return   [bold green]{value}[/]{bounds and ' ' + bounds}  on {where} (95 % bootstrap)"]
    if "return_cvar" in summary:
        share = f"worst {100 * summary['cvar_epsilon']:g} % of these episodes (CVaR)"
        lines.append(f"worst    [bold green]{short_number(summary['return_cvar'])}[/]  mean return of the {share}")
    return lines


def _adaptation(summary: Mapping[str, Any]) -> list[str]:
    """The returns of an algorithm that adapts, and its gain if it was compared with no adaptation."""
    tasks = counted(summary["n_test_tasks"], f"{kind_of_tasks(summary)} task")
    after = f"[bold green]{short_number(summary['return_after'])}[/]"
    explored = counted(summary["n_exploration_episodes"], "exploration episode")
    lines = [
        f"return in the first episode [yellow]{short_number(summary['return_before'])}[/] -> after {explored} {after}"
    ]
    if "gain" in summary:
        without = short_number(summary["baselines"]["no adaptation"]["return"])
        paired = f"in the same episodes: without adaptation [yellow]{without}[/] -> adapted {after}"
        return [_difference(summary, "gain", "adaptation gain (paired)", tasks), paired, *lines]
    if "verdict" in summary:
        _, _, bounds = with_interval(summary["return_after"], summary["return_after_interval"]).partition(" ")
        return [f"{lines[0]} {bounds}  on {tasks} (95 % bootstrap)" if bounds else f"{lines[0]}  on {tasks}"]
    return [_difference(summary, "change", "first-to-last-episode difference", tasks), *lines]


def _difference(summary: Mapping[str, Any], name: str, title: str, tasks: str) -> str:
    interval = (summary[f"{name}_ci_low"], summary[f"{name}_ci_high"])
    value, _, bounds = with_interval(summary[name], interval, sign="+").partition(" ")
    method = "sign flips" if name == "gain" else "bootstrap"
    where = f" {bounds}  on {tasks} (95 %, {method})" if bounds else f" on {tasks} (too few for an interval)"
    return f"{title} [bold green]{value}[/]{where}"
