"""Benchmarks of Meta-World by name: ``metaworld:ML1-reach-v3`` on the command line, and as families of tasks."""

from __future__ import annotations

import builtins
import json
import pickle

import pytest

from metaroll import EnvSpec, get_family, rollout
from metaroll.envs.base.constructors import NamedEnv, make_env, with_render_mode
from metaroll.envs.lookup.registry import is_entry_point
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.metaworld.families import benchmark_family, meant_name
from metaroll.errors import UnknownNameError
from metaroll.lab.cli.main import main
from metaroll.lab.display.results import closing_panel
from metaroll.sims import make_metaworld_benchmark
from metaroll.training.store.metrics_log import read_metrics

pytestmark = [
    pytest.mark.usefixtures("lent_pools", "compiled_once"),
    pytest.mark.filterwarnings("ignore::UserWarning:gymnasium.*"),  # of Meta-World's observation spaces
]

ML1 = "metaworld:ML1-reach-v3"
TINY = {
    "num_train_tasks": 2,
    "num_test_tasks": 2,
    "epochs": 2,
    "hidden_sizes": 8,
    "encoder_hidden_sizes": 8,
    "meta_batch_size": 2,
    "batch_size": 8,
    "embedding_batch_size": 8,
    "embedding_mini_batch_size": 8,
    "num_tasks_sample": 1,
    "num_initial_steps": 10,
    "num_steps_per_epoch": 2,
    "num_steps_prior": 10,
    "num_extra_rl_steps_posterior": 10,
    "max_path_length": 5,
    "n_exploration_traj": 1,
    "torch_threads": 1,
}
TINY_PPO = {"epochs": 1, "steps_per_epoch": 20, "batch_size": 10, "num_passes": 1, "max_path_length": 5}
TINY_PPO |= {"num_train_tasks": 2, "num_test_tasks": 1, "num_episodes": 1}


