"""Slices, concatenations and sub-rollouts of a sequence (specs/sampling.md 7.2, 7.5; design: successors are exact)."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll.data.compare import rollouts_equal
from metaroll.data.step_sequence import StepSequence


class Hidden(NamedTuple):
    h: Any
    c: Any


def make(number: int, length: int, with_last: bool, terminated: bool, data_format: str) -> StepSequence:
    """Rollout ``number``; its observation k is ``(number, k)`` in every field that has one more."""
    steps = np.arange(length + with_last)
    observations = np.stack([np.full(len(steps), number), steps], axis=1).astype(np.float32)
    ends = np.arange(length) == length - 1
    return StepSequence(
        rewards=np.arange(length) + 0.5 * number,
        observations=observations,
        actions=np.arange(length),
        terminated=ends & terminated,
        policy_infos={"mean": np.arange(length)[:, None] / 3, "nested": {"obs": observations}},
        hidden=Hidden(observations * 2, np.arange(length)),
        data_format=data_format,
    )


@st.composite
def rollout_lists(draw: st.DrawFn, complete: bool = False) -> list[StepSequence]:
    """Rollouts of one format; without ``complete`` the last observation of some is not known."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    data_format = draw(st.sampled_from(["numpy", "torch"]))
    return [
        make(i, n, complete or draw(st.booleans()), draw(st.booleans()), data_format) for i, n in enumerate(lengths)
    ]


@settings(max_examples=40)
@given(rollout_lists(), st.booleans())
def test_concat_then_split_gives_the_rollouts_back(parts: list[StepSequence], truncate_last: bool) -> None:
    both = StepSequence.concat(parts, truncate_last=truncate_last)
    assert len(both) == sum(map(len, parts))
    for i, part in enumerate(parts):
        assert rollouts_equal(both.get_rollout(i), part)
    assert rollouts_equal(StepSequence.concat(list(both.iterate_rollouts()), truncate_last=truncate_last), both)


@settings(max_examples=40)
@given(rollout_lists(), st.data())
def test_any_grouping_concatenates_to_the_same(parts: list[StepSequence], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(parts) - 1))
    groups = [group for group in (parts[:cut], parts[cut:]) if group]
    nested = StepSequence.concat([StepSequence.concat(group) for group in groups])
    assert rollouts_equal(nested, StepSequence.concat(parts))


@settings(max_examples=40)
@given(rollout_lists(), st.data())
def test_slices_partition_a_sequence(parts: list[StepSequence], data: st.DataObject) -> None:
    both = StepSequence.concat(parts, truncate_last=data.draw(st.booleans()))
    assert rollouts_equal(both[:], both)
    cuts = data.draw(st.sets(st.integers(1, len(both) - 1), max_size=4)) if len(both) > 1 else set()
    edges = [0, *sorted(cuts), len(both)]
    pieces = [both[a:b] for a, b in pairwise(edges)]
    joined = StepSequence.concat(pieces)
    for name in ("rewards", "actions"):
        assert getattr(joined, name).tolist() == getattr(both, name).tolist()
    assert joined.observations.tolist() == both.observations[: len(both)].tolist()
    assert (joined.done == both.done).all() and (joined.terminated == both.terminated).all()


@settings(max_examples=40)
@given(rollout_lists(complete=True), st.data())
def test_successors_are_exact_in_every_slice(parts: list[StepSequence], data: st.DataObject) -> None:
    both = StepSequence.concat(parts, truncate_last=data.draw(st.booleans()))
    start = data.draw(st.integers(0, len(both) - 1))
    piece = both[start : data.draw(st.integers(start + 1, len(both)))]
    following = np.asarray(piece.observations)[: len(piece)] + np.array([0, 1])  # the same rollout, one step on
    np.testing.assert_array_equal(piece.next_observations, following)
    np.testing.assert_array_equal([np.asarray(step.next_observation) for step in piece], following)
    for i, step in enumerate(piece):
        inside = i + 1 not in piece.rollout_bounds
        assert hasattr(step, "next_reward") == hasattr(step, "next_policy_info") == inside
        if inside:
            assert step.next_reward == piece.rewards[i + 1]
            np.testing.assert_array_equal(step.next_policy_info.nested.obs, following[i])
            np.testing.assert_array_equal(step.next_hidden.h, 2 * following[i])


@settings(max_examples=40)
@given(rollout_lists(), st.data())
def test_loose_selections_agree_with_numpy(parts: list[StepSequence], data: st.DataObject) -> None:
    both = StepSequence.concat(parts)
    n = len(both)
    index = data.draw(
        st.lists(st.integers(-n, n - 1), min_size=1, max_size=6) | st.lists(st.booleans(), min_size=n, max_size=n)
    )
    expected = np.arange(n)[np.array(index)]
    if len(expected) == 0:
        return
    piece = both[index]
    assert not piece.continuous
    assert piece.rewards.tolist() == np.asarray(both.rewards)[expected].tolist()
    assert np.asarray(piece.observations).tolist() == np.asarray(both.observations)[expected].tolist()
    assert (piece.terminated == both.terminated[expected]).all()


@settings(max_examples=40)
@given(rollout_lists())
def test_conversion_and_pickle_round_trips(parts: list[StepSequence]) -> None:
    both = StepSequence.concat(parts)
    again = pickle.loads(pickle.dumps(both))
    assert rollouts_equal(again, both)
    again.convert("numpy" if both.data_format == "torch" else "torch")
    assert not rollouts_equal(again, both)
    again.convert(both.data_format)
    assert rollouts_equal(again, both)
