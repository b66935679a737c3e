"""Records the steps of all slots in blocks of lock-steps, and packs rollouts from them into columns."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.data.rollouts import RolloutColumns
from metaroll.errors import ShapeError
from metaroll.policies.adapters import INFO_ROWS
from metaroll.rollouts.requests import KEPT, Kept
from metaroll.types import SlotStep

__all__ = ["APPLIED", "BlockMemory", "Recorder", "stack_infos", "with_rows"]

APPLIED = "act_applied"
"""Entry of an environment's infos: the action that reached the simulation."""

_GROUPS = ("policy_infos", "env_infos")

_MOST_KEPT = 2**26
"""Bytes of ``BlockMemory`` at most."""


class BlockMemory:
    """Arrays of blocks that have been packed, for the next blocks: the first write to fresh memory costs more."""

    def __init__(self) -> None:
        self._free: dict[tuple[tuple[int, ...], np.dtype], list[np.ndarray]] = {}
        self._num_bytes = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array with anything in it."""
        blocks = self._free.get((shape, dtype))
        if not blocks:
            return np.empty(shape, dtype=dtype)
        self._num_bytes -= blocks[-1].nbytes
        return blocks.pop()

    def give(self, arrays: Iterable[np.ndarray]) -> None:
        """Take back arrays that are no longer read."""
        for array in arrays:
            if self._num_bytes + array.nbytes > _MOST_KEPT:
                self._free, self._num_bytes = {}, 0
            if array.nbytes <= _MOST_KEPT and not array.dtype.hasobject:
                self._free.setdefault((array.shape, array.dtype), []).append(array)
                self._num_bytes += array.nbytes


class _Block:
    """Up to K lock-steps of E slots.

    Attributes:
        arrays: Name -> ``(K, E, ...)``; observations and states have one row more.
        lacking: Name -> bool ``(K,)``, the steps at which it was not reported; only names that some step lacks.
        positions: Place of the plan of each slot in the order of plans, ``(E,)``; -1 if there is none.
        ages: Steps of each rollout before the block, ``(E,)``.
        counts: Steps of each rollout in the block, ``(E,)``.
    """

    def __init__(self, size: int, positions: np.ndarray, ages: np.ndarray, memory: BlockMemory) -> None:
        self.size, self._memory = size, memory
        self.steps = 0
        self.arrays: dict[str, np.ndarray] = {}
        self.names: set[str] = set()
        self.lacking: dict[str, np.ndarray] = {}
        self.positions, self.ages = positions, ages
        self.counts = np.zeros(len(positions), dtype=np.int64)

    def write(self, name: str, step: int, value: np.ndarray, rows: int) -> None:
        store = self.arrays.get(name)
        if store is None or store.dtype is not value.dtype or store.shape[1:] != value.shape:
            store = self._allocate(name, value, rows, step)
        store[step] = value

    def note_names(self, names: Collection[str], step: int) -> None:
        """Note the names reported at ``step``; the first step sets which are expected."""
        if not step:
            self.names = set(names)
        elif self.names != names:
            for name in set(names) - self.names:
                self.lacking[name] = np.arange(self.size) < step
            for name in self.names - set(names):
                self.lacking.setdefault(name, np.zeros(self.size, dtype=bool))[step] = True
            self.names |= set(names)

    def keep(self, names: Collection[str]) -> None:
        """Drop the other arrays, which are no longer read."""
        self._memory.give([self.arrays.pop(name) for name in self.arrays.keys() - names])
        self.lacking = {name: steps for name, steps in self.lacking.items() if name in names}

    def _allocate(self, name: str, value: np.ndarray, rows: int, step: int) -> np.ndarray:
        if value.shape[:1] != self.positions.shape:
            raise ShapeError(f"{name} must have one row per slot ({len(self.positions)}), got shape {value.shape}")
        old = self.arrays.get(name)
        if old is None:
            store = self._memory.take((rows, *value.shape), value.dtype)
        elif old.shape[1:] == value.shape:
            store = old.astype(np.result_type(old, value), copy=False)
        else:
            raise ShapeError(f"{name} must keep its shape {old.shape[1:]} at every step, got {value.shape}")
        self.arrays[name] = store
        return store


class _Grid(NamedTuple):
    """Rows of K lock-steps of E rollouts that lie equally far apart: those of one length, whose rows need no list."""

    begin: int
    apart: int
    num_slots: int
    num_steps: int

    @classmethod
    def of(cls, begin: np.ndarray, num_steps: int) -> _Grid | None:
        """Of rollouts whose rows begin at ``begin (E,)``."""
        apart = int(begin[1] - begin[0]) if len(begin) > 1 else num_steps
        equal = apart >= num_steps and bool((np.diff(begin) == apart).all())
        return cls(int(begin[0]), apart, len(begin), num_steps) if equal else None

    def rows(self) -> np.ndarray:
        """Each of them, ``(K E,)``."""
        first = self.begin + self.apart * np.arange(self.num_slots)
        return (first + np.arange(self.num_steps)[:, None]).reshape(-1)

    def write(self, column: np.ndarray, entries: np.ndarray) -> None:
        """Write ``entries (K E, ...)`` there; half the time of a list of rows."""
        shape, step = (self.num_slots, self.num_steps, *column.shape[1:]), column.strides[0]
        strides = (self.apart * step, *column.strides)
        view = np.lib.stride_tricks.as_strided(column[self.begin :], shape, strides)
        view[...] = entries.reshape(self.num_steps, self.num_slots, *entries.shape[1:]).swapaxes(0, 1)


@dataclass
class _Place:
    """Destination of the steps of a block.

    Attributes:
        source: Which of its K E entries are wanted; all: a slice.
        steps: Their rows among all steps, ``(n,)``, or a grid of them.
        finals: Their rows among observations, of which each rollout has one more, likewise.
        last_source: Entries after the last step of each slot, among (K + 1) E.
        last: Their rows among observations.
    """

    source: np.ndarray | slice
    steps: np.ndarray | _Grid
    finals: np.ndarray | _Grid
    last_source: np.ndarray
    last: np.ndarray

    @classmethod
    def of(
        cls, block: _Block, positions: np.ndarray, first: np.ndarray, bounds: np.ndarray, *, with_finals: bool
    ) -> _Place | None:
        """``None`` where nothing of the block is wanted for pieces at ``positions`` that begin with step ``first``."""
        piece = np.minimum(np.searchsorted(positions, block.positions), len(positions) - 1)
        wanted = (positions[piece] == block.positions) & (block.counts > 0)
        since = block.ages - first[piece]
        wanted &= since >= 0
        if not wanted.any():
            return None
        begin, lock_steps = bounds[piece] + since, np.arange(block.steps)[:, None]
        source: np.ndarray | slice = slice(None)
        if not wanted.all() or bool((block.counts < block.steps).any()):
            source = np.flatnonzero((lock_steps < block.counts) & wanted)

        def rows(first_rows: np.ndarray) -> np.ndarray | _Grid:
            grid = _Grid.of(first_rows, block.steps) if isinstance(source, slice) else None
            return (first_rows + lock_steps).reshape(-1)[source] if grid is None else grid

        steps = rows(begin)
        finals = rows(begin + piece) if with_finals else steps
        slots, ends = np.flatnonzero(wanted), (begin + piece + block.counts)[wanted]
        return cls(source, steps, finals, block.counts[slots] * len(wanted) + slots, ends)


def _move(store: np.ndarray, source: np.ndarray | slice, column: np.ndarray, rows: np.ndarray | _Grid) -> None:
    """``column[rows]`` becomes the entries ``source`` of ``store (K, E, ...)``.

    Entries of more than one number move as one piece of memory, which is twice as fast.
    """
    entries = store.reshape(-1, *store.shape[2:])
    size = math.prod(column.shape[1:])
    if size and not column.dtype.hasobject:
        kind = np.dtype((np.void, size * column.itemsize)) if size > 1 else column.dtype
        entries, column = (np.ascontiguousarray(a).reshape(len(a), -1).view(kind)[:, 0] for a in (entries, column))
    if isinstance(rows, _Grid):
        rows.write(column, entries)
    else:
        column[rows] = entries if isinstance(source, slice) else entries.take(source, axis=0)


class Recorder:
    """Blocks of arrays ``(K, E, ...)`` per name; rollouts are packed into columns in the order of their plans.

    No per-step lists or dicts are kept (except for environments that report dicts, whose entries are stacked at the
    end). A name that is missing at some steps of a rollout (policies may report more at some than at others) holds NaN
    there; integers then become floats.

    Args:
        memory: Memory for the recorded blocks; ``None``: its own memory.
        kept: Which data of rollouts are kept.
    """

    def __init__(self, memory: BlockMemory | None = None, kept: Kept = KEPT) -> None:
        self._memory = BlockMemory() if memory is None else memory
        self._with_infos = kept.infos
        self._fields = None if kept.fields is None else frozenset(kept.fields)
        self._blocks: list[_Block] = []
        self._trees: dict[str, Any] = {}
        self._dicts: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        self._states: dict[int, list[np.ndarray | None]] = {}

    def open(self, size: int, positions: np.ndarray, ages: np.ndarray, observations: Any, states: Any) -> None:
        """A block of at most ``size`` lock-steps begins; ``observations`` and ``states`` are those before it."""
        self._blocks.append(_Block(size, positions.copy(), ages.copy(), self._memory))
        self._write_with_final(0, observations, states)

    def write(self, actions: Any, arrays: dict[str, np.ndarray], observations: Any, states: Any) -> None:
        """Store one lock-step: name -> array ``(E, ...)`` (copied), and the observations after it."""
        block = self._blocks[-1]
        step = block.steps
        if actions.__class__ is np.ndarray:
            arrays["actions"] = actions
        else:
            self._trees["actions"] = actions
            arrays |= {f"actions{path!r}": leaf for path, leaf in iterate_leaves(actions)}
        block.note_names(arrays.keys(), step)
        stores = block.arrays
        for name, value in arrays.items():
            store = stores.get(name)
            if store is not None and store.dtype is value.dtype and store.shape[1:] == value.shape:
                store[step] = value
            else:
                block.write(name, step, value, block.size)
        block.steps += 1
        self._write_with_final(step + 1, observations, states)

    def write_step(
        self,
        step: SlotStep,
        actions: Any,
        policy_infos: Mapping[str, np.ndarray],
        hidden: np.ndarray | None,
        running: np.ndarray,
        positions: np.ndarray,
    ) -> None:
        """Store the lock-step of the slots in ``running``, and their memory before it."""
        arrays = {"rewards": step.rewards, "terminated": step.terminated, "truncated": step.truncated}
        if hidden is not None:
            arrays["hidden_states"] = hidden
        if self._with_infos:
            for name, value in policy_infos.items():
                arrays["policy_infos/" + name] = np.asarray(value)
            if isinstance(step.infos, Mapping):
                for name, value in step.infos.items():
                    arrays["env_infos/" + name] = value
            else:
                self.write_dicts(step.infos, running)
        states = step.states
        if states is not None and not isinstance(states, np.ndarray):
            self.write_states(states, running.nonzero()[0].tolist(), positions)
        self.write(actions, arrays, step.observations, states)

    def write_dicts(self, infos: Sequence[Mapping[str, Any]], active: np.ndarray) -> None:
        """Store the info dicts of one lock-step of the active slots; call before ``write``."""
        if not any(infos):
            return
        block = self._blocks[-1]
        for slot in active.nonzero()[0].tolist():
            info = infos[slot]
            if info:
                age = int(block.ages[slot]) + block.steps
                self._dicts.setdefault(int(block.positions[slot]), []).append((age, info))

    def close(self, counts: np.ndarray) -> None:
        """The block ends; rollouts have taken ``counts (E,)`` of its steps."""
        block = self._blocks[-1]
        block.counts = counts
        if not block.steps:
            self._blocks.pop()
        elif self._fields is not None:
            block.keep(self._wanted(block.arrays))

    def flags(self) -> tuple[np.ndarray, np.ndarray]:
        """``terminated`` and ``truncated`` of the steps of the open block, bool ``(K, E)``, to be written into."""
        block = self._blocks[-1]
        return block.arrays["terminated"][: block.steps], block.arrays["truncated"][: block.steps]

    def values(self) -> list[tuple[str, np.ndarray]]:
        """Actions, observations (or else states) and rewards of the open block, ``(K, E, ...)``, for the NaN check."""
        block = self._blocks[-1]
        steps, arrays = block.steps, block.arrays
        actions = [("action", array[:steps]) for name, array in arrays.items() if name.startswith("actions")]
        seen = [("observation", array[1 : steps + 1]) for name, array in arrays.items() if name.startswith("+obs")]
        seen = seen or [("state", arrays["+states"][1 : steps + 1])]
        return [*actions, *seen, ("reward", arrays["rewards"][:steps])]

    def forget(self, position: int) -> None:
        """Drop a rollout that is no longer wanted."""
        self._dicts.pop(position, None)
        self._states.pop(position, None)

    def write_states(
        self,
        states: Sequence[np.ndarray | None],
        slots: Sequence[int],
        positions: np.ndarray,
        *,
        only_last: bool = False,
    ) -> None:
        """States of a list of environments, as each of them reports; with ``only_last`` those before are forgotten."""
        for slot in slots:
            position = int(positions[slot])
            known = [] if only_last else self._states.setdefault(position, [])
            known.append(states[slot])
            self._states[position] = known

    # -- packing -----------------------------------------------------------------------------------------------------

    def pack(
        self,
        positions: np.ndarray,
        first: np.ndarray,
        lengths: np.ndarray,
        complete: np.ndarray,
        infos: Sequence[Mapping[str, Any]],
        running: Sequence[int] = (),
    ) -> RolloutColumns:
        """Columns of N pieces of rollouts.

        Args:
            positions: Place of the plan of each, ``(N,)``, increasing.
            first: Step of its rollout at which each begins, ``(N,)``.
            lengths: Steps ``(N,)``.
            complete: Whether each ends with its rollout, bool ``(N,)``.
            infos: Constants of each.
            running: Positions of rollouts that continue: what they have recorded is kept.
        """
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        names = dict.fromkeys(name for block in self._blocks for name in block.arrays)
        finals = any(name.startswith("+") for name in names)
        places = [_Place.of(block, positions, first, bounds, with_finals=finals) for block in self._blocks]
        own: dict[int, dict[str, Any]] = defaultdict(dict)
        flat: dict[str, np.ndarray] = {}
        for name in names:
            final = name.startswith("+")
            column, lacking = self._column(name, places, bounds, final)
            if lacking is None and not name.endswith(f"/{INFO_ROWS}"):
                flat[name.removeprefix("+")] = column
            else:
                _spread(own, name, column, lacking, bounds)
        fields = self._as_fields(flat)
        self._add_dicts(own, positions, first, lengths)
        none = np.broadcast_to(False, int(bounds[-1]))  # for flags that are not recorded
        terminated, truncated = fields.pop("terminated", none), fields.pop("truncated", none)
        rest = [own.get(i, {}) for i in range(len(positions))] if own else None
        self._prune(set(running))
        firsts = first if first.any() else None
        return RolloutColumns(fields, terminated, truncated, bounds, complete, infos, rest, firsts=firsts)

    def _wanted(self, names: Collection[str]) -> set[str]:
        """Those of ``names`` that make up the fields that are kept."""
        fields = self._fields or frozenset()
        wanted = {name for name in names if name.removeprefix("+").partition("/")[0].partition("(")[0] in fields}
        if "actions_applied" in fields:
            applied = f"env_infos/{APPLIED}"
            wanted |= {applied} if applied in names else {name for name in names if name.startswith("actions")}
        return wanted

    def _column(
        self, name: str, places: Sequence[_Place | None], bounds: np.ndarray, final: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """One name of all pieces, and the steps that lack it if there are any."""
        stores = [block.arrays.get(name) for block in self._blocks]
        kinds = [store for store in stores if store is not None]
        total = int(bounds[-1]) + final * (len(bounds) - 1)
        column = np.empty((total, *kinds[0].shape[2:]), dtype=np.result_type(*{store.dtype for store in kinds}))
        lacking: np.ndarray | None = None
        for block, store, place in zip(self._blocks, stores, places, strict=True):
            if place is None:
                continue
            gone = block.lacking.get(name)
            if store is None or gone is not None:
                lacking = np.zeros(total, dtype=bool) if lacking is None else lacking
                missing = np.ones(block.steps, dtype=bool) if gone is None or store is None else gone[: block.steps]
                rows = place.steps.rows() if isinstance(place.steps, _Grid) else place.steps
                lacking[rows[np.repeat(missing, len(block.counts))[place.source]]] = True
                if store is None:
                    continue
            store = store.astype(column.dtype, copy=False)
            _move(store[: block.steps], place.source, column, place.finals if final else place.steps)
            if final:  # the last rollout that writes the entry after its last step is the one that has ended there
                _move(store, place.last_source, column, place.last)
        return column, lacking

    def _as_fields(self, flat: dict[str, np.ndarray]) -> dict[str, Any]:
        """Names as ``StepSequence`` has them: trees for structured spaces, groups for infos."""
        fields: dict[str, Any] = {}
        groups: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS}
        for name, tree in self._trees.items():
            if not any(key.startswith(f"{name}(") for key in flat):
                continue  # not wanted
            fields[name] = map_leaves(lambda _, path, name=name: flat.pop(f"{name}{path!r}"), tree)
        for name, column in flat.items():
            group, _, key = name.partition("/")
            if key:
                groups[group][key] = column
            else:
                fields[name] = column
        return {**fields, **{group: infos for group, infos in groups.items() if infos}}

    def _add_dicts(
        self, own: dict[int, dict[str, Any]], positions: np.ndarray, first: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Infos that came as dicts, and states of lists of environments."""
        for i, position in enumerate(positions.tolist()) if self._dicts or self._states else ():
            known = self._dicts.pop(position, None)
            if known is not None:
                dicts: list[Mapping[str, Any]] = [{}] * int(lengths[i])
                for age, info in known:
                    dicts[age - int(first[i])] = info
                own[i].setdefault("env_infos", {}).update(stack_infos(dicts))
            states = self._states.pop(position, None)
            if states is not None:
                arrays = [state for state in states if state is not None]
                if len(arrays) == len(states) and len({state.shape for state in arrays}) == 1:
                    own[i]["states"] = np.stack(arrays)
                self._states[position] = states[-1:]  # where the rollout continues

    def _prune(self, running: set[int]) -> None:
        kept: list[_Block] = []
        for block in self._blocks:
            if running and not running.isdisjoint(block.positions.tolist()):
                kept.append(block)
            else:
                self._memory.give(block.arrays.values())
        self._blocks = kept
        self._states = {position: states for position, states in self._states.items() if position in running}

    def _write_with_final(self, row: int, observations: Any, states: Any) -> None:
        block = self._blocks[-1]
        if observations is None:
            pass  # not read
        elif observations.__class__ is np.ndarray:
            block.write("+observations", row, observations, block.size + 1)
        else:
            self._trees["observations"] = observations
            for path, leaf in iterate_leaves(observations):
                block.write(f"+observations{path!r}", row, leaf, block.size + 1)
        if isinstance(states, np.ndarray):
            block.write("+states", row, states, block.size + 1)


