"""Names of columns and the trees of entries they stand for: ``states[0]``, ``env_infos.forces[1,2]``, ``hidden.0``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.tables import column_name

__all__ = ["group_columns", "space_columns"]

_NUMBER = r"(?:0|[1-9]\d*)"
_NAME = re.compile(rf"(?P<path>[^\[\]]+)(?:\[(?P<index>{_NUMBER}(?:,{_NUMBER})*)\])?", re.ASCII)
_ARRAYS = (
    gymnasium.spaces.Box,
    gymnasium.spaces.Discrete,
    gymnasium.spaces.MultiDiscrete,
    gymnasium.spaces.MultiBinary,
)


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
    without ``x[0]``; ``x`` beside ``x.mean``) are fields of their own, under their full names.
    """
    found: dict[str, dict[tuple[str, ...], dict[tuple[int, ...], str]]] = {}
    order: dict[str, list[str]] = {}
    for column in columns:
        match = _NAME.fullmatch(column)
        path = tuple(match["path"].split(".")) if match else (column,)
        if match is None or not all(path):
            path, index = (column,), ()
        else:
            index = tuple(map(int, match["index"].split(","))) if match["index"] else ()
        found.setdefault(path[0], {}).setdefault(path[1:], {})[index] = column
        order.setdefault(path[0], []).append(column)
    fields: dict[str, Any] = {}
    for field, leaves in found.items():
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
