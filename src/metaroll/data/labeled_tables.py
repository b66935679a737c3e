"""Rollouts as tables with labeled columns: robot logs in, data frames out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.columns import (
    Column,
    array_columns,
    flag_columns,
    group_columns,
    row_layout,
    space_columns,
    table_rows,
)
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import Array, iterate_leaves, map_leaves, to_format
from metaroll.data.final_entries import FinalEntries
from metaroll.data.step_storage import ARGUMENTS, FLAGS
from metaroll.data.tables import is_frame
from metaroll.errors import DataError, ShapeError
from metaroll.types import EnvSpec

__all__ = ["fields_to_columns", "frame_to_fields"]

_KINDS = {"observations": "observation", "actions": "action", "states": "state"}
_RESERVED = {*_KINDS, "continuous", "data_format", "length", "rollout_bounds", "rollout_info", *ARGUMENTS}
_MOST_SHOWN = 4
"""Columns that an error lists."""


def _labels(env_spec: EnvSpec) -> dict[str, tuple[str, ...]]:
    """Field -> labels of its columns, for the spaces whose numbers the environment names."""
    result = {}
    for field, kind in _KINDS.items():
        labels = getattr(env_spec, f"{kind}_labels")
        if labels is not None:
            taken = sorted({"rewards", *FLAGS} & set(labels))
            if taken:
                raise ValueError(f"{kind}_labels must not hold {taken[0]!r}, the name of another column; rename it")
            result[field] = labels
    if set(result.get("actions", ())) & set(result.get("observations", ())):
        del result["actions"]  # a joint's torque is called as its angle is: columns ``actions[i]`` distinguish them
    return result


def _space(env_spec: EnvSpec, field: str) -> gymnasium.Space:
    return getattr(env_spec, f"{_KINDS[field]}_space")


# ---- from tables -----------------------------------------------------------------------------------------------------


def frame_to_fields(df: Any, env_spec: EnvSpec, continuous: bool, task: Any) -> dict[str, Any]:
    """Arguments of ``StepSequence`` from a data frame; see ``StepSequence.from_pandas``.

    Raises:
        DataError: A labeled column is missing.
        ShapeError: Columns are of lengths that do not fit together.
        TypeError: ``df`` is not a data frame, ``env_spec`` no ``EnvSpec``, or ``task`` has no ``step_rew``.
        ValueError: Columns are named ambiguously, or hold no numbers where there must be some.
    """
    if not is_frame(df):
        raise TypeError(f"df must be a pandas DataFrame, got {type(df).__name__}")
    if not isinstance(env_spec, EnvSpec):
        raise TypeError(f"env_spec must be an EnvSpec, got {type(env_spec).__name__}")
    for name in df.columns:
        if not isinstance(name, str):
            raise ValueError(f"the names of all columns of df must be text, got {name!r}")
    sources = _sources(env_spec, df)
    columns = {name: _all_names(tree) for name, tree in sources.items()}
    used = {column for names in columns.values() for column in names}
    _check_columns(df, used, states_are_free="states" not in sources)
    length = _count_steps(df, columns["actions"], continuous)
    fields: dict[str, Any] = {}
    for name, tree in sources.items():
        count = length if name == "actions" else _count_entries(df, columns[name], length, continuous, name)
        fields[name] = _read_space(df, _space(env_spec, name), tree, count, gaps=name != "actions")
    fields["rewards"] = _rewards(df, fields, length, task)
    for name in set(df.columns) & set(FLAGS):
        missing = df[name].isna().to_numpy(dtype=bool)
        fields[name] = [not m and v for m, v in zip(missing[:length], df[name].tolist()[:length], strict=True)]
    used |= {"rewards", *FLAGS, *_reward_columns(df)}
    trees = _other_trees([name for name in df.columns if name not in used], fields)
    fields |= {name: _read_tree(df, name, tree, length, continuous) for name, tree in trees.items()}
    first = {name: next(iter(iterate_leaves(tree)))[1].flat[0] for name, tree in trees.items()}
    first |= {name: names[0] for name, names in columns.items() if names}
    places = {name: df.columns.get_loc(column) for name, column in first.items()}
    return dict(sorted(fields.items(), key=lambda item: places.get(item[0], -1)))


def _sources(env_spec: EnvSpec, df: Any) -> dict[str, Any]:
    """Field -> tree of its columns, for observations, actions and states (if environment and table have any)."""
    columns, labels = set(df.columns), _labels(env_spec)
    result: dict[str, Any] = {}
    for field, kind in _KINDS.items():
        space, named = _space(env_spec, field), labels.get(field)
        if named is not None and set(named) <= columns:
            result[field] = _label_tree(space, iter(named))
            continue
        if space is None:
            continue
        tree = space_columns(space, field, columns)
        written = _all_names(tree)
        if set(written) <= columns and (written or named is None):
            result[field] = tree
        elif field == "states" and not columns & ({*written, *(named or ())} - {*labels.get("observations", ())}):
            continue  # not every rollout has its states recorded
        elif named is not None:
            label = next(label for label in named if label not in columns)
            raise DataError(f"df has no column {label!r}, which env_spec names; columns: {', '.join(df.columns)}")
        else:
            shown = ", ".join(written[:_MOST_SHOWN]) + (", ..." if len(written) > _MOST_SHOWN else "")
            lacking = next(name for name in written if name not in columns)
            raise ValueError(
                f"env_spec must name the columns of the {field} (give it {kind}_labels), or df must have the columns "
                f"{shown} that to_pandas writes for {space}; {lacking!r} is missing"
            )
    return result


def _all_names(tree: Any) -> list[str]:
    return [name for _, leaf in iterate_leaves(tree) for name in leaf.flat]


def _follow(tree: Any, path: tuple[Any, ...]) -> Any:
    """The part of a tree, or of a Dict or Tuple space, at a path."""
    for key in path:
        tree = tree[key]
    return tree


def _label_tree(space: gymnasium.Space, labels: Iterator[str]) -> Any:
    """The tree of a space with arrays of its labels, in their order: one per number, and one per choice."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _label_tree(part, labels) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_label_tree(part, labels) for part in space.spaces)
    if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.MultiBinary | gymnasium.spaces.Discrete):
        raise ValueError(f"{space} has no labeled columns; only Box, MultiBinary, Discrete, Dict and Tuple spaces have")
    shape = (int(space.n),) if isinstance(space, gymnasium.spaces.Discrete) else space.shape
    return np.array([next(labels) for _ in range(math.prod(shape))], dtype=object).reshape(shape)


