"""Environments with every kind of space, importable by workers. Each draws from its own generator at every step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

NESTED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "pair": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-np.inf, np.inf, (2,), np.float64))),
        "gears": spaces.MultiDiscrete([2, 3]),
        "switches": spaces.MultiBinary(2),
        "mission": spaces.Text(20),
    }
)


class SpaceEnv(gymnasium.Env):
    """Shows random elements of its observation space; ends after a random number of steps.

    The reward tells what action arrived. Everything that it returns is in memory that it uses again.
    """

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._shown: Any = None

    def _observe(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        drawn = self.observation_space.sample()
        if isinstance(self._shown, np.ndarray) and self._shown.ndim:
            self._shown[...] = drawn
        else:
            self._shown = drawn
        return self._shown

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        if isinstance(self.action_space, spaces.Box):  # Gaussian policies do not know bounds
            action = np.clip(action, self.action_space.low, self.action_space.high)
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        numbers = gymnasium.spaces.flatten(self.action_space, action)
        reward = np.float32(np.dot(numbers, np.arange(1, len(numbers) + 1)))
        ended = np.bool_(self.np_random.random() < 0.1)
        return self._observe(), reward, ended, np.False_, {"seen": np.float32(reward), "text": "x"}


def nested() -> SpaceEnv:
    return SpaceEnv(NESTED, spaces.Box(-1.0, 1.0, (2,), np.float32))


def pair() -> SpaceEnv:
    return SpaceEnv(spaces.Tuple((spaces.Discrete(4), spaces.Box(-1, 1, (3,)))), spaces.Discrete(3, start=2))


def image() -> SpaceEnv:
    return SpaceEnv(spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Discrete(2))


def gears() -> SpaceEnv:
    return SpaceEnv(spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([2, 3]))


def switches() -> SpaceEnv:
    return SpaceEnv(spaces.MultiBinary(3), spaces.MultiBinary(2))


def compound_action() -> SpaceEnv:
    action = spaces.Dict({"move": spaces.Box(-1.0, 1.0, (2,), np.float32), "tool": spaces.Discrete(3, start=1)})
    return SpaceEnv(spaces.Box(-1, 1, (2,), np.float32), spaces.Tuple((action, spaces.MultiBinary(2))))


ENVS = {f.__name__: f for f in (nested, pair, image, gears, switches, compound_action)}


class Sampler:
    """A foreign policy: draws any action of the space from NumPy's global generator, as many scripts do."""

    def __init__(self, action_space: spaces.Space, observation_space: spaces.Space) -> None:
        self.action_space, self.observation_space = action_space, observation_space

    def __call__(self, obs: Any) -> Any:
        if not self.observation_space.contains(obs):
            raise ValueError(f"{obs!r} is not in {self.observation_space}")
        self.action_space.seed(int(np.random.randint(2**31)))
        return self.action_space.sample()
