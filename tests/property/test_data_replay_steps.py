"""The replay buffer against lists of transitions."""

from __future__ import annotations

import gymnasium
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from live_pieces import LivePieces, Step
from metaroll.data.replay import ReplayBuffer

BOX = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)


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
def test_a_restored_buffer_goes_on_with_the_same_bits(slots: int, capacity: int, calls: list[int], seed: int) -> None:
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
