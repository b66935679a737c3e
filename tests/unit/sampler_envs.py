"""A small simulation with state, time step and domain parameters, for tests of samplers; imported by workers, too."""

from __future__ import annotations

import contextlib
import os
import signal

import gymnasium
import numpy as np
from gymnasium.spaces import Box

NOMINAL = {"mass": 1.0, "stiffness": 2.0}


class Oscillator(gymnasium.Env):
    """Mass on a spring, semi-implicit Euler; ends after ``max_steps``, or with ``end`` at random."""

    dt = 0.1

    def __init__(self, max_steps: int = 20, end: float = 0.0):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.max_steps, self.end = max_steps, end
        self._params = dict(NOMINAL)
        self.state = None
        self.resets = self.closed = 0

    @classmethod
    def get_nominal_domain_param(cls):
        return dict(NOMINAL)

    @property
    def domain_param(self):
        return dict(self._params)

    @domain_param.setter
    def domain_param(self, params):
        self._params.update(params)

    def current_observation(self):
        return self.state.copy()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        given = (options or {}).get("init_state")
        self.state = self.np_random.normal(size=2) if given is None else np.array(given, dtype=np.float64)
        self._t = 0
        self.resets += 1
        return self.state.copy(), {}

    def step(self, action):
        x, v = self.state
        force = 0.5 * float(np.clip(action, -1, 1)[0])
        v = v + self.dt * (force - self._params["stiffness"] * x) / self._params["mass"]
        self.state = np.array([x + self.dt * v, v])
        self._t += 1
        terminated = self.end > 0 and bool(self.np_random.random() < self.end)
        reward = -float(np.abs(self.state).sum())
        applied = np.array([force])
        return self.state.copy(), reward, terminated, self._t >= self.max_steps, {"act_applied": applied}

    def close(self):
        self.closed += 1


class Started(Oscillator):
    """Says that it can be started in any state."""

    init_space = Box(-1.0, 1.0, (2,), np.float64)


class Troubled(Started):
    """Fails, or kills its process, where it starts at 0.7 and is told to: by a file that holds what to do."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def step(self, action):
        kind = self._told() if self._t == 3 else ""
        if kind == "raise" and abs(self.start - 0.7) < 1e-9:
            raise ArithmeticError("the spring is broken")
        if kind == "kill":
            with contextlib.suppress(FileNotFoundError):  # the other worker was faster
                os.rename(self.path, self.path + ".done")
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

    def _told(self):
        try:
            with open(self.path, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def reset(self, *, seed=None, options=None):
        out = super().reset(seed=seed, options=options)
        self.start = float(self.state[0])
        return out


class Deaf(Oscillator):
    """Ignores the initial state."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class Nan(Oscillator):
    """Every rollout, or each with a positive first position, shows NaN."""

    def __init__(self, always: bool = True):
        super().__init__(max_steps=5)
        self.always = always

    def reset(self, *, seed=None, options=None):
        out = super().reset(seed=seed, options=options)
        self._bad = self.always or self.state[0] > 0
        return out

    def step(self, action):
        observation, *rest = super().step(action)
        return np.full(2, np.nan) if self._bad else observation, *rest


class Explorer:
    """A foreign exploration strategy: noise from the global generator around another policy."""

    def __init__(self, policy):
        self.policy = policy

    def __call__(self, obs):
        return self.policy(obs) + 0.3 * np.random.normal(size=1)


def push(obs):
    return np.tanh(obs[:1])


def ending():
    """Ends at random, after 20 steps at the latest."""
    return Oscillator(end=0.1)


class Controller:
    """Pushes in proportion to the mass that it is told."""

    told = None

    def reset(self, domain_param=None):
        self.told = domain_param

    def __call__(self, obs):
        return np.array([self.told["mass"] / 10])
