"""Environments and their policy for measurements of throughput; workers import this module, too."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

HIDDEN_SIZES = (64, 64)


class PointEnv(gymnasium.Env):
    """A point in the plane that is pulled to the origin: about as cheap as a Python environment can be."""

    horizon = 100

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self._x = self._y = 0.0
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._x, self._y = self.np_random.uniform(-1.0, 1.0, 2).tolist()
        self._t = 0
        return np.array((self._x, self._y), np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        dx, dy = action.tolist()
        self._x = x = self._x + 0.1 * dx
        self._y = y = self._y + 0.1 * dy
        self._t += 1
        return np.array((x, y), np.float32), -(x * x + y * y), False, self._t >= self.horizon, {}


class ShortPointEnv(PointEnv):
    """``PointEnv`` with episodes of 20 steps."""

    horizon = 20


def make_env(name: str) -> gymnasium.Env:
    """An environment without Gymnasium's passive checker."""
    own = {"point": PointEnv, "short-point": ShortPointEnv}
    return own[name]() if name in own else gymnasium.make(name, disable_env_checker=True)


def make_policy(name: str) -> Any:
    """The 64x64 tanh policy for an environment, always with the same weights."""
    from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
    from metaroll.seeding import torch_generator
    from metaroll.types import EnvSpec

    with contextlib.closing(make_env(name)) as env:
        spec = EnvSpec.from_env(env)
    kind = CategoricalMLPPolicy if isinstance(spec.action_space, Discrete) else GaussianMLPPolicy
    return kind(spec, hidden_sizes=HIDDEN_SIZES, generator=torch_generator(0))


class Rate(NamedTuple):
    """Steps per second, and microseconds of processor time per step where it was measured."""

    steps: float
    cpu_us: float | None = None
