"""What names an environment becomes one ``EnvSource`` where it comes in; nothing after it looks the text up again."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import Any

import pytest
from task_envs import Line

import metaroll
from metaroll.envs.base.constructors import NamedEnv
from metaroll.envs.lookup import registry
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import UnknownNameError
from metaroll.lab.cli.main import main

LOOKUPS = ("_known_family", "_own_family", "load_entry_point", "is_entry_point", "sim_constructor", "refuse_misread")
TINY: dict[str, dict[str, Any]] = {
    "ppo": {"steps_per_epoch": 60, "max_steps": 20, "hidden_sizes": (4,), "num_episodes": 1},
    "maml": {"meta_batch_size": 2, "rollouts_per_task": 2, "max_steps": 5, "num_train_tasks": 3, "num_test_tasks": 2},
}


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> collections.Counter[tuple[str, str]]:
    """How often each name was looked up, by what and name."""
    monkeypatch.chdir(tmp_path)
    found: collections.Counter[tuple[str, str]] = collections.Counter()

    def counted(label: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            found[label, next(value for value in arguments if isinstance(value, str))] += 1
            return function(*arguments)

        return call

    for label in LOOKUPS:
        monkeypatch.setattr(registry, label, counted(label, getattr(registry, label)))
    monkeypatch.setattr(NamedEnv, "__init__", counted("NamedEnv", NamedEnv.__init__))
    return found


def assert_once(counts: collections.Counter[tuple[str, str]], name: str) -> None:
    of_name = {label: count for (label, text), count in counts.items() if text == name}
    assert of_name["NamedEnv"] == 1 and set(of_name.values()) == {1}, of_name


@pytest.mark.parametrize(
    ("algo", "name"),
    [
        ("ppo", "CartPole-v1"),
        ("ppo", "pend"),
        ("ppo", "point-robot"),
        ("maml", "point-robot"),
        ("ppo", "task_envs:Line"),
        ("maml", "task_envs:Line"),
    ],
)
def test_a_name_is_looked_up_once_from_the_agent_to_its_evaluation(algo, name, counts):
    agent = metaroll.agent(algo, name, **TINY[algo])
    agent.learn(epochs=1, progress=False)
    agent.evaluate(progress=False)
    assert isinstance(agent.test_tasks, list) and agent.config["env"] == name
    assert_once(counts, name)
    counts.clear()
    metaroll.load(agent.run_dir).learn(epochs=1, progress=False)
    assert_once(counts, name)


def test_a_class_of_the_script_is_looked_up_once_by_the_name_that_it_gets(counts):
    class Scripted(Line):
        """Tasks that no module has."""

    agent = metaroll.agent("maml", Scripted, **TINY["maml"]).learn(epochs=1, progress=False)
    assert agent.config["env"] == "given:Scripted"
    assert_once(counts, "given:Scripted")


@pytest.mark.parametrize("words", [("train",), ("evaluate",), ("resume", "--epochs", "2")])
def test_a_command_looks_a_name_up_once(words, counts):
    options = [word for name in ("steps-per-epoch", "max-steps", "epochs") for word in (f"--{name}", "1")]
    if words[0] != "train":
        assert main(["train", "ppo", "pend", *options, "--out", "run", "--quiet"]) == 0
        counts.clear()
    given = ["train", "ppo", "pend", *options, "--out", "run"] if words[0] == "train" else [words[0], "run", *words[1:]]
    assert main([*given, "--quiet"]) == 0
    assert_once(counts, "pend")


def test_what_was_looked_up_stays_here_and_a_name_goes_to_workers():
    source = EnvSource.of("task_envs:Line")
    assert source.family is source.family and source.name == str(source) == "task_envs:Line"
    source.make().close()
    known = pickle.loads(pickle.dumps(source))
    assert vars(known).keys() == {"constructor"} and "known" not in vars(known.constructor)
    assert known.family == source.family


def test_what_has_no_name_is_none_of_the_things_that_names_are():
    source = EnvSource.of(registry.get_family("point-robot").env_constructor)
    assert (source.name, source.is_varied, source.known.is_entry_point) == ("", False, False)
    with pytest.raises(UnknownNameError):
        source.family  # noqa: B018
