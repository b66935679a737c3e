"""``metaroll.agent`` and ``metaroll.load``: learn, save, act, explore, adapt; the same bits as the command line."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from threadpoolctl import threadpool_info, threadpool_limits

import metaroll
from metaroll.data.compare import trees_equal
from metaroll.errors import RolloutError, RunExistsError, ShapeError, SnapshotError, UnknownNameError
from metaroll.lab.cli.main import main
from metaroll.lab.runs.run_reports import read_run
from metaroll.policies.actor import Actor
from metaroll.training.session import experiments
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.snapshots import load_snapshot
from pearl_sizes import IN_SIXTEENS

pytestmark = pytest.mark.usefixtures("lent_pools")

PPO: dict[str, Any] = {
    "steps_per_epoch": 400,
    "batch_size": 100,
    "num_passes": 2,
    "hidden_sizes": (8,),
    "num_episodes": 1,
}
PEARL: dict[str, Any] = {
    **IN_SIXTEENS,
    "num_train_tasks": 4,
    "num_test_tasks": 2,
    "hidden_sizes": (8,),
    "encoder_hidden_sizes": (8,),
    "num_episodes": 1,
    "epochs": 2,
}


class ReachEnv(gymnasium.Env):
    """Go to a hidden place; actions within +-2."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-2.0, 2.0, (2,), np.float32)

    def __init__(self) -> None:
        self.goal = np.zeros(2)

    def sample_tasks(self, num_tasks: int) -> list[np.ndarray]:
        angles = self.np_random.uniform(0.0, np.pi, num_tasks)  # Gymnasium's generator, as users write it
        return list(np.stack([np.cos(angles), np.sin(angles)], axis=1))

    def set_task(self, task: np.ndarray) -> None:
        self.goal = np.asarray(task)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x, self.t = np.zeros(2, np.float32), 0
        return self.x.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.x = (self.x + 0.1 * np.clip(action, -2, 2)).astype(np.float32)
        self.t += 1
        return self.x.copy(), -float(np.linalg.norm(self.x - self.goal)), False, self.t >= 10, {}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def interrupt(*given: Any) -> None:
    raise KeyboardInterrupt


INTERRUPT = SimpleNamespace(on_epoch_end=interrupt)
"""A callback that presses Ctrl-C after the first epoch."""


def new(**options: Any) -> metaroll.Agent:
    """An agent that has learned nothing."""
    return metaroll.agent("ppo", "Pendulum-v1", **{**PPO, **options})


@pytest.fixture
def ppo() -> metaroll.Agent:
    return new(seed=3, epochs=1).learn(progress=False)


def command_line(algo: str, env: str, options: dict[str, Any], out: Path) -> None:
    flags: list[str] = []
    for name, value in options.items():
        flags += ["--" + name.replace("_", "-"), *map(str, value if isinstance(value, tuple) else [value])]
    assert main(["train", algo, env, *flags, "--out", str(out), "--quiet"]) == 0


def learned(run: Path) -> Any:
    """State of the algorithm in the newest snapshot."""
    return load_snapshot(run, "last").tree("algorithm")


@pytest.mark.parametrize(
    ("algo", "env", "options"), [("ppo", "Pendulum-v1", {**PPO, "epochs": 2}), ("pearl", "point-robot", PEARL)]
)
def test_python_runner_and_command_line_give_the_same_bits(
    algo: str, env: str, options: dict[str, Any], tmp_path: Path
) -> None:
    command_line(algo, env, {**options, "seed": 5}, tmp_path / "shell")
    agent = metaroll.agent(algo, env, seed=5, run_dir=tmp_path / "python", **options).learn(progress=False)
    config = experiments.with_torch_threads(experiments.resolve(algo, env, [("here", {**options, "seed": 5})]))
    experiment = experiments.build(config, tmp_path / "runner")
    with experiment.runner as runner, experiments.torch_threads(config["run"]["torch_threads"]):
        assert isinstance(runner, metaroll.LocalRunner)
        runner.train(n_epochs=2)
    assert agent.run_dir == tmp_path / "python"
    states = [learned(tmp_path / name) for name in ("shell", "python", "runner")]
    for other in states[1:]:
        assert trees_equal(states[0], other)


def test_bits_depend_on_the_threads_of_the_configuration_alone(tmp_path: Path) -> None:
    """PPO's gradients are NumPy's here; with the threads that the process begins with, their last bits would differ."""
    options = {"steps_per_epoch": 1000, "num_passes": 1, "batch_size": 500, "hidden_sizes": (64, 64), "epochs": 1}
    for threads in (1, 2):  # as OMP_NUM_THREADS, or the number of processors, would have it
        with threadpool_limits(threads, user_api="blas"):
            run = metaroll.agent("ppo", "Pendulum-v1", run_dir=tmp_path / str(threads), torch_threads=1, **options)
            run.learn(progress=False)
            found = threadpool_info()
        assert {pool["num_threads"] for pool in found if pool["user_api"] == "blas"} == {threads}
    assert trees_equal(learned(tmp_path / "1"), learned(tmp_path / "2"))


def test_learn_save_load_act(ppo: metaroll.Agent, tmp_path: Path) -> None:
    obs = np.array([1.0, 0.0, 0.3], np.float32)
    action = ppo.act(obs)
    assert ppo.env_spec.action_space.contains(action)
    assert ppo.save("kept") == Path("kept")
    loaded = metaroll.load("kept")
    np.testing.assert_array_equal(loaded.act(obs), action)
    np.testing.assert_array_equal(loaded.act(np.stack([obs, -obs]))[0], action)
    drawn = loaded.act(obs, deterministic=False)
    assert loaded.env_spec.action_space.contains(drawn)
    assert not np.array_equal(drawn, action)


