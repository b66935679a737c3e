"""Storage behind ``StepSequence``: fields by name, the ends of rollouts, and the successor of each step."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch

from metaroll.data.data_format import (
    Array,
    cast_floats,
    check_data_format,
    iterate_leaves,
    map_leaves,
    refuse_gradients,
    to_format,
    to_tree,
)
from metaroll.data.final_entries import FinalEntries, final_rows, select_range, select_rows, successor_rows
from metaroll.errors import DataError, ShapeError

__all__ = ["ARGUMENTS", "FLAGS", "StepStorage", "as_flags", "as_indices"]

FLAGS = ("done", "terminated", "truncated")
"""Bool arrays ``(N,)`` that every sequence has, NumPy in both formats; they are no fields."""

ARGUMENTS = ("complete", "self")
"""Arguments of the constructor besides fields and attributes."""

_ATTRIBUTES = ("continuous", "rollout_info", *ARGUMENTS)
_SEQUENCE_METHODS = ("count", "index")  # of collections.abc.Sequence; fields of these names take precedence


class StepStorage(ABC):
    """Fields of N (or N + 1) entries each, kept as attributes, and the final entries of sub-rollouts.

    ``_finals`` maps the path of a leaf (name of the field, then keys) to the entries after the last steps of the
    sub-rollouts, as far as they are not the last row of the leaf itself.
    """

    done: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    continuous: bool
    rollout_info: Any
    _format: str
    _length: int
    _names: list[str]
    _bounds: np.ndarray | None
    _finals: dict[tuple[Any, ...], FinalEntries]
    _place: Any = None
    """Columns and number of a rollout that was not read yet, which fills itself from there."""

    @classmethod
    def _in_columns(cls, columns: Any, number: int) -> Self:
        """Rollout ``number`` of ``RolloutColumns``, filled when it is first read."""
        result = cls.__new__(cls)
        vars(result)["_place"] = (columns, number)
        return result

    @property
    def is_unread(self) -> bool:
        """Whether this is a rollout among others in columns, which has not been read."""
        return self._place is not None

    def _fill(self) -> None:
        columns, number = vars(self).pop("_place")
        vars(self).update(vars(columns.rollout(number)))

    @classmethod
    def _assemble(
        cls,
        fields: dict[str, Any],
        finals: dict[tuple[Any, ...], FinalEntries],
        flags: dict[str, np.ndarray],
        bounds: np.ndarray | None,
        rollout_info: Any,
        data_format: str,
    ) -> Self:
        """A sequence of parts that fit together already; nothing is checked."""
        result = cls.__new__(cls)
        vars(result).update(fields)
        vars(result).update(flags)
        result._format, result._length, result._names = data_format, len(flags["done"]), list(fields)
        result.continuous, result.rollout_info = bounds is not None, rollout_info
        result._finals, result._bounds = finals, bounds
        return result

    def _with_fields(self, fields: dict[str, Any], finals: dict[tuple[Any, ...], FinalEntries]) -> Self:
        """The same steps with other data, which fit."""
        flags = {name: getattr(self, name) for name in FLAGS}
        return self._assemble(fields, finals, flags, self._bounds, self.rollout_info, self._format)

    def __len__(self) -> int:
        return self._length

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
        """First step of every sub-rollout, then N, ``(R+1,)``.

        Raises:
            ValueError: It is a loose batch of steps.
        """
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

    def __setattr__(self, name: str, value: Any) -> None:
        if self._place is not None:
            self._fill()
        if name in vars(self).get("_names", ()):  # other data for a field must fit as the first did
            if not (self._format == "numpy" and type(value) is np.ndarray):
                refuse_gradients(name, value)
                value = _named_tree(name, value, self._format, self._length)
            self._check_lengths(name, value)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Only reached if there is no such attribute: next_<field> is the successor of a field.
        if self._place is not None:
            columns, number = self._place
            if name == "_length":
                return int(columns.bounds[number + 1] - columns.bounds[number])
            self._fill()
            return getattr(self, name)
        if name.startswith("next_") and name[5:] in vars(self).get("_names", ()):
            try:
                return self.get_next_values(name[5:])
            except DataError as error:
                raise AttributeError(str(error)) from None
        raise AttributeError(f"{type(self).__name__} has no attribute or field {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        if self._place is not None:  # pickles must not include everything that ran with it
            self._fill()
        return vars(self)

    def add_data(
        self, name: str, value: Any = None, item_shape: tuple[int, ...] | None = None, with_after_last: bool = False
    ) -> None:
        """Add a field.

        Args:
            name: Its name; also the name of the attribute.
            value: Its data (see the class); ``None`` makes zeros.
            item_shape: Shape of one entry of the zeros; ``None`` means numbers.
            with_after_last: True for zeros with an entry after the last step.

        Raises:
            DataError: There is such a field already.
            ShapeError: It has another number of entries.
            TypeError: The name is not a string.
            ValueError: The name means something else, or a tensor requires gradients.
        """
        if not isinstance(name, str):
            raise TypeError(f"name of a field must be text, got {name!r}")
        if name in self._names or name in FLAGS:
            raise DataError(f"there is a field {name!r} already")
        if name.startswith("_") or name in _ATTRIBUTES or (hasattr(type(self), name) and name not in _SEQUENCE_METHODS):
            raise ValueError(
                f"{name!r} means something else in {type(self).__name__}; choose another name for the field"
            )
        if value is None:
            shape = (self._length + bool(with_after_last), *(item_shape or ()))
            value = torch.zeros(shape) if self._format == "torch" else np.zeros(shape)
        # Arrays in the right format, the usual case, need no recursion.
        if not (self._format == "numpy" and type(value) is np.ndarray):
            refuse_gradients(name, value)
            value = _named_tree(name, value, self._format, self._length)
        self._check_lengths(name, value)
        vars(self)[name] = value
        self._names.append(name)

    def _check_lengths(self, name: str, tree: Any) -> None:
        length = self._length
        allowed = (length, length + 1) if self.continuous else (length,)
        if type(tree) is np.ndarray and tree.ndim and len(tree) in allowed:
            return
        for path, leaf in iterate_leaves(tree):
            if leaf.ndim == 0 or len(leaf) not in allowed:
                where = ".".join([name, *map(str, path)])
                actual = "a single number" if leaf.ndim == 0 else f"{len(leaf)}"
                raise ShapeError(f"field {where!r} must have {' or '.join(map(str, allowed))} entries, got {actual}")

    def _check_field(self, name: str) -> None:
        if name not in self._names and name not in FLAGS:
            raise DataError(f"there is no field {name!r}; fields: {', '.join(self._names)}")

    def get_data_values(self, name: str, truncate_last: bool = False) -> Any:
        """The data of a field; with ``truncate_last`` without the entry after the last step."""
        self._check_field(name)
        value = getattr(self, name)
        return map_leaves(lambda leaf, path: leaf[: self._length], value) if truncate_last else value

    def get_next_values(self, name: str) -> Any:
        """Entries of a field after each step, ``(N, ...)``: the true successors, also at the ends of sub-rollouts.

        Raises:
            DataError: There is no such field, or a successor is not stored.
        """
        self._check_field(name)

        def successors(leaf: Array, path: tuple[Any, ...]) -> Array:
            rows, missing = successor_rows(leaf, self._finals.get((name, *path)), self._successor_bounds(name))
            if missing.any():
                raise DataError(_not_stored(name, np.argmax(missing)))
            return rows

        return map_leaves(successors, getattr(self, name))

    def get_final_values(self, name: str, default: float | None = None) -> Any:
        """Entries of a field after the last step of each sub-rollout, ``(R, ...)``; ``default`` if there is none.

        Raises:
            DataError: There is no such field, or an entry is not stored and there is no ``default``.
        """
        self._check_field(name)

        def entries(leaf: Array, path: tuple[Any, ...]) -> Array:
            values, present = final_rows(leaf, self._finals.get((name, *path)), self._successor_bounds(name))
            if present.all():
                return values
            if default is None:
                raise DataError(f"{_not_stored(name, np.argmin(present))}, or pass default=...")
            values = values.clone() if isinstance(values, torch.Tensor) else values.copy()
            values[torch.from_numpy(~present) if isinstance(values, torch.Tensor) else ~present] = default
            return values

        return map_leaves(entries, getattr(self, name))

    def _successor_bounds(self, name: str) -> np.ndarray:
        if self._bounds is None:
            raise DataError(f"a loose batch of steps (continuous=False) does not know what follows: next {name!r}")
        return self._bounds

    def locate_next(self, name: str, index: int) -> tuple[Any, int]:
        """Data and position in it where the successor of step ``index`` of a field lies (for ``Step``).

        Raises:
            DataError: It is not stored.
        """
        bounds = self._successor_bounds(name)
        rollout = int(np.searchsorted(bounds, index, side="right")) - 1
        if index + 1 < bounds[rollout + 1]:
            return getattr(self, name), index + 1

        def row(leaf: Array, path: tuple[Any, ...]) -> Array:
            finals = self._finals.get((name, *path))
            if finals is not None and finals.present[rollout]:
                return finals.values[rollout : rollout + 1]
            if index + 1 < len(leaf) and index + 1 == self._length:
                return leaf[index + 1 : index + 2]
            raise DataError(
                f"step {index} is the last of its rollout, and no {name!r} after it is stored: give the field N + 1 "
                "entries"
            )

        return map_leaves(row, getattr(self, name)), 0

    def convert(self, data_format: str, data_type: Any = None) -> None:
        """Convert all data, in place.

        Args:
            data_format: "numpy" or "torch".
            data_type: dtype of that format for all floating-point data (bools and integers keep theirs), or a dict from
                names of fields to dtypes; ``None`` changes no dtype.

        Raises:
            DataError: ``data_type`` names no field.
            TypeError: A field cannot be converted; then nothing has changed.
            ValueError: There is no such format.
        """
        check_data_format(data_format)
        per_field = isinstance(data_type, dict)
        if per_field:
            for name in data_type:
                self._check_field(name)

        def change(leaf: Array, path: tuple[Any, ...]) -> Array:
            dtype = data_type.get(path[0]) if per_field else data_type
            leaf = to_format(leaf, data_format)
            return leaf if dtype is None else cast_floats(leaf, dtype)

        # All new data first: if one field cannot be converted, nothing has changed.
        fields = {name: map_leaves(change, getattr(self, name), (name,)) for name in self._names}
        finals = {path: FinalEntries(change(f.values, path), f.present) for path, f in self._finals.items()}
        vars(self).update(fields)
        self._finals, self._format = finals, data_format

    def numpy(self, data_type: Any = None) -> None:
        """Convert all data to NumPy arrays, in place; see ``convert``."""
        self.convert("numpy", data_type)

    def torch(self, data_type: Any = None) -> None:
        """Convert all data to tensors, in place; see ``convert``."""
        self.convert("torch", data_type)

    def _range(self, start: int, stop: int, append_final: bool) -> Self:
        flags = {name: getattr(self, name)[start:stop] for name in FLAGS}
        if self._bounds is None:
            fields = {name: map_leaves(lambda leaf, _: leaf[start:stop], getattr(self, name)) for name in self._names}
            return self._assemble(fields, {}, flags, None, self.rollout_info, self._format)
        old = self._bounds
        finals: dict[tuple[Any, ...], FinalEntries] = {}

        def part(leaf: Array, path: tuple[Any, ...]) -> Array:
            rows, rest = select_range(leaf, self._finals.get(path), old, start, stop, append_final)
            if rest is not None:
                finals[path] = rest
            return rows

        fields = {name: map_leaves(part, getattr(self, name), (name,)) for name in self._names}
        inner = old[(old > start) & (old < stop)] - start
        bounds = np.concatenate([[0], inner, [stop - start]])
        return self._assemble(fields, finals, flags, bounds, self.rollout_info, self._format)

    def _select(self, indices: np.ndarray) -> Self:
        if indices.size == 0:
            raise ShapeError(f"no step of a rollout of {self._length} steps is selected")
        flags = {name: getattr(self, name)[indices] for name in FLAGS}
        fields = {n: map_leaves(lambda leaf, _: select_rows(leaf, indices), getattr(self, n)) for n in self._names}
        return self._assemble(fields, {}, flags, None, self.rollout_info, self._format)


def _named_tree(name: str, value: Any, data_format: str, length: int) -> Any:
    """``to_tree`` whose errors name the field."""
    try:
        return to_tree(value, data_format, length)
    except (ShapeError, DataError) as error:
        raise type(error)(f"field {name!r}: {error}") from error
    except TypeError as error:
        raise TypeError(f"field {name!r}: {error}") from error


def _not_stored(name: str, rollout: Any) -> str:
    return (
        f"the entry of {name!r} after the end of sub-rollout {rollout} is not stored: give the field N + 1 "
        "entries, the last of them that after the last step"
    )


def as_flags(name: str, value: Any, length: int) -> np.ndarray:
    """One bool per step, ``(length,)``, from an array, tensor or list of bools (or of 0 and 1).

    Raises:
        ShapeError: They are not one per step.
        ValueError: They are neither bools nor 0 and 1.
    """
    array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
    if array.shape != (length,):
        raise ShapeError(f"{name} must have shape ({length},), one bool per step, got {array.shape}")
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold bools, got dtype {array.dtype}")
    return array.astype(bool, copy=False)


def as_indices(index: Any, length: int) -> np.ndarray:
    """Non-negative positions ``(K,)`` from integers (negative ones count from the end) or a bool mask ``(length,)``.

    Raises:
        IndexError: One lies outside.
        ShapeError: A mask has another shape.
        TypeError: They are not integers.
    """
    if isinstance(index, torch.Tensor):
        index = index.detach().cpu().numpy()
    array = np.asarray(index if isinstance(index, np.ndarray) else list(index))
    if array.dtype == bool:
        if array.shape != (length,):
            raise ShapeError(f"a bool mask must have shape ({length},), got {array.shape}")
        return np.flatnonzero(array)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"steps are selected by an integer, a slice, a list of integers or a bool mask, got {index!r}")
    if array.min() < -length or array.max() >= length:
        raise IndexError(f"indices must lie in [{-length}, {length}), got {array.min()} to {array.max()}")
    return np.where(array < 0, array + length, array).astype(np.int64)
