"""Storage of live collection, each observation once: rings of rows, one for each slot, in arrays of constant size."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np

from metaroll.checks import check_path
from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.data.replay.ring_rows import History, RingRows
from metaroll.data.rollouts import Rollouts
from metaroll.data.space_batches import check_elements
from metaroll.errors import DataError, ShapeError

__all__ = [
    "START",
    "STEP",
    "TERMINATED",
    "TRUNCATED",
    "Columns",
    "StepStreams",
    "check_observations",
    "check_spaces",
    "named_leaves",
    "row_bytes",
    "rows_of",
    "take",
]

STEP = 1
"""Flag of a row: a step was taken there. Others are the last observations of their episodes, so far."""

TERMINATED = 2
TRUNCATED = 4
START = 8
"""Flag of a row: nothing that is stored leads there."""

spaces = gymnasium.spaces
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Columns(NamedTuple):
    """One row per observation, those of a slot one after the other, ``(num_slots * rows, ...)``.

    Attributes:
        observations: In the dtypes of the space: an array, or a dict or tuple of arrays.
        actions: The actions there: a row of float32 for a Box, indices from 0 for choices.
        rewards: float32, of the step from there.
        flags: ``STEP``, ``TERMINATED``, ``TRUNCATED`` and ``START``, added up, uint8.
        episodes: Number of the episode in its slot, int32.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    flags: np.ndarray
    episodes: np.ndarray


def check_observations(observation_space: gymnasium.Space[Any]) -> None:
    """``ValueError`` unless elements are arrays of numbers, or dicts and tuples of them."""
    for name, space in named_leaves(observation_space):
        if not isinstance(space, _ARRAYS):
            raise ValueError(
                f"{name} must be a Box, Discrete, MultiDiscrete or MultiBinary space, or a Dict or Tuple of these, "
                f"got {space}; a wrapper can turn it into one"
            )


