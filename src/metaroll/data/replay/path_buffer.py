"""Replay memory: a ring of transitions that grows as it fills, and remembers which paths are still whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.checks import check_instance, check_whole
from metaroll.data.replay.ring_rows import History, RingRows
from metaroll.errors import DataError, ShapeError
from metaroll.seeding import as_generator

__all__ = ["PathBuffer", "memory_estimate"]

_FIRST_CHUNK = 1024

Generator = np.random.Generator | int | None


def memory_estimate(num_buffers: int, capacity: int, width: int, num_rows: int | None = None) -> int:
    """Bytes that buffers of float32 take at most.

    Args:
        num_buffers: Number of buffers.
        capacity: Transitions in each.
        width: Numbers per transition, of all keys together.
        num_rows: Maximum number of transitions of all buffers together, however shared out; ``None`` means that
            every buffer may become full. As memory grows by doubling, twice as many may be allocated.
    """
    rows = num_buffers * capacity
    if num_rows is not None:
        rows = min(rows, num_buffers * _FIRST_CHUNK + 2 * num_rows)
    return rows * width * np.dtype(np.float32).itemsize


class PathBuffer:
    """A ring buffer of transitions that come in whole paths.

    Every key has rows of constant width and keeps the dtype of its first path. Memory grows by doubling up to the
    capacity; what is sampled depends on what was added and on the generator, not on how the memory grew. Old
    transitions are overwritten one by one: what is left of a path can still be sampled as transitions, but no
    longer as a path.

    Args:
        capacity_in_transitions: Number of transitions after which the oldest are overwritten.
    """

    def __init__(self, capacity_in_transitions: int) -> None:
        self._capacity = check_whole("capacity_in_transitions", capacity_in_transitions)
        self.clear()

    def clear(self) -> None:
        """Forget everything, and free the memory."""
        self._history = History()
        self._arrays: dict[str, np.ndarray] = {}
        self._num_added = 0  # transitions that ever came in; transition k lies in row k % capacity
        self._paths: deque[tuple[int, int]] = deque()  # (number of the first transition, length) of the whole paths

    @property
    def capacity(self) -> int:
        """Largest number of transitions."""
        return self._capacity

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the paths, in the order of the first one."""
        return tuple(self._arrays)

    @property
    def n_transitions_stored(self) -> int:
        """Number of transitions that can be sampled."""
        return min(self._num_added, self._capacity)

    @property
    def n_paths_stored(self) -> int:
        """Number of paths of which nothing has been overwritten."""
        return len(self._paths)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are allocated now."""
        return sum(array.nbytes for array in self._arrays.values())

    def add_path(self, path: Mapping[str, Any]) -> None:
        """Add a path: arrays ``(T, width)`` of the same T; the keys, widths and dtypes of the first path are kept.

        Raises:
            ShapeError: An array has another shape or width.
            TypeError: An array does not fit into the dtype of the first path.
            ValueError: Keys are missing, or the path is longer than the buffer.
        """
        check_instance("path", path, Mapping, "a dict of arrays")
        arrays = {key: np.asarray(value) for key, value in path.items()}
        length = self._check_path(arrays)
        for steps, rows in self.new_paths([length], {key: (a.shape[1], a.dtype) for key, a in arrays.items()}):
            for key, array in arrays.items():
                rows[key][...] = array[steps]

    def new_paths(
        self, lengths: Sequence[int], columns: Mapping[str, tuple[int, Any]]
    ) -> list[tuple[slice, dict[str, np.ndarray]]]:
        """Add paths whose rows the caller writes, all of them and at once, straight into the memory of the ring.

        Args:
            lengths: Numbers of transitions.
            columns: Width and dtype of every key; those of the first path count.

        Returns:
            Which transitions of the paths, one after the other, and their rows of every key: one piece, or two where
            the ring starts over.

        Raises:
            ValueError: The paths together are longer than the buffer.
        """
        total = sum(lengths)
        if total > self._capacity:
            raise ValueError(
                f"a path of {total} transitions does not fit into a buffer of {self._capacity}; raise its capacity"
            )
        self._reserve(columns, min(self._num_added + total, self._capacity))
        start = self._num_added % self._capacity
        head = min(total, self._capacity - start)  # the rest goes to the beginning of the ring
        for length in lengths:
            self._paths.append((self._num_added, length))
            self._num_added += length
        oldest = self._num_added - self.n_transitions_stored
        while self._paths[0][0] < oldest:
            self._paths.popleft()
        pieces = [(slice(0, head), start)] + ([(slice(head, total), 0)] if head < total else [])
        return [
            (steps, {key: memory[begin : begin + steps.stop - steps.start] for key, memory in self._arrays.items()})
            for steps, begin in pieces
        ]

    def _check_path(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Number of transitions of a path that fits; nothing is changed if it does not."""
        if not arrays:
            raise ValueError("path must have at least one key, got an empty dict")
        for key, array in arrays.items():
            if array.ndim != 2:
                hint = "; use array.reshape(-1, 1)" if array.ndim == 1 else ""
                raise ShapeError(f"path[{key!r}] must have shape (T, width), got {array.shape}{hint}")
            if array.dtype.hasobject:
                raise TypeError(f"path[{key!r}] must hold numbers, got dtype {array.dtype}")
        lengths = {key: len(array) for key, array in arrays.items()}
        length = next(iter(lengths.values()))
        if len(set(lengths.values())) > 1:
            raise ShapeError(f"all arrays of a path must have the same length, got {lengths}")
        if length == 0:
            raise ShapeError("path must have at least one transition, got none")
        if self._arrays:
            self._check_against_first(arrays)
        return length

    def _check_against_first(self, arrays: Mapping[str, np.ndarray]) -> None:
        missing, unknown = self._arrays.keys() - arrays.keys(), arrays.keys() - self._arrays.keys()
        if missing or unknown:
            # ValueError, as buffers of other libraries raise it; a KeyError would hide in code that looks up tasks.
            raise ValueError(
                f"every path must have the keys of the first one {list(self._arrays)}: "
                f"missing {sorted(missing)}, unknown {sorted(unknown)}"
            )
        for key, array in arrays.items():
            memory = self._arrays[key]
            if array.shape[1] != memory.shape[1]:
                raise ShapeError(f"path[{key!r}] must have width {memory.shape[1]}, got {array.shape[1]}")
            if not np.can_cast(array.dtype, memory.dtype, casting="same_kind"):
                raise TypeError(f"path[{key!r}] must fit into {memory.dtype}, got {array.dtype}")

    def _reserve(self, columns: Mapping[str, tuple[int, Any]], num_rows: int) -> None:
        """Allocate ``num_rows`` rows of every key; stored data stay in their rows."""
        have = len(next(iter(self._arrays.values()))) if self._arrays else 0
        if have >= num_rows:
            return
        rows = min(self._capacity, max(num_rows, 2 * have, _FIRST_CHUNK))
        for key, (width, dtype) in columns.items():
            old = self._arrays.get(key)
            memory = np.empty((rows, width), dtype=dtype if old is None else old.dtype)
            if old is not None:
                memory[:have] = old
            self._arrays[key] = memory

    def _require_data(self) -> None:
        if not self._num_added:
            raise ValueError("the buffer is empty; add a path before sampling from it")

    def sample_transitions(
        self, n: int, generator: Generator = None, *, out: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """``n`` transitions drawn uniformly with replacement: for every key an array ``(n, width)``.

        Args:
            n: How many.
            generator: Source of randomness.
            out: Array of every key to write them to, of its dtype; ``None``: new ones.

        Raises:
            ValueError: The buffer is empty, or ``n`` too small.
        """
        self._require_data()
        rows = as_generator(generator).integers(self.n_transitions_stored, size=check_whole("n", n))
        # All rows are there; with mode="raise" numpy would write to another array first.
        return {
            key: array.take(rows, axis=0, out=None if out is None else out[key], mode="clip")
            for key, array in self._arrays.items()
        }

    def sample_path(self, generator: Generator = None) -> dict[str, np.ndarray]:
        """A path drawn uniformly from those that are still whole: for every key a new array ``(T, width)``.

        Raises:
            ValueError: The buffer is empty.
        """
        self._require_data()
        start, length = self._paths[int(as_generator(generator).integers(len(self._paths)))]
        rows = np.arange(start, start + length) % self._capacity
        return {key: array.take(rows, axis=0) for key, array in self._arrays.items()}

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All that the buffer holds, as arrays and integers.

        Args:
            copy: False gives views, which change with the buffer: for writing to a file at once without taking the
                memory a second time. They mark which of their rows are new (``RingRows``).
        """
        stored, added = self.n_transitions_stored, self._num_added
        return {
            "capacity": self._capacity,
            "num_added": self._num_added,
            "paths": np.array(self._paths, dtype=np.int64).reshape(-1, 2),
            "data": {
                key: array[:stored].copy() if copy else RingRows.of(array[:stored], added, self._history)
                for key, array in self._arrays.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the buffer into the state that ``state_dict`` returned: it samples the same, bitwise identical.

        Raises:
            DataError: Something is missing in the state.
            ValueError: It is of a buffer of another capacity, or does not fit together.
        """
        missing = {"capacity", "num_added", "paths", "data"} - state.keys()
        if missing:
            raise DataError(f"this is not the state of a PathBuffer: {sorted(missing)[0]!r} is missing")
        if int(state["capacity"]) != self._capacity:
            raise ValueError(f"the state is of a buffer of {state['capacity']} transitions, this has {self._capacity}")
        num_added = int(state["num_added"])
        stored = min(num_added, self._capacity)
        arrays = {str(key): np.array(array) for key, array in state["data"].items()}
        for key, array in arrays.items():
            if array.ndim != 2 or len(array) != stored:
                raise ShapeError(f"data[{key!r}] must have {stored} rows, got shape {array.shape}")
        if bool(arrays) != bool(num_added):
            raise ShapeError(f"num_added is {num_added}, but there are {len(arrays)} arrays")
        paths = np.asarray(state["paths"]).reshape(-1, 2).tolist()
        self.clear()
        self._arrays, self._num_added = arrays, num_added
        self._paths.extend((int(start), int(length)) for start, length in paths)