def test_act_does_what_a_rollout_does(ppo: metaroll.Agent) -> None:
    env = gymnasium.make("Pendulum-v1")
    rolled = metaroll.rollout(env, ppo, eval=True, max_steps=20, seed=1, no_close=True)
    for obs, action in zip(rolled.observations, rolled.actions, strict=False):
        np.testing.assert_allclose(ppo.act(obs), action, rtol=1e-6)


def test_learning_again_goes_on_as_resume_does(tmp_path: Path) -> None:
    agent = new(run_dir="twice", lr_decay_epochs=3, epochs=1)
    assert agent.run_dir is None
    agent.learn(progress=False)
    agent.learn(800, progress=False)
    whole = new(run_dir="once", lr_decay_epochs=3, epochs=3)
    whole.learn(progress=False)
    first, second = learned(Path("twice")), learned(Path("once"))
    assert trees_equal(first, second)
    assert agent.config["run"]["epochs"] == 3


class Scaled(gymnasium.RewardWrapper):
    def reward(self, reward: Any) -> float:
        return 0.1 * float(reward)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (lambda: gymnasium.make("Pendulum-v1"), True),
        (lambda: gymnasium.make("Pendulum-v1", render_mode="rgb_array"), True),
        (lambda: "Pendulum", True),
        (lambda: "Pendulum-v1", False),
        (lambda: gymnasium.make("Pendulum-v1", g=9.0), False),  # other environments, of which no preset is known
        (lambda: gymnasium.make("Pendulum-v1", max_episode_steps=50), False),
        (lambda: Scaled(gymnasium.make("Pendulum-v1")), False),
        (lambda: gymnasium.make("MountainCarContinuous-v0"), False),
    ],
    ids=["plain", "drawn", "no version", "id", "arguments", "limit", "wrapped", "no preset"],
)
def test_a_preset_that_does_not_apply_to_an_instance_is_told(
    env: Any, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = metaroll.agent("ppo", env(), epochs=1, **{**PPO, "steps_per_epoch": 100})
    agent.learn()
    line = "the preset of 'Pendulum-v1' does not apply, since an environment was given instead of its id: "
    if agent.config["env"] == "Pendulum":
        line = "the preset of 'Pendulum-v1' does not apply, since 'Pendulum' is an id without its version: "
    assert (f"{line}metaroll.agent('ppo', 'Pendulum-v1') uses it\n" in capsys.readouterr().out) is told


def test_steps_are_taken_in_whole_epochs() -> None:
    agent = new().learn(900, progress=False)
    assert agent.config["run"]["epochs"] == 3
    assert agent.config["algorithm"]["lr_decay_epochs"] == 3  # the preset's schedule follows


def test_epochs_are_added_where_episodes_end_early(tmp_path: Path) -> None:
    """Of CartPole, whose episodes last for up to 500 steps, and for some ten at first."""
    ends: list[int] = []
    told = SimpleNamespace(on_train_end=lambda runner: ends.append(runner.n_epochs))
    agent = metaroll.agent("hill-climbing", "CartPole-v1", seed=7, pop_size=4, hidden_sizes=(4,))
    agent.learn(1_000, callbacks=[told], progress=False)
    first = agent.config["run"]["epochs"]
    assert steps_of(agent) >= 1_000 and first > 1 and ends == [first]
    agent.learn(1_000, callbacks=[told], progress=False)
    epochs = agent.config["run"]["epochs"]
    assert steps_of(agent) >= 2_000 and epochs > first and ends == [first, epochs]
    summary = json.loads((Path(str(agent.run_dir)) / "summary.json").read_text())
    assert (summary["epochs"], summary["env_steps"]) == (epochs, steps_of(agent))
    options = ["--seed", "7", "--pop-size", "4", "--hidden-sizes", "4", "--epochs", str(epochs), "--quiet"]
    assert main(["train", "hill-climbing", "CartPole-v1", *options, "--out", "shell"]) == 0
    assert trees_equal(learned(Path("shell")), learned(Path(str(agent.run_dir))))


def steps_of(agent: metaroll.Agent) -> int:
    return int(load_snapshot(str(agent.run_dir)).tree("runner")["total_env_steps"])


@pytest.mark.usefixtures("empty_charts")
def test_runs_made_in_python_are_runs(ppo: metaroll.Agent, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(ppo.run_dir), "--episodes", "2", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["algo"] == "ppo"
    assert main(["resume", str(ppo.run_dir), "--epochs", "2", "--quiet"]) == 0
    assert main(["report", str(ppo.run_dir), "--quiet"]) == 0
    assert metaroll.load(ppo.run_dir or "").config["run"]["epochs"] == 2


def test_a_second_run_gets_a_folder_of_its_own(ppo: metaroll.Agent) -> None:
    other = new(seed=3, epochs=1).learn(progress=False)
    assert (str(ppo.run_dir), str(other.run_dir)) == ("runs/ppo-Pendulum-v1-3", "runs/ppo-Pendulum-v1-3-2")


def test_a_loaded_agent_leaves_its_folder_as_it_was(ppo: metaroll.Agent) -> None:
    ppo.save("kept")
    before = {path: path.read_bytes() for path in Path("kept").rglob("*") if path.is_file()}
    loaded = metaroll.load("kept").learn(epochs=1, progress=False)
    assert loaded.run_dir != Path("kept")
    assert {path: path.read_bytes() for path in Path("kept").rglob("*") if path.is_file()} == before
    assert loaded.config["run"]["epochs"] == 2


def test_callbacks_are_told_and_ctrl_c_keeps_what_is_there() -> None:
    told: list[int] = []

    def second(runner: Any, epoch: int, metrics: Any) -> None:
        told.append(epoch)
        if epoch == 1:
            raise KeyboardInterrupt

    agent = new(epochs=4)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(callbacks=[SimpleNamespace(on_epoch_end=second)], progress=False)
    assert told == [0, 1]
    agent.save("kept")
    assert load_snapshot(Path("kept"), "last").iteration == 2
    agent.learn(progress=False)  # the two epochs that are left
    assert load_snapshot(agent.run_dir or Path(), "last").iteration == 4


def test_progress_is_shown_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    agent = new(epochs=1)
    agent.learn(progress=False)
    assert not capsys.readouterr().out
    agent.learn(epochs=1)
    assert "epoch 2/2" in capsys.readouterr().out


TINY_PROMP = {"size": "small", "meta_batch_size": 2, "rollouts_per_task": 2, "num_train_tasks": 4, "num_test_tasks": 2}
TINY_PROMP |= {"max_path_length": 5, "hidden_sizes": (8,), "num_inner_steps": 2, "evaluate_every": 0}


def test_an_adapted_agent_takes_the_next_gradient_step() -> None:
    agent = metaroll.agent("promp", "point-navigation", episodes_per_round=4, later_inner_lr=None, **TINY_PROMP)
    task = agent.test_tasks[0]
    rollouts = agent.explore(task)
    assert [len(rollout) for rollout in rollouts] == [5] * 4  # of one round, not n_exploration_traj = 10
    one = agent.adapt(rollouts)
    kept = one.policy.acting_parameters()
    further = one.explore(task, seed=1)
    assert len(further) == 4 and not np.array_equal(further[0].actions, rollouts[0].actions)
    assert not np.array_equal(one.explore(task)[0].actions, one.explore(task)[0].actions)
    two = one.adapt(further)
    np.testing.assert_array_equal(one.policy.acting_parameters(), kept)
    first = agent.algo.adapt_policy(agent.algo.get_exploration_policy(), rollouts)
    np.testing.assert_array_equal(first.acting_parameters(), kept)
    np.testing.assert_array_equal(
        agent.algo.adapt_policy(first, further).acting_parameters(), two.policy.acting_parameters()
    )
    assert "8 episodes seen, 40 steps in all" in repr(two)
    with pytest.raises(ValueError, match="at least one episode"):
        two.adapt([])


def test_an_agent_that_adapts_from_all_episodes_does_so_again() -> None:
    agent = metaroll.agent("pearl", "point-robot", **PEARL)
    task = agent.test_tasks[0]
    rollouts = agent.explore(task, episodes=1, seed=0)
    one = agent.adapt(rollouts)
    further = one.explore(task, episodes=1, seed=1)
    two, whole = one.adapt(further), agent.adapt([*rollouts, *further])
    obs = np.zeros(2, np.float32)
    np.testing.assert_array_equal(two.act(obs), whole.act(obs))


def test_evaluations_of_a_run_take_all_inner_steps() -> None:
    few = metaroll.agent("promp", "point-navigation", **TINY_PROMP).config["evaluation"]
    many = metaroll.agent("promp", "point-navigation", **{**TINY_PROMP, "num_inner_steps": 5}).config["evaluation"]
    told = metaroll.agent("promp", "point-navigation", **{**TINY_PROMP, "num_inner_steps": 5}, adaptation_rounds=2)
    assert [few["adaptation_rounds"], many["adaptation_rounds"]] == [3, 5]
    assert told.config["evaluation"]["adaptation_rounds"] == 2


@pytest.mark.parametrize("given", [ReachEnv, ReachEnv(), metaroll.TaskFamily.from_env(ReachEnv, name="ReachEnv")])
def test_adapting_to_an_environment_of_ones_own(given: Any) -> None:
    agent = metaroll.agent("pearl", given, max_path_length=10, **PEARL).learn(progress=False)
    env = ReachEnv()
    env.set_task(np.array([0.0, 1.0]))
    rollouts = agent.explore(env, episodes=3)
    assert [len(rollout) for rollout in rollouts] == [10, 10, 10]
    adapted = agent.adapt(rollouts)
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(adapted.act(obs))
    assert len(metaroll.rollout(env, adapted, seed=0)) == 10
    agent.save("own")
    again = metaroll.load("own", env=given).adapt(rollouts)
    adapted.reset()
    fresh = agent.adapt(rollouts)
    np.testing.assert_array_equal(again.act(obs), fresh.act(obs))


def test_the_same_environment_given_twice_has_the_same_tasks() -> None:
    first, second = (metaroll.agent("pearl", ReachEnv(), max_path_length=10, **PEARL) for _ in range(2))
    for one, other in zip(first.train_tasks, second.train_tasks, strict=True):
        np.testing.assert_array_equal(one.task, other.task)


def test_workers_know_an_environment_that_was_given() -> None:
    class Inner(ReachEnv):
        pass

    alone = metaroll.agent("ppo", Inner, max_path_length=10, **PPO).learn(epochs=1, progress=False)
    helped = metaroll.agent("ppo", Inner, max_path_length=10, num_workers=2, **PPO).learn(epochs=1, progress=False)
    obs = np.zeros(2, np.float32)
    np.testing.assert_array_equal(alone.act(obs), helped.act(obs))


def test_the_shell_says_that_only_the_script_has_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    class Inner(ReachEnv):
        pass

    agent = metaroll.agent("ppo", Inner, max_path_length=10, **PPO).learn(epochs=1, progress=False)
    from metaroll.envs.lookup import registry

    name = agent.config["env"]
    registry._given.clear()
    with pytest.raises(UnknownNameError, match=r"metaroll\.load\(run, env="):
        registry.load_entry_point(name)


def test_what_remembers_its_episode_begins_anew_at_reset() -> None:
    agent = new(network="gru", epochs=1).learn(progress=False)
    obs = np.array([1.0, 0.0, 0.3], np.float32)
    first, second = agent.act(obs), agent.act(obs)
    assert not np.array_equal(first, second)
    agent.reset()
    np.testing.assert_array_equal(agent.act(obs), first)
    with pytest.raises(ValueError, match="policy with state"):
        agent.act(np.stack([obs, obs]))


class FixedActor(Actor):
    """Acts as a policy that was given."""

    def __init__(self, policy: Any, spec: Any) -> None:
        super().__init__(spec)
        self._given = policy

    @property
    def policy(self) -> Any:
        return self._given


def test_actions_have_the_form_of_the_environment() -> None:
    choices = metaroll.EnvSpec(Box(-1, 1, (2,)), Discrete(3, start=5))
    actor = FixedActor(metaroll.policies.CategoricalMLPPolicy(choices, (4,)), choices)
    assert actor.act(np.zeros(2)) in (5, 6, 7)
    assert set(actor.act(np.zeros((4, 2))).tolist()) <= {5, 6, 7}
    narrow = metaroll.EnvSpec(Box(-1, 1, (2,)), Box(-0.001, 0.001, (1,), np.float32))
    wild = FixedActor(metaroll.policies.GaussianMLPPolicy(narrow, (4,)), narrow)
    assert narrow.action_space.contains(wild.act(np.zeros(2), deterministic=False))
    parts = metaroll.EnvSpec(Dict({"a": Box(-1, 1, (2,)), "b": Discrete(2)}), Box(-1, 1, (1,), np.float32))
    dicts = FixedActor(metaroll.policies.GaussianMLPPolicy(parts, (4,)), parts)
    assert dicts.act({"a": np.zeros(2, np.float32), "b": 1}).shape == (1,)


MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda ppo: ppo.learn(0), ValueError, "env_steps"),
    (lambda ppo: ppo.learn(10, epochs=1), ValueError, "env_steps or epochs"),
    (lambda ppo: ppo.learn(10, callbacks=print), TypeError, "callbacks"),
    (lambda ppo: ppo.learn(10, callbacks=[print]), TypeError, "callbacks .* on_epoch_end"),
    (lambda ppo: ppo.act(np.zeros(4)), ShapeError, r"obs must have shape \(3,\).*got \(4,\)"),
    (lambda ppo: ppo.act(np.array([np.nan, 0, 0])), ValueError, "obs"),
    (lambda ppo: ppo.act(["a", "b", "c"]), TypeError, "obs"),
    (lambda ppo: ppo.act(gymnasium.make("Pendulum-v1").reset(seed=0)), TypeError, r"obs, info = env\.reset\(\)"),
    (lambda ppo: ppo.explore("Pendulum-v1"), ValueError, "for algorithms that adapt, and ppo does not"),
    (lambda ppo: ppo.evaluate(0), ValueError, "num_tasks"),
    (lambda ppo: ppo.evaluate(5), ValueError, "num_tasks is for held-out tasks"),
    (lambda ppo: ppo.evaluate(out=__file__), NotADirectoryError, r"\.py cannot hold results, .* is a file"),
    (
        lambda ppo: ppo.evaluate(out=f"{__file__}/deep/r"),
        NotADirectoryError,
        r"/r cannot hold results, .*\.py is a file",
    ),
    (lambda ppo: ppo.evaluate(env="Pendulum-v1", out=ppo.run_dir), ValueError, "out must not be a run with env="),
    (lambda ppo: ppo.evaluate(test_task_sampler=[1], out=ppo.run_dir), ValueError, "a run with test_task_sampler="),
    (lambda ppo: ppo.evaluate(num_episods=3), UnknownNameError, "'num_episods'; did you mean num_episodes="),
    (lambda ppo: metaroll.rollout("CartPole-v1", ppo, max_steps=3), ShapeError, "observation_space"),
    (lambda ppo: metaroll.load(ppo.save("kept"), algo="pearl"), ValueError, "an agent of 'ppo', expected 'pearl'"),
    (lambda ppo: metaroll.load(ppo.save("kept"), env="CartPole-v1"), ValueError, "'Pendulum-v1', got env 'CartPole"),
    (lambda _: new().save("x"), ValueError, "nothing has been learned"),
    (lambda _: new(lerning_rate=1.0), UnknownNameError, r"lerning_rate.*learning_rate"),
    (lambda _: new(hidden_sizes=64), TypeError, r"hidden_sizes must be .*, as in \[64\], got 64"),
    (lambda _: new(deterministic=3), TypeError, "deterministic"),
    (lambda _: metaroll.agent("PPO", "Pendulum-v1"), UnknownNameError, "did you mean 'ppo'"),
    (lambda _: metaroll.load("nowhere"), FileNotFoundError, "nowhere"),
]