def check_spaces(observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
    """``check_observations``, and ``ValueError`` unless actions are arrays of numbers."""
    check_observations(observation_space)
    if not isinstance(action_space, _ARRAYS):
        raise ValueError(
            f"action_space must be a Box, Discrete, MultiDiscrete or MultiBinary space, got {action_space}"
        )


def row_bytes(observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> int:
    """Bytes that a row takes: each observation once, action, reward, flags and number of the episode."""
    observed = (_bytes(space.shape, space.dtype) for _, space in named_leaves(observation_space, ""))
    return sum(observed) + _bytes(*_action_entry(action_space)) + 4 + 1 + 4


def _bytes(shape: Sequence[int] | None, dtype: Any) -> int:
    return math.prod(shape or ()) * np.dtype(dtype).itemsize


def named_leaves(
    space: gymnasium.Space[Any], name: str = "observation_space"
) -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    """The numeric spaces that a space is made of, with their names in errors."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from named_leaves(part, f"{name}[{key!r}]")
    else:
        yield name, space


def _action_entry(space: gymnasium.Space[Any]) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of an action as policies give it."""
    if isinstance(space, spaces.Box):
        return (math.prod(space.shape),), np.float32
    return space.shape or (), np.int64 if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else space.dtype


class _Placed(NamedTuple):
    """Rows for the observations of pieces, ``(sum T + N,)``, and the resulting state of slots and ends of episodes."""

    rows: np.ndarray
    kept: np.ndarray
    flags: np.ndarray
    episodes: np.ndarray
    written: list[int]
    newest: list[int]
    waiting: list[tuple[int, int] | None]
    ends: dict[int, int]


@final
class StepStreams:
    """Rings of rows, one for each slot: a row is an observation, and the step that was taken there.

    The next observation of a step lies in the next row of its slot. An episode that has ended has one row more than
    steps, its final observation; so has one that continues, and its last row gets its action with the next piece.

    Args:
        observation_space: Observation space of the environment.
        action_space: Action space of the environment.
        num_slots: E.
        num_rows: Rows of each slot.
        memory_map: Folder of the files that hold the arrays; ``None``: main memory.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        num_slots: int,
        num_rows: int,
        memory_map: str | Path | None = None,
    ) -> None:
        self.num_slots, self.num_rows = num_slots, num_rows
        self._observation_space, self._action_space = observation_space, action_space
        total = num_slots * num_rows
        folder = None if memory_map is None else check_path("memory_map", memory_map)
        if folder is not None:
            _check_disk(folder, total * row_bytes(observation_space, action_space))

        def room(shape: Sequence[int], dtype: Any) -> np.ndarray:
            return _room((total, *shape), np.dtype(dtype), folder)

        self.columns = Columns(
            _tree(observation_space, lambda space: room(space.shape or (), space.dtype)),
            room(*_action_entry(action_space)),
            room((), np.float32),
            room((), np.uint8),
            room((), np.int32),
        )
        self._ends = np.zeros(total, np.int64)  # place of the newest row of an episode, at its number % num_rows
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.columns.flags[:] = 0
        self.written = [0] * self.num_slots  # rows that ever came into each slot; row k lies at k % num_rows
        self.num_steps = 0
        self._newest = [-1] * self.num_slots  # number of the newest episode of each slot
        # Rollouts that continue: number of the plan, and steps so far.
        self._waiting: list[tuple[int, int] | None] = [None] * self.num_slots
        self._history = History()

    @property
    def stored(self) -> list[int]:
        """Rows of each slot that hold something: the first ones of its ring."""
        return [min(count, self.num_rows) for count in self.written]

    # -- reading -----------------------------------------------------------------------------------------------------

    def rows_in_order(self) -> list[np.ndarray]:
        """The rows of each slot, from the oldest to the newest."""
        rows = []
        for slot, (written, stored) in enumerate(zip(self.written, self.stored, strict=True)):
            rows.append(slot * self.num_rows + np.arange(written - stored, written) % self.num_rows)
        return rows

    def ahead(self, rows: np.ndarray, steps: int | np.ndarray) -> np.ndarray:
        """The rows that lie ``steps`` after (before, if negative) ``rows`` in their slots."""
        places = rows % self.num_rows
        return rows + ((places + steps) % self.num_rows - places)

    def steps_left(self, rows: np.ndarray) -> np.ndarray:
        """Steps from each of ``rows`` to the last observation of its episode so far."""
        episodes = self.columns.episodes.take(rows) % self.num_rows
        places = rows % self.num_rows
        return (self._ends.take(rows - places + episodes) - places) % self.num_rows

    def segments(self, n: int, length: int, generator: np.random.Generator) -> np.ndarray:
        """Rows ``(n, length + 1)`` that follow one another in a slot, drawn uniformly from all there are.

        Raises:
            ValueError: No slot holds that many.
        """
        stored = np.array(self.stored)
        counts = np.maximum(stored - length, 0)
        starts = np.cumsum([0, *counts])
        if not starts[-1]:
            raise ValueError(
                f"a segment of {length} steps (with its burn-in) is longer than anything stored: the longest slot "
                f"holds {max(0, stored.max() - 1)}; collect more steps first, or ask for shorter segments"
            )
        numbers = generator.integers(starts[-1], size=n)
        slots = starts.searchsorted(numbers, side="right") - 1
        oldest = (np.array(self.written) - stored)[slots]
        firsts = slots * self.num_rows + (oldest + numbers - starts[slots]) % self.num_rows
        return self.ahead(firsts[:, None], np.arange(length + 1))

    def draw(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of ``n`` steps, drawn uniformly with replacement; there must be one."""
        flags, stored = self.columns.flags, self.stored
        total, are_full = sum(stored), min(stored) == self.num_rows
        starts = None if are_full or self.num_slots == 1 else np.cumsum([0, *stored])

        def drawn(count: int) -> np.ndarray:
            numbers = generator.integers(total, size=count)
            if starts is None:
                return numbers
            slots = starts.searchsorted(numbers, side="right") - 1
            return numbers + (slots * self.num_rows - starts[slots])

        rows = drawn(n)
        while len(missed := (flags.take(rows) & STEP == 0).nonzero()[0]):  # few: an episode has one row more than steps
            rows[missed] = drawn(len(missed))
        return rows

    # -- adding ------------------------------------------------------------------------------------------------------

    def add(self, pieces: Rollouts, actions: Any = None) -> np.ndarray:
        """Store rollouts, and pieces that continue stored ones; returns the rows that were written.

        Raises:
            DataError: Something is NaN or infinite.
            ShapeError: Something does not fit into the spaces.
            TypeError: It is of another type. After an error nothing has changed.
        """
        count, total = len(pieces), int(pieces.bounds[-1])
        pieces.require_final_observations()
        observations = self._checked_observations(pieces, total + count)
        done = self._checked_actions(pieces.column("actions") if actions is None else actions, pieces)
        rewards = np.asarray(pieces.rewards).astype(np.float32)
        _refuse_non_finite("rewards", rewards, pieces.bounds)

        is_step = np.ones(total + count, dtype=bool)
        is_step[pieces.bounds[1:] + np.arange(count)] = False
        placed = self._place(pieces, is_step)
        rows, kept = placed.rows, placed.kept
        steps = kept & is_step  # of all rows
        of_steps = kept[is_step]  # of all steps
        before = int(np.count_nonzero(self.columns.flags[rows[kept]] & STEP))
        step_rows = rows[steps]
        _write(self.columns.observations, observations, rows, kept)
        self.columns.actions[step_rows] = done[of_steps]
        self.columns.rewards[step_rows] = rewards[of_steps]
        self.columns.flags[rows[kept]] = placed.flags[kept]
        self.columns.episodes[rows[kept]] = placed.episodes[kept]
        self.num_steps += len(step_rows) - before
        self.written, self._newest, self._waiting = placed.written, placed.newest, placed.waiting
        self._ends[list(placed.ends)] = list(placed.ends.values())
        return rows[kept]

    def _place(self, pieces: Rollouts, is_step: np.ndarray) -> _Placed:
        lengths, complete, firsts = pieces.lengths.tolist(), pieces.complete.tolist(), pieces.firsts.tolist()
        numbers = self._plan_numbers(pieces)
        written, newest, waiting = list(self.written), list(self._newest), list(self._waiting)
        begins, episodes, follows = [], [], []
        last_of: dict[int, int] = {}
        ends: dict[int, int] = {}
        slots = [number % self.num_slots for number in numbers]
        kept = np.ones(len(is_step), dtype=bool)
        finals = np.flatnonzero(~is_step)
        for i, (number, slot) in enumerate(zip(numbers, slots, strict=True)):
            continues = firsts[i] > 0 and waiting[slot] == (number, firsts[i])
            if continues and slot in last_of:
                kept[finals[last_of[slot]]] = False  # the same observation comes again, with its action
            newest[slot] += not continues
            begins.append(written[slot] - continues)
            episodes.append(newest[slot])
            follows.append(continues)
            written[slot] = begins[-1] + lengths[i] + 1
            waiting[slot] = None if complete[i] else (number, firsts[i] + lengths[i])
            last_of[slot] = i
            ends[slot * self.num_rows + newest[slot] % self.num_rows] = (written[slot] - 1) % self.num_rows
        rows_of = np.asarray(lengths) + 1
        edges = np.cumsum(rows_of) - rows_of
        place = np.repeat(np.array(begins) - edges, rows_of) + np.arange(len(is_step))
        slot_of = np.repeat(slots, rows_of)
        if any(new - old >= self.num_rows for new, old in zip(written, self.written, strict=True)):
            kept &= place >= np.array(written)[slot_of] - self.num_rows  # what would be overwritten at once
        flags = np.zeros(len(is_step), dtype=np.uint8)
        flags[is_step] = STEP + TERMINATED * pieces.terminated + TRUNCATED * pieces.truncated
        flags[edges[~np.array(follows)]] |= START
        return _Placed(
            slot_of * self.num_rows + place % self.num_rows,
            kept,
            flags,
            np.repeat(np.array(episodes, dtype=np.int32), rows_of),
            written,
            newest,
            waiting,
            ends,
        )

    def _plan_numbers(self, pieces: Rollouts) -> list[int]:
        """Numbers of the plans: those of slot e are e, e + E, ...; without plans, slots take turns."""
        if any(part.plans is None for part in pieces.parts):
            done = sum(newest + 1 for newest in self._newest)
            return list(range(done, done + len(pieces)))
        return pieces.indices.tolist()

    def _checked_observations(self, pieces: Rollouts, size: int) -> Any:
        batch = check_elements("observations", self._observation_space, pieces.column("observations"), size)
        bounds = pieces.bounds + np.arange(len(pieces.bounds))
        leaves = dict(iterate_leaves(batch))
        for path, memory in iterate_leaves(self.columns.observations):
            name = "observations" + "".join(f"[{key!r}]" for key in path)
            if not np.can_cast(leaves[path].dtype, memory.dtype, casting="same_kind"):
                raise TypeError(f"{name} must fit into {memory.dtype}, as its space declares, got {leaves[path].dtype}")
            if memory.dtype.kind == "f":
                _refuse_non_finite(name, leaves[path], bounds)
        return leaves

    def _checked_actions(self, actions: Any, pieces: Rollouts) -> np.ndarray:
        memory, size = self.columns.actions, int(pieces.bounds[-1])
        array = np.asarray(check_elements("actions", self._action_space, actions, size)).reshape(
            size, *memory.shape[1:]
        )
        if not np.can_cast(array.dtype, memory.dtype, casting="same_kind"):
            raise TypeError(f"actions must fit into {memory.dtype} for {self._action_space}, got {array.dtype}")
        if memory.dtype.kind == "f":
            _refuse_non_finite("actions", array, pieces.bounds)
        return array

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All that is stored, as arrays and numbers; with ``copy=False`` arrays are views."""

        def rows(memory: np.ndarray, slot: int) -> np.ndarray:
            part = memory[slot * self.num_rows : slot * self.num_rows + self.stored[slot]]
            return np.array(part) if copy else RingRows.of(part, self.written[slot], self._history)

        slots = {}
        for slot in range(self.num_slots):
            leaves = {name: rows(memory, slot) for name, memory in self._named_columns()}
            waiting = self._waiting[slot]
            slots[str(slot)] = {
                "written": self.written[slot],
                "newest_episode": self._newest[slot],
                "waiting": None if waiting is None else list(waiting),
                "columns": leaves,
            }
        return {"num_rows": self.num_rows, "slots": slots}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a ``state_dict`` of a ring with the same number of slots; the newest rows that fit are kept.

        Raises:
            DataError: Something is missing.
            ValueError: It is of other spaces, or another number of slots. Nothing has changed.
        """
        slots, there = self._checked_state(state)
        self.clear()
        for slot, entry in enumerate(slots):
            written = int(entry["written"])
            numbers = np.arange(max(0, written - min(there, self.num_rows)), written)
            stored_rows = numbers % there
            if self.num_rows > there:  # rows that were overwritten there must not count as stored here
                numbers = numbers - numbers[:1]
                written = len(numbers)
            mine = slot * self.num_rows + numbers % self.num_rows
            for name, memory in self._named_columns():
                memory[mine] = np.asarray(entry["columns"][name])[stored_rows]
            self.written[slot], self._newest[slot] = written, int(entry["newest_episode"])
            waiting = entry["waiting"]
            self._waiting[slot] = None if waiting is None else (int(waiting[0]), int(waiting[1]))
            episodes = self.columns.episodes[mine]
            last = np.append(np.diff(episodes) != 0, True)[: len(mine)]
            self._ends[slot * self.num_rows + episodes[last] % self.num_rows] = numbers[last] % self.num_rows
        self.num_steps = int(np.count_nonzero(self.columns.flags & STEP))

    def _checked_state(self, state: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], int]:
        if missing := {"num_rows", "slots"} - state.keys():
            raise DataError(f"this is not the state of a replay buffer: {sorted(missing)[0]!r} is missing")
        slots, there = state["slots"], int(state["num_rows"])
        if len(slots) != self.num_slots:
            raise ValueError(f"the state is of {len(slots)} slots, this buffer has {self.num_slots}")
        checked = []
        for slot in range(self.num_slots):
            entry = slots[str(slot)]
            stored = min(int(entry["written"]), there)
            for name, memory in self._named_columns():
                if name not in entry["columns"]:
                    raise DataError(f"the state has no {name!r} in slot {slot}: it is of other spaces")
                array = np.asarray(entry["columns"][name])
                if array.shape != (stored, *memory.shape[1:]) or array.dtype != memory.dtype:
                    raise ShapeError(
                        f"the state has {name} of {array.dtype} {array.shape} in slot {slot}, this buffer keeps "
                        f"{memory.dtype} {(stored, *memory.shape[1:])}"
                    )
            checked.append(entry)
        return checked, there

    def _named_columns(self) -> list[tuple[str, np.ndarray]]:
        observed = iterate_leaves(self.columns.observations)
        named = [("observations" + "".join(f".{key}" for key in path), memory) for path, memory in observed]
        return [*named, *((name, getattr(self.columns, name)) for name in Columns._fields[1:])]


def take(tree: Any, rows: np.ndarray) -> Any:
    """Copies of rows of an array, or of a dict or tuple of arrays."""
    if tree.__class__ is np.ndarray:
        return tree.take(rows, axis=0)
    return map_leaves(lambda leaf, path: leaf.take(rows, axis=0), tree)


def rows_of(tree: Any, rows: slice) -> Any:
    """Views of rows of an array, or of a dict or tuple of arrays."""
    if tree.__class__ is np.ndarray:
        return tree[rows]
    return map_leaves(lambda leaf, path: leaf[rows], tree)


def _tree(space: gymnasium.Space[Any], function: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _tree(part, function) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(part, function) for part in space.spaces)
    return function(space)


def _room(shape: tuple[int, ...], dtype: np.dtype, folder: Path | None) -> np.ndarray:
    """Zeros that take memory, or room in a file of ``folder``, as they are written."""
    if folder is None:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:  # nothing is left of it, however this process ends
        return np.asarray(np.memmap(file, dtype, "w+", shape=shape))


def _check_disk(folder: Path, needed: int) -> None:
    if not folder.is_dir():
        raise ValueError(f"memory_map must be the name of a folder that exists, got {str(folder)!r}")
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"the replay buffer needs {needed:,} bytes in {folder}, which has {free:,} left; "
            "choose a smaller capacity, or another folder"
        )


def _write(memory: Any, values_by_path: Mapping[Any, np.ndarray], rows: np.ndarray, kept: np.ndarray) -> None:
    places = rows[kept]
    for path, column in iterate_leaves(memory):
        values = values_by_path[path].reshape(len(rows), *column.shape[1:])
        column[places] = values if len(places) == len(rows) else values[kept]


def _refuse_non_finite(name: str, values: np.ndarray, bounds: np.ndarray) -> None:
    """``DataError`` naming the rollout (with ``bounds``) and the step if an entry of ``values`` is NaN or infinite."""
    if np.isfinite(values).all():
        return
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    row = int(np.flatnonzero(~finite)[0])
    rollout = int(np.searchsorted(bounds, row, side="right")) - 1
    raise DataError(
        f"{name} of rollout {rollout} holds NaN or Inf at step {row - int(bounds[rollout])}: {values[row]}; "
        "nothing was stored"
    )
