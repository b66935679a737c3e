"""A good environment with tasks, and one for every way to get it wrong."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np

from metaroll import TaskFamily


class Line(gymnasium.Env):
    """A point on a line is to find a place that it is not told."""

    observation_space: Any = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space: Any = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    place = 0.0
    x = 0.0

    def sample_tasks(self, num_tasks, generator=None):
        return [{"place": float(place)} for place in np.random.default_rng(generator).uniform(-1, 1, num_tasks)]

    def set_task(self, task):
        self.place = task["place"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.1 * self.np_random.normal()
        return self.shown(), {}

    def step(self, action):
        self.x += 0.2 * float(action[0])
        return self.shown(), -abs(self.x - self.place), False, False, {}

    def shown(self):
        return np.array([self.x], np.float32)


class SetsNothing(Line):
    def set_task(self, task):
        pass


class ResetDrawsATask(Line):
    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        self.place = float(self.np_random.uniform(-1, 1))
        return result


class SecondResetForgets(Line):
    resets = 0

    def set_task(self, task):
        super().set_task(task)
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if self.resets > 1:
            self.place = 0.0
        return super().reset(seed=seed)


class Drifts(Line):
    def set_task(self, task):
        self.place += task["place"]


class DrawsGlobally(Line):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.random.normal()
        return self.shown(), {}


class DrawsByItself(Line):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.random.default_rng().normal()
        return self.shown(), {}


class ShowsThePlace(Line):
    observation_space: Any = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def shown(self):
        return np.array([self.x, 3 * self.place + 1, 7], np.float32)


class ShowsHalf(ShowsThePlace):
    """Of two numbers of the task it shows one."""

    def sample_tasks(self, num_tasks, generator=None):
        values = np.random.default_rng(generator).uniform(-1, 1, (num_tasks, 2))
        return [{"place": float(place), "tilt": float(tilt)} for place, tilt in values]


class SamplesAnew(Line):
    def sample_tasks(self, num_tasks):
        return [{"place": float(place)} for place in np.random.default_rng().uniform(-1, 1, num_tasks)]


class OldStep(Line):
    def step(self, action):  # type: ignore[override]
        return self.shown(), 0.0, False, {}


class NaNReward(Line):
    def step(self, action):
        return self.shown(), float("nan"), False, False, {}


class WrongShape(Line):
    """Says one number, shows three."""

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


class Halves(Line):
    """Says whole numbers, shows halves."""

    observation_space: Any = gymnasium.spaces.Box(-9, 9, (1,), np.int32)

    def shown(self):
        return np.array([0.5], np.float32)


class ShowsLater(Line):
    """Hides the place until it has been stepped."""

    observation_space: Any = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def step(self, action):
        shown, *rest = super().step(action)
        return np.array([shown[0], self.place], np.float32), *rest  # type: ignore[return-value]

    def shown(self):
        return np.array([self.x, 0], np.float32)


class ToldByReset(gymnasium.Env):
    """The same, told its task by the options of ``reset``."""

    observation_space: Any = Line.observation_space
    action_space: Any = Line.action_space
    option = "task"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.x = (options or {}).get(self.option, {"place": 0.0})["place"], 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.x += 0.2 * float(action[0])
        return np.array([self.x], np.float32), -abs(self.x - self.place), False, False, {}


class Sized(Line):
    """Its size is a constant, and a constructor's argument."""

    def __init__(self, size=1.0):
        self.size = float(size)

    def step(self, action):
        return super().step(self.size * action)


class Needs(Line):
    """Cannot be made without an argument."""

    def __init__(self, size):
        self.size = size


def locked() -> TaskFamily:
    """A family whose constructor holds a lock, which cannot be sent anywhere."""
    lock = threading.Lock()

    def make():
        with lock:
            return Line()

    return TaskFamily.from_env(make, horizon=20)


def make_line() -> Line:
    return Line()


def no_license() -> Any:
    raise RuntimeError("no license")
