"""Files of earlier versions are read, evaluated, reported, compared, and continued bit by bit, or refused.

``tests/corpus`` holds folders and files that each of these versions wrote, see its README.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import metaroll
from corpus import files, runs
from corpus.archives import archive_path, read_manifest, unpack
from corpus.machine import machine
from metaroll.configs.table import run_options
from metaroll.data.replay.path_buffer import PathBuffer
from metaroll.errors import SnapshotError
from metaroll.lab.cli.main import main
from metaroll.training.store.files import load_tree, to_plain
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.snapshots import load_snapshot

CORPORA = {path.parent.name: path.parent for path in sorted(Path(runs.__file__).parent.glob("*/manifest.json"))}
MANIFESTS = {name: read_manifest(folder) for name, folder in CORPORA.items()}

NOT_CONTINUED = {
    ("a745dda", "cmaes-restarts"): "ends of runs are tried again since version 0.2",
    **{
        ("a745dda", name): "gradient steps round otherwise since version 0.2"
        for name in ("ppo-memory", "rl2", "rl2-bandit", "rsac", "sac-discrete", "tqc")
    },
}
"""Runs that are loaded and evaluated but not trained further, and why; see ``RLAlgorithm.arithmetic``."""

REARRANGED = {("a745dda", "hill-climbing"): "its state is that of a search since version 0.3"}
"""Runs whose state now has other entries, and why. Both states are compared after they have been read."""

RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""Tolerances for numbers from another processor or from other versions of packages.

The largest difference in all runs, of kernels without any vector extension from those of AVX-512, was 1e-5 of
``1e-3 + abs(value)``.
"""


def parts(*kinds: str) -> list[Any]:
    return [
        pytest.param(corpus, name, id=f"{corpus}-{name}")
        for corpus, manifest in MANIFESTS.items()
        for name, entry in manifest["archives"].items()
        if entry["kind"] in kinds
    ]


@contextlib.contextmanager
def unpacked(corpus: str, name: str, folder: Path) -> Iterator[Any]:
    """Work in the unpacked folder of a part; yields the values that the old version expected."""
    unpack(archive_path(CORPORA[corpus], name), folder)
    with contextlib.chdir(folder):
        yield json.loads(Path("expected.json").read_text())


def same_machine(corpus: str) -> bool:
    return machine() == MANIFESTS[corpus]["machine"]


def difference(old: Any, new: Any, exact: bool, place: str = "") -> str | None:
    """The first place where ``new`` lacks or changes something of ``old``; ``new`` may have additional entries."""
    if isinstance(old, Mapping):
        if not isinstance(new, Mapping) or old.keys() - new.keys():
            return f"{place}: {sorted(old.keys() - new.keys()) if isinstance(new, Mapping) else new!r}"
        inner = (difference(old[key], new[key], exact, f"{place}.{key}") for key in old)
        return next(filter(None, inner), None)
    if isinstance(old, list | tuple):
        if not isinstance(new, list | tuple) or len(old) != len(new):
            return f"{place}: {old!r}, now {new!r}"
        inner = (difference(*pair, exact, f"{place}[{i}]") for i, pair in enumerate(zip(old, new, strict=True)))
        return next(filter(None, inner), None)
    if isinstance(old, torch.Tensor | np.ndarray | float):
        equal = _equal(np.asarray(old), np.asarray(new), exact)
    else:
        equal = type(old) is type(new) and old == new
    return None if equal else f"{place}: {old!r}, now {new!r}"


def _equal(old: np.ndarray, new: np.ndarray, exact: bool) -> bool:
    if old.shape != new.shape or old.dtype != new.dtype:
        return False
    if exact or old.dtype.kind not in "fc":
        return np.array_equal(old, new, equal_nan=old.dtype.kind in "fc")
    return np.allclose(old, new, RELATIVE, ABSOLUTE, equal_nan=True)


def run_command(*arguments: str) -> None:
    assert main([*arguments, "--quiet"]) == 0


def read_json(path: str) -> Any:
    return json.loads(Path(path).read_text())


# -- the corpus itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", CORPORA)
def test_archives_are_those_of_the_manifest_and_hold_every_algorithm(corpus: str) -> None:
    manifest, folder = MANIFESTS[corpus], CORPORA[corpus]
    entries = manifest["archives"]
    assert {path.name for path in folder.iterdir()} == {"manifest.json", *(f"{name}.tar.xz" for name in entries)}
    for name, entry in entries.items():
        assert hashlib.sha256(archive_path(folder, name).read_bytes()).hexdigest() == entry["sha256"], name
    assert {entry["algo"] for entry in entries.values() if entry["kind"] == "run"} == set(manifest["algorithms"])
    assert manifest["commit"].startswith(corpus) and manifest["version"]