def flags(values, **more):
    return [text for name, value in {**values, **more}.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def numbers(run):
    return [(row["metric"], row["task"], row["value"]) for row in read_metrics(run) if row["phase"] != "time"]


@pytest.mark.slow
def test_a_stopped_run_continues_with_the_same_numbers_whatever_its_workers(tmp_path):
    whole, stopped = str(tmp_path / "whole"), str(tmp_path / "stopped")
    assert main(["train", "pearl", ML1, *flags(TINY, num_workers=2), "--out", whole, "--quiet"]) == 0
    assert main(["train", "pearl", ML1, *flags(TINY, epochs=1), "--out", stopped, "--quiet"]) == 0
    assert main(["resume", stopped, "--epochs", "2", "--quiet"]) == 0
    assert numbers(stopped) == numbers(whole)
    assert any(row["metric"] == "success_rate" for row in read_metrics(whole))


def test_a_run_is_evaluated_and_listed(tmp_path, capsys):
    run = tmp_path / "run"
    one_task = {"epochs": 1, "num_train_tasks": 1, "num_test_tasks": 1, "meta_batch_size": 1, "evaluate_every": 0}
    assert main(["train", "pearl", ML1, *flags(TINY, **one_task), "--out", str(run), "--quiet"]) == 0
    assert main(["evaluate", str(run), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["env"], summary["success_rate"], summary["provenance"]["benchmark"]) == (ML1, 0.0, "Meta-World")
    assert main(["list", "runs", "--runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["env"] == ML1


@pytest.mark.slow
def test_ppo_learns_in_mt1(tmp_path, capsys):
    run = str(tmp_path / "mt1")
    assert main(["train", "ppo", "metaworld:MT1-reach-v3", *flags(TINY_PPO), "--out", run, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["env"], len(summary["returns"])) == ("metaworld:MT1-reach-v3", 1)
    assert summary["tested_on"] == "training"  # as Meta-World says, and not on held-out tasks
    shown = closing_panel({**summary, "n_test_tasks": 10}, []).renderable
    assert "on 10 training tasks, 1 episode each" in shown
    assert main(["resume", run, "--epochs", "2", "--quiet"]) == 0
    assert {row["iteration"] for row in read_metrics(run)} == {0, 1}


# ------------------------------------------------------------------------------------------------------------- families
def test_tasks_are_those_of_the_benchmark_with_the_seed_of_the_split():
    family = get_family(ML1)
    assert family is get_family(ML1) is EnvSource.of(ML1).family and EnvSource.of(ML1).is_varied
    assert not is_entry_point("metaworld:ML10")
    assert (family.name, family.num_train_tasks, family.num_test_tasks, family.horizon) == (ML1, 50, 10, 500)
    for seed in (0, 3):
        benchmark = make_metaworld_benchmark("ML1", "reach-v3", seed=seed)
        train, test = family.split(50, 50, seed)
        assert [update.task for update in train] == list(benchmark.train_tasks)
        assert [update.task for update in test] == list(benchmark.test_tasks)
    few = family.split(3, 1, 3)
    assert few == (train[:3], test[:1])
    assert {len(sampler.sample(7)) for sampler in family.samplers(3)} == {7}
    assert len(family.tasks.updates or ()) == 100
    with pytest.raises(ValueError, match=f"{ML1} .*50 .*50 .*num_train=51 .*num_test=10"):
        family.split(51)


def test_lists_begin_with_one_task_of_each_environment():
    train, test = get_family("metaworld:ML10").split(20, 10)
    names = [update.task.env_name for update in train]
    assert len(set(names[:10])) == 10 and names[:10] == names[10:]
    assert len({update.task.env_name for update in test}) == 5
    assert not {update.task.env_name for update in test} & set(names)


def test_mt_is_tested_on_the_tasks_of_training():
    family = get_family("metaworld:MT1-reach-v3")
    train, test = family.split(5, 3)
    assert family.same_tasks and test == train[:3]
    assert len(family.tasks.updates or ()) == 50


def test_policies_of_mt10_see_which_environment_it_is():
    train, test = get_family("metaworld:MT10").split(3, 2)
    assert [update.task.env_name for update in train] == ["reach-v3", "push-v3", "pick-place-v3"] and test == train[:2]
    spec = EnvSpec.from_env(make_env("metaworld:MT10"))
    env = train[1]()
    assert spec.obs_dim == EnvSpec.from_env(env).obs_dim == 49
    assert env.reset(seed=0)[0][-10:].tolist() == [0.0, 1.0, *[0.0] * 8]


def test_a_name_is_that_of_an_environment_with_a_task():
    maker = pickle.loads(pickle.dumps(NamedEnv("metaworld:MT1-reach-v3")))
    first = rollout(maker, lambda observation: [0.1, 0.0, 0.0, 0.0], max_steps=2, seed=0)
    assert first.observations.shape == (3, 39)
    assert (
        first.observations[0][-3:] == get_family("metaworld:MT1-reach-v3").split(1, 0)[0][0]().reset()[0][-3:]
    ).all()


def test_environments_and_tasks_can_be_drawn():
    update = get_family("metaworld:MT1-reach-v3").split(1, 0)[0][0]
    for make in (NamedEnv("metaworld:MT1-reach-v3"), update.env_type):
        drawing = with_render_mode(make, "rgb_array")()
        assert drawing.render_mode == "rgb_array"
        assert drawing.mujoco_renderer.camera_id == drawing.model.camera("corner2").id
        drawing.close()


# ---------------------------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ML1-reach-v3", ML1),
        ("ML1", ML1),
        ("ml10", "metaworld:ML10"),
        ("metaworld/MT1-push-v3", "metaworld:MT1-push-v3"),
        ("Meta-World/MT10", "metaworld:MT10"),
        ("metaworld", ML1),
        ("MetaWorld:reach-v3", ML1),
        ("metaworld:ML1", ML1),
        ("metaworld:ml45", "metaworld:ML45"),
        ("metaworld:reach-v3", ML1),
        ("metaworld:", ML1),
        ("metaworld:ML1-reech-v3", ML1),
    ],
)
def test_names_like_those_of_benchmarks_are_mended(name, meant, capsys):
    for command in (["train", "pearl"], ["train", "ppo"], ["check"]):
        assert main([*command, name]) == 2
        assert f"did you mean {meant!r}" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(UnknownNameError, match="did you mean"):
        make_env(name)


@pytest.mark.parametrize("name", ["Pendulum-v1", "my_env:family", "mt", "metaphor", "HTML5", "ML"])
def test_other_names_are_left_alone(name):
    assert meant_name(name) is None


def test_custom_benchmarks_are_for_python(capsys):
    assert main(["train", "pearl", "metaworld:custom-ML"]) == 2
    assert "train in Python (docs/metaworld.md)" in capsys.readouterr().err


def test_without_the_package_the_error_says_what_to_install(monkeypatch, capsys):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "metaworld":
            raise ModuleNotFoundError("No module named 'metaworld'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    benchmark_family.cache_clear()
    for command in (["train", "pearl", ML1], ["train", "ppo", ML1], ["check", ML1]):
        assert main(command) == 2
        assert "pip install 'metaworld>=" in capsys.readouterr().err