def test_mistakes(ppo: metaroll.Agent) -> None:
    for mistake, error, about in MISTAKES:
        with pytest.raises(error, match=about):
            mistake(ppo)
    assert ppo.learn(4e2, progress=False).config["run"]["epochs"] == 2


def test_runs_of_other_versions_are_refused(ppo: metaroll.Agent) -> None:
    config = ppo.save("kept") / "config.yaml"
    text = config.read_text()
    for was, now, about in (
        ("metaroll_run: 1", "metaroll_run: 2", "metaroll_run: 1, got 2"),
        (metaroll.__version__, "9.0.0", r"written by metaroll 9\.0\.0"),
    ):
        config.write_text(text.replace(was, now))
        with pytest.raises(SnapshotError, match=about):
            metaroll.load("kept")


def test_adaptive_mistakes() -> None:
    agent = metaroll.agent("pearl", "point-robot", **PEARL)
    other = metaroll.rollout("Pendulum-v1", lambda obs: np.zeros(1), max_steps=5, seed=0)
    for mistake, error, about in (
        (lambda: agent.act(np.zeros(2)), ValueError, "acts after it has adapted"),
        (lambda: agent.adapt([]), ValueError, "at least one episode"),
        (lambda: agent.explore("Pendulum-v1"), ShapeError, "the observation_space of env"),
        (lambda: agent.adapt(other), ShapeError, "another environment"),
        (lambda: agent.adapt([np.zeros(3)]), TypeError, "StepSequences"),
    ):
        with pytest.raises(error, match=about):
            mistake()