# -- runs --------------------------------------------------------------------------------------------------------------

RUNS = parts("run")


@pytest.mark.parametrize(("corpus", "name"), RUNS)
def test_a_run_is_loaded_and_acts_as_it_did(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        now = runs.behavior(metaroll.load("run"), expected["observations"])
        assert difference(expected, now, same_machine(corpus)) is None


@pytest.mark.parametrize(("corpus", "name"), RUNS)
def test_a_run_is_evaluated_with_the_returns_that_it_had(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path):
        old = read_json("run/evaluation.json")
        run_command("evaluate", "run")
        now, measured = read_json("run/evaluation.json"), ("cell_returns", "returns", "per_task", "epoch")
        kept = {key: old[key] for key in measured if key in old}
        assert difference(kept, now, same_machine(corpus)) is None
        assert kept.keys() & {"cell_returns", "returns"}


@pytest.mark.parametrize(("corpus", "name"), [part for part in RUNS if tuple(part.values) not in NOT_CONTINUED])
def test_a_stopped_run_ends_like_an_uninterrupted_one(corpus: str, name: str, tmp_path: Path) -> None:
    exact = same_machine(corpus)
    with unpacked(corpus, name, tmp_path):
        run_command("resume", "stopped")
        old, now = (load_snapshot(folder, "last") for folder in ("run", "stopped"))
        assert (old.iteration, old.has_buffers) == (now.iteration, now.has_buffers)
        trees = [snapshot.tree("algorithm") for snapshot in (old, now)]
        if (corpus, name) in REARRANGED:
            trees = [as_read(tree) for tree in trees]
        assert difference(*trees, exact) is None
        if old.has_buffers:
            assert difference(old.buffers, now.buffers, exact) is None
        trees = [snapshot.tree("runner") for snapshot in (old, now)]
        assert difference({**trees[0], "seconds": 0.0}, {**trees[1], "seconds": 0.0}, exact) is None
        assert difference(numbers_of("run"), numbers_of("stopped"), exact) is None


def as_read(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A state of the algorithm of ``run``, in the form in which this version writes it."""
    algo = metaroll.load("run").algo
    algo.load_state_dict(tree)
    return algo.state_dict()


def numbers_of(run: str) -> dict[str, Any]:
    """All numbers of a run except times and intervals, because later versions may compute intervals differently."""
    rows = [row for row in read_metrics(run) if row["phase"] != "time" and "_ci_" not in row["metric"]]
    return {"/".join(str(row[key]) for key in ("iteration", "phase", "task", "metric")): row["value"] for row in rows}


DRAWN = {"maml", "sac", "cmaes-restarts"}
"""Runs whose reports are written with charts."""


@pytest.mark.parametrize(("corpus", "name"), parts("run"))
def test_a_run_is_listed_and_reported(corpus: str, name: str, tmp_path: Path, capsys: Any, request: Any) -> None:
    entry = MANIFESTS[corpus]["archives"][name]
    if name not in DRAWN:
        request.getfixturevalue("empty_charts")
    with unpacked(corpus, name, tmp_path):
        assert main(["list", "runs", "--runs", ".", "--json"]) == 0
        listed = {row["folder"]: row for row in json.loads(capsys.readouterr().out)["runs"]}
        for folder, state, epochs in (("run", "finished", runs.EPOCHS), ("stopped", "interrupted", runs.STOPPED_AFTER)):
            row = listed[folder]
            told = tuple(row[key] for key in ("algo", "env", "state", "epochs_done", "problem"))
            assert told == (entry["algo"], entry["env"], state, epochs, "")
        run_command("report", "run", "--no-pictures")
        page = Path("run/report.html").read_text()
        assert entry["env"] in page and "cannot be read" not in page


@pytest.mark.parametrize(("corpus", "name"), NOT_CONTINUED)
def test_a_run_that_cannot_be_continued_is_refused_with_its_version(
    corpus: str, name: str, tmp_path: Path, capfd: Any
) -> None:
    version = f"metaroll {MANIFESTS[corpus]['version']}"
    with unpacked(corpus, name, tmp_path):
        before = {path: path.read_bytes() for path in Path("stopped").rglob("*") if path.is_file()}
        assert main(["resume", "stopped"]) == 2
        assert version in " ".join(capfd.readouterr().err.split())
        after = {path: path.read_bytes() for path in Path("stopped").rglob("*") if path.is_file()}
        assert {path: after[path] for path in before if path.name != ".lock"} == {
            path: before[path] for path in before if path.name != ".lock"
        }
        with pytest.raises(SnapshotError, match=version):
            metaroll.load("stopped").learn(1)


@pytest.mark.parametrize(("corpus", "name"), parts("groups"))
def test_groups_are_compared_plotted_and_completed(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        exact = same_machine(corpus)
        for algo, folders in (("cem", ("wide", "narrow")), ("maml", ("small-steps", "large-steps"))):
            now = to_plain(dataclasses.asdict(metaroll.lab.compare(*folders)))
            old = expected[algo]
            for group, same in zip(old["groups"], now["groups"], strict=True):
                assert (
                    difference({key: group[key] for key in ("seeds", "mean", "iqm", "env_steps")}, same, exact) is None
                )
        run_command("plot", "wide", "narrow", "--out", "curves.svg")
        assert Path("curves.svg").stat().st_size > 1000
        run_command("resume", "begun")
        assert difference(numbers_of("wide/seed-2"), numbers_of("begun/seed-2"), exact) is None


@pytest.mark.parametrize(("corpus", "name"), parts("services"))
def test_chosen_snapshots_and_robustness_maps_are_read(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        for epochs, behavior in expected.items():
            agent = metaroll.load("run", from_epoch="best" if epochs == "best" else int(epochs))
            now = runs.behavior(agent, behavior["observations"])
            assert difference(behavior, now, same_machine(corpus)) is None
        run_command("report", "run", "--no-pictures")
        assert "return over length" in Path("run/report.html").read_text()
        run_command("resume", "run", "--epochs", "5", "--keep-best", "none")
        assert load_snapshot("run", "last").iteration == 5


@pytest.mark.parametrize(("corpus", "name"), parts("saved agent"))
def test_a_saved_agent_acts_learns_and_is_replaced(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        agent = metaroll.load("agent")
        now = runs.behavior(agent, expected["observations"])
        assert difference(expected, now, same_machine(corpus)) is None
        agent.learn(epochs=1, progress=False).save("agent")
        assert load_snapshot("agent", "last").iteration == 2


@pytest.mark.parametrize(("corpus", "name"), parts("program"))
def test_a_run_of_a_script_continues(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected, runs.documented_runner() as runner:
        assert runner.restore("stopped").batch_size == 40
        runner.resume(n_epochs=runs.EPOCHS)
        parameters = np.asarray(runner.algo.policy.get_param_values()).tolist()
        assert difference(expected["parameters"], parameters, same_machine(corpus)) is None


# -- configurations ----------------------------------------------------------------------------------------------------


def renamed(algo: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an old configuration under the current names of the options."""
    names = {option.was: option.name for option in run_options(algo) if option.was}
    names |= {option.name: option.name for option in run_options(algo)}
    return {names.get(name, name): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("corpus", "algo"), [(corpus, algo) for corpus, manifest in MANIFESTS.items() for algo in manifest["algorithms"]]
)
def test_every_option_of_a_configuration_is_accepted(corpus: str, algo: str, tmp_path: Path) -> None:
    with unpacked(corpus, "configurations", tmp_path) as expected:
        values = yaml.safe_load(Path(f"{algo}.yaml").read_text())
        assert values == expected[algo]["values"]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            config = metaroll.agent(algo, expected[algo]["env"], **values).config
        taken = to_plain({**config["run"], **config["algorithm"], **config["evaluation"]})
        assert difference(renamed(algo, values), taken, exact=True) is None
        assert all(warning.category is DeprecationWarning for warning in told)


@pytest.mark.parametrize(("corpus", "name"), [part for part in RUNS if part.values[1] in ("pearl", "td3")])
def test_the_configuration_of_a_run_trains_another(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path):
        names = (MANIFESTS[corpus]["archives"][name][key] for key in ("algo", "env"))
        run_command("train", *names, "--config", "run/config.yaml", "--epochs", "1", "--out", "other")
        old, new = (yaml.safe_load(Path(f"{run}/config.yaml").read_text()) for run in ("run", "other"))
        algo = MANIFESTS[corpus]["archives"][name]["algo"]
        assert difference(renamed(algo, old["algorithm"]), new["algorithm"], exact=True) is None


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("corpus", "name"), parts("recordings"))
def test_recordings_hold_what_was_recorded(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        for suffix in files.FORMATS:
            for recording, content in expected.items():
                assert files.content(metaroll.load_rollout(f"{recording}{suffix}")) == content, (recording, suffix)
        first, second = metaroll.load_rollouts("folder")
        assert len(first) == len(second) == 10
        assert first.rollout_info["domain_param"]["pole_length"] == 1.2


@pytest.mark.parametrize(("corpus", "name"), parts("robot logs"))
def test_logs_of_robots_are_read(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        [imported] = metaroll.load_rollouts("imported")
        assert files.content(imported) == expected["imported"]
        [again] = metaroll.lab.load_log(
            "swing.csv", "swing.yaml", env_spec=metaroll.sims.PendulumEnv().env_spec, dt=0.02
        )
        assert np.allclose(again.observations, imported.observations, atol=1e-5)
        [device] = metaroll.lab.load_log("device/episode_0000.jsonl")
        assert device.observations.tolist() == expected["device"]


SLOW = {"nle"}
"""Posteriors sampled by a Markov chain, which takes seconds; comparing their densities is enough."""


def check_posterior(old: Mapping[str, Any], posterior: metaroll.Posterior, draws: bool = True) -> None:
    assert list(posterior.names) == old["names"]
    assert posterior.draws[:3].tolist() == old["draws"]
    assert not draws or np.isfinite(posterior.sample(4, seed=1)).all()
    assert posterior.has_estimator == (old["log_prob"] is not None)
    if old["log_prob"] is not None:
        assert np.allclose(posterior.log_prob(old["draws"]), old["log_prob"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("corpus", "name"), parts("posteriors"))
def test_posteriors_give_the_same_results(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        for folder, old in expected.items():
            check_posterior(old, metaroll.Posterior.load(folder), draws=folder not in SLOW)


@pytest.mark.parametrize(("corpus", "name"), parts("posteriors"))
def test_kept_simulations_are_used_again(corpus: str, name: str, tmp_path: Path) -> None:
    made = []

    def simulate(thetas: np.ndarray) -> np.ndarray:
        made.extend(thetas.tolist())
        return files.oscillations(thetas)

    with unpacked(corpus, name, tmp_path) as expected:
        posterior = files.abc("abc-run").infer(simulate, files.observed(), 200)
        assert not made
        assert np.allclose(posterior.draws[:3], expected["abc"]["draws"])
        files.npdr("neural", **files.POSTERIORS["npe-mdn"]).infer(simulate, files.observed(), files.NUM_SIMULATIONS)
        assert not made


@pytest.mark.parametrize(("corpus", "name"), parts("inference"))
def test_training_continues_on_an_inferred_posterior(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not to train on it.*")  # few simulations, hence a wide posterior
        check_posterior(expected, metaroll.Posterior.load("inferred"))
        old = read_json("run/summary.json")
        run_command("evaluate", "run")
        now = read_json("run/evaluation.json")
        assert difference({"returns": old["returns"]}, now, same_machine(corpus)) is None
        run_command("resume", "run", "--epochs", "3")
        assert load_snapshot("run", "last").iteration == 3


@pytest.mark.parametrize(("corpus", "name"), parts("replay"))
def test_replay_memories_sample_the_same(corpus: str, name: str, tmp_path: Path) -> None:
    with unpacked(corpus, name, tmp_path) as expected:
        for memory, buffer in files.replay_buffers().items():
            buffer.load_state_dict(load_tree(Path(), memory))
            assert files.sampled(buffer) == expected[memory]
        paths = PathBuffer(12)
        paths.load_state_dict(load_tree(Path(), "paths"))
        drawn = paths.sample_transitions(5, 0)
        assert {key: value.tolist() for key, value in drawn.items()} == expected["paths"]


def test_a_difference_is_found() -> None:
    old = {"a": [1.0, np.arange(3.0)], "b": "text"}
    assert difference(old, {**old, "more": 1}, exact=True) is None
    near = {"a": [1.0 + 1e-6, np.arange(3.0)], "b": "text"}
    assert difference(old, near, exact=False) is None
    assert difference(old, near, exact=True) is not None
    for other in (
        {"a": old["a"]},
        {**old, "b": "other"},
        {**old, "a": [1.0, np.arange(4.0)]},
        {**old, "a": [math.nan]},
    ):
        assert difference(old, other, exact=False) is not None
