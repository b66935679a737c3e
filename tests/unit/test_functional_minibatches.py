"""specs/sampling.md 5."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest

from metaroll.functional.minibatches import (
    gen_ordered_batch_idcs,
    gen_ordered_batches,
    gen_shuffled_batch_idcs,
    shuffled_ordered_batches,
)


def test_shuffled_positions_cover_the_data_once() -> None:
    """specs/sampling.md 5"""
    batches = list(gen_shuffled_batch_idcs(2, 5, generator=3))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    flat = [i for batch in batches for i in batch]
    assert sorted(flat) == [0, 1, 2, 3, 4] and all(type(i) is int for i in flat)
    assert batches == list(gen_shuffled_batch_idcs(2, 5, generator=3))
    orders = {tuple(map(tuple, gen_shuffled_batch_idcs(2, 5, generator=seed))) for seed in range(20)}
    assert len(orders) > 10


def test_ordered_positions() -> None:
    """specs/sampling.md 5"""
    assert list(gen_ordered_batch_idcs(2, 5)) == [[0, 1], [2, 3], [4]]
    assert list(gen_ordered_batch_idcs(9, 5)) == [[0, 1, 2, 3, 4]]
    seen = {tuple(map(tuple, gen_ordered_batch_idcs(2, 5, sorted=False, generator=s))) for s in range(50)}
    assert len(seen) == 6  # all orders of three batches; within a batch the order stays
    assert {frozenset(batches) for batches in seen} == {frozenset({(0, 1), (2, 3), (4,)})}


def test_ordered_samples_are_taken_as_they_are_asked_for() -> None:
    """specs/sampling.md 5"""
    assert list(gen_ordered_batches("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(islice(gen_ordered_batches(count(), 3), 2)) == [[0, 1, 2], [3, 4, 5]]
    assert list(gen_ordered_batches([[], []], 1)) == [[[]], [[]]]


def test_shuffled_batches_keep_their_inner_order() -> None:
    """specs/sampling.md 5"""
    batches = shuffled_ordered_batches(range(5), 2, generator=0)
    assert isinstance(batches, list) and sorted(batches) == [[0, 1], [2, 3], [4]]
    assert len({tuple(map(tuple, shuffled_ordered_batches(range(5), 2, generator=s))) for s in range(50)}) == 6


def test_no_data_gives_no_batch() -> None:
    assert list(gen_shuffled_batch_idcs(2, 0)) == list(gen_ordered_batch_idcs(2, 0)) == []
    assert list(gen_ordered_batches([], 2)) == shuffled_ordered_batches([], 2) == []


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None, "2"])
@pytest.mark.parametrize(
    "call",
    [
        lambda size: gen_shuffled_batch_idcs(size, 5),
        lambda size: gen_ordered_batch_idcs(size, 5),
        lambda size: gen_ordered_batches([1], size),
        lambda size: shuffled_ordered_batches([1], size),
    ],
)
def test_bad_batch_size_is_refused_at_once(call: Callable[[Any], Any], size: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="batch_size must be an integer of at least 1"):
        call(size)


def test_bad_data_size_is_refused_at_once() -> None:
    for call in (gen_shuffled_batch_idcs, gen_ordered_batch_idcs):
        with pytest.raises(ValueError, match="data_size must be an integer of at least 0, got -1"):
            call(2, -1)
