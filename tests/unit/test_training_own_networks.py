"""Networks of one's own in agents and at the command line: they learn, in any number of workers, and are kept."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from space_envs import SpaceEnv
from torch import nn

import metaroll
from metaroll.errors import NotPicklableError, RunWarning, SnapshotError, UnknownNameError, UntrustedRunError
from metaroll.lab.cli.main import main
from metaroll.lab.comparing.run_groups import compared_groups
from metaroll.own_sources import hash_of, sources_of
from metaroll.policies.own_body import has_own_body
from metaroll.training.algorithms import own_networks
from metaroll.training.store.run_folder import read_config, write_config

pytestmark = pytest.mark.usefixtures("lent_pools")


class Normed(nn.Sequential):
    def __init__(self, spec):
        super().__init__(nn.Linear(spec.obs_dim, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh())


class Plain(nn.Sequential):
    def __init__(self, spec):
        super().__init__(nn.Linear(spec.obs_dim, 8), nn.LayerNorm(8), nn.Tanh())


CODE = "from torch import nn\n" + "".join(f"\n\n{inspect.getsource(each)}" for each in (Normed, Plain))
BOX = {"epochs": 1, "evaluate_every": 0, "num_episodes": 1, "max_steps": 20, "hidden_sizes": (8,)}
OFF = {**BOX, "cycles_per_epoch": 4, "gradient_steps": 10, "warmup_steps": 20, "batch_size": 16, "num_envs": 2}
TASKS = {"epochs": 1, "evaluate_every": 0, "hidden_sizes": (8,), "num_test_tasks": 2, "max_steps": 5}
SIZES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sac": ("Pendulum-v1", "Normed", OFF),
    "td3": ("Pendulum-v1", "Normed", OFF),
    "dqn": ("CartPole-v1", "Normed", OFF),
    "ppo": ("Pendulum-v1", "Normed", {**BOX, "steps_per_epoch": 64, "batch_size": 16, "num_passes": 2}),
    "cem": ("Pendulum-v1", "Plain", {**BOX, "population": 10}),
    "maml": ("point-robot", "Plain", {**TASKS, "meta_batch_size": 2, "rollouts_per_task": 2}),
    "pearl": (
        "point-robot",
        "Normed",
        {
            **TASKS,
            "num_train_tasks": 2,
            "warmup_steps": 10,
            "num_steps_prior": 10,
            "tasks_per_epoch": 1,
            "gradient_steps": 2,
            "meta_batch_size": 2,
            "batch_size": 8,
            "embedding_batch_size": 8,
            "embedding_mini_batch_size": 8,
            "encoder_hidden_sizes": (8,),
        },
    ),
}


@pytest.fixture(autouse=True)
def mynet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The current folder, and a module of networks in it."""
    (tmp_path / "mynet.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own_networks._given.clear()
    yield importlib.import_module("mynet")
    del sys.modules["mynet"]


def made(algo: str, **more: Any) -> metaroll.Agent:
    env, network, options = SIZES[algo]
    given: dict[str, Any] = {"policy": f"mynet:{network}", "seed": 1, **options, **more}
    return metaroll.agent(algo, env, **given)


def weights(agent: metaroll.Agent) -> dict[str, np.ndarray]:
    state = agent.algo.state_dict()
    leaves: dict[str, np.ndarray] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                walk(each, f"{path}/{name}")
        elif isinstance(value, torch.Tensor | np.ndarray):
            leaves[path] = np.asarray(value)

    walk(state, "")
    return leaves


def assert_same(one: metaroll.Agent, other: metaroll.Agent) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


@pytest.mark.parametrize("algo", SIZES)
def test_each_algorithm_learns_the_network(algo: str) -> None:
    agent = made(algo)
    before = weights(agent)
    after = weights(agent.learn(progress=False))
    policy = agent.algo.policy
    assert has_own_body(policy)
    changed = [name for name, value in after.items() if not np.array_equal(value, before.get(name, 0))]
    if algo != "cem":
        assert any("encoder.module.0.weight" in name for name in changed), changed
    if SIZES[algo][1] == "Normed":
        assert any("running_mean" in name for name in changed)
    assert agent.config["algorithm"]["policy"] == f"mynet:{SIZES[algo][1]}"


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_moments_of_batch_normalization_reach_any_number_of_workers(algo: str) -> None:
    epochs = 2 if algo == "ppo" else 1
    serial = made(algo, policy=Normed, transport="serial", epochs=epochs).learn(progress=False)
    for workers in (1, 2):
        agent = made(algo, policy=Normed, num_workers=workers, transport="process", epochs=epochs)
        assert_same(agent.learn(progress=False), serial)


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_critics_see_images_that_are_too_small_for_an_encoder_through_a_module_of_their_own(algo: str) -> None:
    image, speed = spaces.Box(0, 255, (4, 4, 3), np.uint8), spaces.Box(-1, 1, (2,))

    def env() -> SpaceEnv:
        return SpaceEnv(spaces.Dict(image=image, speed=speed), spaces.Box(-1, 1, (1,)))

    with pytest.raises(ValueError, match=r"at least 36 pixels .* got shape \(4, 4, 3\): .* or give policy, a network"):
        metaroll.agent(algo, env, **OFF)
    agent, other = (metaroll.agent(algo, env, policy="mynet:Normed", seed=seed, **OFF) for seed in (1, 2))
    before = weights(agent)
    after = weights(agent.learn(progress=False))
    changed = {name for name, value in after.items() if not np.array_equal(value, before.get(name, 0))}
    for network in ("policy", "critics", "target_critics"):
        of_network = [name for name in changed if f"/{network}/" in name]
        for part in ("encoder.module.0.weight", "running_mean"):
            assert any(part in name for name in of_network), (network, part, changed)
    other.algo.load_state_dict(agent.algo.state_dict())
    assert_same(other, agent)


def test_a_run_names_its_network_and_goes_on_to_the_bit(mynet: Any) -> None:
    agent = made("sac", policy=mynet.Normed).learn(epochs=1, progress=False)
    kept = yaml.safe_load(Path("runs/sac-Pendulum-v1-1/config.yaml").read_text())
    assert kept["algorithm"]["policy"] == "mynet:Normed" and len(kept["own_network"]["sha256"]) == 64
    loaded = metaroll.load(agent.save("kept"))
    obs = np.ones(3, np.float32)
    np.testing.assert_array_equal(loaded.act(obs), agent.act(obs))
    assert_same(loaded.learn(epochs=1, progress=False), made("sac", epochs=2).learn(progress=False))
    assert main(["resume", "runs/sac-Pendulum-v1-1", "--epochs", "2", "--quiet"]) == 0
    Path("mynet.py").write_text(CODE + "# changed\n")
    with pytest.warns(RunWarning, match="file of mynet:Normed has been changed") as warned:
        metaroll.load("kept")
    assert [each.filename for each in warned] == [__file__]


def test_what_only_a_script_has_is_asked_for() -> None:
    class Normed(torch.nn.Linear):
        def __init__(self, spec: Any) -> None:
            super().__init__(spec.obs_dim, 4)

    agent = made("sac", policy=Normed).learn(progress=False)
    assert agent.config["algorithm"]["policy"] == "given:Normed"
    own_networks._given.clear()  # another process
    with pytest.raises(UnknownNameError, match=r"policy 'given:Normed' .* metaroll.load\(run, policy=...\)"):
        metaroll.load("runs/sac-Pendulum-v1-1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = metaroll.load("runs/sac-Pendulum-v1-1", policy=Normed)
    assert_same(loaded, agent)
    with pytest.raises(ValueError, match="holds an agent with the usual networks, got policy 'given:Normed'"):
        made("sac", policy=None, seed=2).learn(progress=False)
        metaroll.load("runs/sac-Pendulum-v1-2", policy=Normed)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_a_network_that_cannot_be_pickled_is_named_where_it_has_to_travel(kind: str) -> None:
    def net(spec: metaroll.EnvSpec) -> nn.Module:
        return getattr(nn.utils.parametrizations, kind)(nn.Linear(spec.obs_dim, 4))

    made("ppo", policy=net).learn(progress=False)
    text = r"policy \(\w+\) must be a module that can be pickled.*RuntimeError.*weight_norm.*num_workers=1"
    with pytest.raises(NotPicklableError, match=text):
        made("ppo", policy=net, num_workers=2).learn(progress=False)


def test_another_network_of_the_same_name_is_told_when_a_run_is_loaded() -> None:
    def first() -> Any:
        class Mine(torch.nn.Linear):
            def __init__(self, spec: Any) -> None:
                super().__init__(spec.obs_dim, 4)

        return Mine

    def changed() -> Any:
        class Mine(torch.nn.Linear):
            def __init__(self, spec: Any) -> None:
                super().__init__(spec.obs_dim, 4)

            def forward(self, input: Any) -> Any:
                return super().forward(input).tanh()

        return Mine

    with metaroll.isolated_rng(0):
        modules = [torch.nn.Sequential(torch.nn.Linear(3, 4), last) for last in (torch.nn.Tanh(), torch.nn.ReLU())]
    for seed, (one, other) in enumerate(((first(), changed()), modules)):
        agent = made("sac", policy=one, seed=seed).learn(progress=False)
        assert agent.run_dir is not None
        with pytest.warns(RunWarning, match="given:.* is another than what the run began with"):
            metaroll.load(agent.run_dir, policy=other)
    text = "policy, a network of your own, must have the layers that the run was"
    with pytest.warns(RunWarning, match="given:Sequential is another"), pytest.raises(SnapshotError, match=text):
        metaroll.load("runs/sac-Pendulum-v1-1", policy=lambda spec: torch.nn.Linear(spec.obs_dim, 7))


def test_whatever_differs_in_a_network_of_a_script_is_another_source() -> None:
    """Constants, properties, nested classes and what is around a lambda were not seen: such runs were one group."""

    def class_of(body: str, name: str = "Net") -> Any:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(f"from functools import cached_property\nclass {name}:\n    {body}", names)
        return names[name]

    def lambda_of(text: str, **around: Any) -> Any:
        return eval(f"(lambda width: lambda spec: {text})(8)", {"__name__": "__main__", **around})

    texts = ["WIDTH = 8", "WIDTH = 64", "SIZES = (8, 'a')", "width = property(lambda self: 8)"]
    texts += ["width = property(lambda self: 64)", "width = cached_property(lambda self: 8)"]
    texts += ["class Part:\n        WIDTH = 8", "class Part:\n        WIDTH = 64"]
    given = [lambda: [*map(class_of, texts), class_of("WIDTH = 8", "Other")]]
    given += [
        lambda: [lambda_of(text) for text in ("1", "2", "spec.one", "spec.two", "width", "[spec.one for _ in 'a']")]
    ]
    given += [lambda: [lambda_of("size", size=size) for size in (8, 64)]]
    for make in given:
        first, again = ([hash_of(sources_of(each))["sha256"] for each in make()] for _ in range(2))
        assert first == again and len(set(first)) == len(first)
    code = "metaroll.own_sources import sources_of; print(sources_of(lambda s: s in {'a', 'b', 'c'}))"
    seen = {
        subprocess.check_output([sys.executable, "-c", f"from {code}"], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in "123"
    }
    assert len(seen) == 1


def test_a_constant_of_a_class_that_a_lambda_makes_is_told_when_a_run_is_loaded() -> None:
    def net(width: int) -> Any:
        path = Path(f"script_{width}.py")
        body = "NET = lambda spec: Net(spec.obs_dim, 4)"
        path.write_text(f"import torch\nclass Net(torch.nn.Linear):\n    SCALE = {width}\n{body}\n", "utf-8")
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(path.read_text("utf-8"), path, "exec", dont_inherit=True), names)
        return names["NET"]

    run = made("sac", policy=net(8)).learn(progress=False).run_dir
    assert run is not None
    with pytest.warns(RunWarning, match="given:lambda is another than what the run began with"):
        metaroll.load(run, policy=net(64))


def test_a_network_made_anew_for_each_seed_is_one_group() -> None:
    def runs(width: int) -> list[metaroll.Agent]:
        made_anew = [lambda spec: torch.nn.Linear(spec.obs_dim, width) for _ in range(2)]
        return [made("sac", policy=each, seed=seed).learn(progress=False) for seed, each in enumerate(made_anew)]

    agents = runs(4)
    assert [each.config["algorithm"]["policy"] for each in agents] == ["given:lambda", "given:lambda_2"]
    groups = compared_groups([str(each.run_dir) for each in (*agents, *runs(5))])[0]
    assert [group.seeds for group in groups] == [[0, 1], [0, 1]]


def test_runs_whose_networks_have_one_name_keep_theirs() -> None:
    def network(last: type[torch.nn.Module]) -> Any:
        return lambda spec: torch.nn.Sequential(torch.nn.Linear(spec.obs_dim, 4), last())

    networks, runs = (network(torch.nn.Tanh), network(torch.nn.ReLU)), []
    for seed, each in enumerate(networks):
        own_networks._given.clear()  # another process
        runs.append(made("sac", policy=each, seed=seed).learn(progress=False).run_dir)
    loaded = [metaroll.load(run, policy=each) for run, each in zip(runs, networks, strict=True)]
    assert len({each.config["algorithm"]["policy"] for each in loaded}) == 1
    for each, last in zip(loaded, ("Tanh", "ReLU"), strict=True):
        assert f"{last}()" in repr(each.learn(epochs=1, progress=False).algo.policy)


def test_a_network_of_somebody_elses_run_is_not_imported_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    made("sac").learn(progress=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("elsewhere").resolve()))
    with pytest.raises(UntrustedRunError, match="its policy 'mynet:Normed' executes the module 'mynet'"):
        metaroll.load("runs/sac-Pendulum-v1-1")
    with pytest.raises(UntrustedRunError, match="its policy 'mynet:Normed' executes the module 'mynet'"):
        metaroll.load("runs/sac-Pendulum-v1-1", "Pendulum-v1")
    metaroll.load("runs/sac-Pendulum-v1-1", trust=True)


def test_the_network_of_a_teacher_is_the_one_that_its_run_was_signed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its snapshot names was imported, though only what its configuration names was checked."""
    made("ppo", run_dir="teacher").learn(progress=False)

    def student() -> metaroll.Agent:
        return metaroll.agent("distill", "Pendulum-v1", teacher="teacher", steps_per_epoch=40, max_steps=20)

    student()
    Path("mynet.py").write_text(CODE + "# changed\n")
    with pytest.warns(RunWarning, match="file of mynet:Normed has been changed"):
        student()
    (manifest,) = Path("teacher").glob("snapshots/*/manifest.json")
    document = json.loads(manifest.read_text().replace("mynet:", "teacher.evil:"))
    document.pop("crc32", None)
    manifest.write_text(json.dumps(document))
    Path("teacher/evil.py").write_text("raise SystemExit('executed')")
    with pytest.raises(SnapshotError, match=r"policy in teacher.config.yaml is 'mynet:Normed'"):
        student()
    config = read_config(Path("teacher"))
    config["algorithm"]["policy"] = "teacher.evil:Normed"
    write_config(Path("teacher"), config)
    with pytest.raises(UntrustedRunError, match="lies in that folder"):
        student()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("elsewhere").resolve()))
    with pytest.raises(ValueError, match="must be one of this installation"):
        student()


def test_a_class_of_a_script_works_in_workers() -> None:
    script = f"""
import metaroll, torch
{CODE}
if True:
    agent = metaroll.agent("sac", "Pendulum-v1", policy=Normed, num_workers=1, transport="process", **{OFF!r})
    agent.learn(progress=False)
    print(agent.config["algorithm"]["policy"])
"""
    Path("script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "given:Normed" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("algo", "options", "text"),
    [
        (
            "sac",
            {"policy": "MlpPolicy"},
            r"policy must be module:attribute.*got 'MlpPolicy': leave it out .*hidden_sizes",
        ),
        ("sac", {"policy": "mynet:Other"}, r"unknown name in mynet 'Other'"),
        ("sac", {"policy": "nowhere:Net"}, r"unknown policy 'nowhere:Net': there is no module 'nowhere'"),
        ("ppo", {"network": "gru"}, r'policy="mynet:Normed" has no memory, and is not for network="gru"'),
        ("maml", {"policy": "mynet:Normed"}, r"policy \(Normed\) cannot be meta-learned.*nn.LayerNorm"),
    ],
)
def test_mistakes_are_told(algo: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError, UnknownNameError), match=text):
        made(algo, **options)


@pytest.mark.parametrize(("algo", "env"), [("rl2", "point-robot"), ("rsac", "Pendulum-v1")])
def test_algorithms_with_a_memory_have_no_such_option(algo: str, env: str) -> None:
    with pytest.raises(UnknownNameError, match="brings its own networks, whose widths are hidden_sizes: leave it out"):
        metaroll.agent(algo, env, policy="mynet:Plain")
