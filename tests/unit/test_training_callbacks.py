"""Services of a run (issue 16, item 3): evaluation, target, time budget, best snapshot; each survives a resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from training_fakes import GoalEnv, make_learner

from metaroll.errors import SnapshotError, UnknownNameError
from metaroll.learners.base import NOP, RLAlgorithm
from metaroll.training.run import runner as runner_module
from metaroll.training.run.callbacks import EvaluateEvery, KeepBest, RunCallback, StopAt, TimeBudget, parse_duration
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.snapshots import SnapshotConfig, load_snapshot, snapshots_of

SCORES = (1.0, 5.0, 3.0, 7.0, 7.0, 2.0, 4.0)


class Scripted(RLAlgorithm):
    """Logs a given score in each epoch; its state is the number of epochs, and a sum of the scores."""

    max_path_length = 3

    def __init__(self, scores: Sequence[float] = SCORES) -> None:
        self.scores, self.total, self.epochs = scores, 0.0, 0

    def train(self, runner: Any) -> float:
        for epoch in runner.step_epochs():
            self.total, self.epochs = self.total + self.scores[epoch], epoch + 1
            runner.log({"score": self.scores[epoch], "check/half": self.scores[epoch] / 2})
        return self.total

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "epochs": self.epochs}

    def load_state_dict(self, tree: Any) -> None:
        self.total, self.epochs = tree["total"], tree["epochs"]


def runner_of(
    folder: Path | None, *callbacks: Any, mode: str = "last", gap: int = 1, keep_last: int = 1, algo: Any = None
) -> LocalRunner:
    config = None if folder is None else SnapshotConfig(folder, mode, gap, keep_last)
    runner = LocalRunner(config, seed=0, callbacks=callbacks)
    runner.setup(Scripted() if algo is None else algo, GoalEnv)
    return runner


def go_on(folder: Path, *callbacks: Any, epochs: int | None = None, from_epoch: Any = "last", **more: Any) -> Any:
    runner = runner_of(folder if more else None, *callbacks, **more)
    runner.restore(folder, from_epoch)
    runner.resume(epochs)
    return runner


# -- a target ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "epochs"),
    [
        (lambda: StopAt(5, "train/score"), 2),
        (lambda: StopAt(5.5, "score"), 4),
        (lambda: StopAt(3.0, "check/half", window=2), 5),  # (7 + 7) / 4 = 3.5
        (lambda: StopAt(2.5, "score", minimize=True), 1),
        (lambda: StopAt(99, "score"), 7),
    ],
)
def test_training_ends_at_the_target_and_the_epoch_is_saved(
    tmp_path: Path, make: Callable[[], StopAt], epochs: int
) -> None:
    runner = runner_of(tmp_path / "run", make())
    runner.train(7)
    assert runner._source.algo.epochs == epochs
    assert list(snapshots_of(tmp_path / "run")) == [epochs]
    assert runner.stopped_after == (epochs if epochs < 7 else None)


def test_a_reached_target_ends_a_resumed_run_at_once_and_another_one_lets_it_go_on(tmp_path: Path) -> None:
    first = runner_of(tmp_path / "run", StopAt(5, "score"))
    first.train(7)
    assert first.stop_reason == "train/score is 5, the target 5"
    again = go_on(tmp_path / "run", StopAt(5, "score"))
    assert (again.stopped_after, again.stop_reason) == (2, first.stop_reason)
    assert list(snapshots_of(tmp_path / "run")) == [2]
    assert go_on(tmp_path / "run", StopAt(6, "score")).stopped_after == 4
    assert go_on(tmp_path / "run").stopped_after is None  # without a target there is no end
    assert list(snapshots_of(tmp_path / "run")) == [7]


def test_returns_and_success_of_evaluations_have_names(tmp_path: Path) -> None:
    runner = LocalRunner(
        seed=4, evaluator={"n_exploration_traj": 1, "deterministic": False}, callbacks=[StopAt(-1e9), StopAt(2.0)]
    )
    runner.setup(make_learner(), GoalEnv)
    runner.train(3)
    assert runner.stopped_after == 1  # return_after is logged in the first epoch
    assert runner.stop_reason is not None and runner.stop_reason.startswith("return is ")
    learner = make_learner()
    runner = LocalRunner(seed=4, evaluator={"n_exploration_traj": 1}, callbacks=[StopAt(0.0, "success")])
    runner.setup(learner, GoalEnv)
    runner.train(2)
    assert runner.stop_reason is not None and runner.stop_reason.startswith("success is ")


def test_a_name_that_no_epoch_has_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        UnknownNameError, match=r"^metric 'scor' is not .* epoch 1; .*'train/score'\? Known: train/score$"
    ):
        runner_of(None, StopAt(1, "scor")).train(3)
    with pytest.raises(UnknownNameError, match=r"'check/whole' is not among .*check/half") as told:
        runner_of(tmp_path / "run", KeepBest("check/whole")).train(3)
    assert told.value.instead == {"keep_best": "check/half"}
    with pytest.raises(UnknownNameError, match=r"\. Known: train/score$") as told:
        runner_of(None, StopAt(1, "x")).train(3)
    assert told.value.instead == {"stop_at": "none"}
    with pytest.warns(RuntimeWarning, match="never saw return in this run"):
        runner_of(None, StopAt(1)).train(2)  # no evaluation comes


# -- the best snapshot -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "gap", "keep_last", "kept"),
    [
        ("last", 1, 1, [4, 7]),
        ("last", 1, 2, [4, 6, 7]),
        ("gap", 3, 1, [0, 3, 4, 6]),
        ("gap_overwrite", 3, 1, [4, 6]),
        ("gap_and_last", 3, 1, [0, 3, 4, 6, 7]),
        ("all", 1, 1, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_best_snapshot_is_kept_beside_those_of_the_mode(
    tmp_path: Path, mode: str, gap: int, keep_last: int, kept: list[int]
) -> None:
    runner = runner_of(tmp_path / "run", KeepBest("score"), mode=mode, gap=gap, keep_last=keep_last)
    runner.train(7)
    assert list(snapshots_of(tmp_path / "run")) == kept
    best = load_snapshot(tmp_path / "run", "best")
    assert best.tree("algorithm") == {"total": 16.0, "epochs": 4}  # of equal scores the first
    assert runner.best == {"iteration": 4, "metric": "train/score", "value": 7.0}
    loaded = runner_of(None)
    loaded.restore(tmp_path / "run", "best")
    assert loaded._source.algo.epochs == 4


@pytest.mark.parametrize("parts", [[1, 2, 3, 4, 5, 6], [2, 5], [4]])
def test_what_services_remember_survives_a_resume(tmp_path: Path, parts: list[int]) -> None:
    """The same bits, whether the run was interrupted or not."""

    def services() -> tuple[RunCallback, ...]:
        return KeepBest("score", window=2), StopAt(6.5, "score", window=2), StopAt(99, "score")

    runner_of(tmp_path / "whole", *services(), keep_last=2).train(7)
    runner_of(tmp_path / "parts", *services(), keep_last=2).train(parts[0])
    for epochs in [*parts[1:], 7]:
        go_on(tmp_path / "parts", *services(), epochs=epochs)
    whole, in_parts = (load_snapshot(tmp_path / name) for name in ("whole", "parts"))
    assert whole.iteration == 5 and in_parts.manifest["best"] == whole.manifest["best"]
    for tree in ("runner", "algorithm"):
        timeless = [{**s.tree(tree), "seconds": 0, "train_args": None} for s in (whole, in_parts)]
        assert timeless[0] == timeless[1]
    assert list(snapshots_of(tmp_path / "parts")) == list(snapshots_of(tmp_path / "whole")) == [4, 5]
    rows = [[r for r in read_metrics(tmp_path / name) if r["phase"] != "time"] for name in ("whole", "parts")]
    assert rows[0] == rows[1]


def test_going_back_forgets_a_best_snapshot_that_is_gone(tmp_path: Path) -> None:
    runner_of(tmp_path / "run", KeepBest("score"), keep_last=4).train(4)
    assert list(snapshots_of(tmp_path / "run")) == [1, 2, 3, 4]
    (tmp_path / "run" / "snapshots" / "000002").rename(tmp_path / "gone")  # the best of the first three epochs
    runner = go_on(tmp_path / "run", KeepBest("score"), epochs=3, from_epoch=3)
    assert runner.best is None
    runner = runner_of(None, KeepBest("score"), algo=Scripted((0, 0, 0, 1.0, 0.5)))
    runner.restore(tmp_path / "run")
    runner.resume(5)
    assert runner.best == {"iteration": 4, "metric": "train/score", "value": 1.0}
    assert load_snapshot(tmp_path / "run", "best").iteration == 4
    other = go_on(tmp_path / "run", KeepBest("score"), epochs=5, keep_last=1)  # as it stands
    assert other.best == runner.best


def test_another_folder_has_a_best_snapshot_of_its_own(tmp_path: Path) -> None:
    runner_of(tmp_path / "first", KeepBest("score")).train(5)
    runner = runner_of(tmp_path / "second", KeepBest("score"))
    runner.restore(tmp_path / "first")
    runner.resume(7)
    assert list(snapshots_of(tmp_path / "second")) == [7] and runner.best["iteration"] == 7
    assert list(snapshots_of(tmp_path / "first")) == [4, 5]


def test_where_no_best_snapshot_is_kept_an_error_says_so(tmp_path: Path) -> None:
    runner_of(tmp_path / "run").train(2)
    with pytest.raises(SnapshotError, match=r"keeps no best snapshot.*KeepBest"):
        load_snapshot(tmp_path / "run", "best")
    runner_of(tmp_path / "other", KeepBest("score")).train(3)
    (tmp_path / "other" / "snapshots" / "000002").rename(tmp_path / "gone")
    with pytest.raises(SnapshotError, match="after 2 epochs, is gone; choose one of 3"):
        load_snapshot(tmp_path / "other", "best")


def test_a_best_snapshot_needs_snapshots(tmp_path: Path) -> None:
    for folder, mode in ((None, "last"), (tmp_path / "run", "none")):
        with pytest.raises(ValueError, match="KeepBest needs snapshots"):
            runner_of(folder, KeepBest("score"), mode=mode).train(1)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="at most one that keeps a best snapshot"):
        LocalRunner(callbacks=[KeepBest(), KeepBest("score")])


# -- time, evaluation --------------------------------------------------------------------------------------------------


def test_the_time_budget_counts_what_was_before_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a second later: an epoch takes one, and what lies between parts does not count."""
    now = [0.0]

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(runner_module, "time", SimpleNamespace(perf_counter=tick))
    first = runner_of(tmp_path / "run", TimeBudget(3))
    first.train(2)
    assert (first.total_seconds, first.stopped_after) == (2.0, None)
    now[0] += 1000.0
    second = go_on(tmp_path / "run", TimeBudget(3), epochs=7)
    assert (second.total_seconds, second.stopped_after) == (3.0, 3)
    assert second.stop_reason == "the time budget of 3 is used up (3 s of training)"
    assert go_on(tmp_path / "run", TimeBudget("3s")).stopped_after == 3
    third = go_on(tmp_path / "run", TimeBudget("0.1m"))
    assert (third.total_seconds, third.stopped_after) == (6.0, 6)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5 h", 5400), ("2d", 172800), ("45", 45)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_duration("budget", text) == seconds


