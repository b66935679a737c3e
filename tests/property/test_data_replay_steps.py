"""The replay buffer against lists of transitions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_pieces import LivePieces, Step
from metaroll.data.replay.replay_buffer import ReplayBuffer
from metaroll.functional.replay.priorities import sum_tree, tree_find, tree_set

spaces = gymnasium.spaces
BOX = spaces.Box(-np.inf, np.inf, (1,), np.float32)


def n_step(rows: list, place: int, count: int, discount: float) -> tuple[float, float, float]:
    """Sum of rewards, observation after them and what it counts, one step after the other."""
    total, factor = 0.0, 1.0
    for k in range(count):
        step: Step = rows[place + k][1]
        total += factor * step.reward
        factor *= discount
        if step.terminated:
            return total, step.next_observation, 0.0
        if not step.goes_on or rows[place + k + 1][1] is None:
            return total, step.next_observation, factor
    return total, step.next_observation, factor


@given(
    st.integers(1, 4),
    st.integers(1, 40),
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(0, 10**6),
)
def test_samples_equal_those_of_lists(slots: int, capacity: int, calls: list[int], steps: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    pieces, buffer = LivePieces(slots, generator), ReplayBuffer(BOX, BOX, capacity, num_slots=slots)
    assert sum(buffer.add(pieces.advance(count)) for count in calls) >= 1
    num_rows = -(-capacity // slots) + 1
    stored = [pieces.stored(slot, num_rows) for slot in range(slots)]
    where = {rows[i][0]: (rows, i) for rows in stored for i in range(len(rows)) if rows[i][1] is not None}
    assert buffer.n_transitions_stored == len(where)

    batch = buffer.sample(200, seed, n_step=steps, discount=0.5)
    for i, seen in enumerate(batch.observations[:, 0].tolist()):
        rows, place = where[seen]  # which also says that it is stored, and a step
        total, following, factor = n_step(rows, place, steps, 0.5)
        assert batch.actions[i, 0] == rows[place][1].action
        assert (batch.rewards[i], batch.next_observations[i, 0], batch.discounts[i]) == (total, following, factor)
    if len(where) < 20:
        assert set(batch.observations[:, 0].tolist()) == set(where)


@given(st.integers(1, 3), st.integers(1, 30), st.lists(st.integers(1, 9), max_size=9), st.integers(0, 10**6))
def test_a_restored_buffer_continues_with_the_same_bits(slots: int, capacity: int, calls: list[int], seed: int) -> None:
    pieces = LivePieces(slots, np.random.default_rng(seed))
    buffer, other = (ReplayBuffer(BOX, BOX, capacity, num_slots=slots) for _ in range(2))
    for count in calls:
        buffer.add(pieces.advance(count))
    other.load_state_dict(buffer.state_dict())
    for count in (2, 5):  # half-done rollouts go on
        batch = pieces.advance(count)
        buffer.add(batch)
        other.add(batch)
        for mine, theirs in zip(buffer.sample(30, seed, n_step=3), other.sample(30, seed, n_step=3), strict=True):
            assert mine.tobytes() == theirs.tobytes()


@given(
    st.integers(1, 3),
    st.integers(2, 40),
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(0, 10**6),
)
def test_segments_equal_slices_of_lists(slots: int, capacity: int, calls: list[int], length: int, seed: int) -> None:
    pieces, buffer = (
        LivePieces(slots, np.random.default_rng(seed)),
        ReplayBuffer(BOX, BOX, capacity, num_slots=slots),
    )
    for count in calls:
        buffer.add(pieces.advance(count))
    stored = [pieces.stored(slot, -(-capacity // slots) + 1) for slot in range(slots)]
    firsts = {rows[i][0]: rows[i:] for rows in stored for i in range(len(rows) - length)}
    if not firsts:
        with pytest.raises(ValueError, match="longer than anything stored"):
            buffer.sample_segments(5, seed, length=length)
        return
    burn_in = length // 2
    batch = buffer.sample_segments(60, seed, length=length - burn_in, burn_in=burn_in, discount=0.5)
    for i in range(60):
        rows = firsts[batch.observations[i, 0, 0]]
        assert batch.observations[i, :, 0].tolist() == [row[0] for row in rows[: length + 1]]
        for j, (_, step) in enumerate(rows[:length]):
            assert batch.mask[i, j] == (step is not None and j >= burn_in)
            assert j == 0 or batch.starts[i, j] == (rows[j - 1][1] is None)
            if step is not None:
                assert (batch.actions[i, j, 0], batch.rewards[i, j]) == (step.action, step.reward)
                assert batch.discounts[i, j] == (0.0 if step.terminated else 0.5)


@pytest.mark.filterwarnings("ignore:episodes end by themselves")
@given(
    st.integers(1, 3), st.integers(2, 40), st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 10**6)
)
def test_goals_in_hindsight_come_from_later_in_the_episode(
    slots: int, capacity: int, calls: list[int], seed: int
) -> None:
    goals = spaces.Dict({"achieved_goal": BOX, "desired_goal": BOX})

    def compute_reward(achieved: np.ndarray, desired: np.ndarray, infos: Any) -> np.ndarray:
        return (achieved - desired)[:, 0]

    pieces = LivePieces(slots, np.random.default_rng(seed))
    buffer, other = (
        ReplayBuffer(goals, BOX, capacity, num_slots=slots, compute_reward=compute_reward, hindsight_ratio=0.5)
        for _ in range(2)
    )
    for count in calls:
        for part in (batch := pieces.advance(count)).parts:
            seen = part.fields["observations"]
            part.fields["observations"] = {"achieved_goal": seen, "desired_goal": 0 * seen - 1}
        buffer.add(batch)
    other.load_state_dict(buffer.state_dict())
    stored = [pieces.stored(slot, -(-capacity // slots) + 1) for slot in range(slots)]
    where = {rows[i][0]: (rows, i) for rows in stored for i in range(len(rows))}
    batch, again = (one.sample(100, seed, n_step=2, discount=0.5) for one in (buffer, other))
    seen, after = batch.observations, batch.next_observations
    assert after["desired_goal"].tobytes() == seen["desired_goal"].tobytes()
    assert again.rewards.tobytes() == batch.rewards.tobytes()
    for i, (at, wanted) in enumerate(zip(seen["achieved_goal"][:, 0], seen["desired_goal"][:, 0], strict=True)):
        rows, place = where[at]
        if wanted == -1:
            assert batch.rewards[i] == n_step(rows, place, 2, 0.5)[0]
            continue
        goal = where[wanted][1]
        assert where[wanted][0] is rows and goal > place
        assert all(rows[k][1] is not None for k in range(place, goal))
        second = 0.5 * (rows[place + 2][0] - wanted) if rows[place][1].goes_on and rows[place + 1][1] else 0.0
        assert batch.rewards[i] == rows[place + 1][0] - wanted + second


@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=70), st.integers(0, 10**6))
def test_searches_in_the_tree_equal_those_in_a_running_sum(priorities: list[float], seed: int) -> None:
    values = np.round(np.array(priorities) * 4) / 4  # sums are exact
    tree = sum_tree(len(values))
    for part in np.array_split(np.random.default_rng(seed).permutation(len(values)), 3):
        tree_set(tree, part, values[part])
    assert tree[1] == values.sum()
    if not values.any():
        return
    marks = np.random.default_rng(seed).random(100) * values.sum()
    assert tree_find(tree, marks).tolist() == np.cumsum(values).searchsorted(marks, side="right").tolist()
    assert values[tree_find(tree, np.array([0.0, values.sum()]))].all()
