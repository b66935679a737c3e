"""Meta-environments and policies as ProMP has them; imported by the workers, too."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Ending(gymnasium.Env):
    """Ends at random; a task says how likely, and what is added to the rewards."""

    observation_space: Any = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, fail_at: int | None = None, what: str = "raise") -> None:
        self.task: dict[str, float] = {"chance": 0.3, "bonus": 0.0}
        self.fail_at, self.what, self.steps = fail_at, what, 0

    def sample_tasks(self, num_tasks: int) -> list[dict[str, float]]:
        drawn = np.random.uniform(0, 0.6, (num_tasks, 2))
        return [{"chance": float(chance), "bonus": float(bonus)} for chance, bonus in drawn]

    def set_task(self, task: dict[str, float]) -> None:
        self.task = task

    def get_task(self) -> dict[str, float]:
        return self.task

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.shown = self.np_random.normal(size=2)
        return self.shown, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.fail_at and self.what == "raise":
            raise ZeroDivisionError("the motor is hot")
        self.shown += self.np_random.normal(size=2)  # hands out the same array at every step
        over = bool(self.np_random.random() < self.task["chance"])
        info: dict[str, Any] = {"speed": float(action[0])} | ({"success": True} if over else {})
        reward = float(self.shown[0]) + self.task["bonus"]
        return self.shown, float("nan") if self.steps == self.fail_at else reward, over, False, info


class OldSpace:
    """A Box of the old Gym."""

    def __init__(self, size: int) -> None:
        self.low, self.high, self.shape = -np.ones(size), np.ones(size), (size,)


class OldPoint:
    """ProMP's kind of environment: the old Gym API, drawing from NumPy's global generator."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = OldSpace(2), OldSpace(2)
        self.goal = np.zeros(2)
        self.state = np.zeros(2)

    def sample_tasks(self, num_tasks: int) -> list[np.ndarray]:
        return list(np.random.uniform(-1, 1, (num_tasks, 2)))

    def set_task(self, task: np.ndarray) -> None:
        self.goal = task

    def get_task(self) -> np.ndarray:
        return self.goal

    def reset(self) -> np.ndarray:
        self.state = np.random.normal(size=2)
        return self.state

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        self.state += 0.1 * action + 0.01 * np.random.normal(size=2)
        distance = float(np.linalg.norm(self.state - self.goal))
        return self.state, -distance, distance < 0.5, {"distance": distance}


class ProMPPolicy:
    """Acts for all tasks at once, with noise of NumPy's global generator."""

    def __init__(self, act_dim: int = 1, infos: bool = True) -> None:
        self.act_dim, self.infos, self.calls = act_dim, infos, 0

    def switch_to_pre_update(self) -> None:
        pass

    def get_action(self, observation: Any, task: int = 0) -> Any:
        raise AssertionError("MetaSampler asks for the actions of all tasks")

    def get_actions(self, observations: list[np.ndarray]) -> Any:
        self.calls += 1
        actions = [
            np.tanh(own[:, : self.act_dim] + np.random.normal(size=(len(own), self.act_dim))) for own in observations
        ]
        means = [[{"mean": row.copy()} for row in own[:, : self.act_dim]] for own in observations]
        return actions, means if self.infos else None


class Echo:
    """Another library's policy of one observation."""

    def get_action(self, observation: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        return np.tanh(observation[:1]), {"seen": observation.copy()}