def _read_space(df: Any, space: gymnasium.Space, tree: Any, count: int, gaps: bool) -> Any:
    """Entries of a space from its tree of columns."""

    def entries(names: np.ndarray, path: tuple[Any, ...]) -> np.ndarray:
        part = _follow(space, path)
        if part.dtype is None or part.dtype.kind not in "biufc":
            return _raw(df[names.item()], count)
        values = _read_leaf(names, count, lambda name: _numbers(df, name, count, gaps))
        if isinstance(part, gymnasium.spaces.Discrete) and names.ndim:
            return np.argmax(values, axis=1) + int(part.start)
        if not names.size:
            return values.astype(part.dtype)
        whole = part.dtype.kind in "biu" and values.dtype.kind == "f" and np.isfinite(values).all()
        return values.astype(part.dtype) if whole else values

    return map_leaves(entries, tree)


def _read_leaf(names: np.ndarray, count: int, read: Callable[[str], np.ndarray]) -> np.ndarray:
    """Entries ``(count, *names.shape)`` of columns."""
    parts = [read(name) for name in names.flat]
    values = np.stack(parts, axis=1) if parts else np.zeros((count, 0))
    return values.reshape(count, *names.shape)


def _other_trees(columns: Sequence[str], taken: Collection[str]) -> dict[str, Any]:
    """Field -> tree of its columns, for the columns that belong to nothing else."""
    protected = {*_RESERVED, *FLAGS, "rewards", *taken} - ({"states"} - set(taken))
    trees: dict[str, Any] = {}
    for field, tree in group_columns(columns).items():
        if field in protected:
            trees |= {name: np.array(name, dtype=object) for _, leaf in iterate_leaves(tree) for name in leaf.flat}
        else:
            trees[field] = tree
    return trees


