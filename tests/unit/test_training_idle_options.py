"""Options that change nothing, or make no sense beside others, are refused or warned of."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import metaroll
from metaroll.config import RunFile
from metaroll.configs.evaluation import MetaEvaluationConfig
from metaroll.configs.table import current_names
from metaroll.envs.lookup.source import EnvSource
from metaroll.lab.cli.main import main
from metaroll.tasks.domain_access import check_param_ranges, set_domain_params
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.session.experiments import resolve

IDLE: list[tuple[str, str, dict[str, Any], str]] = [
    ("ppo", "Pendulum-v1", {"num_train_tasks": 5}, r"num_train_tasks=5 has no effect: .* without tasks"),
    ("ppo", "Pendulum-v1", {"num_test_tasks": 5}, "num_test_tasks=5 has no effect: nothing varies in Pendulum-v1"),
    ("sac", "Pendulum-v1", {"temperature": 0.1, "target_entropy": -3.0}, "target_entropy=-3.0 .* temperature is 0.1"),
    ("tqc", "Pendulum-v1", {"temperature": 0.1, "temperature_lr": 0.1}, "temperature_lr=0.1 .* temperature is 0.1"),
    ("ppo", "Pendulum-v1", {"stop_metric": "success"}, 'stop_metric="success" has no effect: .*stop_at='),
    ("ppo", "Pendulum-v1", {"stop_mean_of": 3}, "stop_mean_of=3 has no effect"),
    ("ppo", "qcp-st", {"num_test_tasks": 6}, 'nothing varies in qcp-st; .* randomize="default" .* randomize_param='),
    ("ppo", "Pendulum-v1", {"tasks_per_epoch": 3}, "tasks_per_epoch=3 has no effect: nothing varies"),
    ("hill-climbing", "CartPole-v1", {"stop_window": 7}, "stop_window=7 has no effect: .*stop_std"),
    ("cmaes", "CartPole-v1", {"max_restarts": 5}, "max_restarts=5 has no effect: restarts is 'none'"),
    ("cmaes", "CartPole-v1", {"max_repetitions": 5.0}, "max_repetitions=5.0 has no effect: reevaluated is 0"),
    ("cmaes", "CartPole-v1", {"round_length": 5}, "round_length=5 has no effect: starts is 1"),
    ("cem", "Pendulum-v1", {"extra_std": 0.0, "extra_decay_time": 9.0}, "extra_decay_time=9.0 has no effect"),
    ("dqn", "CartPole-v1", {"importance_exponent": 0.3}, "importance_exponent=0.3 has no effect: .*priority_exponent"),
    (
        "dqn",
        "CartPole-v1",
        {"lr_decay_steps": None, "min_learning_rate": 1e-5},
        "min_learning_rate=1e-05 has no effect: .*lr_decay_steps",
    ),
    ("td3", "Pendulum-v1", {"smoothing_std": 0.0, "smoothing_clip": 0.2}, "smoothing_clip=0.2 has no effect"),
    ("pearl", "point-robot", {"use_information_bottleneck": False, "kl_lambda": 0.3}, "kl_lambda=0.3 has no effect"),
    ("pearl", "point-robot", {"posterior_sampling": False, "num_prior_episodes": 2}, "num_prior_episodes=2 has no"),
]


@pytest.mark.parametrize(("algo", "env", "options", "said"), IDLE)
def test_an_option_without_effect_is_refused(algo: str, env: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resolve(algo, env, [("the options", options)])
    # What a run has kept is taken as it is: it can be loaded, whatever later versions say of it.
    resolve(algo, env, [("runs/some/config.yaml", options)], kept=True)


@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("ppo", {"num_test_tasks": 5, "randomize_param": ("m=0.5:2",)}),
        ("sac", {"target_entropy": -3.0}),
        ("ppo", {"stop_metric": "train/return", "stop_at": -200.0}),
        ("ppo", {"num_train_tasks": None, "stop_metric": "return"}),  # what they are anyhow
    ],
)
def test_the_same_with_what_it_waits_for_is_taken(algo: str, options: dict[str, Any]) -> None:
    resolve(algo, "Pendulum-v1", [("the options", options)])


def test_a_schedule_of_chance_falls() -> None:
    with pytest.raises(ValueError, match=r"min_epsilon must be at most max_epsilon=0.1, from which it falls, got 0.9"):
        metaroll.agent("dqn", "CartPole-v1", min_epsilon=0.9, max_epsilon=0.1)


def test_settings_of_evaluations_go_together_wherever_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "adaptation_rounds must divide num_adaptation_episodes=3, got 2: give the other one as well"
    values = {"num_adaptation_episodes": 3, "adaptation_rounds": 2}
    with pytest.raises(ValueError, match=said):
        MetaEvaluationConfig(**values)
    with pytest.raises(ValueError, match=said):
        metaroll.agent("pearl", "point-robot", **values)
    with pytest.raises(ValueError, match=said.replace("num_adaptation_episodes", "n_exploration_traj")):
        metaroll.MetaEvaluator(n_exploration_traj=3, adaptation_rounds=2)
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("num_adaptation_episodes: 3\nadaptation_rounds: 2\n")
    flags = ["--num-adaptation-episodes", "3", "--adaptation-rounds", "2"]
    for given, told in (
        (
            ["--config", "a.yaml"],
            "adaptation_rounds in a.yaml must divide num_adaptation_episodes: 3 in a.yaml, got 2",
        ),
        (flags, "--adaptation-rounds must divide --num-adaptation-episodes 3, got 2: give the other one as well"),
    ):
        assert main(["train", "pearl", "point-robot", *given, "--out", "r"]) == 2
        assert told in " ".join(capsys.readouterr().err.split())


def test_exploration_episodes_of_a_run_follow_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = {"adaptation_rounds": 3, "episodes_per_round": 2, "posterior_sampling": False}
    assert metaroll.agent("pearl", "point-robot", **rounds).config["evaluation"]["num_adaptation_episodes"] == 6
    with pytest.raises(ValueError, match=r"^num_adaptation_episodes must be .* = 6, or left out, got 10"):
        metaroll.agent("pearl", "point-robot", num_adaptation_episodes=10, **rounds)
    monkeypatch.chdir(tmp_path)
    written = {"num_adaptation_episodes": 10, **rounds}
    Path("a.yaml").write_text(json.dumps(written))
    flags = ["--adaptation-rounds", "3", "--episodes-per-round", "2", "--no-posterior-sampling"]
    for given, name in (
        (["--config", "a.yaml"], "num_adaptation_episodes in a.yaml"),
        ([*flags, "--num-adaptation-episodes", "10"], "--num-adaptation-episodes"),
    ):
        assert main(["train", "pearl", "point-robot", *given, "--out", "r"]) == 2
        assert f"{name} must be" in " ".join(capsys.readouterr().err.split())
    # A run of before had the number that was usual there, which meant the product.
    kept = resolve("pearl", "point-robot", [("run/config.yaml", written)], kept=True)
    layers = [(RunFile("run/config.yaml"), written), ("the options", {"episodes_per_round": 4})]
    again = resolve("pearl", "point-robot", layers)
    assert [one["evaluation"]["num_adaptation_episodes"] for one in (kept, again)] == [6, 12]
    read = current_names({"algo": "pearl", "evaluation": {"n_exploration_traj": 10, **rounds}})
    assert read["evaluation"] == {"num_adaptation_episodes": 6, **rounds}


def notes(algo: str, **options: Any) -> list[str]:
    config = resolve(algo, "Pendulum-v1", [("the options", options)])
    return get_algorithm(algo).notes(BuildOptions.of(config, EnvSource.of("Pendulum-v1")), config["run"]["epochs"])


def test_a_batch_beyond_an_epoch_and_nothing_random_are_said() -> None:
    assert (
        "batch_size 5,000 is more than the 200 steps of an epoch"
        in notes("ppo", batch_size=5000, steps_per_epoch=200, epochs=1)[0]
    )
    assert notes("ppo", batch_size=200, steps_per_epoch=200, epochs=1) == []
    assert "nothing is randomized" in notes("epopt", randomize="none")[-1]


def test_masses_are_positive_and_ranges_are_tried_at_both_ends(capsys: pytest.CaptureFixture[str]) -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match="'masspole' of CartPoleEnv must be positive, got -1"):
        set_domain_params(env, {"length": 0.7, "masspole": -1.0})
    assert env.unwrapped.length == 0.5  # all or nothing  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="'m' of PendulumEnv must be positive, got -1"):
        metaroll.TaskFamily.from_params("Pendulum-v1", {"m": (-1.0, 5.0)})
    command = ["train", "ppo", "Pendulum-v1", "--randomize-param", "m=-1:2", "--out", "never"]
    assert main(command) == 2 and "must be positive" in capsys.readouterr().err


class Swing(gymnasium.Env):
    """A mass, and where it is wanted."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self.mass, self.wanted = 1.5, 0.5


