"""Rollouts as tables with labelled columns (specs/sampling.md 7.5): robot logs in, data frames out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from metaroll.data.compare import trees_equal
from metaroll.data.data_format import Array, iterate_leaves, map_leaves, to_format
from metaroll.data.final_entries import final_rows
from metaroll.data.step_storage import ARGUMENTS, FLAGS
from metaroll.data.tables import Column, array_columns, column_name
from metaroll.errors import DataError, ShapeError
from metaroll.types import EnvSpec

if TYPE_CHECKING:
    from metaroll.data.step_sequence import StepSequence

__all__ = ["frame_to_fields", "rollout_to_columns"]

_KINDS = {"observations": "observation", "actions": "action", "states": "state"}
_PLAIN = (gymnasium.spaces.Box, gymnasium.spaces.Discrete)
_RESERVED = {*_KINDS, "continuous", "data_format", "length", "rollout_bounds", "rollout_info", *ARGUMENTS}


def _labels(env_spec: EnvSpec, columns: Collection[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Field -> labels of its columns, for the spaces that the environment has.

    Where the environment names none, ``columns`` (of a table to be read) may have the names that ``to_pandas`` gives.
    """
    result = {}
    for field, kind in _KINDS.items():
        labels, space = getattr(env_spec, f"{kind}_labels"), getattr(env_spec, f"{kind}_space")
        if labels is None and columns is not None and isinstance(space, _PLAIN):
            labels = tuple(column_name(field, index) for index in np.ndindex(space.shape or ()))
            labels = labels if set(labels) <= set(columns) else None
        if labels is not None:
            taken = sorted({"rewards", *FLAGS} & set(labels))
            if taken:
                raise ValueError(f"{kind}_labels must not hold {taken[0]!r}, the name of another column; rename it")
            result[field] = labels
        elif columns is not None and space is not None:
            raise ValueError(
                f"env_spec must name the columns of the {field} (give it {kind}_labels), or df must have the columns "
                f"{field}[0], {field}[1], ... that to_pandas writes"
            )
    return result


def _space(env_spec: EnvSpec, field: str) -> gymnasium.Space:
    return getattr(env_spec, f"{_KINDS[field]}_space")


# ---- from tables -----------------------------------------------------------------------------------------------------


def frame_to_fields(df: Any, env_spec: EnvSpec, continuous: bool, task: Any) -> dict[str, Any]:
    """Arguments of ``StepSequence`` from a data frame; see ``StepSequence.from_pandas``."""
    if not hasattr(df, "columns") or not hasattr(df, "iloc"):
        raise TypeError(f"df must be a pandas DataFrame, got {type(df).__name__}")
    if not isinstance(env_spec, EnvSpec):
        raise TypeError(f"env_spec must be an EnvSpec, got {type(env_spec).__name__}")
    labels = _labels(env_spec, df.columns)
    _check_columns(df, labels)
    length = _count_steps(df, labels["actions"], continuous)
    fields: dict[str, Any] = {}
    for name, columns in labels.items():
        count = length if name == "actions" else _count_entries(df, columns, length, continuous, name)
        values = [_numbers(df, column, count, gaps=name != "actions") for column in columns]
        if columns == (name,) and isinstance(_space(env_spec, name), gymnasium.spaces.Discrete):
            fields[name] = values[0].astype(np.int64)  # as to_pandas writes choices without labels
        else:
            fields[name] = _unflatten(_space(env_spec, name), iter(values), count)
    fields["rewards"] = _rewards(df, fields, length, task)
    used = {"rewards", *(label for names in labels.values() for label in names)}
    for name in df.columns:
        if name in FLAGS:
            missing = df[name].isna().to_numpy(dtype=bool)
            fields[name] = [not m and v for m, v in zip(missing[:length], df[name].tolist()[:length], strict=True)]
        elif name not in used:
            fields[name] = _raw(df[name], _count_entries(df, [name], length, continuous, name, least=0))
    return fields