def _read_tree(df: Any, field: str, tree: Any, length: int, continuous: bool) -> Any:
    """A field from its columns; those of one array have equally many entries."""

    def entries(names: np.ndarray, path: tuple[Any, ...]) -> np.ndarray:
        label = ".".join(map(str, (field, *path)))
        count = _count_entries(df, list(names.flat), length, continuous, label, least=0)
        return _read_leaf(names, count, lambda name: _raw(df[name], count))

    return map_leaves(entries, tree)


def _check_columns(df: Any, used: Collection[str], states_are_free: bool) -> None:
    names = list(df.columns)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the columns of df must have different names, {twice!r} occurs twice")
    free = {"states"} if states_are_free else set()
    for name in sorted((set(names) & _RESERVED) - set(used) - free):
        raise ValueError(f"a column of df cannot be called {name!r}, which StepSequence uses itself; rename it")


def _count_known(df: Any, label: str) -> int:
    """Number of rows up to the last one that is not missing."""
    there = np.flatnonzero(~df[label].isna().to_numpy(dtype=bool))
    return int(there[-1]) + 1 if len(there) else 0


def _count_steps(df: Any, labels: Sequence[str], continuous: bool) -> int:
    """Number of steps: that of the complete actions, but for one in the last row, which no step follows."""
    rows = len(df) - 1 if continuous else len(df)
    length = min([rows, *(_count_known(df, label) for label in labels)])
    if length < 1:
        what = "a row of actions, and a row for what follows it" if continuous else "a row of actions"
        raise ShapeError(f"df must hold at least {what}; it has {len(df)} rows, and actions in {max(length, 0)}")
    return length


def _count_entries(
    df: Any, labels: Sequence[str], length: int, continuous: bool, name: str, least: int | None = None
) -> int:
    """Number of entries of a field: that of the steps, or one more if the row after them is not empty."""
    known = max((_count_known(df, label) for label in labels), default=0)
    if known > length + 1 or known < (length if least is None else least):
        raise ShapeError(
            f"{name} must have an entry for each of the {length} steps that have actions, and one more at most; "
            f"the last one is in row {known}"
        )
    return length + 1 if continuous and known == length + 1 else length


def _raw(series: Any, count: int) -> np.ndarray:
    """The first entries of a column; NaN for numbers that are missing."""
    part = series.iloc[:count]
    if part.dtype.kind in "biuf" and not isinstance(part.dtype, np.dtype) and part.isna().any():
        return part.to_numpy(dtype=np.float64, na_value=np.nan)
    return part.to_numpy()