def test_a_range_that_changes_the_sign_of_a_mass_is_said_and_that_of_a_place_is_not() -> None:
    with pytest.warns(UserWarning, match=r"mass is 1.5 in Swing, and its range from -1 to 2 changes the sign"):
        check_param_ranges(Swing(), {"mass": (-1.0, 2.0)})
    check_param_ranges(Swing(), {"mass": (1.0, 2.0), "wanted": (-1.0, 1.0)})


def test_an_evaluation_of_very_many_episodes_says_how_many_there_are_before_anything_is_drawn(capsys) -> None:
    agent = metaroll.agent("pearl", "point-robot", size="small")
    with pytest.raises(ValueError, match="stopped here"):
        _stopped(agent)
    assert "600,000,000 episodes or more to run: Ctrl-C ends" in " ".join(capsys.readouterr().out.split())


def _stopped(agent: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def stop(*given: Any) -> None:
            raise ValueError("stopped here")

        patch.setattr("metaroll.training.session.experiments.split_tasks", stop)
        agent.evaluate(num_tasks=100_000_000, deterministic=False)


class Spaces(gymnasium.Env):
    """Shows and takes what it is told."""

    def __init__(self, shown: float = 0.5, bound: float = 1.0, fixed: bool = False) -> None:
        self.shown = shown
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        low = np.array([1.0 if fixed else -1.0, -bound], np.float32)
        self.action_space = Box(low, np.array([1.0, bound], np.float32), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.array([0.0, self.shown], np.float32), 0.0, False, False, {}


def said_of(env: gymnasium.Env, policy: Any, times: int = 2) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with metaroll.RolloutEngine(env, policy) as engine:
            for _ in range(times):
                engine.run([metaroll.RolloutPlan(0, (0, 0, 0), max_steps=3)])
    return [str(warning.message) for warning in found]


def squashed(env: gymnasium.Env) -> Any:
    return metaroll.policies.TanhGaussianMLPPolicy(metaroll.EnvSpec.from_env(env), hidden_sizes=(4,))


def test_observations_outside_of_their_space_are_said_once() -> None:
    env = Spaces(shown=7.0)
    (text,) = said_of(env, squashed(env))
    assert "observation 1 is 7 in step 1 of the first rollout, and -1 to 1 is declared" in text
    env = Spaces(shown=1.0 + 1e-6)  # rounding
    assert said_of(env, squashed(env)) == []


def test_parts_of_observations_are_looked_at_too() -> None:
    class Goal(Spaces):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gymnasium.spaces.Dict({"a": Box(-1, 1, (1,)), "b": Box(0, 9, (2,))})

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
            super().reset(seed=seed)
            return {"a": np.zeros(1, np.float32), "b": np.array([1, -3], np.float32)}, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            return self.reset()[0], 0.0, False, False, {}

    env = Goal()
    (text,) = said_of(env, squashed(env))
    assert "observation['b'] 1 is -3 in step 0" in text


def test_actions_without_bounds_are_said_of_policies_that_keep_to_them() -> None:
    env = Spaces(bound=np.inf)
    (text,) = said_of(env, squashed(env))
    assert text.startswith("action 1 of") and "lacks a bound" in text and "[-1, 1]" in text
    assert said_of(env, metaroll.policies.GaussianMLPPolicy(metaroll.EnvSpec.from_env(env), hidden_sizes=(4,))) == []
    env = Spaces(fixed=True)
    (text,) = said_of(env, squashed(env))
    assert "action 0 of" in text and "can only be 1" in text


def test_integers_that_networks_would_see_as_they_are_are_said() -> None:
    class Bytes(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict({"ram": Box(0, 255, (8,), np.uint8), "place": Box(-1, 1, (2,))})
        action_space = gymnasium.spaces.Discrete(2)

    said = r"observation_space\['ram'\] holds integers up to 255"
    with pytest.warns(UserWarning, match=said):
        metaroll.DQN(Bytes(), max_path_length=9)
    for algo in ("dqn", "sac"):
        with pytest.warns(UserWarning, match=said) as found:
            metaroll.agent(algo, Bytes, max_path_length=9)
        assert len(found) == 1


def test_what_a_preset_has_set_is_no_error_where_a_file_says_it_again() -> None:
    config = resolve("sac", "CartPole-v1", [("the options", {"temperature": 0.2})])  # the preset has a target_entropy
    again = {**config["run"], **config["algorithm"], **config["evaluation"]}
    assert resolve("sac", "CartPole-v1", [("config.yaml", again)])["algorithm"] == config["algorithm"]


def test_flags_may_add_what_an_option_of_a_file_waits_for(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("stop_metric: train/return\nepochs: 1\nsteps_per_epoch: 200\n")
    command = ["train", "ppo", "Pendulum-v1", "--config", "a.yaml", "--out", "r"]
    assert main(command) == 2 and "stop_metric: train/return in a.yaml has no effect" in capsys.readouterr().err
    assert main([*command, "--stop-at", "100", "--quiet"]) == 0
