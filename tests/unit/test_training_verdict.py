"""The verdict on whether an agent adapts: its facts by hand, and the sentence that they make."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from metaroll.errors import ShapeError, command_text
from metaroll.functional.robust_statistics import sign_flip_interval
from metaroll.lab.display.results import closing_panel, show_closing
from metaroll.training.evaluation.evaluation_metrics import interval_of_normalized_score
from metaroll.training.evaluation.verdict import HARDLY_DIFFERS, Verdict, judge
from metaroll.training.store.files import to_plain

WITHOUT = np.tile([-10.0, -20.0, -30.0, -40.0], 2)
SPEEDS = [f"velocity={speed}" for speed in (0.5, 1.42, 2.87, 2.91, 0.6, 1.2, 1.3, 1.4)]


def verdict_of(gains: Any = 2.0, **more: Any) -> Verdict:
    return judge(WITHOUT + np.asarray(gains), WITHOUT, **more)


def test_the_facts_by_hand() -> None:
    gains = np.array([8.0, 12.0, -0.5, -1.5, 4.0, 4.0, 3.0, 3.0])
    after = WITHOUT + gains
    found = verdict_of(
        gains,
        mismatched=after - 4.0,
        oracle=WITHOUT + 20.0,
        divergence=[1.0, 2.0, 3.0, 4.0] * 2,
        task_divergence=np.full(8, 0.05),
        tasks=SPEEDS,
    )
    assert found.num_tasks == 8
    assert found.gain == (4.0, sign_flip_interval(gains)) and sign_flip_interval(gains).low > 0.0
    assert found.word == "adapts" and found.adapts is True
    assert found.own_data is True and found.own_data_gain == (4.0, (4.0, 4.0))
    assert found.oracle_room == (20.0, (20.0, 20.0))
    assert found.oracle_share is not None
    assert found.oracle_share.value == pytest.approx(4 / 20)
    assert found.oracle_share.interval == interval_of_normalized_score(after, WITHOUT, WITHOUT + 20.0)
    assert (found.posterior_divergence, found.posterior_differs) == (2.5, True)
    assert (found.task_divergence, found.posterior_tells_tasks) == (pytest.approx(0.05), False)
    assert (found.failing, found.failing_tasks) == ((3, 2), ("velocity=2.91", "velocity=2.87"))  # worst first


def test_the_way_to_the_oracle_begins_at_the_floor_where_one_is_known() -> None:
    oracle = WITHOUT + 20.0
    from_floor = verdict_of(15.0, oracle=oracle, floor=WITHOUT + 10.0).oracle_share
    assert from_floor is not None and from_floor == (pytest.approx(0.5), (pytest.approx(0.5), pytest.approx(0.5)))
    assert verdict_of(15.0, oracle=WITHOUT).oracle_share is None  # no way to go
    assert verdict_of(15.0, oracle=WITHOUT - 3.0).oracle_share is None


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            verdict_of(12.0, mismatched=WITHOUT, oracle=WITHOUT + 16.0),
            "adapts: +12.0 [12.0, 12.0] from its own data, 75 % [75, 75] of the way to the oracle; "
            "helps in all 8 tasks",
        ),
        (
            verdict_of(12.0),
            "improves, but it was not tested whether because of its own data: +12.0 [12.0, 12.0]; helps in all 8 tasks",
        ),
        (
            verdict_of(12.0, mismatched=WITHOUT + 12.0),
            "improves, but not because of its own data: +12.0 [12.0, 12.0] (compared to another task's data: "
            "+0.0 [0.0, 0.0]); helps in all 8 tasks",
        ),
        (
            verdict_of(0.0, divergence=np.full(8, 0.02)),
            "no evidence of adaptation: gain +0.0 [0.0, 0.0]; the posterior hardly differs from the prior "
            "(KL 0.02 nats)",
        ),
        (
            verdict_of(0.0, divergence=np.full(8, 13.4), task_divergence=np.full(8, 0.031)),
            "no evidence of adaptation: gain +0.0 [0.0, 0.0]; the posterior hardly differs from one task to another "
            "(KL 0.031 nats)",
        ),
        (
            verdict_of(0.0, divergence=np.full(8, 13.4), task_divergence=np.full(8, 3.1)),
            "no evidence of adaptation: gain +0.0 [0.0, 0.0], although the posterior differs from the prior and from "
            "one task to another (KL 13.4 nats)",
        ),
        (
            verdict_of(0.0, oracle=WITHOUT),
            "no evidence of adaptation: gain +0.0 [0.0, 0.0]; nor is there much to gain: the oracle is better by +0.0 "
            "[0.0, 0.0]",
        ),
        (verdict_of(-3.0), "adapting makes it worse: gain -3.00 [-3.00, -3.00], on 8 of 8 tasks"),
        (
            verdict_of([1e-2, 2e-2, 3e-2, -2e-2] * 2),
            "no evidence of adaptation: gain +0.0100 [-0.0067, 0.0250]",
        ),
        (
            verdict_of(1.25e-7),
            "adapting changes next to nothing: gain +0.000000125 [0.000000125, 0.000000125], less than 1 % of the "
            "spread of returns",
        ),
        (
            verdict_of(-0.1),
            "adapting changes next to nothing: gain -0.100 [-0.100, -0.100], less than 1 % of the spread of returns",
        ),
        (
            verdict_of(0.12, mismatched=WITHOUT),
            "adapts: +0.120 [0.120, 0.120] from its own data; helps in all 8 tasks",
        ),
        (
            judge([-7.0], [-10.0]),
            "no verdict: gain +3.00 on 1 task; it takes 6 or more to tell it from chance",
        ),
        (
            judge(np.full(5, -7.0), np.full(5, -10.0), mismatched=np.full(5, -10.0)),
            "no verdict: gain +3.00 on 5 tasks; it takes 6 or more to tell it from chance",
        ),
    ],
)
def test_the_sentence(verdict: Verdict, text: str) -> None:
    assert str(verdict) == text


def test_the_least_effect_is_a_share_of_the_spread_of_returns() -> None:
    assert verdict_of(0.0).least_effect == pytest.approx(0.01 * np.sqrt(125.0))  # of -10, -20, -30, -40
    assert judge(np.full(3, -500.0), np.full(3, -500.0)).least_effect == pytest.approx(5e-4)  # rounding
    gains = np.array([2.0, 2.0, -0.01, 2.0, 2.0, 2.0, 2.0, 2.0])
    tiny = verdict_of(gains, mismatched=WITHOUT + gains - 0.1)
    assert tiny.word == "improves" and not tiny.failing  # a hundredth less is no failure
    assert tiny.own_data is False and tiny.own_data_gain is not None and tiny.own_data_gain.is_positive
    assert tiny.to_dict()["least_effect"] == tiny.least_effect


def test_tasks_that_fail_are_named_by_their_values() -> None:
    gains = np.r_[np.full(18, 15.0), -2.0, -1.0]
    speeds = [f"velocity={v:.3g}" for v in np.linspace(1, 2, 18)] + ["velocity=2.91", "velocity=2.87"]
    found = judge(gains - 60.0, np.full(20, -60.0), mismatched=np.full(20, -60.0), tasks=speeds)
    assert found.adapts
    assert found.text.endswith("; fails on 2 of 20 tasks: velocity=2.91, 2.87")
    goals = [f"goal=({i}, 1)" for i in range(20)]
    assert "goal=(18, 1), (19, 1)" in dataclasses.replace(found, failing_tasks=tuple(goals[18:])).text
    many = judge(np.r_[np.full(13, 100.0), np.full(7, -1.0)], np.zeros(20), tasks=[f"a={i}, b=1" for i in range(20)])
    text = many.text
    assert text.endswith("7 of 20 tasks: (a=13, b=1), (a=14, b=1), (a=15, b=1), (a=16, b=1), (a=17, b=1) and 2 more")


def test_files_have_the_facts_and_the_sentence() -> None:
    found = verdict_of(
        [5.0, 6.0, 7.0, -1.0] * 2, mismatched=WITHOUT, oracle=WITHOUT + 10, divergence=[1.0] * 8, tasks=SPEEDS
    )
    told = json.loads(json.dumps(to_plain(found.to_dict()), allow_nan=False))
    assert told["text"] == found.text
    assert (told["adapts"], told["own_data"], told["n_tasks"]) == (found.adapts, found.own_data, 8) and told[
        "word"
    ] == found.word
    for name in ("gain", "own_data_gain", "oracle_room", "oracle_share"):
        assert told[f"{name}_ci_low"] <= told[name] <= told[f"{name}_ci_high"], name
    assert told["gain"] == 4.25 and told["oracle_share"] == pytest.approx(0.425)
    assert (told["posterior_divergence"], told["posterior_differs"]) == (1.0, True)
    failing = [{"index": 3, "task": "velocity=2.91"}, {"index": 7, "task": "velocity=1.4"}]
    assert (told["n_failing"], told["failing_tasks"]) == (2, failing)
    plain = verdict_of().to_dict()
    assert plain["own_data"] is None
    assert not {"oracle_share", "posterior_divergence", "task_divergence"} & plain.keys()
    assert math.isnan(judge([1.0], [0.0]).to_dict()["gain_ci_low"])


def test_the_panel_begins_with_it() -> None:
    numbers = {
        "n_test_tasks": 8,
        "n_exploration_episodes": 2,
        "return_before": -25.0,
        "return_after": -23.0,
        "return_after_interval": [-24.0, -22.0],
        "epochs": 3,
    }
    panel = closing_panel({**numbers, "verdict": verdict_of(mismatched=WITHOUT).to_dict()}, [])
    first = str(panel.renderable).splitlines()[0]
    assert first == "[bold green]adapts: +2.00 [2.00, 2.00] from its own data; helps in all 8 tasks[/]"
    worse = closing_panel({**numbers, "verdict": verdict_of(-1.0).to_dict()}, [])
    assert str(worse.renderable).startswith("[bold yellow]adapting makes it worse")
    for name in ("run", "a long name " * 5):
        text = io.StringIO()
        show_closing(
            Console(file=text, width=60),
            {"verdict": verdict_of(-1.0).to_dict(), **numbers},
            Path(name),
            [],
            command_text("evaluate", name),
        )
        shown = text.getvalue()
        assert all(shown.count(whole) == 1 for whole in (f"run      {name}", command_text("evaluate", name)))
        assert shown.rstrip().endswith("╯") == (name == "run")


def test_repetitions_that_repeat_each_other_count_once() -> None:
    """Of a deterministic agent and environment: six of them are no more than one, which chance may have made."""
    after, without, other = np.array([[1.0], [2.0]]), np.zeros((2, 1)), np.full((2, 1), 0.5)
    repeated = [np.repeat(values, 8, axis=1) for values in (after, without, other)]
    found = judge(repeated[0], repeated[1], mismatched=repeated[2], all_tasks=True)
    assert (found.word, found.adapts, found.num_repetitions) == ("no verdict", None, 1)
    # What differs in a single bit of one of them is a sample; differences may be equal all the same.
    repeated[0][0, 3] += 1e-9
    repeated[1][0, 3] += 1e-9
    assert judge(repeated[0], repeated[1], mismatched=repeated[2], all_tasks=True).word == "adapts"
    # Each pair by itself: another arm that varies makes no sample of those that repeat each other.
    noisy = np.random.default_rng(0).normal(size=(2, 8)) - 5.0
    found = judge(np.repeat(after, 8, axis=1), repeated[2] * 0.0, mismatched=noisy, oracle=noisy + 9.0, all_tasks=True)
    assert (found.word, found.num_repetitions) == ("no verdict", 1)
    # Tasks that are a sample of many may well return the same.
    same = np.ones((8, 1))
    assert judge(3 * same, same, mismatched=same).word == "adapts"


def test_bad_input() -> None:
    for after, without, more in (
        ([1.0, 2.0], [1.0], {}),
        ([], [], {}),
        (1.0, 2.0, {}),
        ([1.0, 2.0], [1.0, 2.0], {"oracle": [1.0]}),
        ([1.0, 2.0], [1.0, 2.0], {"tasks": ["a"]}),
    ):
        with pytest.raises(ShapeError, match=r"all returns must have shape \(M,\), one per task, or \(M, R\)"):
            judge(after, without, **more)
    assert HARDLY_DIFFERS == 0.1
