"""Scripted controllers solve their systems (specs/sampling.md 16.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metaroll.envs.sims.catalog import (
    QBallBalancerEnv,
    QCartPoleStabEnv,
    QCartPoleSwingUpEnv,
    QQubeStabEnv,
    QQubeSwingUpEnv,
)
from metaroll.errors import DataError, ShapeError
from metaroll.policies.controllers import BallBalancerController, CartPoleController, QubeController
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.single.rollout import rollout
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import Policy, RolloutPlan

SEEDS = 10


def last_states(env: Any, policy: Any, max_steps: int, updates: Any = (None,) * SEEDS) -> tuple[np.ndarray, np.ndarray]:
    """States at the ends of rollouts ``(SEEDS, S)``, and which of them failed."""
    plans = [
        RolloutPlan(i, seed=(3, 0, i), max_steps=max_steps, eval=True, env_update=update)
        for i, update in enumerate(updates)
    ]
    with RolloutEngine(env, policy, record_extras=True) as engine:
        found = engine.run(plans)
    return np.array([r.states[-1] for r in found]), np.array([bool(r.terminated[-1]) for r in found])


def tilt(angle: np.ndarray) -> np.ndarray:
    """Distance from upright, the short way."""
    return np.abs(np.mod(angle, 2 * np.pi) - np.pi)


@pytest.mark.parametrize(
    ("env", "controller", "max_steps"),
    [
        (QQubeSwingUpEnv, QubeController, 2000),
        (QQubeStabEnv, QubeController, 500),
        (QCartPoleSwingUpEnv, CartPoleController, 3000),
        (lambda: QCartPoleSwingUpEnv(long_pole=True), CartPoleController, 3000),
        (lambda: QCartPoleSwingUpEnv(wild_init=False), CartPoleController, 3000),
        (QCartPoleStabEnv, CartPoleController, 300),
        (lambda: QCartPoleStabEnv(long_pole=False, simple_dynamics=False), CartPoleController, 300),
    ],
)
def test_pendulums_end_upright_at_rest(env: Any, controller: Any, max_steps: int):
    """specs/sampling.md 16.5: in at least 9 of 10 seeds."""
    states, failed = last_states(env(), controller(), max_steps)
    solved = ~failed & (tilt(states[:, 1]) < 0.05) & (np.abs(states[:, 3]) < 0.3) & (np.abs(states[:, 0]) < 0.15)
    assert solved.sum() >= 9


def test_the_ball_ends_in_the_middle_of_the_plate():
    """specs/sampling.md 16.5: within 3 mm, in at least 9 of 10 seeds, also with offset servos that were measured."""
    for params in ({}, {"offset_th_x": 0.1, "offset_th_y": -0.05}):
        states, failed = last_states(QBallBalancerEnv(domain_param=params), BallBalancerController(), 500)
        assert (~failed & (np.hypot(states[:, 2], states[:, 3]) < 3e-3)).sum() >= 9


def test_a_controller_is_told_the_constants_of_each_rollout():
    """specs/sampling.md 16.5: domains of one batch differ, and each is balanced with its own."""
    generator = np.random.default_rng(0)
    nominal = QCartPoleSwingUpEnv().get_nominal_domain_param()
    names = ("pole_mass", "pole_length", "gravity_const", "motor_back_emf", "gear_ratio", "pinion_radius")
    updates = [DomainParamUpdate({n: nominal[n] * generator.uniform(0.85, 1.15) for n in names}) for _ in range(SEEDS)]
    states, failed = last_states(QCartPoleSwingUpEnv(), CartPoleController(), 3000, updates)
    assert (~failed & (tilt(states[:, 1]) < 0.05)).sum() >= 9


def test_what_a_controller_believes_may_be_given():
    env = QQubeSwingUpEnv(max_steps=5)
    heavy = QubeController({**env.domain_param, "mass_rot_pole": 2 * env.domain_param["mass_rot_pole"]})
    assert isinstance(heavy, Policy)
    one = rollout(env, QubeController(), seed=1, eval=True)
    other = rollout(env, heavy, seed=1, eval=True)
    assert other.actions[0] == pytest.approx(2 * one.actions[0])


def test_wrong_inputs_are_named():
    env = QQubeSwingUpEnv()
    with pytest.raises(DataError, match="'gravity_const'"):
        QubeController({"mass_rot_pole": 1.0})
    with pytest.raises(TypeError, match="domain_param"):
        QubeController([1.0])  # type: ignore[arg-type]
    controller = CartPoleController(QCartPoleSwingUpEnv().domain_param)
    state = controller.initial_state([None], [np.random.default_rng()])
    with pytest.raises(ShapeError, match=r"CartPoleController takes observations of shape \(N, 5\), got \(1, 6\)"):
        controller.act(env.reset(seed=0)[0][None], state, np.zeros((1, 0)))
    with pytest.raises(DataError, match="the rollout's environment"):
        CartPoleController().initial_state([None], [np.random.default_rng()])
