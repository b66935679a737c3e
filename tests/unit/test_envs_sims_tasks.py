"""Tasks and rewards of simulators: specs/sampling.md 16.6."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metaroll.envs.sims.tasks import outside
from metaroll.errors import ShapeError
from metaroll.sims import (
    AbsErr,
    CatapultEnv,
    DesStateTask,
    ExpQuadrErr,
    FinalRewTask,
    PendulumEnv,
    QCartPoleStabEnv,
    QuadrErr,
    RadiallySymmDesStateTask,
    ScaledExpQuadrErr,
)


def reward_of(task, state, action=(0.0,), scales=None, remaining=1.0):
    columns = tuple(np.array([value]) for value in state)
    given = tuple(np.array([value]) for value in action)
    return task.step_reward(columns, given, columns, np.array([remaining]), scales or {}, np)[0]


def final_of(task, state, remaining, failed=True, succeeded=None):
    columns = tuple(np.array([value]) for value in state)
    ended = None if succeeded is None else np.array([succeeded])
    return np.broadcast_to(
        task.final_reward(columns, (np.zeros(1),), np.array([float(remaining)]), np.array([failed]), ended, {}, np),
        (1,),
    )[0]


def test_rewards_by_hand() -> None:
    # error (1 - 3, 0 - 0.5) = (-2, -0.5): 2*4 + 4*0.25 = 9, action 3: 0.1*9 = 0.9
    weights = ((2.0, 4.0), (0.1,))
    assert reward_of(DesStateTask((1, 0), QuadrErr(*weights)), (3, 0.5), (3,)) == pytest.approx(-9.9)
    assert reward_of(DesStateTask((1, 0), ExpQuadrErr(*weights)), (3, 0.5), (3,)) == pytest.approx(math.exp(-9.9))
    # 2*2 + 4*0.5 + 0.1*3
    assert reward_of(DesStateTask((1, 0), AbsErr(*weights)), (3, 0.5), (-3,)) == pytest.approx(-6.3)


def test_the_scaled_reward_is_the_least_where_error_and_action_are_largest() -> None:
    reward = ScaledExpQuadrErr((2.0, 4.0), (0.1,), min_reward=0.01)
    task = DesStateTask((0, 0), reward)
    high = np.array([5.0])
    # the larger of |low| and |high|: 3, 2 and 5
    scales = task.scales(((-3.0, -1.0), (1.0, 2.0)), ((-high,), (high,)), np)
    assert reward_of(task, (3, 2), (5,), scales) == pytest.approx(0.01)
    assert reward_of(task, (0, 0), (0,), scales) == 1.0


@pytest.mark.parametrize(
    ("angle", "error"), [(0.0, math.pi), (math.pi + 0.1, 0.1), (7 * math.pi - 0.2, 0.2), (-3, 3 - math.pi)]
)
def test_angles_are_compared_the_short_way_round(angle: float, error: float) -> None:
    task = RadiallySymmDesStateTask((math.pi, 0), QuadrErr((1.0, 1.0), (0.0,)), idcs=(0,))
    assert reward_of(task, (angle, 0)) == pytest.approx(-(error**2))
    assert reward_of(task, (angle + 2 * math.pi, 0)) == pytest.approx(-(error**2))


def test_velocities_are_not_wrapped() -> None:
    """Upstream folded them too: at the goal, 2 pi rad/s was as good as rest."""
    task = RadiallySymmDesStateTask((math.pi, 0), QuadrErr((1.0, 1.0), (0.0,)), idcs=(0,))
    assert reward_of(task, (math.pi, 2 * math.pi)) == pytest.approx(-4 * math.pi**2)


def test_final_rewards() -> None:
    inner = DesStateTask((0, 0), QuadrErr((1.0, 1.0), (1.0,)))  # |r((3, 4), 0)| = 25
    plain, state = FinalRewTask(inner, 10.0), FinalRewTask(inner, 10.0, state_dependent=True)
    time = FinalRewTask(inner, 10.0, time_dependent=True)
    both = FinalRewTask(inner, 10.0, state_dependent=True, time_dependent=True)
    assert [final_of(task, (3, 4), 7) for task in (plain, state, time, both)] == [-10.0, -250.0, -7.0, -175.0]
    assert final_of(plain, (3, 4), 7, failed=False, succeeded=True) == 10.0
    assert final_of(plain, (3, 4), 7, failed=False, succeeded=False) == 0.0
    assert final_of(FinalRewTask(inner, 10.0, always_negative=True), (3, 4), 7, failed=False, succeeded=True) == 0.0


def test_outside_counts_each_bound() -> None:
    states = tuple(np.array(column) for column in ([0, 2, -2, 0, 0, 1], [0, 0, 0, 4, -1, 3]))
    found = outside(tuple(c.astype(float) for c in states), ((-1.0, -0.5), (1.0, np.full(6, 3.0))))
    np.testing.assert_array_equal(found, [False, True, True, True, True, False])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QuadrErr((-1.0,), (1.0,)), "state_weights"),
        (lambda: ScaledExpQuadrErr((1.0,), (1.0,), 1.5), r"min_reward must lie in \(0, 1\), got 1.5"),
        (lambda: DesStateTask((0, 0, 0), QuadrErr((1.0,), (1.0,))), "one entry per state weight"),
        (lambda: DesStateTask((math.nan,), QuadrErr((1.0,), (1.0,))), "finite"),
        (lambda: RadiallySymmDesStateTask((0.0,), QuadrErr((1.0,), (1.0,)), idcs=(1,)), "idcs"),
        (lambda: FinalRewTask(DesStateTask((0,), QuadrErr((1.0,), (1.0,))), -1.0), "factor"),
        (lambda: ScaledExpQuadrErr((0.0,), (0.0,)), "must not all be 0"),
        (
            lambda: setattr(CatapultEnv(), "task", DesStateTask((0,), ScaledExpQuadrErr((1.0,), (1.0,)))),
            "needs bounded states and actions where it has weights, which the catapult lacks",
        ),
        (lambda: QCartPoleStabEnv(max_steps=math.inf), "max_steps must be finite for a task whose final reward"),
    ],
)
def test_wrong_tasks_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_task_of_another_system_is_refused_and_the_old_one_kept() -> None:
    env = PendulumEnv()
    before = env.task
    with pytest.raises(ShapeError, match="theta, theta_dot of the pendulum"):
        env.task = DesStateTask((0,), QuadrErr((1.0,), (1.0,)))
    assert env.task is before


@pytest.mark.parametrize("reward", [QuadrErr, ExpQuadrErr, AbsErr])
def test_weights_may_all_be_zero(reward) -> None:
    env = PendulumEnv()
    env.task = DesStateTask((0.0, 0.0), reward((0.0, 0.0), (0.0,)))
    env.reset(seed=0)
    assert env.step([1.0])[1] == (1.0 if reward is ExpQuadrErr else 0.0)


def test_a_final_reward_needs_a_task() -> None:
    with pytest.raises(TypeError, match="task must be a SimTask, got int"):
        FinalRewTask(3)  # type: ignore[arg-type]
