"""Tables of an evaluation: k-shot curve, baselines, success by two rules, and what happened in each task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from metaroll.cli.display.consoles import escape
from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.evaluation.evaluation_result import EvaluationResult

__all__ = ["plain_table", "short_number", "show_study", "success_values", "with_interval"]

_MEANINGS = {
    "no adaptation": "the same policy before it has seen anything",
    "random context": "adapted to the data of another task",
    "task oracle": "is told the task",
}
_MOST_TASKS = 20
_ROUNDING = 1e-7
# A bound may round to zero where it is small beside the others.
_SMALL_BOUND = 0.01


def plain_table(*columns: str) -> Table:
    """A table whose first column are names and all others numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", style="" if position else "cyan")
    return table


def short_number(value: float, digits: int = 1, sign: str = "") -> str:
    """``value`` with ``digits`` decimals, or as many more as show two figures of what would be rounded to zero."""
    return _fixed(value, _decimals([value], digits), sign)


def with_interval(value: float, bounds: Sequence[float | None], digits: int = 1, sign: str = "") -> str:
    """``12.3 [11.0, 13.5]``; without the bounds where there are none, with more decimals as by ``short_number``."""
    known = [bound for bound in bounds if bound is not None and math.isfinite(bound)]
    if len(known) != 2:
        return short_number(value, digits, sign)
    least = _SMALL_BOUND * max(map(abs, [value, *known]))
    digits = _decimals([value, *(bound for bound in known if abs(bound) >= least)], digits)
    return _fixed(value, digits, sign) + escape(f" [{_fixed(known[0], digits)}, {_fixed(known[1], digits)}]")


def _decimals(values: Sequence[float], least: int) -> int:
    """Decimals with which none of ``values`` looks like zero that is not."""
    small = [abs(value) for value in values if _ROUNDING < abs(value) < 0.5 * 10.0**-least]
    return max([least, *(1 - math.floor(math.log10(value)) for value in small)])


def _fixed(value: float, digits: int, sign: str = "") -> str:
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # adding 0 makes -0.0 of rounding 0.0


def success_values(result: EvaluationResult, first: int) -> dict[str, Any]:
    """The success rate by the biased rule beside ours, where there are enough episodes to tell."""
    if result.success_steps is None or result.returns.shape[2] - result.num_exploration < first:
        return {}
    rate = result.success_rate or 0.0
    # Which of episodes of one length finish first is arbitrary, so any of them are a fair sample of all.
    biased = rate if result.equal_lengths else result.first_finished_success_rate(first)
    return {
        "first_finished_success_rate": biased,
        "first_finished_bias": biased - rate,
        "first_finished_episodes": first,
    }


def show_study(console: Console, study: AdaptationStudy, success: Mapping[str, Any]) -> None:
    """Print the tables.

    Args:
        console: Where to.
        study: What was measured.
        success: From ``success_values``.
    """
    _show_shots(console, study)
    _show_baselines(console, study)
    _show_success(console, study.result, success)
    _show_tasks(console, study)


def _show_shots(console: Console, study: AdaptationStudy) -> None:
    curve = study.k_shot_curve
    rounds = study.shot_unit == "rounds"
    table = plain_table("rounds" if rounds else "episodes seen", "return, 95 % over tasks")
    for k, *numbers in zip(curve["shots"], curve["mean"], curve["low"], curve["high"], strict=True):
        table.add_row(str(k), with_interval(numbers[0], numbers[1:]))
    what = "rounds of exploration" if rounds else "exploration episodes"
    console.print(f"[bold]k-shot curve[/]: adapted from the first k {what}, same test episodes")
    console.print(table)


def _show_baselines(console: Console, study: AdaptationStudy) -> None:
    table = plain_table("acting instead", "return", "adapted policy is better by")
    for name in study.baselines:
        gap, bounds = study.advantage(name)
        mean = short_number(study.per_task[name].mean())
        table.add_row(f"{name}\n[dim]{_MEANINGS[name]}[/]", mean, with_interval(gap, bounds, sign="+"))
    table.add_row("[bold]adapted[/]", f"[bold]{short_number(study.result.return_after)}[/]", "")
    console.print("[bold]baselines[/]: in the same test episodes, so that differences are paired; 95 % over tasks")
    console.print(table)


def _show_success(console: Console, result: EvaluationResult, success: Mapping[str, Any]) -> None:
    if result.success_rate is None or result.success_interval is None:
        return
    rate = with_interval(result.success_rate, result.success_interval, 2)
    console.print(f"[bold]success[/]: {rate} of all planned episodes (Wilson)", soft_wrap=True)
    if success and result.equal_lengths:
        console.print(
            f"all episodes have the same length, so Meta-World's rule (the first {success['first_finished_episodes']} "
            "episodes to finish per name) has no bias here",
            style="dim",
            soft_wrap=True,
        )
    elif success:
        console.print(
            f"by Meta-World's rule (the first {success['first_finished_episodes']} episodes to finish per name, which "
            f"is biased): {success['first_finished_success_rate']:.2f}, bias {success['first_finished_bias']:+.2f}",
            soft_wrap=True,
        )
    else:
        console.print("--adapted-episodes 3 shows the rate by Meta-World's rule beside it", style="dim", soft_wrap=True)
    console.print()


def _show_tasks(console: Console, study: AdaptationStudy) -> None:
    columns, worse = study.per_task, study.worse_per_task
    share = with_interval(float(worse.mean()), study.share_worse_interval, 2)
    gains = study.gain_per_task
    order = sorted(range(len(worse)), key=lambda i: gains[i])
    hidden = len(order) - _MOST_TASKS
    note = f"; {_MOST_TASKS} of {len(order)} shown, the rest is in evaluation.json" if hidden > 0 else ""
    console.print(
        f"[bold]tasks[/], worst first: {int(worse.sum())} of {len(worse)} got worse by adapting, {share} "
        f"(Wilson); gain: adapted minus no adaptation{note}",
        soft_wrap=True,
    )
    names = [*study.baselines, "adapted"]
    rates = study.result.success_per_task
    table = plain_table("task", *names, "gain", *(["success"] if rates is not None else []))
    for i in order[:_MOST_TASKS]:
        row = [short_number(columns[name][i]) for name in names]
        gain = short_number(gains[i], sign="+")
        gain = f"[bold red]{gain}[/]" if worse[i] else gain
        table.add_row(escape(study.result.task_names[i]), *row, gain, *([] if rates is None else [f"{rates[i]:.2f}"]))
    console.print(table)