class WideEnv(ReachEnv):
    """Twice the actions."""

    action_space = Box(-4.0, 4.0, (2,), np.float32)


class SameEnv(ReachEnv):
    """The bounds in another type."""

    action_space = Box(-2.0, 2.0, (2,), np.float64)


def test_environments_with_other_bounds_of_actions_are_refused() -> None:
    agent = metaroll.agent("pearl", ReachEnv, **PEARL)
    with pytest.raises(ShapeError, match=r"the action_space of env must have the bounds of Box\(-2.0.*got Box\(-4.0"):
        agent.explore(WideEnv())
    wide = metaroll.rollout(WideEnv(), lambda obs: np.zeros(2), max_steps=5, seed=0)
    with pytest.raises(ShapeError, match="the action_space of rollout 1 must have the bounds"):
        agent.adapt([*agent.explore(SameEnv(), episodes=1), wide])


def test_bounds_that_belong_to_the_task_are_taken() -> None:
    """Of a ball on a beam the torque follows from its weight, and all of its family have other ones."""
    agent = metaroll.agent("pearl", "bob", **PEARL)
    task = agent.test_tasks[0]
    assert task(None).action_space != agent.env_spec.action_space
    agent.adapt(agent.explore(task, episodes=1, max_steps=5))


def test_agents_are_compared_over_their_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    options = {**PPO, "epochs": 1}
    slow = [metaroll.agent("ppo", "Pendulum-v1", seed=seed, **options).learn(progress=False) for seed in (0, 1)]
    fast = [
        metaroll.agent("ppo", "Pendulum-v1", seed=seed, learning_rate=0.01, **options).learn(progress=False)
        for seed in (0, 1)
    ]
    found = metaroll.lab.compare(*slow, *fast)
    assert [group["seeds"] for group in found.groups] == [[0, 1], [0, 1]]
    means = [group["mean"] for group in found.groups]
    assert found.comparisons[0]["difference"] == pytest.approx(means[0] - means[1])
    assert "learning_rate=0.01" in str(found)
    folders = [str(agent.run_dir) for agent in (*slow, *fast)]
    assert main(["compare", *folders, "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["comparisons"][0]["difference"] == found.comparisons[0]["difference"]
    with pytest.raises(ValueError, match="has nothing to compare yet"):
        metaroll.lab.compare(new())
    with pytest.raises(ValueError, match=r"is given twice: give each run once"):
        metaroll.lab.compare(slow[0], slow[0])
    with pytest.raises(ValueError, match="given twice"):
        metaroll.lab.compare(slow[0], Path("runs") / ".." / slow[0].run_dir)  # type: ignore[operator]
    with pytest.raises(TypeError, match="folders or agents"):
        metaroll.lab.compare(3)  # type: ignore[arg-type]


def test_learning_again_stretches_a_schedule_that_followed_the_epochs() -> None:
    rates: list[float] = []
    watch = SimpleNamespace(on_epoch_end=lambda runner, epoch, metrics: rates.append(metrics["learning_rate"]))
    agent = new().learn(800, callbacks=[watch], progress=False)
    agent.learn(800, callbacks=[watch], progress=False)
    assert rates == pytest.approx([0.001, 0.0005, 0.0005, 0.00025])
    assert agent.config["algorithm"]["lr_decay_epochs"] == 4
    agent.save("kept")
    assert metaroll.load("kept").learn(epochs=1, progress=False).config["algorithm"]["lr_decay_epochs"] == 5


def test_episodes_of_agents_end_as_in_training() -> None:
    class Endless(ReachEnv):
        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
            obs, reward, _, _, info = super().step(action)
            return obs, reward, False, False, info

    agent = metaroll.agent("pearl", Endless, max_path_length=10, **PEARL).learn(progress=False)
    env = agent.test_tasks[0]()
    adapted = agent.adapt(agent.explore(env, episodes=1))
    assert len(metaroll.rollout(env, adapted, seed=0)) == 10


def test_a_caller_is_told_what_stopped_and_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    agent = new(epochs=2)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(callbacks=[INTERRUPT])
    assert "stopped; what was learned in 1 finished epoch is in runs/ppo-Pendulum-v1-0" in capsys.readouterr().out


def test_saving_replaces_saved_agents_only(ppo: metaroll.Agent) -> None:
    Path("full").mkdir()
    Path("full/mine.txt").write_text("x")
    with pytest.raises(FileExistsError):
        ppo.save("full")
    assert Path("full/mine.txt").read_text() == "x"
    with pytest.raises(ValueError, match="path must not lie in the run that is saved"):
        ppo.save(ppo.run_dir / "kept")
    ppo.save("kept")
    ppo.save("kept")
    Path("kept/notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds notes\.txt"):
        ppo.save("kept")
    assert Path("kept/notes.txt").read_text() == "mine"
    other = new(epochs=1, run_dir="run").learn(progress=False)
    before = learned(Path("run"))
    with pytest.raises(FileExistsError, match="was not written by agent"):
        ppo.save("run")  # a run of its own, which nobody wants to lose
    assert trees_equal(learned(Path("run")), before)
    assert other.save("run") == Path("run")


def test_a_saved_agent_holds_what_was_learned_and_no_files_of_others(ppo: metaroll.Agent) -> None:
    assert ppo.run_dir is not None
    (ppo.run_dir / "notes.txt").write_text("mine")
    for _ in range(2):  # with a copy of the notes the second was refused
        ppo.save("kept")
    assert not Path("kept/notes.txt").exists() and not Path("kept/.lock").exists()
    assert trees_equal(learned(Path("kept")), learned(ppo.run_dir))
    (ppo.run_dir / "notes.txt").unlink()
    Path("kept/snapshots/000001/notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds snapshots/000001/notes\.txt"):
        ppo.save("kept")


def test_an_evaluation_may_be_written_to_the_folders_of_the_same_agent_only(ppo: metaroll.Agent) -> None:
    ppo.save("kept")
    for agent, out in ((ppo, "kept"), (metaroll.load("kept"), "kept"), (metaroll.load("kept"), ppo.run_dir)):
        agent.evaluate(num_episodes=1, out=out)
    new(epochs=1, run_dir="other", seed=8).learn(progress=False)
    with pytest.raises(RunExistsError, match="other holds another agent"):
        ppo.evaluate(out="other")
    with pytest.raises(RunExistsError, match="kept holds another agent"):
        new().evaluate(out="kept")


def test_an_agent_of_an_earlier_epoch_is_saved_without_the_results_of_later_ones() -> None:
    new(run_dir="r", epochs=2, snapshot_mode="all").learn(progress=False)
    Path("r/robustness-mass.json").write_text("{}")
    Path("r/summary-000002.abandoned").write_text("{}")
    Path("r/snapshots/000003.abandoned").mkdir()
    early = metaroll.load("r", from_epoch=1)
    with pytest.raises(RunExistsError, match="r holds later epochs of this agent"):
        early.save("r")
    early.save("kept")
    assert sorted(path.name for path in Path("kept/snapshots").iterdir()) == ["000000", "000001"]
    assert sorted(path.name for path in Path("kept").iterdir()) == [
        *(".metaroll", "config.yaml", "metrics.jsonl", "snapshots"),
    ]
    assert {row["iteration"] for row in read_metrics("kept")} == {0}
    assert not Path("kept/summary.json").exists() and read_run(Path("kept")).epochs_done == 1
    assert {row["iteration"] for row in read_metrics("r")} == {0, 1} and Path("r/summary.json").exists()


def test_a_saved_agent_whose_replacement_was_killed_is_loaded_and_restored(ppo: metaroll.Agent) -> None:
    ppo.save("kept")
    Path("kept").rename(".kept.4711-0a1b2c3d.old")
    assert trees_equal(learned(metaroll.load("kept").run_dir), learned(ppo.run_dir))
    ppo.save("kept")
    assert metaroll.load("kept").run_dir == Path("kept") and not Path(".kept.4711-0a1b2c3d.old").exists()


def test_a_saved_agent_that_was_trained_further_is_a_run(ppo: metaroll.Agent) -> None:
    """Saving replaced it, and the training was lost."""
    ppo.save("kept")
    assert main(["resume", "kept", "--epochs", "2", "--quiet"]) == 0
    with pytest.raises(FileExistsError, match="was not written by agent"):
        ppo.save("kept")


def test_the_copy_that_an_earlier_version_saved_may_be_replaced_unless_it_was_trained_since(
    ppo: metaroll.Agent,
) -> None:
    ppo.save("kept")
    Path("kept/.metaroll").rename("kept/.saved")
    ppo.save("kept")
    Path("kept/.metaroll").rename("kept/.saved")
    Path("kept/.lock").touch()
    with pytest.raises(FileExistsError, match="was not written by agent"):
        ppo.save("kept")


NAMES_OF_OTHERS: dict[str, Any] = {
    "n_steps": "steps_per_epoch=",
    "verbose": "agent.learn(..., progress=False)",
    "policy_class": "hidden_sizes=(64, 64)",
    "total_timesteps": "agent.learn(100_000)",
    "tensorboard_log": "tensorboard=True",
    "net_arch": "hidden_sizes=(64, 64)",
    "policy_kwargs": "hidden_sizes=(64, 64)",
    "n_envs": "num_workers=",
}


def test_names_of_other_libraries_get_ours_all_at_once() -> None:
    with pytest.raises(UnknownNameError) as told:
        metaroll.agent("ppo", "Pendulum-v1", **dict.fromkeys(NAMES_OF_OTHERS, 1))
    for name, ours in NAMES_OF_OTHERS.items():
        hint = str(told.value).partition(f"{name!r}: ")[2].partition("; '")[0]
        assert ours in hint, (name, hint)
    for method, hint in (("predict", r"agent\.act\(obs\)"), ("set_env", r"metaroll\.agent\(algo, env\)")):
        with pytest.raises(AttributeError, match=f"an Agent has no attribute '{method}': .*{hint}"):
            getattr(new(), method)
    with pytest.raises(TypeError, match=r"'total_timesteps': agent\.learn\(100_000\)"):
        new().learn(total_timesteps=10)  # type: ignore[arg-type]
    for wrong, error, words in (
        (
            lambda: metaroll.agent("MlpPolicy", "Pendulum-v1"),
            UnknownNameError,
            r"metaroll\.agent\(algo, 'Pendulum-v1'\)",
        ),
        (lambda: metaroll.PPO("MlpPolicy", "Pendulum-v1"), TypeError, r"metaroll\.agent\(algo, env\)"),  # type: ignore
        (lambda: metaroll.Agent("ppo", "Pendulum-v1"), TypeError, r"metaroll\.agent\(algo, env\)"),  # type: ignore
        (lambda: metaroll.lab.compare(["a", "b"]), TypeError, r"compare\(\*agents\)"),  # type: ignore
        (lambda: metaroll.agent("ppo", "Pendulum-v1", hidden_sizes="64,32"), TypeError, r"as in \[64, 32\]"),
        (lambda: metaroll.agent("ppo", "Pendulum-v1", activation_fn="relu"), UnknownNameError, "hidden_nonlinearity="),
        (
            lambda: metaroll.rollout(new(), "Pendulum-v1"),
            TypeError,
            "it comes second",
        ),
    ):
        with pytest.raises(error, match=words):
            wrong()
    with pytest.raises(UnknownNameError, match=r"comes first: metaroll\.agent\('ppo', 'Pendulum-v1'\)"):
        metaroll.agent("Pendulum-v1", "ppo")


@pytest.mark.parametrize(
    ("algo", "options", "in_python", "in_shell"),
    [
        ("ppo", {"device": "auto"}, 'device="cpu"', "--device cpu"),
        ("ppo", {"size": "paper"}, 'size="small"', "--size small"),
        (
            "ppo",
            {"transport": "serial", "num_workers": 2},
            'num_workers must be 1 with transport="serial"',
            "--num-workers must be 1 with --transport serial",
        ),
        ("ppo", {"randomize": "default"}, 'randomize_param=["g=', "--randomize-param g="),
        ("pearl", {}, "metaroll.agent('pearl', family)", "my_env:family"),
        ("ppo", {"network": "gru", "hidden_sizes": ()}, "hidden_sizes=(64,)", "--hidden-sizes 64"),
        ("ppo", {"epochs": "3", "run_dir": "mine"}, "run_dir=...", "--out"),
    ],
)
def test_errors_speak_the_language_of_the_caller(
    algo: str, options: dict[str, Any], in_python: str, in_shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "run_dir" in options:
        Path("mine").mkdir()
        Path("mine/file.txt").touch()
    with pytest.raises((ValueError, OSError)) as told:
        metaroll.agent(algo, "Pendulum-v1", **options)
    assert in_python in str(told.value)
    assert "--" not in str(told.value)
    flags = [part for name, value in options.items() for part in _typed(name, value)]
    assert main(["train", algo, "Pendulum-v1", *flags]) == 2
    told_in_shell = " ".join(capsys.readouterr().err.split())
    assert in_shell in told_in_shell
    assert in_python not in told_in_shell


def _typed(name: str, value: Any) -> list[str]:
    values = list(map(str, value)) if isinstance(value, tuple) else [str(value)]
    return ["--out" if name == "run_dir" else "--" + name.replace("_", "-"), *values]


@pytest.mark.parametrize("wrong", [5, None, ["x"], print, b"x"])
def test_what_is_no_folder_is_refused(wrong: Any) -> None:
    for call in (metaroll.load, new().save):
        with pytest.raises(TypeError, match=r"^path must"):
            call(wrong)
    if wrong is not None:
        with pytest.raises(TypeError, match=r"^run_dir must"):
            new(run_dir=wrong)


def test_agents_say_what_they_are_in_a_line_and_near_names_are_offered(ppo: metaroll.Agent) -> None:
    assert repr(new()) == ("Agent('ppo', 'Pendulum-v1', seed=0): nothing learned yet, call learn()")
    assert repr(ppo) == f"Agent('ppo', 'Pendulum-v1', seed=3): 1 epoch learned, in {ppo.run_dir}; next: act(obs)"
    ppo.save("ppo")
    with pytest.raises(FileNotFoundError, match="did you mean 'ppo'"):
        metaroll.load("pp")


def test_an_evaluation_says_whether_it_adapts(capsys: pytest.CaptureFixture[str]) -> None:
    agent = metaroll.agent("pearl", "point-robot", **{**PEARL, "epochs": 1}).learn(progress=False)
    result = agent.evaluate(4, out="judged", n_exploration_traj=1, repetitions=1)
    told = json.loads(Path("judged/evaluation.json").read_text())
    assert result.verdict is not None
    assert told["verdict"]["text"] == str(result.verdict) == str(result).splitlines()[0]
    assert repr(result).startswith("EvaluationResult(return ")
    assert "\n" not in repr(result)
    assert told["n_test_tasks"] == len(told["tasks"]) == 4
    limit, repetitions = agent.config["algorithm"]["max_steps"], agent.config["evaluation"]["repetitions"]
    assert (told["protocol"]["max_steps"], told["protocol"]["repetitions"]) == (limit, 1)
    assert told["training_protocol"]["repetitions"] == repetitions > 1
    again = agent.evaluate(4, num_adaptation_episodes=1, repetitions=1)  # without a folder no k-shot curve
    assert again.verdict == result.verdict
    folder = agent.run_dir
    typed = ["--num-tasks", "4", "--repetitions", "1", "--episodes", "1", "--out", "shell", "--quiet"]
    assert main(["evaluate", str(folder), *typed]) == 0
    assert json.loads(Path("shell/evaluation.json").read_text())["verdict"] == told["verdict"]
    assert "return" in repr(new().evaluate(num_episodes=2))
    adapted = agent.adapt(agent.explore(agent.test_tasks[0], episodes=1))
    assert repr(adapted) == "AdaptedAgent('pearl', 'point-robot', 1 episode seen, 20 steps in all); next: act(obs)"


def test_a_run_in_a_given_environment_is_loaded_with_anything_of_the_same_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = metaroll.agent("ppo", gymnasium.make("Pendulum-v1"), run_dir="inst", epochs=2, **PPO)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(callbacks=[INTERRUPT])
    assert "in 1 finished epoch is in inst: learn() continues, save(...) copies it, metaroll.load('inst', env=...)" in (
        capsys.readouterr().out
    )
    obs = np.array([1.0, 0.0, 0.3], np.float32)
    for env in ("Pendulum-v1", gymnasium.make("Pendulum-v1"), lambda: gymnasium.make("Pendulum-v1")):
        np.testing.assert_array_equal(metaroll.load("inst", env).act(obs), agent.act(obs))
    with pytest.raises(SnapshotError, match=r"with observation_space Box.*, here it is Box.*, and action_space Box"):
        metaroll.load("inst", "CartPole-v1")
    with pytest.raises(SnapshotError, match=r"with observation_space Box.*: give the environment"):
        metaroll.load("inst", ReachEnv)
    with pytest.raises(UnknownNameError, match="unknown environment 'Pendulm-v1'"):
        metaroll.load("inst", "Pendulm-v1")


def test_families_in_a_module_are_named_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path("families_here.py").write_text(
        "import gymnasium, metaroll\n"
        "family = metaroll.TaskFamily.from_params('Pendulum-v1', {'g': (5.0, 15.0)}, horizon=20)\n"
    )
    module = importlib.import_module("families_here")
    agent = metaroll.agent("pearl", module.family, run_dir="named", **PEARL)
    assert agent.config["env"] == "families_here:family"
    inner = metaroll.TaskFamily.from_params("Pendulum-v1", {"g": (5.0, 15.0)}, horizon=20)
    monkeypatch.setattr(sys.modules["__main__"], "inner_family", inner, raising=False)
    assert metaroll.agent("pearl", inner, **PEARL).config["env"].startswith("given:")


def test_a_run_that_exists_is_not_said_to_go_on_in_a_copy(ppo: metaroll.Agent) -> None:
    with pytest.raises(RunExistsError, match=r"`metaroll resume .*` in a shell .*, .* a copy"):
        new(run_dir=ppo.run_dir)


def test_a_run_that_was_stopped_early_does_not_say_that_it_has_learned(capsys: pytest.CaptureFixture[str]) -> None:
    agent = metaroll.agent("ppo", ReachEnv(), run_dir="early", max_path_length=10, **PPO)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(400, callbacks=[SimpleNamespace(on_progress=interrupt)])
    assert "stopped before the first epoch was finished: nothing is learned yet; learn() continues in early" in (
        capsys.readouterr().out
    )
    assert agent.learn(400, progress=False).run_dir == Path("early")


BAD_ENV = """
import gymnasium
import numpy as np


class Raises(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-3, 3, (1,), np.float32)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 7:
            {}["missing"]
        return np.zeros(2, np.float32), self.reward, False, False, {}

    reward = 0.0


class SaysText(Raises):
    reward = "1"
"""


def test_errors_in_an_environment_of_ones_own_name_the_line_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path("bad_env_here.py").write_text(BAD_ENV)
    agent = metaroll.agent("ppo", "bad_env_here:Raises", max_path_length=20, **PPO)
    with pytest.raises(RolloutError, match=r"at step 6 of rollout.*KeyError: 'missing'") as told:
        agent.learn(400, progress=False)
    assert re.search(r"bad_env_here\.py, line 18, in step: \{\}\[\"missing\"\]\nRun it again here", str(told.value))
    assert "agent.policy" in str(told.value) and "on_error" not in str(told.value)
    with pytest.raises(RolloutError, match=r"at step 0 of rollout.*must return a number as reward, got '1'"):
        metaroll.agent("ppo", "bad_env_here:SaysText", max_path_length=20, **PPO).learn(400, progress=False)
    assert main(["train", "ppo", "bad_env_here:Raises", "--max-steps", "20", "--out", "bad", "--quiet"]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert err.count("line 18, in step") == 1
    assert "what was saved" not in err and "no epoch was finished; once the cause is removed" in err
    assert "continue with: metaroll resume bad" in err
    arguments = ["--max-steps", "20", "--snapshot-mode", "none", "--out", "none", "--quiet"]
    assert main(["train", "ppo", "bad_env_here:Raises", *arguments]) == 2  # without a snapshot it fails again
    assert "resume" not in capsys.readouterr().err


def test_environments_with_choices_in_bits_are_told_how_to_declare_them() -> None:
    class Bits(ReachEnv):
        action_space = MultiBinary(2)  # type: ignore[assignment]

    with pytest.raises(TypeError, match=r"got MultiBinary\(2\); declare MultiDiscrete\(np\.full\(\(2,\), 2\)\)"):
        metaroll.agent("ppo", Bits, max_path_length=10, **PPO)


def test_a_callback_that_returns_false_ends_learning_after_its_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    stop = SimpleNamespace(on_epoch_end=lambda runner, epoch, metrics: epoch < 1)
    agent = new(run_dir="stopped", epochs=4).learn(callbacks=[stop])
    assert "ended after 2 epochs: on_epoch_end of a callback returned False" in capsys.readouterr().out
    assert "2 epochs learned" in repr(agent)
    assert json.loads(Path("stopped/summary.json").read_text())["epochs"] == 2
    agent.learn(progress=False)
    assert "4 epochs learned" in repr(agent)
    new(run_dir="whole", epochs=4).learn(progress=False)
    assert trees_equal(learned(Path("stopped")), learned(Path("whole")))


def test_names_that_are_not_there_are_told_what_is() -> None:
    for name, hint in (
        ("evaluate_policy", r"agent\.evaluate\(\)"),
        ("make_vec_env", ".*num_workers=4"),
        ("TRPO", r"metaroll\.agent\(algo, env\)"),
        ("RolloutEngin", "did you mean 'RolloutEngine'"),
        ("GausianMLPPolicy", r"did you mean 'policies\.GaussianMLPPolicy'"),
        ("EstimatrConfig", r"did you mean 'configs\.EstimatorConfig'"),
        ("PPOConfig", r"it is metaroll\.configs\.PPOConfig"),
        ("polices", "did you mean 'policies'"),
        ("ppo", "did you mean 'PPO'"),
        ("sims.Pendulm", "did you mean 'PendulumEnv'"),
        ("search.PGPE", r"it is metaroll\.contrib\.PGPE"),
        ("configs.PPOConfg", "did you mean 'PPOConfig'"),
        ("testing.check_slot", "did you mean 'check_slots'"),
    ):
        *room, missing = name.split(".")
        module = getattr(metaroll, room[0]) if room else metaroll
        with pytest.raises(AttributeError, match=f"^module '{module.__name__}' has no attribute '{missing}': {hint}"):
            getattr(module, missing)
    agent = new()
    for name, hint in (("num_timesteps", "metrics.jsonl"), ("action_space", r"agent\.env_spec\.action_space")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}': .*{hint}"):
            getattr(agent, name)
    with pytest.raises(UnknownNameError, match=r"^unknown option 'buffer_size'; there is no replay buffer"):
        metaroll.agent("ppo", "Pendulum-v1", buffer_size=1000)
    assert metaroll.agent("pearl", "point-robot", buffer_size=1000).config["algorithm"]["replay_size"] == 1000
