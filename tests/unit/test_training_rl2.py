"""RL2 by name: command line, Python front and runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.spaces import Box, Discrete

import metaroll
from metaroll.errors import ShapeError, UsageError
from metaroll.lab.cli.main import main
from metaroll.training.algorithms.ppo_trials import FreshTrials
from metaroll.training.store.snapshots import load_snapshot

pytestmark = pytest.mark.usefixtures("lent_pools")

SMALL: dict[str, Any] = {
    "hidden_sizes": (6,),
    "trials_per_epoch": 6,
    "num_passes": 2,
    "batch_size": 60,
    "num_test_tasks": 3,
    "evaluate_every": 1,
    "epochs": 2,
}


class HiddenGoal(gymnasium.Env):
    """Go to a hidden place on a line; ends there, after ten steps at most."""

    observation_space = Box(-9.0, 9.0, (1,), np.float32)
    action_space = Discrete(3)

    def __init__(self) -> None:
        self.goal = 1.0

    def sample_tasks(self, num_tasks: int) -> list[float]:
        return self.np_random.integers(-40, 40, size=num_tasks).astype(float).tolist()

    def set_task(self, task: float) -> None:
        self.goal = task

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = 0.0, 0
        return np.array([self.x], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.x, self.t = self.x + float(action) - 1.0, self.t + 1
        there = abs(self.x - self.goal) < 0.5
        return np.array([self.x], np.float32), float(there), there, self.t >= 10, {}


FAMILY = metaroll.TaskFamily.from_env(HiddenGoal, name="hidden", horizon=10)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_tasks_are_drawn_anew_and_never_those_that_are_held_out() -> None:
    fresh = FreshTrials(metaroll.get_family("bandit-5"), 4, 1)
    one, two = (fresh.sample(30, generator=np.random.default_rng(seed)) for seed in (0, 1))
    again = fresh.sample(30, generator=np.random.default_rng(0))
    keys = [{update.task["probabilities"].tobytes() for update in updates} for updates in (one, two, again)]
    assert len(keys[0] | keys[1]) == 60 and keys[0] == keys[2]
    env = one[0]()
    assert env.episodes_per_trial == 4 and env.max_episode_steps == 1
    agent = metaroll.agent("rl2", "bandit-5", **{**SMALL, "num_test_tasks": 20})
    assert not keys[0] & {update.task["probabilities"].tobytes() for update in agent.test_tasks}
    assert agent.train_tasks == [] and agent.algo.train_tasks is None
    listed = metaroll.agent("rl2", "bandit-5", num_train_tasks=5, **SMALL)
    assert len(listed.train_tasks) == len(listed.algo.train_tasks) == 5


@pytest.mark.usefixtures("empty_charts")
def test_every_command_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in SMALL.items()}
    Path("a.yaml").write_text(yaml.safe_dump({**options, "epochs": 1}))
    for name in ("a", "b"):
        seed = str(len(name) + (name == "b"))
        assert main(["train", "rl2", "point-robot", "--config", "a.yaml", "--seed", seed, "--out", name]) == 0
    text = capsys.readouterr().out
    assert "6 trials of 3 episodes per epoch" in text and "80 training and 3 held-out tasks" in text
    assert main(["watch", "a", "--out", "a.gif", "--json"]) == 0
    panels = json.loads(capsys.readouterr().out)["panels"]
    assert [panel["title"] for panel in panels][:2] == ["no adaptation", "adapted to 2 episodes"]
    assert main(["evaluate", "a", "--quiet"]) == 0
    found = json.loads(Path("a/evaluation.json").read_text())
    assert {"no adaptation", "random context", "task oracle"} <= set(found["baselines"])
    # Before it knows anything it is the exploration policy; afterwards, what the evaluation of training measured.
    summary = json.loads(Path("a/summary.json").read_text())
    assert found["return_after"] == summary["return_after"]
    assert main(["report", "a"]) == 0 and Path("a/report.html").exists()
    assert main(["compare", "a", "b"]) == 0
    assert main(["resume", "a", "--epochs", "2", "--quiet"]) == 0
    assert load_snapshot(Path("a"), "last").iteration == 2


def test_an_agent_explores_adapts_and_acts_in_an_environment_of_ones_own(tmp_path: Path) -> None:
    agent = metaroll.agent("rl2", FAMILY, **SMALL, size="small")
    agent.learn(progress=False)
    agent.save("kept")
    agent = metaroll.load("kept", FAMILY)
    mine = HiddenGoal()
    mine.set_task(2.0)
    for env in (mine, metaroll.wrappers.TrialWrapper(HiddenGoal(), 1), agent.test_tasks[0]):
        rollouts = agent.explore(env, 2, seed=1)
        assert len(rollouts) == 2 and rollouts[0].observations.shape[1] == 1 + 3 + 2
        adapted = agent.adapt(rollouts)
        assert adapted.policy.memory["told"][-1] == 1.0
        # The first exploration episode is made without knowledge, the second with the first.
        one = agent.adapt(rollouts[:1])
        again = metaroll.rollout(_opened(env), one, eval=True, seed=1, sub_seed=1, max_steps=10, no_close=True)
        np.testing.assert_array_equal(again.actions, rollouts[1].actions)
    trial = metaroll.wrappers.TrialWrapper(mine, 1)
    obs, _ = trial.reset(seed=0)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = trial.step(adapted.act(obs))
        total, over = total + float(reward), terminated or truncated
    assert total in (0.0, 1.0)
    raw = metaroll.rollout(mine, lambda obs: 1, seed=0, max_steps=10, no_close=True)
    with pytest.raises(ShapeError, match=r"another environment.*metaroll\.wrappers\.TrialWrapper"):
        agent.adapt([raw])
    with pytest.raises(ShapeError, match=r"shape \(6,\).*metaroll\.wrappers\.TrialWrapper"):
        adapted.act(mine.reset(seed=0)[0])
    with pytest.raises(ShapeError, match="observation_space of env must be like"):
        agent.explore(gymnasium.make("CartPole-v1"), 1)


def _opened(env: Any) -> Any:
    env = env() if callable(env) and not isinstance(env, gymnasium.Env) else env
    return env if isinstance(env, metaroll.wrappers.TrialWrapper) else metaroll.wrappers.TrialWrapper(env, 1, 10)


@pytest.mark.parametrize(
    ("env", "options", "text"),
    [
        ("CartPole-v1", {}, "is a single environment without tasks"),
        ("bandit-5", {"hidden_sizes": ()}, "hidden_sizes .* width of the gru"),
        ("bandit-5", {"num_train_tasks": 0}, "num_train_tasks"),
    ],
)
def test_what_makes_no_sense_is_refused(env: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, UsageError), match=text):
        metaroll.agent("rl2", env, **{**SMALL, **options})
