"""A task family and a meta-learner that are small enough to compute by hand, for tests of the training layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from metaroll.learners.base import MetaRLAlgorithm
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import Policy, PolicyInfo

HORIZON = 3


class GoalEnv(gymnasium.Env):
    """Reward ``-|action - goal|`` at every step; the goal is told in the infos. It never ends by itself."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)

    def __init__(self) -> None:
        self._goal = 0.0

    def sample_tasks(self, num_tasks: int, generator: Any = None) -> list[dict[str, Any]]:
        generator = np.random.default_rng(generator)
        return [{"goal": generator.uniform(1.0, 5.0, 1)} for _ in range(num_tasks)]

    def set_task(self, task: Mapping[str, Any]) -> None:
        self._goal = float(np.asarray(task["goal"]).reshape(-1)[0])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        error = abs(float(action[0]) - self._goal)
        return (
            self._observation(),
            -error,
            False,
            False,
            {"goal": self._goal, "success": error < 0.5, "double": -2 * error},
        )

    def _observation(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 1).astype(np.float32)


class GuessPolicy(Policy):
    """Acts ``weight + guess (+ 0.1 * noise)``; the guess about the task is in the state."""

    info = PolicyInfo(noise_dim=1, draws=False)

    def __init__(self, weight: float = 0.0, guess: float | None = None) -> None:
        self.weight = np.array([weight], dtype=np.float32)
        self.guess = guess

    def initial_state(
        self, contexts: Sequence[Any], generators: Sequence[Any], domain_params: Any = None
    ) -> dict[str, np.ndarray]:
        rows = [[0.0] if c is None else c["guess"] for c in contexts]
        return {"guess": np.array(rows, dtype=np.float32)}

    def act(
        self, obs: np.ndarray, state: Any, noise: np.ndarray, deterministic: Any = False, parameters: Any = None
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        weights = self.weight if parameters is None else parameters
        loud = np.where(np.broadcast_to(deterministic, (len(obs),)), 0.0, 0.1).astype(np.float32)[:, None]
        return state["guess"] + np.atleast_2d(weights)[:, :1] + loud * noise, state, {}

    def acting_parameters(self) -> np.ndarray:
        return self.weight.copy()

    def plan_context(self) -> Any:
        return None if self.guess is None else {"guess": np.array([self.guess], dtype=np.float32)}


class GoalLearner(MetaRLAlgorithm):
    """Adapts by looking the goal up in the trajectories; training moves the weight by rewards and noise."""

    max_path_length = HORIZON
    discount = 0.5

    def __init__(self, train: Sequence[Any], test: Sequence[Any], seed: int = 0, width: int = 2) -> None:
        self.policy = GuessPolicy()
        self.test_env_sampler = FixedTaskSampler(test)
        self.num_test_tasks = len(test)
        self.train_tasks = [update.task for update in train]
        self.updates = list(train)
        self.generator = np.random.default_rng(seed)
        self.slopes = np.zeros(width)
        self.rewards = np.zeros(0)
        self.collected_initial = 0
        self.adapted_with: list[int] = []
        self.before_epoch: Any = None  # tests hook in here

    def train(self, runner: Any) -> float | None:
        result = None
        for epoch in runner.step_epochs():
            if self.before_epoch is not None:
                self.before_epoch(epoch)
            if not self.rewards.size:
                self._collect(runner)
                self.collected_initial += 1
            self._collect(runner)
            draw = self.generator.choice(self.rewards)
            self.policy.weight += np.float32(0.01 * draw + 0.01 * self.generator.standard_normal())
            self.slopes += self.generator.standard_normal(len(self.slopes))
            runner.log({"weight": self.policy.weight[0], "slope": self.slopes.mean()})
            result = runner.evaluate(self, self.test_env_sampler)
        return result

    def _collect(self, runner: Any) -> None:
        groups = runner.obtain_samples(runner.step_itr, num_rollouts=2, env_update=self.updates)
        self.rewards = np.concatenate([self.rewards, *(r.rewards for group in groups for r in group)])

    def get_exploration_policy(self) -> GuessPolicy:
        return GuessPolicy(float(self.policy.weight[0]))

    def adapt_policy(self, exploration_policy: GuessPolicy, exploration_trajectories: Any) -> GuessPolicy:
        batch = exploration_trajectories
        seen = len(batch.lengths)
        exploration_policy.guess = float(batch.env_infos["goal"][0])
        exploration_policy.seen = seen
        return exploration_policy

    def state_dict(self) -> dict[str, Any]:
        return {
            "weight": self.policy.weight.copy(),
            "slopes": self.slopes.copy(),
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        self.policy.weight = tree["weight"]
        self.slopes = tree["slopes"]
        self.generator.bit_generator.state = tree["generator"]

    def buffers_state_dict(self, copy: bool = True) -> dict[str, Any]:
        return {"rewards": self.rewards}

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        self.rewards = tree["rewards"]


def goal_updates(goals: Sequence[float]) -> list[SetTaskUpdate]:
    """One task per goal."""
    return [SetTaskUpdate(GoalEnv, {"goal": np.array([goal])}) for goal in goals]


def make_learner(seed: int = 0, **arguments: Any) -> GoalLearner:
    """A learner with two train tasks and three test tasks (goals 1.5, 2.5 and 4)."""
    return GoalLearner(goal_updates([1.0, 2.0]), goal_updates([1.5, 2.5, 4.0]), seed, **arguments)
