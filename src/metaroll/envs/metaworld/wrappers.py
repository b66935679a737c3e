"""The wrapper of task samplers for Meta-World: it appends the number of the environment as a one-hot vector."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from metaroll.types import EnvSpec

__all__ = ["OneHotEnv", "TaskWrapper"]


class OneHotEnv(gymnasium.ObservationWrapper):
    """Appends a one-hot vector of length ``size``, 1 at ``index``, to the observations.

    Args:
        env: Environment with flat observations.
        index: Which entry is 1.
        size: How many there are.
    """

    def __init__(self, env: Any, index: int, size: int) -> None:
        super().__init__(env)
        space = env.observation_space
        self._one_hot = np.zeros(size, dtype=space.dtype)
        self._one_hot[index] = 1.0
        low = np.concatenate((space.low, np.zeros_like(self._one_hot)))
        high = np.concatenate((space.high, np.ones_like(self._one_hot)))
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)

    @property
    def env_spec(self) -> EnvSpec:
        inner = EnvSpec.from_env(self.env)
        return EnvSpec(self.observation_space, self.action_space, inner.max_episode_length)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return np.concatenate((observation, self._one_hot))


class TaskWrapper:
    """Wraps an environment for a task: the one-hot vector first, then the user's own wrapper.

    Args:
        inner: Called as ``inner(env, task)``, or ``None``.
        one_hot: Index and length of the one-hot vector, or ``None``.
    """

    def __init__(self, inner: Any = None, one_hot: tuple[int, int] | None = None) -> None:
        self._inner, self._one_hot = inner, one_hot

    def __call__(self, env: Any, task: Any) -> Any:
        if self._one_hot is not None:
            env = OneHotEnv(env, *self._one_hot)
        return env if self._inner is None else self._inner(env, task)
