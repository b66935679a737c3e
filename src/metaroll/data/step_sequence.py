"""The trajectory: all that was recorded in one rollout, or in several one after the other."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, overload

import numpy as np

from metaroll.data.compare import trees_equal
from metaroll.data.data_format import Array, check_data_format, infer_format, iterate_leaves, map_leaves
from metaroll.data.final_entries import FinalEntries, concat_leaves
from metaroll.data.step import DictIndexProxy, Step
from metaroll.data.step_storage import FLAGS, StepStorage, as_flags, as_indices
from metaroll.errors import DataError, ShapeError
from metaroll.functional.returns import check_bounds, discounted_sum

__all__ = ["DictIndexProxy", "Step", "StepSequence"]


class StepSequence(StepStorage, Sequence[Step]):
    """A sequence of steps: one continuous rollout, several of them one after the other, or a loose batch of steps.

    Every field holds one entry per step, N in all. Fields that are known after the last step too (observations, states)
    may hold N + 1; slices and concatenations keep these successors, so that ``next_observations`` (and ``next_<field>``
    for any other field) is exact and never comes from another rollout. A concatenation (``concat``) holds N rows of
    them and keeps the final entries of its sub-rollouts apart; ``get_rollout`` puts them back in place.

    Arrays are used as they are, not copied.

    Args:
        complete: False if the last step is not the end of its rollout, as in a mini-batch.
        rollout_info: Whatever stays constant during the rollout.
        data_format: "numpy" or "torch"; ``None`` is "torch" if any data holds a tensor, else "numpy".
        done: Bool ``(N,)``, the last steps of the sub-rollouts, for whatever reason they ended. Default: the ends of
            ``rollout_bounds``; of the last one only if ``complete``.
        continuous: True if the steps follow one another; False for a loose batch.
        rollout_bounds: First step of every sub-rollout, then N, ``(R+1,)``. Default: a new one after each ``done``.
        rewards: ``(N,)``; determines the number of steps.
        observations: ``(N+1, ...)``, or ``(N, ...)`` if the last one is not known.
        actions: ``(N, ...)``.
        **data: More fields of N or N + 1 entries (N if not continuous): arrays, lists of steps, dicts or tuples of
            such, lists of those. ``terminated`` and ``truncated``, bool ``(N,)``, tell endings from time limits
            (Gymnasium's meaning). If one is absent, it is ``done`` without the other; if both are, every ``done`` step
            counts as terminated.

    Note:
        Tensors that trace gradients are refused: what is stored would keep its whole graph alive.
    """

    required_fields: ClassVar[Any] = {}
    rewards: Array
    observations: Array
    actions: Array
    next_observations: Array

    def __init__(
        self,
        *,
        complete: bool = True,
        rollout_info: Any = None,
        data_format: str | None = None,
        done: Any = None,
        continuous: bool = True,
        rollout_bounds: Any = None,
        rewards: Any,
        observations: Any,
        actions: Any,
        **data: Any,
    ) -> None:
        terminated, truncated = data.pop("terminated", None), data.pop("truncated", None)
        fields = {"rewards": rewards, "observations": observations, "actions": actions, **data}
        missing = [name for name in type(self).required_fields if name not in fields]
        if missing:
            raise ValueError(f"required field {missing[0]!r} is missing; pass {missing[0]}=...")
        if isinstance(rewards, tuple):
            fields["rewards"] = list(rewards)
        for name in ("rewards", "observations", "actions"):
            if _is_empty(fields[name]):
                raise ShapeError(f"{name} must have at least one step, got none")
        self._format = infer_format(fields.values()) if data_format is None else check_data_format(data_format)
        self.continuous, self.rollout_info = bool(continuous), rollout_info
        self._names, self._finals, self._bounds = [], {}, None
        self._length = _count_steps(fields["rewards"])
        for name, value in fields.items():
            if value is None:
                raise ValueError(f"field {name!r} is None; leave it out or pass {self._length} entries")
            self.add_data(name, value)
        self._set_ends(complete, done, rollout_bounds)
        self._set_endings(terminated, truncated)

    def _set_ends(self, complete: bool, done: Any, rollout_bounds: Any) -> None:
        length = self._length
        bounds = None if rollout_bounds is None else check_bounds(rollout_bounds, length)
        if bounds is not None and not self.continuous:
            raise ValueError("rollout_bounds needs continuous=True: a loose batch of steps has no rollouts")
        if done is None:
            self.done = np.zeros(length, dtype=bool)
            if self.continuous:
                if bounds is not None:
                    self.done[bounds[1:-1] - 1] = True
                self.done[-1] = complete
        else:
            self.done = as_flags("done", done, length)
        if self.continuous and bounds is None:
            inner = [] if done is None else (np.flatnonzero(self.done[:-1]) + 1).tolist()
            bounds = np.array([0, *inner, length])
        self._bounds = bounds

    def _set_endings(self, terminated: Any, truncated: Any) -> None:
        given = None if truncated is None else as_flags("truncated", truncated, self._length)
        if terminated is None:
            self.terminated = self.done.copy() if given is None else self.done & ~given
        else:
            self.terminated = as_flags("terminated", terminated, self._length)
        self.truncated = self.done & ~self.terminated if given is None else given

    @property
    def length(self) -> int:
        """Number of steps (the entry after the last step does not count)."""
        return self._length

    @property
    def data_format(self) -> str:
        """Name of the data format: "numpy" or "torch" (done, terminated and truncated are NumPy arrays in both)."""
        return self._format

    @property
    def data_names(self) -> Sequence[str]:
        """Names of all fields: rewards, observations, actions, then the others in the order in which they came."""
        return tuple(self._names)

    @property
    def rollout_bounds(self) -> np.ndarray:
        """First step of every sub-rollout, then N, ``(R+1,)``."""
        if self._bounds is None:
            raise ValueError("a loose batch of steps (continuous=False) has no rollouts")
        return self._bounds

    @property
    def rollout_count(self) -> int:
        """Number of sub-rollouts R."""
        return len(self.rollout_bounds) - 1

    @property
    def rollout_lengths(self) -> np.ndarray:
        """Numbers of steps of the sub-rollouts, ``(R,)``."""
        return np.diff(self.rollout_bounds)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("rewards", "observations", "actions"))
        return f"{type(self).__name__}({parts})"

    def __str__(self) -> str:
        return str(self.observations)

    # ---- parts ---------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice | Iterable[int]) -> StepSequence: ...
    def __getitem__(self, index: Any) -> Step | StepSequence:
        """One step (integer), the steps of a slice, or those of a list of integers or a bool mask (a loose batch)."""
        if isinstance(index, slice):
            start, stop, stride = index.indices(self._length)
            if stride != 1:
                return self._select(np.arange(start, stop, stride))
            if stop <= start:
                raise ShapeError(f"{index} selects no step of a rollout of {self._length} steps")
            # All of it stays as it is; a part gets the entry after its last step back in place.
            return self._range(start, stop, append_final=stop - start < self._length)
        if isinstance(index, Iterable) or getattr(index, "ndim", 0) > 0:
            return self._select(as_indices(index, self._length))
        if isinstance(index, bool | np.bool_):
            raise TypeError("a step is selected by an integer, not a bool")
        return Step(self, operator.index(index))

    def get_rollout(self, index: Any) -> StepSequence:
        """Sub-rollouts: the one at an integer (with its final entries in place), or those of a slice, list or mask."""
        bounds = self.rollout_bounds
        count = len(bounds) - 1
        if isinstance(index, slice):
            start, stop, stride = index.indices(count)
            if stride == 1 and stop > start:
                return self._range(int(bounds[start]), int(bounds[stop]), append_final=True)
            chosen = np.arange(start, stop, stride)
        elif isinstance(index, Iterable):
            chosen = as_indices(index, count)
        else:
            number = operator.index(index)
            if not -count <= number < count:
                raise IndexError(f"sub-rollout {number} is out of range, there are {count}")
            number %= count
            return self._range(int(bounds[number]), int(bounds[number + 1]), append_final=True)
        if len(chosen) == 0:
            raise ShapeError(f"no sub-rollout of {count} is selected")
        return self.concat([self.get_rollout(int(i)) for i in chosen])

    def iterate_rollouts(self) -> Iterator[StepSequence]:
        """All sub-rollouts, one by one, each with its final entries in place."""
        for i in range(self.rollout_count):
            yield self.get_rollout(i)

    @classmethod
    def concat(
        cls, parts: Sequence[StepSequence], data_format: str | None = None, truncate_last: bool = True
    ) -> StepSequence:
        """One sequence of all steps of several; names of fields and the order of the fields come from the first.

        Args:
            parts: Sequences with the same fields.
            data_format: "numpy" or "torch"; ``None`` takes that of the first part.
            truncate_last: The fields hold exactly one entry per step. False leaves the final entry of the last part in
                place (N + 1 entries). Either way the final entries of all parts are kept for ``next_...``,
                ``get_rollout`` and slices.

        Returns:
            Sequence with the sub-rollouts of all parts; its ``rollout_info`` is theirs if all are equal, else ``None``.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("parts must hold at least one StepSequence, got none")
        fmt = parts[0]._format if data_format is None else check_data_format(data_format)
        for i, other in enumerate(parts):
            odd = set(parts[0]._names) ^ set(other._names)
            if odd:
                raise DataError(
                    f"all parts must have the same fields: {sorted(odd)[0]!r} is not in both part 0 and {i}"
                )
        continuous = all(part.continuous for part in parts)
        ends = [part.rollout_bounds if continuous else np.array([0, len(part)]) for part in parts]
        finals: dict[tuple[Any, ...], FinalEntries] = {}

        def join(name: str) -> Any:
            trees = [dict(iterate_leaves(getattr(part, name))) for part in parts]

            def leaf(_: Array, path: tuple[Any, ...]) -> Array:
                if any(path not in tree for tree in trees):
                    raise DataError(f"all parts must have the same entries in {name!r}; {path} is not in every one")
                leaves = [tree[path] for tree in trees]
                known = [part._finals.get((name, *path)) for part in parts]
                rows, rest = concat_leaves(leaves, known, ends, fmt, truncate_last and continuous)
                if rest is not None and continuous:
                    finals[(name, *path)] = rest
                return rows

            return map_leaves(leaf, getattr(parts[0], name))

        fields = {name: join(name) for name in parts[0]._names}
        flags = {name: np.concatenate([getattr(part, name) for part in parts]) for name in FLAGS}
        bounds = None
        if continuous:
            bounds = np.concatenate([[0], *(b[1:] + o for b, o in zip(ends, _offsets(parts), strict=True))])
        info = parts[0].rollout_info
        same = all(trees_equal(info, part.rollout_info) for part in parts[1:])
        return cls._assemble(fields, finals, flags, bounds, info if same else None, fmt)

    # ---- returns -------------------------------------------------------------------------------------------------

    def undiscounted_return(self) -> float:
        """Sum of the rewards of one rollout."""
        return float(self.discounted_return(1.0))

    def discounted_return(self, gamma: float) -> Any:
        """The discounted return ``sum_t gamma^t r_t`` of one rollout: a NumPy scalar, or a tensor in format "torch"."""
        if self._bounds is None or len(self._bounds) != 2:
            what = "a loose batch of steps" if self._bounds is None else f"{len(self._bounds) - 1} rollouts"
            raise ShapeError(f"a return belongs to one rollout, this is {what}; see iterate_rollouts()")
        return discounted_sum(self.rewards, gamma)


def _is_empty(value: Any) -> bool:
    shape = getattr(value, "shape", None)
    return 0 in shape[:1] if shape is not None else hasattr(value, "__len__") and len(value) == 0


def _count_steps(rewards: Any) -> int:
    try:
        if isinstance(rewards, dict):
            raise TypeError("a dict has no order of steps")
        return len(rewards)
    except TypeError:
        raise ShapeError(f"rewards must be a sequence with one number per step, got {rewards!r}") from None


def _offsets(parts: Sequence[StepSequence]) -> np.ndarray:
    return np.cumsum([0, *(len(part) for part in parts[:-1])])
