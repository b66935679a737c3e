"""Off-policy learners at the command line: what is refused, and that refusals leave files as they were."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.errors import SnapshotError
from metaroll.lab.cli.main import main
from metaroll.learners.off_policy.deterministic import TD3
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.metrics_log import read_metrics
from metaroll.types import EnvSpec

SIZES = {"epochs": 2, "cycles-per-epoch": 3, "gradient-steps": 10, "warmup-steps": 20, "batch-size": 8}
SIZES |= {"hidden-sizes": 8, "num-episodes": 1, "torch-threads": 1}
FEW = ["--quiet", *(text for name, value in SIZES.items() for text in (f"--{name}", str(value)))]

OWN_SPACES = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete, Text

class Words(gymnasium.Env):
    observation_space, action_space = Text(5), Box(-1.0, 1.0, (2,), np.float32)

class Switches(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (2,), np.float32), MultiBinary(3)

class Dials(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (2,), np.float32), MultiDiscrete([2, 3])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module ``own_spaces``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_spaces.py").write_text(OWN_SPACES)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            "ddpg CartPole-v1",
            "DDPG learns actions that are a Box of numbers, got Discrete(2): sac (DiscreteSAC), dqn",
        ),
        (
            "td3 CartPole-v1",
            "TD3 learns actions that are a Box of numbers, got Discrete(2): sac (DiscreteSAC), dqn",
        ),
        ("dqn Pendulum-v1", "float32): ddpg, td3 and sac learn a Box, ppo several choices"),
        ("sac own_spaces:Dials --max-steps 5", "got MultiDiscrete([2 3]): ppo learns several choices"),
        ("sac own_spaces:Switches --max-steps 5", "got MultiBinary(3): a wrapper can turn them into one"),
        (
            "td3 own_spaces:Words --max-steps 5",
            "observation_space must be a Box, Discrete, MultiDiscrete or Multi",
        ),
        (
            "ddpg Pendulum-v1 --replay-size 50",
            "--batch-size must be at most the 50 steps that the replay buffer holds (--replay-size), got 256",
        ),
        (
            "dqn CartPole-v1 --replay-size 500",
            "--warmup-steps must be at most the 500 steps that the replay buffer holds (--replay-size), got 1000",
        ),
        ("sac Pendulum-v1 --num-envs 3", "--num-envs 3, got 10 / 1 = 10; try --gradient-steps 9"),
        ("sac Pendulum-v1 --update-to-data 0", "must lie in (0, inf), got 0.0"),
        ("sac Pendulum-v1 --hindsight-ratio 0.8", "which Pendulum-v1 has not: leave it out"),
        ("td3 point-goal --hindsight-ratio 1.5", "--hindsight-ratio must lie in [0, 1], got 1.5"),
        ("td3 point-robot --randomize default", "--randomize default is not for point-robot"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    arguments: str, told: str, place: Path, capfd: Any
) -> None:
    assert main(["train", *arguments.split(), "--out", "run"]) == 2
    out, error = capfd.readouterr()
    assert told in " ".join(error.split()) and "Traceback" not in error and not out
    assert not (place / "run").exists()


def test_a_run_that_is_too_short_to_learn_says_so(place: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"nothing was learned: .* 1000 steps .*--warmup-steps\), and there are 60"):
        assert main(["train", "td3", "Pendulum-v1", *FEW, "--warmup-steps", "1000", "--out", "run"]) == 0


def test_numbers_that_come_late_may_be_named(place: Path, capfd: Any) -> None:
    """No episode ends in the first epochs, and no gradient step is taken: the log tells of both when they come."""
    late = [
        "--epochs",
        "8",
        "--warmup-steps",
        "100",
        "--keep-best",
        "train/return",
        "--stop-metric",
        "train/qf_loss",
    ]
    assert main(["train", "td3", "Pendulum-v1", *FEW, *late, "--stop-at", "1e9", "--out", "run"]) == 0
    told = {line["metric"] for line in read_metrics(place / "run") if line["iteration"] < 3}
    assert not told & {"return", "qf_loss"}
    wrong = ["--epochs", "8", "--keep-best", "train/retrun"]
    assert main(["train", "td3", "Pendulum-v1", *FEW, *wrong, "--out", "other"]) == 2
    assert "'train/retrun' is not among the numbers of epoch 7" in capfd.readouterr().err


# -- a run that goes on ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of two epochs of ``td3`` and ``ddpg``."""
    folder = tmp_path_factory.mktemp("runs")
    for algo in ("td3", "ddpg"):
        assert main(["train", algo, "Pendulum-v1", *FEW, "--keep-last", "2", "--out", str(folder / algo)]) == 0
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its lock."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def told_by(old: str, new: str) -> Callable[[Path, Path], None]:
    """Change a line of the configuration."""

    def change(run: Path, runs: Path) -> None:
        text = (run / "config.yaml").read_text()
        assert old in text
        (run / "config.yaml").write_text(text.replace(old, new))

    return change