def with_rows(batch: Any, slots: np.ndarray, rows: Any, num_slots: int) -> Any:
    """A copy of ``batch`` (``None``: zeros) with ``rows`` instead of those of ``slots``."""
    if batch is None:
        batch = map_leaves(lambda leaf, path: np.zeros((num_slots, *leaf.shape[1:]), leaf.dtype), rows)
    leaves = dict(iterate_leaves(rows))

    def filled(leaf: np.ndarray, path: tuple[Any, ...]) -> np.ndarray:
        new = leaf.astype(np.result_type(leaf, leaves[path]))
        new[slots] = leaves[path]
        return new

    return map_leaves(filled, batch)


def _spread(
    own: dict[int, dict[str, Any]], name: str, column: np.ndarray, lacking: np.ndarray | None, bounds: np.ndarray
) -> None:
    """Give each rollout its stretch of a name that some steps lack."""
    group, _, key = name.partition("/")
    lacking = np.zeros(len(column), dtype=bool) if lacking is None else lacking
    for i in range(len(bounds) - 1):
        lacks = lacking[bounds[i] : bounds[i + 1]]
        if lacks.all():
            continue
        fields, stretch = own[i], column[bounds[i] : bounds[i + 1]].copy()
        if lacks.any():
            if stretch.dtype.kind not in "fc":
                stretch = stretch.astype(np.float64 if stretch.dtype.kind in "biu" else object)
            stretch[lacks] = None if stretch.dtype.kind == "O" else np.nan
        if key == INFO_ROWS:
            fields.setdefault(group, {}).update(stack_infos([row or {} for row in stretch]))
        elif key:
            fields.setdefault(group, {})[key] = stretch
        else:
            fields[name] = stretch


def stack_infos(dicts: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Name -> array ``(T, ...)`` of T info dicts, over the union of their keys.

    Where a step lacks a numeric entry the array holds NaN; entries that are not numbers, or change shape, become object
    arrays with ``None`` where absent.
    """
    if not dicts:
        return {}
    keys = dicts[0].keys()
    if all(d.keys() == keys for d in dicts):
        return {str(key): _stack([d[key] for d in dicts]) for key in keys}
    union = dict.fromkeys(key for d in dicts for key in d)
    return {str(key): _stack([d.get(key) for d in dicts]) for key in union}


def _stack(values: list[Any]) -> np.ndarray:
    known = [v for v in values if v is not None]
    sample = _as_array(known[0]) if known else None
    if sample is not None and sample.dtype.kind in "biufc":
        if len(known) < len(values):
            blank = np.full(sample.shape, np.nan)
            values = [blank if v is None else v for v in values]
        stacked = _as_array(values)  # None for entries of unequal shape
        if stacked is not None and stacked.dtype.kind in "biufc":
            return stacked
    objects = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        objects[i] = value
    return objects


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # lists of unequal lengths, tensors on another device
        return None
