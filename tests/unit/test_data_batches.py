"""specs/sampling.md 7.6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metaroll.data.compare import rollouts_equal
from metaroll.data.step_sequence import StepSequence


def make(start: int = 0, length: int = 5, **data: Any) -> StepSequence:
    numbers = np.arange(start, start + length + 1)
    arrays: dict[str, Any] = {"rewards": numbers[:-1], "observations": {"x": numbers}, "actions": numbers[:-1, None]}
    return StepSequence(**{**arrays, **data})


def test_sample_w_next_takes_steps_that_are_followed_by_one() -> None:
    """specs/sampling.md 7.6"""
    both = StepSequence.concat([make(0, 3), make(10, 1), make(20, 3)])
    steps, following = both.sample_w_next(4, generator=0)  # all that have a successor: 0, 1, 20, 21
    assert sorted(steps.rewards.tolist()) == [0, 1, 20, 21]
    assert (following.rewards == steps.rewards + 1).all()
    assert (following.observations["x"] == following.rewards).all() and (
        following.actions[:, 0] == following.rewards
    ).all()
    assert not steps.continuous and not following.continuous
    steps.rewards[:] = -1
    assert both.rewards.min() == 0
    assert make(0, 2).sample_w_next(1)[1].rewards.tolist() == [1]
    first = [make().sample_w_next(2, generator=seed)[0].rewards.tolist() for seed in (1, 1, 2, 3, 4)]
    assert first[0] == first[1] and len({tuple(x) for x in first}) > 1


def test_sample_w_next_bad_input() -> None:
    with pytest.raises(ValueError, match=r"must not exceed the number of steps that another one follows, 4 .* got 5"):
        make().sample_w_next(5)
    with pytest.raises(ValueError, match="follows, 0"):
        make(length=1).sample_w_next(1)
    with pytest.raises(ValueError, match="loose batch"):
        make()[[0, 1]].sample_w_next(1)
    for size in (0, True, 1.0):
        with pytest.raises((ValueError, TypeError), match="batch_size must be an integer of at least 1"):
            make().sample_w_next(size)  # pyright: ignore[reportArgumentType]


def test_ordered_batches_are_continuous() -> None:
    """specs/sampling.md 7.6"""
    rollout = make()
    batches = list(rollout.split_ordered_batches(batch_size=2))
    assert [batch.rewards.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert [batch.observations["x"].tolist() for batch in batches] == [[0, 1, 2], [2, 3, 4], [4, 5]]
    assert all(batch.continuous for batch in batches)
    assert batches[0].undiscounted_return() == 1
    for size in (5, 9):
        (whole,) = rollout.split_ordered_batches(size)
        assert whole is rollout
    loose = list(rollout[[3, 1, 0]].split_ordered_batches(2))
    assert [batch.rewards.tolist() for batch in loose] == [[3, 1], [0]] and not loose[0].continuous


@pytest.mark.parametrize(
    ("steps", "number", "lengths"), [(9, 4, [3, 2, 2, 2]), (5, 4, [2, 1, 1, 1]), (6, 3, [2, 2, 2])]
)
def test_number_of_ordered_batches(steps: int, number: int, lengths: list[int]) -> None:
    """specs/sampling.md 7.6: exactly that many, sizes differ by at most one."""
    rollout = make(length=steps)
    batches = list(rollout.split_ordered_batches(num_batches=number))
    assert [len(batch) for batch in batches] == lengths == [len(x) for x in np.array_split(np.arange(steps), number)]
    assert np.concatenate([batch.rewards for batch in batches]).tolist() == rollout.rewards.tolist()


def test_ordered_batches_bad_input() -> None:
    for arguments in ({}, {"batch_size": 2, "num_batches": 2}):
        with pytest.raises(ValueError, match="give either batch_size or num_batches"):
            make().split_ordered_batches(**arguments)
    with pytest.raises(ValueError, match="num_batches must not exceed the number of steps 5, got 6"):
        make().split_ordered_batches(num_batches=6)
    for value in (0, True, 1.5):
        for name in ("batch_size", "num_batches"):
            with pytest.raises((ValueError, TypeError), match=f"{name} must be an integer of at least 1"):
                make().split_ordered_batches(**{name: value})  # pyright: ignore[reportArgumentType]


def test_shuffled_batches_hold_every_step_once() -> None:
    """specs/sampling.md 7.6"""
    rollout = make()
    batches = list(rollout.split_shuffled_batches(2, generator=5))
    assert [len(batch) for batch in batches] == [2, 2, 1] and not batches[0].continuous
    assert sorted(np.concatenate([batch.rewards for batch in batches]).tolist()) == [0, 1, 2, 3, 4]
    again = list(rollout.split_shuffled_batches(2, generator=5))
    assert all(rollouts_equal(a, b) for a, b in zip(batches, again, strict=True))
    (whole,) = rollout.split_shuffled_batches(5)
    assert whole is rollout


def test_shuffled_batches_of_complete_rollouts() -> None:
    """specs/sampling.md 7.6"""
    parts = [make(10 * i, n) for i, n in enumerate([3, 1, 2, 2])]
    both = StepSequence.concat(parts)
    seen = set()
    for seed in range(20):
        batches = list(both.split_shuffled_batches(3, complete_rollouts=True, generator=seed))
        assert all(len(batch) >= 3 for batch in batches[:-1])
        rollouts = [rollout for batch in batches for rollout in batch.iterate_rollouts()]
        assert sorted(int(rollout.rewards[0]) for rollout in rollouts) == [0, 10, 20, 30]
        for rollout in rollouts:
            assert rollouts_equal(rollout, parts[int(rollout.rewards[0]) // 10])  # the final observation included
        seen.add(tuple(int(rollout.rewards[0]) for rollout in rollouts))
    assert len(seen) > 5
    with pytest.raises(ValueError, match="complete_rollouts needs a continuous sequence"):
        both[[0, 1, 2]].split_shuffled_batches(2, complete_rollouts=True)
    with pytest.raises(ValueError, match="batch_size must be an integer"):
        both.split_shuffled_batches(0)
