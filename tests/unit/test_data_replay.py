"""specs/meta.md 5.6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metaroll.data.replay.path_buffer import PathBuffer, memory_estimate
from metaroll.errors import DataError, ShapeError


def path(*numbers: float, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    column = np.array(numbers, dtype=dtype)[:, None]
    return {"observations": np.repeat(column, 2, axis=1), "rewards": -column}


def seen(buffer: PathBuffer, n: int = 200) -> set[float]:
    return set(buffer.sample_transitions(n, np.random.default_rng(0))["observations"][:, 0].tolist())


def test_stores_and_samples() -> None:
    buffer = PathBuffer(10)
    assert buffer.n_transitions_stored == 0 and buffer.nbytes == 0 and buffer.keys == ()
    buffer.add_path(path(1, 2, 3))
    assert buffer.n_transitions_stored == 3 and buffer.n_paths_stored == 1
    batch = buffer.sample_transitions(64, np.random.default_rng(0))
    assert batch["observations"].shape == (64, 2) and batch["rewards"].shape == (64, 1)
    assert batch["observations"].dtype == np.float32 and batch["observations"].flags.c_contiguous
    assert (batch["observations"][:, 1:] == -batch["rewards"]).all()  # rows of a transition stay together
    batch["observations"][:] = 99
    assert seen(buffer) == {1, 2, 3}
    assert buffer.sample_path(np.random.default_rng(0))["rewards"].tolist() == [[-1], [-2], [-3]]


def test_transitions_may_be_drawn_into_given_memory() -> None:
    buffer = PathBuffer(10)
    buffer.add_path({"rewards": np.arange(3, dtype=np.float32)[:, None]})
    memory = np.zeros((5, 4, 1), np.float32)
    found = buffer.sample_transitions(4, 0, out={"rewards": memory[2]})
    assert (
        np.shares_memory(found["rewards"], memory) and (memory[2] == buffer.sample_transitions(4, 0)["rewards"]).all()
    )
    assert memory.any(axis=(1, 2)).tolist() == [False, False, True, False, False]


def test_overwritten_paths() -> None:
    buffer = PathBuffer(3)
    buffer.add_path(path(0, 1))
    buffer.add_path(path(2, 3))  # 0 is gone, 1 is still there but no longer a path
    assert buffer.n_transitions_stored == 3
    assert seen(buffer) == {1, 2, 3}
    assert buffer.n_paths_stored == 1
    for seed in range(5):
        assert buffer.sample_path(seed)["observations"][:, 0].tolist() == [2, 3]  # wraps around the end of the memory
    buffer.add_path(path(4, 5, 6))
    assert seen(buffer) == {4, 5, 6} and buffer.n_paths_stored == 1


def test_every_key_keeps_the_dtype_of_the_first_path() -> None:
    buffer = PathBuffer(10)
    buffer.add_path({"a": np.zeros((1, 1), dtype=np.float32), "d": np.zeros((1, 1), dtype=bool)})
    buffer.add_path({"a": np.ones((1, 1)), "d": np.ones((1, 1), dtype=bool)})
    batch = buffer.sample_transitions(4, 0)
    assert batch["a"].dtype == np.float32 and batch["d"].dtype == bool
    with pytest.raises(TypeError, match=r"path\['d'\] must fit into bool, got float64"):
        buffer.add_path({"a": np.ones((1, 1)), "d": np.ones((1, 1))})


def test_a_bad_path_is_named_and_changes_nothing() -> None:
    buffer = PathBuffer(3)
    good = path(1, 2)
    buffer.add_path(good)
    for bad, text in (
        ({}, "at least one key"),
        (
            {**good, "rewards": np.zeros(2)},
            r"path\['rewards'\] must have shape \(T, width\), got \(2,\); use array.reshape",
        ),
        ({**good, "rewards": np.zeros((1, 1))}, "same length"),
        ({**good, "rewards": np.zeros((2, 2))}, "width 1, got 2"),
        ({"observations": good["observations"]}, r"missing \['rewards'\]"),
        ({**good, "extra": np.zeros((2, 1))}, r"unknown \['extra'\]"),
        (path(), "at least one transition"),
        (path(1, 2, 3, 4), "a path of 4 transitions does not fit into a buffer of 3"),
    ):
        with pytest.raises(ValueError, match=text):
            buffer.add_path(bad)
    with pytest.raises(TypeError, match="must hold numbers"):
        PathBuffer(3).add_path({"a": np.array([[None]])})
    assert buffer.n_transitions_stored == 2 and seen(buffer) == {1, 2}


def test_bad_use_is_named() -> None:
    for capacity, error in ((0, ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="capacity_in_transitions"):
            PathBuffer(capacity)  # type: ignore[arg-type]
    buffer = PathBuffer(3)
    for sample in (lambda: buffer.sample_transitions(2), buffer.sample_path):
        with pytest.raises(ValueError, match="the buffer is empty"):
            sample()
    buffer.add_path(path(1))
    with pytest.raises(ValueError, match="n must be an integer of at least 1"):
        buffer.sample_transitions(0)


def test_clear_frees_the_memory() -> None:
    buffer = PathBuffer(10)
    buffer.add_path(path(1, 2))
    buffer.clear()
    assert buffer.n_transitions_stored == buffer.nbytes == buffer.n_paths_stored == 0
    buffer.add_path({"other": np.zeros((1, 3))})
    assert buffer.keys == ("other",)


def test_memory_grows_with_what_is_stored() -> None:
    buffer = PathBuffer(1_000_000)
    buffer.add_path(path(1))
    assert buffer.nbytes < 20_000
    for _ in range(30):
        buffer.add_path(path(*range(100)))
    assert buffer.n_transitions_stored == 3001
    assert buffer.nbytes == 4096 * 3 * 4  # doubled twice
    small = PathBuffer(5)
    small.add_path(path(1, 2, 3, 4, 5))
    assert small.nbytes == memory_estimate(1, 5, 3)


def test_memory_estimate() -> None:
    # 2 buffers x 10 transitions x (3 numbers x 4 bytes)
    assert memory_estimate(2, 10, 3) == 240
    assert memory_estimate(2, 10_000, 3, num_rows=100) == (2 * 1024 + 200) * 3 * 4


@pytest.mark.parametrize("shares", [(1, 1, 4998), (1025, 1025, 2950), (5000, 0, 0)])
def test_the_estimate_for_so_many_rows_holds_however_they_are_shared_out(shares: tuple[int, ...]) -> None:
    buffers = [PathBuffer(10**9) for _ in shares]
    for buffer, count in zip(buffers, shares, strict=True):
        for begin in range(0, count, 7):
            buffer.add_path({"rows": np.zeros((min(7, count - begin), 3), np.float32)})
    needed = memory_estimate(3, 10**9, 3, num_rows=5000)
    assert sum(buffer.nbytes for buffer in buffers) <= needed < 3 * sum(shares) * 12
    assert memory_estimate(3, 100, 3, num_rows=5000) == memory_estimate(3, 100, 3)


def test_state_round_trip_samples_the_same() -> None:
    for numbers in (3, 8):  # not full, and overwritten
        buffer, other = PathBuffer(5), PathBuffer(5)
        for k in range(numbers // 2):
            buffer.add_path(path(2 * k, 2 * k + 1))
        state = buffer.state_dict()
        other.add_path({"different": np.zeros((1, 1))})
        other.load_state_dict(state)
        for k in range(4):
            a, b = buffer.sample_transitions(7, k), other.sample_transitions(7, k)
            assert all((a[key] == b[key]).all() and a[key].dtype == b[key].dtype for key in a)
            assert (buffer.sample_path(k)["rewards"] == other.sample_path(k)["rewards"]).all()
            buffer.add_path(path(100 + k))
            other.add_path(path(100 + k))


def test_state_is_a_copy_unless_views_are_asked_for() -> None:
    buffer = PathBuffer(2)
    buffer.add_path(path(1, 2))
    copied, views = buffer.state_dict(), buffer.state_dict(copy=False)
    buffer.add_path(path(3))
    assert copied["data"]["rewards"].tolist() == [[-1], [-2]]
    assert views["data"]["rewards"].tolist() == [[-3], [-2]]


def test_empty_state() -> None:
    buffer = PathBuffer(3)
    buffer.load_state_dict(PathBuffer(3).state_dict())
    assert buffer.n_transitions_stored == 0
    buffer.add_path(path(1))


def test_bad_state_is_named() -> None:
    buffer = PathBuffer(3)
    buffer.add_path(path(1))
    state = buffer.state_dict()
    with pytest.raises(DataError, match="'paths' is missing"):
        buffer.load_state_dict({key: state[key] for key in ("capacity", "num_added", "data")})
    with pytest.raises(ValueError, match="of a buffer of 3 transitions, this has 4"):
        PathBuffer(4).load_state_dict(state)
    with pytest.raises(ShapeError, match=r"data\['rewards'\] must have 1 rows"):
        buffer.load_state_dict({**state, "data": {"rewards": np.zeros((2, 1))}})
    with pytest.raises(ShapeError, match="num_added is 1, but there are 0 arrays"):
        buffer.load_state_dict({**state, "data": {}})
    assert seen(buffer) == {1}
