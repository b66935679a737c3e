"""TensorBoard and W&B get every number once, over environment steps, and a resumed run goes on in the same display."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from metaroll.errors import SnapshotError
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.loggers import MetricRow, TensorBoardLogger, WandbLogger
from metaroll.training.store.metrics_log import MetricsLog, read_metrics


class Counting:
    """An algorithm that logs how many epochs it has had, 100 environment steps each."""

    policy = None
    max_path_length = 10

    def __init__(self) -> None:
        self.epochs = 0

    def train(self, runner: Any) -> None:
        for _ in runner.step_epochs():
            self.epochs += 1
            runner._total_env_steps += 100
            runner.log({"epochs": self.epochs, "odd/loss": float("nan") if self.epochs == 1 else 1.0})

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, tree: dict[str, Any]) -> None:
        self.epochs = tree["epochs"]


class FakeWandb(types.ModuleType):
    """Remembers what W&B is told."""

    def __init__(self, fails: str = "") -> None:
        super().__init__("wandb")
        self.__spec__ = types.SimpleNamespace(name="wandb")  # type: ignore[assignment]
        self.starts: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.metrics: dict[str, Any] = {}
        self.finished = 0
        self.fails = fails

    def init(self, **settings: Any) -> Any:
        if self.fails:
            raise RuntimeError(self.fails)
        self.starts.append(settings)
        return self

    def define_metric(self, name: str, **settings: Any) -> None:
        self.metrics[name] = settings

    def log(self, numbers: dict[str, Any]) -> None:
        self.logged.append(numbers)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    reader = EventAccumulator(str(folder / "tensorboard"))
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def train(folder: Path, epochs: int, logger: Any, resume: bool = False) -> None:
    with LocalRunner(run_dir=folder, seed=0, loggers=[logger]) as runner:
        runner.setup(Counting(), "Pendulum-v1")
        if resume:
            runner.restore(folder)
            runner.resume(n_epochs=epochs)
        else:
            runner.train(epochs)


def test_tensorboard_has_environment_steps_as_steps_and_survives_a_resume(tmp_path):
    train(tmp_path, 2, TensorBoardLogger())
    assert scalars(tmp_path, "train/epochs") == [(100, 1.0), (200, 2.0)]
    train(tmp_path, 4, TensorBoardLogger(), resume=True)
    assert scalars(tmp_path, "train/epochs") == [(100, 1.0), (200, 2.0), (300, 3.0), (400, 4.0)]
    assert np.isnan(scalars(tmp_path, "odd/loss")[0][1])


def test_what_tensorboard_was_shown_after_the_last_snapshot_is_taken_back(tmp_path):
    logger = TensorBoardLogger()
    for begin in (0, 200):  # killed after 400 steps, resumed from 200
        logger.open(tmp_path, begin)
        logger.write([MetricRow(s // 100, s, "train", None, "x", begin + s) for s in range(begin + 100, 500, 100)])
        logger.close()
    assert scalars(tmp_path, "train/x") == [(100, 100), (200, 200), (300, 500), (400, 600)]


def test_numbers_of_tasks_stand_apart(tmp_path):
    log = MetricsLog(tmp_path, [TensorBoardLogger()])
    log.loggers.open(tmp_path, 0)
    log.append(0, 50, "MetaTest", {"return_after": 1.5})
    log.append(0, 50, "MetaTest", {"return_after": 2.5}, task="task 3")
    log.flush()
    log.loggers.close()
    assert scalars(tmp_path, "MetaTest/return_after") == [(50, 1.5)]
    assert scalars(tmp_path, "MetaTest per task/return_after/task 3") == [(50, 2.5)]


def test_wandb_draws_over_environment_steps_and_keeps_its_run_over_a_resume(tmp_path, wandb):
    train(tmp_path, 2, WandbLogger("project x", {"lr": 0.1}))
    train(tmp_path, 3, WandbLogger("project x", {"lr": 0.1}), resume=True)
    first, second = wandb.starts
    assert first["id"] == second["id"] == json.loads((tmp_path / "wandb.json").read_text())["id"]
    assert (first["project"], first["config"], first["resume"], first["dir"]) == (
        "project x",
        {"lr": 0.1},
        "allow",
        str(tmp_path),
    )
    assert wandb.metrics["*"] == {"step_metric": "env_steps"}
    assert [(entry["env_steps"], entry["train/epochs"]) for entry in wandb.logged] == [(100, 1), (200, 2), (300, 3)]
    assert wandb.finished == 2


def test_a_new_run_or_another_project_is_a_new_run_of_wandb(tmp_path, wandb):
    for project, steps in (("a", 0), ("a", 10), ("b", 10), ("b", 0)):
        logger = WandbLogger(project)
        logger.open(tmp_path, steps)
        logger.close()
    ids = [start["id"] for start in wandb.starts]
    assert ids[0] == ids[1] and len(set(ids)) == 3


def test_wandb_that_does_not_start_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb("no key"))
    with pytest.raises(ConnectionError, match=r"W&B could not be started \(no key\): log in .* WANDB_MODE=offline"):
        train(tmp_path, 1, WandbLogger("p"))


def test_a_damaged_id_is_named(tmp_path, wandb):
    (tmp_path / "wandb.json").write_text("[]")
    with pytest.raises(SnapshotError, match=r"wandb.json must hold the id of a W&B run, got \[\]: delete it"):
        WandbLogger("p").open(tmp_path, 10)


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(tmp_path):
    class Failing:
        written = 0

        def open(self, run_dir, env_steps):
            pass

        def write(self, rows):
            self.written += 1
            raise OSError("disk full")

        def close(self):
            raise AssertionError("it is no longer asked")

    logger = Failing()
    with pytest.warns(RuntimeWarning, match=r"Failing failed and gets no more numbers \(OSError: disk full\)"):
        train(tmp_path, 3, logger)
    assert logger.written == 1
    assert [row["value"] for row in read_metrics(tmp_path, metric="epochs")] == [1, 2, 3]


def test_loggers_need_a_folder():
    with LocalRunner(seed=0, loggers=[TensorBoardLogger()]) as runner:
        runner.setup(Counting(), "Pendulum-v1")
        with pytest.raises(ValueError, match=r"loggers need a run folder, .* LocalRunner\(run_dir="):
            runner.train(1)


@pytest.mark.parametrize(("kind", "extra"), [(TensorBoardLogger, "tensorboard"), (lambda: WandbLogger("p"), "wandb")])
def test_a_missing_package_names_the_extra(monkeypatch, kind, extra):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=f"pip install '{extra}>="):
        kind()


def test_the_project_needs_a_name():
    with pytest.raises(ValueError, match="project must"):
        WandbLogger("")
