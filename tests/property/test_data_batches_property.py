"""Batches and advantages of concatenations (specs/sampling.md 7.6, 7.7)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll.data.rollout_values import discounted_values, gae_returns
from metaroll.data.step_sequence import StepSequence


@st.composite
def rollouts(draw: st.DrawFn) -> list[StepSequence]:
    """Observation k of rollout i is (i, k)."""
    result = []
    for i, length in enumerate(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))):
        numbers = draw(st.lists(st.floats(-9, 9), min_size=2 * length + 1, max_size=2 * length + 1))
        result.append(
            StepSequence(
                rewards=np.array(numbers[:length]),
                observations=np.stack([np.full(length + 1, i), np.arange(length + 1)], axis=1),
                actions=np.arange(length),
                values=np.array(numbers[length:]),
                truncated=(np.arange(length) == length - 1) & draw(st.booleans()),
            )
        )
    return result


@settings(max_examples=40)
@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_values_of_a_concatenation_are_those_of_its_rollouts(
    parts: list[StepSequence], gamma: float, lamb: float
) -> None:
    both = StepSequence.concat(parts)
    apart = np.concatenate([gae_returns(part, gamma, lamb) for part in parts])
    np.testing.assert_array_equal(gae_returns(both, gamma, lamb), apart)
    np.testing.assert_array_equal(discounted_values(parts, gamma, "numpy"), discounted_values([both], gamma, "numpy"))


@settings(max_examples=40)
@given(rollouts(), st.data())
def test_batches_hold_every_step_and_no_foreign_successor(parts: list[StepSequence], data: st.DataObject) -> None:
    both = StepSequence.concat(parts)
    number = data.draw(st.integers(1, len(both)))
    for batches in (both.split_ordered_batches(number), both.split_ordered_batches(num_batches=number)):
        batches = list(batches)
        assert np.concatenate([b.actions for b in batches]).tolist() == both.actions.tolist()
        for batch in batches:
            expected = batch.observations[: len(batch)] + np.array([0, 1])
            np.testing.assert_array_equal(batch.next_observations, expected)
    seed, whole = data.draw(st.integers(0, 99)), data.draw(st.booleans())
    shuffled = list(both.split_shuffled_batches(number, complete_rollouts=whole, generator=seed))
    rows = sorted(map(tuple, np.concatenate([b.observations[: len(b)] for b in shuffled]).tolist()))
    assert rows == sorted(map(tuple, both.observations.tolist()))


@settings(max_examples=40)
@given(rollouts(), st.data())
def test_steps_and_their_successors_are_of_one_rollout(parts: list[StepSequence], data: st.DataObject) -> None:
    both = StepSequence.concat(parts)
    most = len(both) - len(parts)
    if most == 0:
        return
    size = data.draw(st.integers(1, most))
    steps, following = both.sample_w_next(size, generator=data.draw(st.integers(0, 99)))
    assert len(steps) == len(following) == size == len({tuple(row) for row in steps.observations.tolist()})
    np.testing.assert_array_equal(following.observations, steps.observations + np.array([0, 1]))
