"""What is shown while a run trains, with a clock that the test moves."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from metaroll.training.display.progress import TrainingDisplay
from metaroll.training.display.timing import duration
from metaroll.training.evaluation.evaluation_result import EvaluationResult


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def result(before: float, after: float) -> EvaluationResult:
    spread = np.linspace(-1.0, 1.0, 5)[:, None]
    returns = np.stack([before + spread, after + spread], axis=2)
    return EvaluationResult(returns, 1, tasks=[None] * 5, task_names=["t"] * 5, cells=[])


def play(terminal: bool, epochs: int = 2, width: int = 120) -> str:
    clock, text = Clock(), io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, color_system=None)
    display = TrainingDisplay(console, "pearl learns", 4, updates_per_epoch=500, clock=clock)
    runner = SimpleNamespace(total_env_steps=0)
    with display:
        for epoch in range(epochs):
            clock.now += 10.0
            runner.total_env_steps += 4000
            display.on_evaluation(runner, result(-20.0, -10.0 - epoch))
            display.on_epoch_end(runner, epoch, {})
    return text.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3600, "1:00:00"), (-1, "0:00")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_without_a_terminal_every_epoch_is_one_plain_line():
    lines = play(terminal=False).splitlines()
    # 4000 steps and 500 updates in 10 s; two epochs of 10 s are left after the second of four.
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/4  4,000 env steps  400 steps/s  50 updates/s  return -20.0 -> -10.0 [")
    assert lines[1].startswith("epoch 2/4  8,000 env steps  400 steps/s  50 updates/s  return -20.0 -> -11.0 [")
    assert lines[1].endswith("0:20 elapsed, 0:20 left")


def test_a_terminal_gets_a_table_that_holds_the_rows():
    shown = play(terminal=True)
    for text in ("pearl learns", "env steps", "updates/s", "before", "8,000", "-20.0", "-11.0"):
        assert text in shown


def test_the_last_result_is_kept_and_a_resumed_run_counts_from_where_it_stood():
    clock = Clock()
    text = io.StringIO()
    display = TrainingDisplay(Console(file=text, width=120), "t", 4, updates_per_epoch=10, clock=clock)
    runner = SimpleNamespace(total_env_steps=9000)
    display.start_from(2, 8000)
    with display:
        clock.now += 2.0
        # The run says that it took 62 seconds in all, 2 of them now.
        display.on_epoch_end(runner, 2, {"time/epoch_seconds": 2.0, "time/total_seconds": 62.0})
    assert display.last_result is None
    assert display.seconds == 62.0
    assert text.getvalue() == "epoch 3/4  9,000 env steps  500 steps/s  5 updates/s  1:02 elapsed, 0:02 left\n"


def test_an_epoch_without_an_evaluation_shows_none_and_is_not_mistaken_for_an_evaluated_one():
    clock, text = Clock(), io.StringIO()
    display = TrainingDisplay(Console(file=text, width=120), "t", 4, updates_per_epoch=10, clock=clock)
    runner = SimpleNamespace(total_env_steps=0)
    display.start_from(0, 0, seconds=5.0)
    with display:
        display.on_evaluation(runner, result(-20.0, -10.0))
        display.on_epoch_end(runner, 0, {})
        display.on_epoch_end(runner, 1, {})
    first, second = text.getvalue().splitlines()
    assert "return -20.0 -> -10.0" in first
    assert "return" not in second
    assert display.result_of(1) is display.last_result
    assert display.result_of(2) is None
    assert display.start_from(2, 0, seconds=5.0) is None
    assert display.seconds == 5.0


@pytest.mark.parametrize(
    ("width", "missing"), [(80, []), (60, ["steps/s", "updates/s"]), (45, ["steps/s", "env steps"])]
)
def test_a_narrow_terminal_loses_rates_before_returns(width, missing):
    shown = play(terminal=True, width=width)
    assert "…" not in shown
    assert "-11.0 [-1" in shown
    assert all(name not in shown for name in missing)
