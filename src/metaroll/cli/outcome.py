"""What a run leaves behind: numbers of an evaluation, pictures, and the closing message."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel

__all__ = ["closing_panel", "draw_pictures", "evaluation_values", "print_json"]


def evaluation_values(result: Any) -> dict[str, Any]:
    """The numbers of an ``EvaluationResult`` that tables and summaries show."""
    values = result.to_dict()
    return {
        "return_before": values["return_before"],
        "return_after": values["return_after"],
        "return_after_interval": tuple(values["return_after_interval"]),
        "gain": values["gain"],
        "gain_ci_low": values["gain_ci_low"],
        "gain_ci_high": values["gain_ci_high"],
        "adaptation_curve": values["adaptation_curve"],
    }


def draw_pictures(
    run_dir: Path, result: Any, console: Console, references: Mapping[str, Any] | None = None, learning: bool = True
) -> list[Path]:
    """Draw the adaptation curve (and the learning curve) of a run; without matplotlib say so and go on."""
    from metaroll.training.plots import plot_adaptation_curve, plot_learning_curve

    try:
        picture = run_dir / "adaptation_curve.png"
        plot_adaptation_curve(result, picture, references=references)
        pictures = [picture]
        if learning:
            pictures.append(Path(plot_learning_curve(run_dir)))
    except ImportError as error:
        console.print(f"[yellow]no pictures:[/] {error}", highlight=False, soft_wrap=True)
        return []
    return pictures


def print_json(values: Mapping[str, Any]) -> None:
    """Write ``values`` to standard output as one JSON document."""
    sys.stdout.write(json.dumps(values, indent=2) + "\n")
    sys.stdout.flush()


def closing_panel(summary: Mapping[str, Any], run_dir: Path, pictures: list[Path], further: str) -> Panel:
    """The last thing on the screen: what was learned, and where it lies."""
    lines = [
        f"adaptation gain [bold green]{summary['gain']:+.1f}[/] "
        f"[{summary['gain_ci_low']:.1f}, {summary['gain_ci_high']:.1f}]  "
        f"({summary['n_test_tasks']} held-out tasks, 95 % bootstrap interval)",
        f"return before [yellow]{summary['return_before']:.1f}[/] -> after {summary['n_exploration_episodes']} "
        f"exploration episodes [bold green]{summary['return_after']:.1f}[/]",
    ]
    if "normalised_score" in summary:
        lines += [
            f"floor {summary['return_floor']:.1f} (go to the origin)   oracle {summary['return_oracle']:.1f} "
            "(told the goal)",
            f"score between floor and oracle {summary['normalised_score']:.2f} "
            f"(lower bound {summary['normalised_score_ci_low']:.2f})",
        ]
    lines += [f"picture  {picture}" for picture in pictures[:1]]
    lines += [f"run      {run_dir}", f"next     {further}"]
    return Panel("\n".join(lines), title="what it learned", title_align="left", expand=False)
