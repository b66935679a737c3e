"""A film shows the very rollout that was made, or says why it cannot."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.lookup.registry import get_family
from metaroll.lab.figures.film import drawing_env, film
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import RolloutPlan


class Walk(gymnasium.Env):
    """A random walk; its picture shows where it is, and how long a step is, as shades of gray."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 7}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    size = 1.0
    noise = 1.0

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x += self.size * float(action[0]) + self.noise * float(self.np_random.normal())
        return np.array([self.x], np.float32), self.x, False, False, {}

    def render(self):
        return np.full((4, 6, 3), round(100 + 10 * self.x) % 256, np.uint8)


class Ending(Walk):
    """Ends by itself after its third step."""

    age = 0

    def reset(self, *, seed=None, options=None):
        self.age = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.age += 1
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.age == 3, truncated, info


class Endless(Ending):
    """Ends only where it is not drawn, and has other rewards there."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        is_drawn = self.render_mode is not None
        return obs, reward + is_drawn, terminated and not is_drawn, truncated, info


class Brief(Ending):
    """Ends a step earlier where it is drawn."""

    def reset(self, *, seed=None, options=None):
        first = super().reset(seed=seed, options=options)
        self.age = 0 if self.render_mode is None else 1
        return first


class Blind(Walk):
    def __init__(self) -> None:
        super().__init__(None)


class Picky(Walk):
    """Declares pictures, and cannot be made where it is drawn."""

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise ValueError("no light")
        super().__init__()


class Forgetful(Walk):
    """Draws its noise from elsewhere than the seed."""

    count = 0

    def step(self, action):
        Forgetful.count += 1
        self.x += Forgetful.count
        return np.array([self.x], np.float32), self.x, False, False, {}


class Broken(Walk):
    def render(self):
        raise RuntimeError("no screen,\nno library")


class BrokenRobot(Walk):
    def render(self):
        exec("raise RuntimeError('no context')", {"__name__": "mujoco.egl"})  # as a driver of MuJoCo does


def acted(env: Any, update: Any = None, steps: int | None = 5, **options: Any) -> Any:
    plan = RolloutPlan(seed=(1, 2, 3), env_update=update, max_steps=steps, eval=True, **options)
    with RolloutEngine(env, lambda obs: np.array([0.5], np.float32)) as engine:
        return engine.run([plan])[0]


def test_the_film_is_that_of_the_rollout():
    rollout = acted(Walk)
    filmed = film(rollout, Walk)
    assert filmed.frames.shape == (6, 4, 6, 3) and filmed.fps == 7
    expected = np.round(100 + 10 * np.concatenate([[0.0], rollout.rewards])).astype(int) % 256
    assert filmed.frames[:, 0, 0, 0].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("source", "options", "steps"),
    [
        ("qcp-st", {"steps": 300}, 24),  # it fails, and pays for the steps that are left
        ("qcp-st", {"steps": None}, 24),  # the same with the limit of the environment
        (Ending, {"steps": None}, 3),
        (Ending, {"steps": 5, "stop_on_done": False}, 5),
    ],
)
def test_a_film_has_the_limit_and_the_end_of_its_rollout(source, options, steps):
    rollout = acted(source, **options)
    assert len(rollout) == steps and len(film(rollout, source).frames) == steps + 1


@pytest.mark.parametrize("update", ["params", "env", "reset", "constructors", "alone"])
def test_tasks_of_all_kinds_are_drawn(update):
    class Tasks(Walk):
        def set_task(self, task):
            self.size = task

    class Told(Walk):
        def reset(self, *, seed=None, options=None):
            self.size = (options or {}).get("task", 1.0)
            return super().reset(seed=seed, options=options)

    source: Any = Walk
    if update == "params":
        family = TaskFamily.from_params(Walk, {"size": (2.0, 4.0)}, horizon=5)
    elif update == "env":
        family, source = TaskFamily.from_env(Tasks, [2.0 + 0.1 * i for i in range(40)], horizon=5), Tasks
    elif update == "reset":
        family, source = TaskFamily.from_env(Told, [2.0 + 0.1 * i for i in range(40)], horizon=5), Told
    elif update == "constructors":
        family = TaskFamily.from_constructors({name: Walk for name in "abcdefghijklmnopqrstuvwxyz"}, horizon=5)
    else:
        family = None
    task = DomainParamUpdate({"size": 3.0}) if family is None else family.split(1, 1, seed=0)[1][0]
    maker = source if family is None else family.env_constructor
    rollout = acted(maker, task)
    filmed = film(rollout, maker, task)
    expected = np.round(100 + 10 * np.concatenate([[0.0], rollout.rewards])).astype(int) % 256
    assert filmed.frames[:, 0, 0, 0].tolist() == expected.tolist()


def test_a_family_of_ours_is_drawn_in_its_task():
    family = get_family("point-robot")
    tasks = family.split(2, 2, seed=0)[1]
    with RolloutEngine(family.env_constructor, lambda obs: np.ones(2, np.float32)) as engine:
        rollouts = engine.run(
            [RolloutPlan(index=i, seed=(0, i, 0), env_update=task, max_steps=4) for i, task in enumerate(tasks)]
        )
    films = [film(rollout, "point-robot", task) for rollout, task in zip(rollouts, tasks, strict=True)]
    assert films[0].frames.shape == (5, 360, 360, 3)
    assert (films[0].frames[0] != films[1].frames[0]).any()  # other goals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Blind, "Blind cannot be drawn: Blind has render_mode None, and 'rgb_array' is needed; give its constructor"),
        (Broken, r"Broken cannot be drawn on this machine: no screen, no library$"),
        (BrokenRobot, r"BrokenRobot cannot be drawn on this machine: no context; .* MuJoCo needs EGL or OSMesa"),
        (Brief, "Brief does not repeat the rollout"),
        (Endless, "Endless does not repeat the rollout"),
        (Forgetful, r"Forgetful does not repeat the rollout .* must come from reset\(seed=...\)"),
    ],
)
def test_what_cannot_be_filmed_says_why(make, message):
    with pytest.raises(ValueError, match=message):
        film(acted(make, steps=None if make in (Brief, Endless) else 5), make)


def test_an_environment_without_pictures_is_refused_by_name():
    task = get_family("bandit-5").split(1, 1, seed=0)[1][0]
    with pytest.raises(ValueError, match=r"^bandit-5 has no pictures$"):
        drawing_env("bandit-5", task)
    with pytest.raises(ValueError, match=r"^Picky cannot be drawn: no light$"):  # other errors keep their text
        drawing_env(Picky)
