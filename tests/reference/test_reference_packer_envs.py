"""The physics of ``benchmarks/epopt.py`` are Gymnasium's, and success is what the paper calls one."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import env_kind
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import RolloutPlan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
THEIRS = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1"}


@pytest.fixture
def envs(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("_packer_envs").ENVS
    sys.modules.pop("_packer_envs", None)


def assign(env, name, constants):
    """Gymnasium's environment with other constants."""
    if name == "Pendulum":
        env.m, env.l = constants["mass"], constants["length"]
        return
    env.force_mag, env.length, env.masspole = constants["force"], constants["length"], constants["mass"]
    env.total_mass = env.masscart + env.masspole
    env.polemass_length = env.masspole * env.length


@pytest.mark.parametrize("nominal", [True, False])
@pytest.mark.parametrize("name", THEIRS)
def test_the_physics_equal_those_of_gymnasium(envs, name, nominal):
    problem, theirs = envs[name], gymnasium.make(THEIRS[name]).unwrapped
    ours = problem.make()
    reference: Any = theirs
    theirs.action_space.seed(0)
    for episode in range(5):
        if not nominal:
            (constants,) = problem.randomizer().draw(1, episode)
            ours = DomainParamUpdate(constants)(ours)
            assign(reference, name, constants)
        expected, _ = theirs.reset(seed=episode)
        observed, _ = ours.reset(options={"init_state": np.array(reference.state, dtype=np.float64)})
        for step in range(1, 201):
            np.testing.assert_allclose(observed, expected, rtol=1e-6, atol=1e-6)
            action = np.asarray(theirs.action_space.sample())
            action = action.astype(np.float64) if name == "Pendulum" else int(action)  # not to compute in float32
            expected, reward, terminated, _, _ = theirs.step(action)
            observed, ours_reward, ours_terminated, truncated, _ = ours.step(action)
            assert (ours_reward, ours_terminated) == (pytest.approx(reward, abs=1e-9), terminated)
            assert truncated == (step == 200 and not terminated)
            if terminated:
                break
    theirs.close()


@pytest.mark.parametrize("name", THEIRS)
def test_environments_stepped_together_equal_single_ones(envs, name):
    problem = envs[name]
    draws = problem.randomizer().sample(12, generator=1)
    plans = [RolloutPlan(index=i, seed=(0, i, 0), env_update=draw) for i, draw in enumerate(draws)]

    def policy(obs):
        return int(obs[2] + obs[3] > 0) if name == "CartPole" else np.array([2.0 * np.sign(obs[2])])

    assert env_kind(problem.make, plans) == "batched"
    with RolloutEngine(problem.make, policy) as engine:
        together = engine.run(plans)
    for draw, rollout in zip(draws, together, strict=True):
        alone = draw(problem.make())
        first = np.asarray(rollout.observations)[0]
        state = [np.arctan2(first[1], first[0]), first[2]] if name == "Pendulum" else first
        alone.reset(options={"init_state": state})
        for action, following in zip(rollout.actions, np.asarray(rollout.observations)[1:], strict=True):
            np.testing.assert_allclose(alone.step(action)[0], following, rtol=1e-9, atol=1e-9)


def held(cosines):
    count = len(cosines) - 1
    rows = np.stack([cosines, np.zeros(count + 1), np.zeros(count + 1)], axis=1)
    return StepSequence(rewards=np.zeros(count), observations=rows, actions=np.zeros((count, 1)))


def test_success(envs):
    """195 steps; within pi/3 (a cosine of 0.5) after each of the last 100 of 200 steps."""
    for steps, expected in ((194, False), (195, True), (200, True)):
        rollout = StepSequence(rewards=np.ones(steps), observations=np.zeros((steps + 1, 4)), actions=np.zeros(steps))
        assert envs["CartPole"].succeeds(rollout) is expected
    succeeds = envs["Pendulum"].succeeds
    late = np.full(201, -1.0)
    late[101:] = 0.5
    assert succeeds(held(late)) is True
    for position in (101, 200):
        dropped = late.copy()
        dropped[position] = 0.49
        assert succeeds(held(dropped)) is False
    assert succeeds(held(late[:200])) is False