def _numbers(df: Any, label: str, count: int, gaps: bool) -> np.ndarray:
    missing = df[label].iloc[:count].isna().to_numpy(dtype=bool)
    if missing.any() and not gaps:
        raise ValueError(f"column {label!r} must have a value in every step, it is missing in row {np.argmax(missing)}")
    values = _raw(df[label], count)
    if values.dtype.kind == "O":
        try:
            values = np.array([np.nan if m else v for m, v in zip(missing, values, strict=True)], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {label!r} must hold numbers: {error}") from error
    return values


def _rewards(df: Any, fields: Mapping[str, Any], length: int, task: Any) -> np.ndarray:
    if task is not None:
        if not callable(getattr(task, "step_rew", None)):
            raise TypeError(f"task must have a method step_rew(state, action, remaining_steps), got {task!r}")
        if "states" not in fields:
            raise ValueError(
                "a task computes rewards from states: env_spec needs a state_space and state_labels, and df the "
                "columns of these labels"
            )
        states, actions = fields["states"], fields["actions"]
        rewards = [task.step_rew(_entry(states, i), _entry(actions, i), 0) for i in range(length)]
        return np.array([float(np.asarray(reward).item()) for reward in rewards])
    columns = _reward_columns(df)
    if not columns:
        return np.zeros(length)
    if (known := _count_known(df, columns[0])) < length:
        raise ShapeError(f"rewards must have as many entries as actions, {length}; the last one is in row {known}")
    rewards = _numbers(df, columns[0], length, gaps=False)
    return rewards if columns[0] == "rewards" else rewards[:, None]


def _reward_columns(df: Any) -> list[str]:
    """The column of the rewards, if there is one; rewards ``(N, 1)`` are written to ``rewards[0]``."""
    return [name for name in ("rewards", "rewards[0]") if name in df.columns][:1]


def _entry(tree: Any, index: int) -> Any:
    return map_leaves(lambda leaf, path: leaf[index], tree)


# ---- to tables -------------------------------------------------------------------------------------------------------


def fields_to_columns(
    fields: Mapping[str, Any],
    finals: Mapping[tuple[Any, ...], FinalEntries],
    flags: Mapping[str, np.ndarray],
    bounds: np.ndarray | None,
    env_spec: EnvSpec | None,
) -> list[Column]:
    """The columns of ``StepSequence.to_pandas``.

    Args:
        fields: Name -> tree of leaves ``(N, ...)`` or ``(N+1, ...)``.
        finals: Final entries by path of their leaf.
        flags: Name -> bool ``(N,)``.
        bounds: ``[0, N]``; ``None`` means loose steps.
        env_spec: Its labels name columns.

    Raises:
        ShapeError: Entries are not of the space that has labels.
        ValueError: Two columns of one name differ.
    """
    if env_spec is not None and not isinstance(env_spec, EnvSpec):
        raise TypeError(f"env_spec must be an EnvSpec, got {type(env_spec).__name__}")
    labels = {} if env_spec is None else _labels(env_spec)
    layout = row_layout(len(flags["done"]), bounds)
    columns: dict[str, Column] = {}

    def rows(leaf: Array, path: tuple[Any, ...]) -> list[np.ndarray]:
        known = finals.get(path)
        if known is not None:
            known = FinalEntries(np.asarray(to_format(known.values, "numpy")), known.present)
        return list(table_rows(np.asarray(to_format(leaf, "numpy")), known, layout))

    for name, field in fields.items():
        tree = map_leaves(rows, field, (name,))
        if env_spec is not None and name in labels:
            new = list(_labeled_columns(_space(env_spec, name), labels[name], tree, name))
        else:
            arrays = ((".".join(map(str, (name, *path))), *leaf) for path, leaf in iterate_leaves(tree))
            new = [column for leaf in arrays for column in array_columns(*leaf)]
        for column in new:
            _add(columns, column)
    for column in flag_columns(flags, layout):
        _add(columns, column)
    return list(columns.values())


def _labeled_columns(space: gymnasium.Space, labels: Sequence[str], tree: Any, name: str) -> Iterator[Column]:
    """A column for each label of a space; ``_read_space`` reads them."""
    for path, names in iterate_leaves(_label_tree(space, iter(labels))):
        part, (rows, there) = _follow(space, path), _follow(tree, path)
        if isinstance(part, gymnasium.spaces.Discrete):
            rows = (rows.reshape(-1, 1) == np.arange(int(part.n)) + part.start).astype(np.int64)
        if rows.size != len(rows) * names.size:
            label = ".".join(map(str, (name, *path)))
            raise ShapeError(
                f"{label} must have entries of shape {part.shape} as env_spec declares, got {rows.shape[1:]}"
            )
        columns = rows.reshape(len(rows), -1).T
        yield from (Column(column_name, values, there) for column_name, values in zip(names.flat, columns, strict=True))


def _add(columns: dict[str, Column], column: Column) -> None:
    """Add a column; one of the same name must agree with it (labels of states may be those of observations)."""
    old = columns.setdefault(column.name, column)
    both = old.present & column.present
    if not trees_equal(old.values[both], column.values[both]):
        raise ValueError(f"two columns with different values are called {column.name!r}; give them different labels")
    if column.present.sum() > old.present.sum():
        columns[column.name] = column
