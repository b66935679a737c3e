"""Small environments for tests of the engine; imported by the workers, too."""

from __future__ import annotations

import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.types import EnvUpdate


class Drift(gymnasium.Env):
    """Random walk with drift ``task["drift"]`` that ends at random, and hands out the same buffer at every step."""

    def __init__(self, drift: float = 0.0, end: float = 0.05):
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.drift, self.end = drift, end
        self._buffer = np.zeros(3)

    def set_task(self, task):
        self.drift = task["drift"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        self._buffer[:] = self.np_random.normal(size=3)
        return self._buffer, {}

    def step(self, action):
        self._t += 1
        self._buffer[:2] += 0.1 * action + self.drift
        self._buffer[2] += self.np_random.normal()
        reward = float(-np.abs(self._buffer).sum())
        return self._buffer, reward, bool(self.np_random.random() < self.end), False, {"t": self._t}


class Trouble(Drift):
    """Fails as told, once (where a marker file is given) or always."""

    def __init__(self, kind: str, at_step: int = 5, marker: str | None = None, only_drift: float | None = None):
        super().__init__(end=0.0)
        self.kind, self.at_step, self.marker, self.only_drift = kind, at_step, marker, only_drift

    def reset(self, *, seed=None, options=None):
        out = super().reset(seed=seed, options=options)
        if self.at_step < 0:
            self._trouble()
        return out

    def step(self, action):
        if self._t == self.at_step:
            self._trouble()
        out = super().step(action)
        if self.kind == "nan" and self._t == self.at_step + 1 and self._due():
            out[0][1] = np.nan
        return out

    def _due(self):
        if self.only_drift is not None and self.drift != self.only_drift:
            return False
        if self.marker is None:
            return True
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _trouble(self):
        if self.kind == "nan" or not self._due():
            return
        if self.kind == "raise":
            raise ArithmeticError("the motor is on fire")
        if self.kind == "exit":
            os._exit(3)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.kind == "hang":
            time.sleep(600)


class Slow(Drift):
    """The same, so slow that a node can die meanwhile."""

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


class SetDrift(EnvUpdate):
    """Sets the drift of whatever environment it gets."""

    def __init__(self, drift: float):
        self.task = {"drift": drift}

    def __call__(self, old_env=None):
        old_env.unwrapped.set_task(self.task)
        return old_env


class BreaksAt(gymnasium.Env):
    """Raises at the step that its initial state names."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.breaks_at = 0, (options or {"init_state": [np.inf]})["init_state"][0]
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.number += 1
        if self.number >= self.breaks_at:
            raise RuntimeError("the gear broke")
        return np.full(1, self.number, np.float32), 1.0, False, False, {}
