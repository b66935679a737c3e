"""Rollouts as arrays: bootstrapping at time limits, domain parameters, padding."""

from __future__ import annotations

import dataclasses

import gymnasium
import numpy as np
import pytest

from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.processing.on_policy import collect_on_policy, domain_rows, pad_rollouts, running_returns
from metaroll.types import EnvSpec

Box = gymnasium.spaces.Box
SPEC = EnvSpec(Box(-9, 9, (1,)), Box(-1, 1, (1,)))


def make(rewards, terminated, start=0.0, **more):
    steps = len(rewards)
    ends = np.zeros(steps, dtype=bool)
    ends[-1] = True
    return StepSequence(
        rewards=np.array(rewards, float),
        observations=start + np.arange(steps + 1.0)[:, None],
        actions=np.zeros((steps, 1)),
        terminated=ends & terminated,
        truncated=ends & (not terminated),
        **more,
    )


def test_steps_of_all_rollouts_one_after_the_other():
    data = collect_on_policy([make([1, 2], True), make([3, 4, 5], False, start=10.0)], SPEC)
    assert data.observations[:, 0].tolist() == [0, 1, 10, 11, 12]
    assert data.last_observations[:, 0].tolist() == [2, 13]
    assert data.bounds.tolist() == [0, 2, 5]
    assert data.terminated.tolist() == [False, True, False, False, False]
    assert data.episode_returns.tolist() == [3, 12]
    assert len(data) == 5


def test_a_termination_counts_nothing_behind_it_and_a_time_limit_the_value_of_the_last_observation():
    """With lambda 1 and discount 1/2, values 0: advantages are discounted sums, plus V(last) where it was cut off."""
    data = collect_on_policy([make([1, 2], True), make([1, 2], False)], SPEC)
    found = data.advantages(np.zeros(4), np.array([100.0, 8.0]), data.rewards, discount=0.5, gae_lambda=1.0)
    assert found == pytest.approx([1 + 1, 2, 1 + 1 + 2, 2 + 4])


def test_advantages_by_hand():
    """delta_t = r + V'/2 - V; A_0 = delta_0 + delta_1 / 4."""
    data = collect_on_policy([make([1, 1], False)], SPEC)
    found = data.advantages(np.array([2.0, 4.0]), np.array([6.0]), data.rewards, discount=0.5, gae_lambda=0.5)
    assert found == pytest.approx([(1 + 2 - 2) + 0.25 * (1 + 3 - 4), 1 + 3 - 4])


def test_raw_actions_take_the_place_of_those_in_the_environments_units():
    raw = np.array([[3.0], [-4.0]], np.float32)
    assert np.array_equal(collect_on_policy([make([1, 2], True, policy_infos={"raw_action": raw})], SPEC).actions, raw)


def columns(lengths, own=None, **infos):
    """Rollouts of random numbers."""
    rng, steps = np.random.default_rng(len(lengths)), sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminated = np.isin(np.arange(steps), ends[::2])
    fields = {
        "observations": rng.normal(size=(steps + len(lengths), 1)),
        "actions": rng.normal(size=(steps, 1)),
        "rewards": rng.normal(size=steps),
        **({"policy_infos": {name: rng.normal(size=(steps, 1)) for name in infos}} if infos else {}),
    }
    bounds, complete = np.concatenate([[0], ends + 1]), np.ones(len(lengths), dtype=bool)
    return RolloutColumns(fields, terminated, ~terminated, bounds, complete, [{}] * len(lengths), own)


@pytest.mark.parametrize("infos", [{}, {"raw_action": True}, {"mean": True}])
@pytest.mark.parametrize("lengths", [[[3]], [[1, 4, 2]], [[2, 1], [5], [3, 3]]])
def test_columns_of_rollouts_give_the_bits_of_the_rollouts_one_by_one(lengths, infos, monkeypatch):
    rollouts = Rollouts([columns(part, **infos) for part in lengths])
    expected = collect_on_policy(list(rollouts), SPEC)
    monkeypatch.setattr(RolloutColumns, "rollout", None)  # none is made
    found = collect_on_policy(rollouts, SPEC)
    for field in dataclasses.fields(found):
        ours, theirs = getattr(found, field.name), getattr(expected, field.name)
        assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
    found.actions[:] = found.rewards[:] = found.observations[:] = np.nan
    assert all(np.isfinite(rollouts.column(name)).all() for name in ("observations", "actions", "rewards"))


def test_rollouts_with_something_of_their_own_are_read_one_by_one():
    raw = np.array([[7.0], [8.0]])
    own = [{}, {"policy_infos": {"raw_action": raw}}]
    assert collect_on_policy(Rollouts([columns([1, 2], own)]), SPEC).actions[1:].tolist() == raw.tolist()


def test_choices_stay_integers():
    spec = EnvSpec(SPEC.observation_space, gymnasium.spaces.Discrete(3))
    rollout = StepSequence(rewards=[1.0, 1.0], observations=np.zeros((3, 1)), actions=np.array([2, 0]))
    actions = collect_on_policy([rollout], spec).actions
    assert actions.tolist() == [2, 0]
    assert actions.dtype.kind == "i"


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        collect_on_policy([], SPEC)
    short = StepSequence(rewards=[1.0], observations=np.zeros((1, 1)), actions=np.zeros((1, 1)))
    with pytest.raises(ShapeError, match="after its last step"):
        collect_on_policy([short], SPEC)
    with pytest.raises(ShapeError, match="2 numbers"):
        collect_on_policy([make([1], True)], EnvSpec(Box(-9, 9, (2,)), SPEC.action_space))
    with pytest.raises(DataError, match="rewards of rollout 1"):
        collect_on_policy([make([1], True), make([1, np.nan], True)], SPEC)


def test_domain_parameters_come_from_the_rollout_or_from_its_plan():
    told = make([1], True, rollout_info={"domain_param": {"g": 9.8, "m": 2.0}, "plan": {"task": {"g": 1.0}}})
    planned = make([1], True, rollout_info={"plan": {"task": {"g": 5.0, "m": np.array(3.0)}}})
    assert domain_rows([told, planned], ["m", "g"]).tolist() == [[2.0, 9.8], [3.0, 5.0]]
    with pytest.raises(DataError, match=r"'l' .* rollout 0 .*g, m"):
        domain_rows([told], ["l"])
    with pytest.raises(DataError, match="none"):
        domain_rows([make([1], True)], ["g"])
    for value, about in (([1.0, 2.0], "must be a number"), (None, "must be"), (np.nan, "must be finite")):
        with pytest.raises(DataError, match=f"'g' of rollout 0 {about}"):
            domain_rows([make([1], True, rollout_info={"domain_param": {"g": value}})], ["g"])


def test_rollouts_side_by_side():
    rows, bounds = np.arange(1.0, 7.0), np.array([0, 1, 4, 6])
    assert pad_rollouts(rows, bounds, [2, 1]).tolist() == [[5, 6, 0], [2, 3, 4]]


def test_running_returns_begin_anew_in_every_rollout():
    assert running_returns(np.array([1.0, 1, 1, 2, 2]), np.array([0, 3, 5]), 0.5).tolist() == [1, 1.5, 1.75, 2, 3]
