"""Points in the plane, bandits and random MDPs: specs/meta.md 7.1, Q-48."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from interruptions import is_interrupted, last_times

from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.point.point_corners import (
    DensePointCornersEnv,
    DenseSquaredPointCornersEnv,
    PointCornersEnv,
    PointMomentumEnv,
    PointWallsEnv,
)
from metaroll.envs.point.point_navigation import PointNavigationEnv
from metaroll.envs.tabular.bandit import BernoulliBanditEnv
from metaroll.envs.tabular.random_mdp import RandomMDPEnv
from metaroll.errors import ShapeError, SlotError
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import RolloutPlan

pytestmark = pytest.mark.usefixtures("lent_pools")


def plans_of(kind: Any) -> list[RolloutPlan]:
    env: Any = kind()
    updates = [SetTaskUpdate(kind, task) for task in env.sample_tasks(3, generator=1)]
    plans = [RolloutPlan(i, (5, 1, i), update) for i, update in enumerate(updates)]
    start = np.arange(env.simulator.state_dim) % 2
    return [*plans, RolloutPlan(3, (5, 1, 3)), RolloutPlan(4, (5, 1, 4), updates[0], init_state=start)]


def steps_of(env: Any, *actions: Any) -> list[tuple[list[float], float, bool]]:
    """Observation, reward and ending of each step."""
    found = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(np.array(action))
        assert not truncated
        found.append((np.round(np.float64(observation), 6).tolist(), round(reward, 9), terminated))
    return found


# ------------------------------------------------------------------------------------------------- alone and together


# -------------------------------------------------------------------------------------------------- points in the plane
def test_navigation_by_hand() -> None:
    """specs/meta.md 7.1 and Finn et al. 2017: minus the squared distance, moves of 0.1, the end within 0.01"""
    env = PointNavigationEnv(goal=(0.3, -0.1))
    assert env.reset(seed=0)[0].tolist() == [0, 0]
    assert steps_of(env, (1, 0), (5, -0.5), (0.91, -0.5)) == [
        ([0.1, 0.0], -0.05, False),  # 0.2^2 + 0.1^2
        ([0.2, -0.05], -0.0125, False),  # clipped; 0.1^2 + 0.05^2
        ([0.291, -0.1], -0.000081, True),  # 0.009 from the goal
    ]
    goals = np.array([task["goal"] for task in PointNavigationEnv.sample_tasks(4000, generator=0)])
    assert -0.5 <= goals.min() < -0.49
    assert 0.49 < goals.max() <= 0.5
    assert 100 * np.mean(np.sum(goals**2, axis=1)) == pytest.approx(16.67, abs=0.6)  # staying in the origin


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # From (0.1, 0.3): (0.3, 0.5) is 1.7, 1.5 from the corner, (0.5, 0.3) 1.5, 1.7.
        (DenseSquaredPointCornersEnv, [-5.14, -5.14]),
        (DensePointCornersEnv, [-np.sqrt(5.14)] * 2),
        (PointCornersEnv, [np.sqrt(1.9**2 + 1.7**2) - np.sqrt(5.14), 0.0]),
    ],
)
def test_corners_by_hand(kind: type[PointCornersEnv], expected: list[float]) -> None:
    """specs/meta.md 7.1"""
    env = kind(goal=(2, 2))
    env.reset(options={"init_state": (0.1, 0.3)})
    first, second = steps_of(env, (1, 7), (1, -1))
    assert (first[0], second[0]) == ([0.3, 0.5], [0.5, 0.3])
    assert [first[1], second[1]] == pytest.approx(expected, abs=1e-9)


def test_sparse_corners_pay_for_the_nearest_corner_and_away_from_the_start_only() -> None:
    """specs/meta.md 7.1: 0 if the 1-norm is below the radius, or another corner is nearer"""
    env = PointCornersEnv(goal=(2, -2))
    env.reset(options={"init_state": (0.1, -0.1)})
    at_start, away, elsewhere = steps_of(env, (0.5, -0.5), (1, -1), (-1, 1))
    assert at_start == ([0.2, -0.2], 0.0, False)
    assert away[1] == pytest.approx(np.sqrt(2) * 0.2)  # straight toward the goal
    assert elsewhere[1] == 0.0
    env.reset(options={"init_state": (1, 1)})
    assert steps_of(env, (1, -1))[0][1] == 0.0  # nearer to (2, -2), yet (2, 2) is the nearest corner


def test_starts_and_tasks_of_the_corners() -> None:
    """specs/meta.md 7.1: corners with equal probability, starts uniform in [-0.2, 0.2]^2"""
    starts = np.array([PointCornersEnv().reset(seed=i)[0] for i in range(200)])
    assert np.abs(starts).max() <= 0.2
    assert starts.min() < -0.19
    for kind in (PointCornersEnv, PointMomentumEnv):
        goals = [tuple(task["goal"]) for task in kind.sample_tasks(8, generator=1)]
        corners = {(2, 2), (2, -2), (-2, 2), (-2, -2)}
        assert set(goals[:4]) == set(goals[4:]) == corners
        assert kind.sample_tasks(0) == []
    momentum = np.array([PointMomentumEnv().reset(seed=i)[0] for i in range(200)])
    assert np.abs(momentum).max(axis=0) == pytest.approx([0.2, 0.2, 0.1, 0.1], abs=0.01)


def test_momentum_by_hand() -> None:
    """specs/meta.md 7.1: the velocity changes by at most 0.1, then moves the point; max(2 - d, 0)"""
    env = PointMomentumEnv(goal=(2, 2))
    env.reset(options={"init_state": (0.5, 0.8, 0.2, 0.0)})
    (first, second) = steps_of(env, (1, 0), (-5, 1))
    assert first == ([0.8, 0.8, 0.3, 0.0], round(2 - np.sqrt(2 * 1.2**2), 9), False)
    assert second == ([1.0, 0.9, 0.2, 0.1], round(2 - np.sqrt(1.0 + 1.1**2), 9), False)
    env.set_task({"goal": (-2, -2)})
    assert steps_of(env, (0, 0))[0][1] == 0.0
    dense = PointMomentumEnv(goal=(2, 2), reward_type="dense_squared")
    dense.reset(options={"init_state": (0.5, 0.8, 0.2, 0.0)})
    assert steps_of(dense, (1, 0))[0][1] == pytest.approx(-2.88)


def test_walls_stop_who_comes_from_inside_unless_at_the_gap() -> None:
    """specs/meta.md 7.1, Q-48: the reward is a number everywhere, and that of the place where the point is"""
    env = PointWallsEnv(goal=(2, 2), gap_1=(0, 1), gap_2=(2, 0))
    env.reset(options={"init_state": (0.9, 0.0)})
    stopped, again = steps_of(env, (1, 0), (1, 0))
    assert stopped[0] == again[0] == pytest.approx([1, 0], abs=2e-6)
    assert stopped[1] == pytest.approx(-np.sqrt(1 + 4), abs=2e-6)  # not that of (1.1, 0)
    env.reset(options={"init_state": (0.0, 0.9)})
    assert steps_of(env, (0, 1), (0, -1))[0][0] == [0.0, 1.1]  # through the gap
    env.reset(options={"init_state": (1.1, 0.0)})
    assert steps_of(env, (-1, 0))[0][0] == pytest.approx([0.9, 0])  # open from outside
    env.reset(options={"init_state": (0.0, 1.9)})
    assert steps_of(env, (0, 1))[0][0] == pytest.approx([0, 2], abs=2e-6)  # the outer wall
    env.reset(options={"init_state": (1.9, 0.0)})
    assert steps_of(env, (1, 0))[0][0] == pytest.approx([2.1, 0])


def test_sparse_walls() -> None:
    """specs/meta.md 7.1: d(s) - d(s') where d(s') < radius, else 0 (Q-48)"""
    env = PointWallsEnv(goal=(2, 2), gap_1=(0, 1), gap_2=(2, 0), reward_type="sparse")
    env.reset(options={"init_state": (0.0, 0.0)})
    assert steps_of(env, (1, 1))[0][1] == 0.0  # 2.5 away
    env.reset(options={"init_state": (2.0, 0.5)})
    assert steps_of(env, (0, 1))[0][1] == pytest.approx(0.2)
    tasks = PointWallsEnv.sample_tasks(300, generator=0)
    gaps = np.array([[task["gap_1"], task["gap_2"]] for task in tasks])
    np.testing.assert_allclose(np.linalg.norm(gaps, axis=2), np.tile([1.0, 2.0], (300, 1)))
    assert np.abs(gaps.mean(axis=0)).max() < 0.3
    assert len({tuple(task["goal"]) for task in tasks}) == 4


# ------------------------------------------------------------------------------------------------- bandits and tables
def test_bandit_pays_as_often_as_its_probabilities_say() -> None:
    env = BernoulliBanditEnv(probabilities=(0.0, 1.0, 0.3))
    assert (env.action_space.n, env.reset(seed=2)[0]) == (3, 0)  # type: ignore[attr-defined]
    pulls = {arm: [env.step(arm)[1] for _ in range(2000)] for arm in range(3)}
    assert (set(pulls[0]), set(pulls[1])) == ({0.0}, {1.0})
    assert np.mean(pulls[2]) == pytest.approx(0.3, abs=0.04)  # standard error 0.01
    again = BernoulliBanditEnv(probabilities=(0.3,) * 3)
    again.reset(seed=2)
    assert np.mean([again.step(0)[1] for _ in range(2000)]) == pytest.approx(0.3, abs=0.04)
    tasks = BernoulliBanditEnv(num_arms=7).sample_tasks(500, generator=0)
    drawn = np.array([task["probabilities"] for task in tasks])
    assert drawn.shape == (500, 7)
    assert drawn.mean() == pytest.approx(0.5, abs=0.03)


def test_mdp_moves_and_rewards_by_its_tables() -> None:
    rewards, transitions = np.array([[1.0, 5.0], [-2.0, 3.0]]), np.zeros((2, 2, 2))
    transitions[0, :, 1] = 1.0
    transitions[1, :, :] = (0.25, 0.75)
    env = RandomMDPEnv(rewards, transitions, num_states=2, num_actions=2)
    counts, sums = np.zeros((2, 2)), {(s, a): [] for s in range(2) for a in range(2)}
    state = env.reset(seed=1)[0]
    assert state == 0
    for t in range(4000):
        following, reward, *_ = env.step(t % 2)
        counts[state, following] += 1
        sums[int(state), t % 2].append(reward)
        state = following
    assert counts[0, 0] == 0
    assert counts[1, 0] / counts[1].sum() == pytest.approx(0.25, abs=0.04)
    for (s, a), values in sums.items():
        assert np.mean(values) == pytest.approx(rewards[s, a], abs=0.2)
        assert np.std(values) == pytest.approx(1.0, abs=0.15)
    assert env.reset(options={"init_state": (1,)})[0] == 1


def test_random_tables_have_the_published_distribution() -> None:
    """Duan et al. 2016: mean rewards N(1, 1), transitions Dirichlet(1), 10 states and 5 actions"""
    tasks = RandomMDPEnv().sample_tasks(50, generator=0)
    means = np.array([task["rewards"] for task in tasks])
    rows = np.array([task["transitions"] for task in tasks])
    assert (means.shape, rows.shape) == ((50, 10, 5), (50, 10, 5, 10))
    assert (means.mean(), means.std()) == pytest.approx((1.0, 1.0), abs=0.08)
    np.testing.assert_allclose(rows.sum(axis=-1), 1.0)
    assert rows.var() == pytest.approx(0.1 * 0.9 / 11, rel=0.1)  # a(A - a) / (A^2 (A + 1)) with a = 1, A = 10


def test_reward_noise_and_transitions_are_independent_of_the_actions_before() -> None:
    env = RandomMDPEnv(num_states=3, num_actions=2)
    found = []
    for actions in (np.zeros(100, dtype=int), np.ones(100, dtype=int)):
        env.reset(seed=4)
        found.append([env.step(a)[:2] for a in actions])
    assert found[0] == found[1]  # the tables do not tell actions apart


# -------------------------------------------------------------------------------------------------------- wrong input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: PointCornersEnv(reward_type="loud"), ValueError, "reward_type must be 'dense', .* got 'loud'"),  # type: ignore[arg-type]
        (
            lambda: PointWallsEnv(sparse_reward_radius=0),
            ValueError,
            r"sparse_reward_radius must lie in \(0",
        ),
        (lambda: PointWallsEnv().set_task({"goal": (1, 1)}), ValueError, "'goal', 'gap_1' and 'gap_2'"),
        (lambda: PointMomentumEnv().reset(options={"init_state": (1, 1)}), ShapeError, r"\(4,\), got \(2,\)"),
        (lambda: PointMomentumEnv(render_mode="human"), ValueError, "render_mode must be None or 'rgb_array'"),
        (lambda: RandomMDPEnv(render_mode="human"), ValueError, "render_mode must be None, RandomMDPEnv draws nothing"),
        (lambda: PointNavigationEnv().step(np.zeros(2)), gymnasium.error.ResetNeeded, "reset"),
        (lambda: BernoulliBanditEnv(num_arms=0), ValueError, "num_arms must be an integer of at least 1, got 0"),
        (lambda: BernoulliBanditEnv((0.5, 1.5)), ValueError, r"probabilities must lie in \[0, 1\], got"),
        (lambda: BernoulliBanditEnv((0.5, 0.5), num_arms=3), ShapeError, r"shape \(3,\), got \(2,\)"),
        (
            lambda: BernoulliBanditEnv().set_task((0, 1)),  # type: ignore[arg-type]
            ValueError,
            "task must be a mapping with 'probabilities'",
        ),
        (lambda: RandomMDPEnv(num_states=2.5), TypeError, "num_states must be an integer"),  # type: ignore[arg-type]
        (lambda: RandomMDPEnv(np.zeros((2, 5))), ShapeError, r"task\['rewards'\] must have shape \(10, 5\)"),
        (lambda: RandomMDPEnv(transitions=np.ones((10, 5, 10))), ValueError, "sum to 1 .* sums from 10 to 10"),
        (
            lambda: RandomMDPEnv(np.zeros((2, 1)), [[[0.5, 0.5]], [[0.5, 0.4]]], num_states=2, num_actions=1),
            ValueError,
            "sum to 1 .* sums from 0.9 to 1$",  # one row alone
        ),
        (lambda: RandomMDPEnv().reset(options={"init_state": (10,)}), ValueError, "from 0 to 9, got"),
        (lambda: RandomMDPEnv().reset(options={"init_state": (0.5,)}), ValueError, "whole number from 0 to 9"),
    ],
)
def test_wrong_input_is_told(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_wrong_actions_are_told_and_those_of_frozen_slots_are_not_looked_at() -> None:
    env = BernoulliBanditEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions must be indices from 0 to 4, got 5"):
        env.step(5)
    with pytest.raises(ValueError, match=r"actions must be indices from 0 to 4, got 1\.5"):
        env.step(1.5)
    with pytest.raises(ShapeError, match=r"action must have shape \(\), got \(1,\)"):
        env.step([1])
    slots = SimulatorSlots(2, env.simulator)
    slots.reset([0], [RolloutPlan(seed=(0, 0, 0))])
    assert slots.step(np.array([1, -1]), np.array([True, False])).rewards[1] == 0
    with pytest.raises(gymnasium.error.ResetNeeded, match="slot 1 must be reset with a plan before it is stepped"):
        slots.step(np.array([1, 1]), np.array([True, True]))


@pytest.mark.parametrize("kind", [PointNavigationEnv, BernoulliBanditEnv, RandomMDPEnv])
def test_slots_that_are_kept_go_on_as_they_were(kind: Any) -> None:
    """Fewer rows, and rows of different ages, change nothing of the others."""
    plans = plans_of(kind)
    wide, narrow = kind().batched_slots(5), kind().batched_slots(5)
    for slots in (wide, narrow):
        slots.reset(range(5), plans)
    generator, space = np.random.default_rng(0), kind().action_space
    kept = np.arange(5)
    for step in range(40):
        if step in (3, 21):
            for slots, row in ((wide, int(kept[1])), (narrow, 1)):
                slots.reset([row], [plans[0].with_(seed=(7, 7, step))])
        if step in (5, 20):
            stay = np.delete(np.arange(len(kept)), 1)
            narrow.keep(stay)
            kept = kept[stay]
        discrete = isinstance(space, gymnasium.spaces.Discrete)
        actions = generator.integers(space.n, size=5) if discrete else generator.normal(size=(5, 2))
        a: Any = wide.step(actions, np.ones(5, bool))
        b: Any = narrow.step(actions[kept], np.ones(len(kept), bool))
        np.testing.assert_array_equal(a.observations[kept], b.observations)
        np.testing.assert_array_equal(a.rewards[kept], b.rewards)
    assert narrow.num_slots == 3 and wide.info.can_keep and wide.info.steps_past_end


def test_what_fails_in_a_slot_names_it() -> None:
    slots = PointWallsEnv().batched_slots(3)
    wrong = SetTaskUpdate(PointWallsEnv, {"goal": (1, 1)})
    with pytest.raises(SlotError, match="in slot 2: ValueError: task must be a mapping") as caught:
        slots.reset([0, 2], [RolloutPlan(0, (0, 0, 0)), RolloutPlan(1, (0, 0, 1), wrong)])
    assert (caught.value.slot, caught.value.where) == (2, "") and isinstance(caught.value.__cause__, ValueError)


def test_after_an_interrupted_reset_no_step_mixes_two_episodes() -> None:
    """Ctrl-C left a slot whose new episode was stepped with the randomness of the one before."""
    plans, modules = plans_of(RandomMDPEnv)[:2], ("/base/simulator_slots.py",)

    def begun(number: int) -> SimulatorSlots:
        slots = SimulatorSlots(1, RandomMDPEnv().simulator)
        for plan in plans[:number]:
            slots.reset([0], [plan])
        return slots

    def steps(slots: SimulatorSlots) -> list[tuple[float, ...]]:
        active = np.ones(1, bool)
        return [tuple(slots.step(np.zeros(1, np.int64), active).rewards.tolist()) for _ in range(5)]

    before, after = (steps(begun(number)) for number in (1, 2))
    assert before != after
    seen = set()
    for at in last_times(functools.partial(begun(1).reset, [0], plans[1:]), modules):
        slots = begun(1)
        with np.errstate():  # the line that gives back the caller's may be the interrupted one
            assert is_interrupted(functools.partial(slots.reset, [0], plans[1:]), at, modules)
        try:
            rewards = steps(slots)
        except gymnasium.error.ResetNeeded:
            seen.add("reset needed")
        else:
            assert rewards in (before, after), at
            seen.add("before" if rewards == before else "after")
    assert seen == {"before", "reset needed", "after"}