def test_evaluations_come_every_n_epochs_and_not_twice(tmp_path: Path) -> None:
    class Plain(Scripted):
        def __init__(self) -> None:
            super().__init__()
            self.policy = make_learner().policy

    def epochs_of(folder: Path) -> list[int]:
        return [row["iteration"] for row in read_metrics(folder, metric="return_mean") if row["task"] is None]

    runner = runner_of(tmp_path / "plain", EvaluateEvery(2), KeepBest("return"), algo=Plain())
    runner.train(5)
    assert epochs_of(tmp_path / "plain") == [1, 3]
    assert runner.best is not None and runner.best["iteration"] == 2  # the same policy, the first of equals
    learner = make_learner()  # evaluates each epoch itself
    runner = LocalRunner(
        run_dir=tmp_path / "adapts", seed=4, evaluator={"n_exploration_traj": 1}, callbacks=[EvaluateEvery(1)]
    )
    runner.setup(learner, GoalEnv)
    runner.train(2)
    rows = [row for row in read_metrics(tmp_path / "adapts", metric="return_after") if row["task"] is None]
    assert [row["iteration"] for row in rows] == [0, 1]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: StopAt("high"), TypeError, "target must"),
        (lambda: StopAt(float("nan")), ValueError, "target must"),
        (lambda: StopAt(1, window=0), ValueError, "window must"),
        (lambda: StopAt(1, " "), ValueError, "metric must"),
        (lambda: KeepBest(3), TypeError, "metric must"),
        (lambda: KeepBest(window=1.5), TypeError, "window must"),
        (lambda: EvaluateEvery(0), ValueError, "every must"),
        (lambda: TimeBudget(0), ValueError, "budget must"),
        (lambda: TimeBudget("0s"), ValueError, "budget must"),
        (lambda: TimeBudget("10 minutes"), ValueError, "budget must"),
        (lambda: TimeBudget(None), TypeError, "budget must"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_service_of_ones_own_is_saved_and_restored(tmp_path: Path) -> None:
    class Patience(RunCallback):
        """Ends after two epochs without a new record."""

        def __init__(self) -> None:
            self.record, self.waited = float("-inf"), 0

        def before_save(self, runner: Any, epoch: int, metrics: Any) -> None:
            better = metrics["score"] > self.record
            self.record, self.waited = max(self.record, metrics["score"]), 0 if better else self.waited + 1

        def stop_reason(self, runner: Any) -> str | None:
            return f"no record for {self.waited} epochs" if self.waited >= 2 else None

        def state_dict(self) -> dict[str, Any]:
            return {"record": self.record, "waited": self.waited}

        def load_state_dict(self, tree: Any) -> None:
            self.record, self.waited = tree.get("record", float("-inf")), tree.get("waited", 0)

    runner_of(tmp_path / "run", Patience()).train(5)
    assert go_on(tmp_path / "run", Patience(), epochs=7).stopped_after == 6
    used = Patience()
    for folder in ("a", "b"):  # an object that was used before begins anew
        runner = runner_of(tmp_path / folder, used)
        runner.train(7)
        assert runner.stopped_after == 6


def test_an_algorithm_without_epochs_has_none() -> None:
    runner = LocalRunner(seed=0, callbacks=[TimeBudget(1)])
    runner.setup(NOP(), GoalEnv)
    assert runner.train(3) is None and runner.stopped_after is None