def of_another(run: Path, runs: Path) -> None:
    shutil.rmtree(run / "snapshots")
    shutil.copytree(runs / "ddpg" / "snapshots", run / "snapshots")


def cut(run: Path, runs: Path) -> None:
    path = run / "snapshots" / "000002" / "buffers.safetensors"
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (of_another, "algo in run/config.yaml is 'td3', the snapshot was written with 'ddpg'"),
        (told_by("env: Pendulum-v1", "env: CartPole-v1"), "the snapshot was written with 'Pendulum-v1': set it back"),
        (told_by("hidden_sizes: [8]", "hidden_sizes: [16]"), "is [16], the snapshot was written with [8]"),
        (told_by("num_envs: 1", "num_envs: 2"), "is 2, the snapshot was written with 1"),
        (told_by("replay_size: 1000000", "replay_size: 30"), "is 30, the snapshot was written with 1000000"),
        (told_by("update_to_data: 1.0", "update_to_data: 0.0"), "must lie in (0, inf), got 0.0"),
        (cut, "buffers.safetensors: it has 100 bytes instead of"),
    ],
)
def test_a_run_that_cannot_go_on_stays_as_it_is(
    change: Callable[[Path, Path], None], told: str, runs: Path, place: Path, capfd: Any
) -> None:
    run = place / "run"
    shutil.copytree(runs / "td3", run)
    change(run, runs)
    before = files_of(run)
    assert main(["resume", "run", "--epochs", "4"]) == 2
    error = capfd.readouterr().err
    assert told in " ".join(error.split()) and "Traceback" not in error
    assert files_of(run) == before


def test_an_older_snapshot_goes_on_with_an_empty_buffer_and_says_so(runs: Path, place: Path, capfd: Any) -> None:
    shutil.copytree(runs / "td3", place / "run")
    assert main(["resume", "run", "--from-epoch", "1", "--epochs", "2"]) == 0
    out = capfd.readouterr().out
    assert "resuming run at epoch 2 of 2\nthe replay buffer is empty: only the newest snapshot of a run keeps it" in out


@pytest.mark.parametrize(
    ("env", "options", "told"),
    [
        ("Pendulum-v1", {"qf_lr": 0.5}, "was written by another TD3"),
        ("MountainCarContinuous-v0", {}, "was written by another TD3|spaces"),
    ],
)
def test_another_learner_in_python_leaves_all_as_it_was(env: str, options: Any, told: str, runs: Path) -> None:
    before = files_of(runs / "td3")
    algo = TD3(EnvSpec.from_env(gymnasium.make(env)), seed=0, warmup_steps=20, batch_size=8, **options)
    weights = algo.policy.get_param_values()
    with LocalRunner(seed=0) as runner:
        runner.setup(algo, env)
        with pytest.raises(SnapshotError, match=told):
            runner.restore(runs / "td3")
    assert np.array_equal(algo.policy.get_param_values(), weights) and files_of(runs / "td3") == before