def _check_columns(df: Any, labels: Mapping[str, Sequence[str]]) -> None:
    names = list(df.columns)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"the names of all columns of df must be text, got {name!r}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the columns of df must have different names, {twice!r} occurs twice")
    known = {label for columns in labels.values() for label in columns}
    for label in sorted(known - set(names)):
        raise DataError(f"df has no column {label!r}, which env_spec names; columns: {', '.join(names)}")
    for name in sorted((set(names) - known) & _RESERVED):
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
    """Number of entries of a field: that of the steps, or one more if something stands in the row after them."""
    known = max((_count_known(df, label) for label in labels), default=0)
    if known > length + 1 or known < (length if least is None else least):
        raise ShapeError(
            f"{name} must have an entry for each of the {length} steps that have actions, and one more at most; "
            f"the last one stands in row {known}"
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


def _unflatten(space: gymnasium.Space, columns: Iterator[np.ndarray], length: int) -> Any:
    """Entries of a space from the columns that ``_flatten`` makes of them."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _unflatten(part, columns, length) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_unflatten(part, columns, length) for part in space.spaces)
    if isinstance(space, gymnasium.spaces.Discrete):
        chosen = np.stack([next(columns) for _ in range(int(space.n))], axis=1)
        return np.argmax(chosen, axis=1) + int(space.start)
    parts = [next(columns) for _ in range(_size(space))]
    values = np.stack(parts, axis=1) if parts else np.zeros((length, 0))
    if space.dtype is not None and space.dtype.kind in "biu" and values.dtype.kind == "f" and np.isfinite(values).all():
        values = values.astype(space.dtype)
    return values.reshape(length, *(space.shape or ()))


def _size(space: gymnasium.Space) -> int:
    if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.MultiBinary):
        raise ValueError(
            f"{space} has no labelled columns; only Box, MultiBinary, Discrete, Dict and Tuple spaces have"
        )
    return int(np.prod(space.shape))


def _rewards(df: Any, fields: Mapping[str, Any], length: int, task: Any) -> np.ndarray:
    if task is not None:
        if not callable(getattr(task, "step_rew", None)):
            raise TypeError(f"task must have a method step_rew(state, action, remaining_steps), got {task!r}")
        if "states" not in fields:
            raise ValueError("a task computes rewards from states: env_spec needs a state_space and state_labels")
        states, actions = fields["states"], fields["actions"]
        rewards = [task.step_rew(_entry(states, i), _entry(actions, i), 0) for i in range(length)]
        return np.array([float(np.asarray(reward).item()) for reward in rewards])
    if "rewards" not in df.columns:
        return np.zeros(length)
    if (known := _count_known(df, "rewards")) < length:
        raise ShapeError(f"rewards must have as many entries as actions, {length}; the last one stands in row {known}")
    return _numbers(df, "rewards", length, gaps=False)


def _entry(tree: Any, index: int) -> Any:
    return map_leaves(lambda leaf, path: leaf[index], tree)


# ---- to tables -------------------------------------------------------------------------------------------------------


def rollout_to_columns(rollout: StepSequence, env_spec: EnvSpec | None) -> list[Column]:
    """The columns of ``StepSequence.to_pandas``."""
    if rollout.continuous and rollout.rollout_count > 1:
        raise ShapeError(f"a table holds one rollout, this is {rollout.rollout_count}; take each of iterate_rollouts()")
    if env_spec is not None and not isinstance(env_spec, EnvSpec):
        raise TypeError(f"env_spec must be an EnvSpec, got {type(env_spec).__name__}")
    labels = {} if env_spec is None else _labels(env_spec)
    columns: dict[str, Column] = {}
    for name in rollout.data_names:
        tree = _rows(rollout, name)
        if env_spec is not None and name in labels:
            flat = _flatten(_space(env_spec, name), tree, name)
            new = [Column(label, *parts) for label, parts in zip(labels[name], flat, strict=True)]
        else:
            leaves = iterate_leaves(getattr(rollout, name))
            found = ((".".join(map(str, (name, *path))), _follow(tree, path)) for path, _ in leaves)
            new = [column for label, (rows, there) in found for column in array_columns(label, rows, there)]
        for column in new:
            _add(columns, column)
    there = np.arange(len(rollout) + rollout.continuous) < len(rollout)
    for name in FLAGS:
        _add(columns, Column(name, np.append(getattr(rollout, name), [False] * int(rollout.continuous)), there))
    return list(columns.values())


def _rows(rollout: StepSequence, name: str) -> Any:
    """The tree of a field with pairs of rows ``(N + 1, ...)`` and which of them exist, ``(N + 1,)``."""
    length = len(rollout)

    def rows(leaf: Array, path: tuple[Any, ...]) -> list[np.ndarray]:
        there = np.ones(length + rollout.continuous, dtype=bool)
        body = np.asarray(to_format(leaf, "numpy"))
        if not rollout.continuous:
            return [body, there]
        values, present = final_rows(leaf, rollout._finals.get((name, *path)), rollout.rollout_bounds)
        there[-1] = present[0]
        return [np.concatenate([body[:length], np.asarray(to_format(values, "numpy"))]), there]

    return map_leaves(rows, getattr(rollout, name))


def _follow(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _flatten(space: gymnasium.Space, tree: Any, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One column, and which of its rows exist, for each label of a space; ``_unflatten`` undoes it."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _flatten(part, tree[key], f"{name}.{key}")
        return
    rows, there = tree
    if isinstance(space, gymnasium.spaces.Discrete):
        for choice in range(int(space.n)):
            yield (rows.reshape(len(rows)) == choice + space.start).astype(np.int64), there
        return
    if rows.size != len(rows) * _size(space):
        raise ShapeError(f"{name} must have entries of shape {space.shape} as env_spec says, got {rows.shape[1:]}")
    for column in rows.reshape(len(rows), -1).T:
        yield column, there


def _add(columns: dict[str, Column], column: Column) -> None:
    """Add a column; one of the same name must agree with it (labels of states may be those of observations)."""
    old = columns.setdefault(column.name, column)
    both = old.present & column.present
    if not trees_equal(old.values[both], column.values[both]):
        raise ValueError(f"two columns with different values are called {column.name!r}; give them different labels")
    if column.present.sum() > old.present.sum():
        columns[column.name] = column
