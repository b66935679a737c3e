"""The mapping between fields of rollouts and columns of a table: names, rows, and which values exist.

A table has one row per step and one for what follows the last step of each sub-rollout. A column holds one number of
the entries of a field, and is called after it: ``states[0]``, ``env_infos.forces[1,2]``, ``hidden.0``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from metaroll.data.final_entries import FinalEntries
from metaroll.data.step_storage import FLAGS

__all__ = [
    "Column",
    "RowLayout",
    "array_columns",
    "column_name",
    "flag_columns",
    "group_columns",
    "row_layout",
    "space_columns",
    "table_rows",
]

_NUMBER = r"(?:0|[1-9]\d*)"
_NAME = re.compile(rf"(?P<path>[^\[\]]+)(?:\[(?P<index>{_NUMBER}(?:,{_NUMBER})*)\])?", re.ASCII)
_ARRAYS = (
    gymnasium.spaces.Box,
    gymnasium.spaces.Discrete,
    gymnasium.spaces.MultiDiscrete,
    gymnasium.spaces.MultiBinary,
)


class Column(NamedTuple):
    """A named column: ``values (rows,)``, of which ``present (rows,)`` exist."""

    name: str
    values: np.ndarray
    present: np.ndarray


def array_columns(name: str, rows: np.ndarray, present: np.ndarray) -> Iterator[Column]:
    """Columns ``name``, or ``name[0]``, ``name[0,1]`` and so on, of the entries ``rows (N + R, ...)``."""
    for index in np.ndindex(rows.shape[1:]):
        yield Column(column_name(name, index), rows[(slice(None), *index)], present)


def column_name(name: str, index: tuple[int, ...]) -> str:
    """Name of the column of one number in the entries ``name``."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


# ---- rows ------------------------------------------------------------------------------------------------------------


class RowLayout(NamedTuple):
    """Rows of steps ``(N,)``, and of the final entries of each sub-rollout ``(R,)`` (none for loose steps)."""

    steps: np.ndarray
    finals: np.ndarray

    @property
    def num_rows(self) -> int:
        """N + R."""
        return len(self.steps) + len(self.finals)

    def present(self, finals: np.ndarray | None = None) -> np.ndarray:
        """Which rows ``(N + R,)`` exist: those of steps, and of the sub-rollouts ``finals (R,)`` bool."""
        there = np.zeros(self.num_rows, dtype=bool)
        there[self.steps] = True
        if finals is not None:
            there[self.finals] = finals
        return there


def row_layout(length: int, bounds: np.ndarray | None) -> RowLayout:
    """The layout of ``length`` steps with rollout bounds ``(R+1,)``; ``None`` means loose steps."""
    if bounds is None:
        return RowLayout(np.arange(length), np.arange(0))
    before = np.arange(len(bounds) - 1)  # rows for the final entries of earlier sub-rollouts
    return RowLayout(np.arange(length) + np.repeat(before, np.diff(bounds)), bounds[1:] + before)


def table_rows(leaf: np.ndarray, finals: FinalEntries | None, layout: RowLayout) -> tuple[np.ndarray, np.ndarray]:
    """Rows ``(N + R, ...)`` of the entries ``(N, ...)`` or ``(N+1, ...)`` of a field, and which of them exist."""
    length = len(layout.steps)
    known = np.zeros(len(layout.finals), dtype=bool)
    rows = np.zeros((layout.num_rows, *leaf.shape[1:]), dtype=leaf.dtype)
    rows[layout.steps] = leaf[:length]
    if finals is not None:
        known |= finals.present
        rows[layout.finals[known]] = finals.values[known]
    if len(leaf) > length:
        known[-1] = True
        rows[layout.finals[-1]] = leaf[length]
    return rows, layout.present(known)


def flag_columns(flags: Mapping[str, np.ndarray], layout: RowLayout) -> Iterator[Column]:
    """The columns of ``done``, ``terminated`` and ``truncated``, bool ``(N,)`` each."""
    for name in FLAGS:
        yield Column(name, *table_rows(flags[name], None, layout))


# ---- names -----------------------------------------------------------------------------------------------------------


def space_columns(space: gymnasium.Space, name: str, columns: Collection[str]) -> Any:
    """The tree of a space with arrays of names: the columns that ``to_pandas`` gives a field ``name`` of its elements.

    Rollouts hold the numbers of an action in a flat row, so where only such ``columns`` exist those are meant.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: space_columns(part, f"{name}.{key}", columns) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(space_columns(part, f"{name}.{i}", columns) for i, part in enumerate(space.spaces))
    if not isinstance(space, _ARRAYS):
        return _names(name, ())  # text, graphs and the like are objects, one per row
    shaped = _names(name, space.shape or ())
    flat = _names(name, (shaped.size,))
    return flat if set(flat) <= set(columns) and not set(shaped.flat) <= set(columns) else shaped


def group_columns(columns: Iterable[str]) -> dict[str, Any]:
    """Field -> tree of arrays of names, from all columns that belong to it.

    Parts ``.0``, ``.1``, ... make a tuple, any others a dict. Columns whose names do not make whole arrays (``x[1]``
    without ``x[0]``; ``x`` beside ``x.mean``) are separate fields, under their full names.
    """
    grouped: dict[str, dict[tuple[str, ...], dict[tuple[int, ...], str]]] = {}
    order: dict[str, list[str]] = {}
    for column in columns:
        match = _NAME.fullmatch(column)
        path = tuple(match["path"].split(".")) if match else (column,)
        if match is None or not all(path):
            path, index = (column,), ()
        else:
            index = tuple(map(int, match["index"].split(","))) if match["index"] else ()
        grouped.setdefault(path[0], {}).setdefault(path[1:], {})[index] = column
        order.setdefault(path[0], []).append(column)
    fields: dict[str, Any] = {}
    for field, leaves in grouped.items():
        built = {path: _whole_array(names) for path, names in leaves.items()}
        arrays = {path: array for path, array in built.items() if array is not None}
        nested = any(path[:end] in leaves for path in leaves for end in range(len(path)))
        if nested or len(arrays) < len(leaves):
            fields |= {name: _names(name, ()) for name in order[field]}
        else:
            fields[field] = _tree(arrays)
    return fields


def _names(name: str, shape: tuple[int, ...]) -> np.ndarray:
    names = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        names[index] = column_name(name, index)
    return names


def _whole_array(names: Mapping[tuple[int, ...], str]) -> np.ndarray | None:
    """The names in the shape of their indices; ``None`` if an index is missing."""
    if len({len(index) for index in names}) > 1:
        return None
    shape = tuple(max(sizes) + 1 for sizes in zip(*names, strict=True))
    if len(names) != np.prod(shape, dtype=object):
        return None
    array = np.empty(shape, dtype=object)
    for index, name in names.items():
        array[index] = name
    return array


def _tree(arrays: Mapping[tuple[str, ...], np.ndarray]) -> Any:
    if () in arrays:
        return arrays[()]
    parts: dict[str, dict[tuple[str, ...], np.ndarray]] = {}
    for path, array in arrays.items():
        parts.setdefault(path[0], {})[path[1:]] = array
    trees = {key: _tree(part) for key, part in parts.items()}
    if set(trees) == {str(i) for i in range(len(trees))}:
        return tuple(trees[str(i)] for i in range(len(trees)))
    return trees
