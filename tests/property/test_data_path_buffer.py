"""The ring buffer against a plain list of paths (specs/meta.md 5.6)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metaroll.data.replay.path_buffer import PathBuffer


@given(st.integers(1, 12), st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(0, 3))
def test_buffer_equals_a_list(capacity: int, lengths: list[int], seed: int) -> None:
    buffer, paths, count = PathBuffer(capacity), [], 0
    for length in (min(length, capacity) for length in lengths):
        numbers = np.arange(count, count + length, dtype=np.float64)[:, None]
        count += length
        buffer.add_path({"x": numbers, "y": np.hstack([numbers, -numbers])})
        paths.append(numbers[:, 0].tolist())
    stored = list(range(max(0, count - capacity), count))
    whole = [path for path in paths if path[0] >= stored[0]]
    assert buffer.n_transitions_stored == len(stored) and buffer.n_paths_stored == len(whole)

    batch = buffer.sample_transitions(50, seed)
    assert set(batch["x"][:, 0].tolist()) <= set(stored)
    assert (batch["y"] == np.hstack([batch["x"], -batch["x"]])).all()
    # Row k of the ring holds the last transition whose number is k modulo the capacity: what is drawn depends on the
    # generator only, not on how the memory grew.
    ring = sorted(stored, key=lambda number: number % capacity)
    rows = np.random.default_rng(seed).integers(len(stored), size=50)
    assert batch["x"][:, 0].tolist() == [ring[row] for row in rows]
    for _ in range(5):
        assert buffer.sample_path()["x"][:, 0].tolist() in whole
