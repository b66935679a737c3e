"""Paths of M tasks as columns: one array per field, paths concatenated, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from metaroll.checks import described
from metaroll.data.data_format import cat_to_format, iterate_leaves, map_leaves, to_format
from metaroll.data.paths import Paths, to_path
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError

__all__ = ["PathColumns", "PathGroup"]

PathGroup = Rollouts | Paths | Sequence[StepSequence] | Sequence[Mapping[str, Any]]
"""Paths of one task: rollouts, or path dicts."""

_NEEDED = ("observations", "actions", "rewards")


@dataclass(frozen=True)
class PathColumns:
    """T steps of N paths of M tasks.

    Attributes:
        rows: Observations as stored: one for each step, and with ``has_finals`` another after each path.
        actions: ``(T, ...)``, or a dict or tuple of such.
        rewards: float64, ``(T,)``.
        bounds: First step of every path, then T, ``(N + 1,)``.
        tasks: First path of every task, then N, ``(M + 1,)``.
        terminated: Which steps are terminations, bool ``(T,)``; ``None`` unless all paths have this.
        has_finals: Whether ``rows`` holds the observation after each path.
        finals: These observations, ``(N, ...)``, if they are stored separately.
    """

    rows: Any
    actions: Any
    rewards: np.ndarray
    bounds: np.ndarray
    tasks: np.ndarray
    terminated: np.ndarray | None = None
    has_finals: bool = False
    finals: Any = None
    _source: Rollouts | Sequence[Mapping[str, Any]] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, groups: Iterable[PathGroup]) -> PathColumns:
        """The columns of ``groups``, the paths of each of M tasks. The inputs are not modified.

        Raises:
            DataError: A path has no observations, actions or rewards.
            ShapeError: A path is empty, its entries differ in length, or paths do not fit together.
            TypeError: Something is neither a rollout nor a path dict.
            ValueError: There is no task, a task has no path, or rewards are NaN or infinite.
        """
        listed = [group.rollouts if isinstance(group, Paths) else group for group in groups]
        if not listed:
            raise ValueError("there must be paths of at least one task, got none")
        for m, group in enumerate(listed):
            if isinstance(group, Mapping | str) or not isinstance(group, Sequence):
                raise TypeError(f"paths of task {m} must be a list of path dicts or rollouts, got {described(group)}")
            if not len(group):
                raise ValueError(f"paths of task {m} must hold at least one path, got none")
        tasks = np.concatenate([[0], np.cumsum([len(group) for group in listed])])
        rollouts = _as_rollouts(listed)
        columns = _of_dicts(listed, tasks) if rollouts is None else _of_rollouts(rollouts, tasks)
        columns._refuse_bad_rewards()
        return columns

    @cached_property
    def observations(self) -> Any:
        """The observation before each action, ``(T, ...)``, or a dict or tuple of such."""
        if not self.has_finals:
            return self.rows
        begins = (self.bounds[:-1] + np.arange(len(self.lengths))).tolist()
        edges = list(zip(begins, self._final_rows.tolist(), strict=True))
        return map_leaves(lambda leaf, _: np.concatenate([leaf[a:b] for a, b in edges]), self.rows)

    @cached_property
    def last_observations(self) -> Any:
        """The observation after each path, ``(N, ...)``; ``None`` where not all paths hold it."""
        if not self.has_finals:
            return self.finals
        return map_leaves(lambda leaf, _: leaf[self._final_rows], self.rows)

    @cached_property
    def _final_rows(self) -> np.ndarray:
        """Indices in ``rows`` of the observation after each path, ``(N,)``."""
        return self.bounds[1:] + np.arange(len(self.lengths))

    @cached_property
    def step_rows(self) -> np.ndarray:
        """Indices in ``rows`` of the observation before each action, int64 ``(T,)``."""
        steps = np.arange(self.bounds[-1])
        return steps + np.repeat(np.arange(len(self.lengths)), self.lengths) if self.has_finals else steps

    @property
    def num_tasks(self) -> int:
        """M."""
        return len(self.tasks) - 1

    @cached_property
    def task_bounds(self) -> np.ndarray:
        """First step of every task, then T, ``(M + 1,)``."""
        return self.bounds[self.tasks]

    @cached_property
    def lengths(self) -> np.ndarray:
        """Steps of each path, ``(N,)``."""
        return np.diff(self.bounds)

    @cached_property
    def times(self) -> np.ndarray:
        """Number of each step within its path, from 0, ``(T,)``."""
        return np.arange(self.bounds[-1]) - np.repeat(self.bounds[:-1], self.lengths)

    @cached_property
    def returns(self) -> np.ndarray:
        """Undiscounted return of each path, ``(N,)``."""
        return np.add.reduceat(self.rewards, self.bounds[:-1])

    def by_task(self, column: Any) -> list[Any]:
        """A column ``(T, ...)`` (or a dict or tuple of such) as M views, one for each task."""
        return [map_leaves(lambda leaf, _, a=a, b=b: leaf[a:b], column) for a, b in pairwise(self.task_bounds.tolist())]

    def by_path(self, column: Any, task: int) -> list[Any]:
        """A column ``(T, ...)`` (or a dict or tuple of such) as views, one for each path of a task."""
        edges = self.bounds[self.tasks[task] : self.tasks[task + 1] + 1].tolist()
        return [map_leaves(lambda leaf, _, a=a, b=b: leaf[a:b], column) for a, b in pairwise(edges)]

    def infos(self, name: Literal["env_infos", "agent_infos"]) -> dict[str, Any]:
        """Infos of environments or policies at each step, name -> ``(T, ...)``.

        Infos that only some of the paths have are NaN in the others, or ``None`` where they are not numbers.

        Raises:
            ShapeError: Infos of a path do not have one entry per step, or have another shape than in other paths.
            TypeError: The infos of a path are not a dict.
        """
        if isinstance(self._source, Rollouts):
            field_name = "policy_infos" if name == "agent_infos" else name
            whole = self._source.whole_column(field_name)
            if whole is not None:
                return whole
            pieces = self._source.each(field_name, {})
        else:
            pieces = [path.get(name) or {} for path in self._source]
        pieces = [_as_numpy(infos, f"{name} of {self.name_of(n)}") for n, infos in enumerate(pieces)]
        self._check_infos(name, pieces)
        examples = {key: value for infos in reversed(pieces) for key, value in infos.items()}
        if any(infos.keys() != examples.keys() for infos in pieces):
            pieces = [
                {key: infos[key] if key in infos else _missing(example, t) for key, example in examples.items()}
                for infos, t in zip(pieces, self.lengths.tolist(), strict=True)
            ]
        if not examples:
            return {}
        try:
            return cat_to_format(pieces, "numpy")
        except (DataError, ShapeError) as error:
            raise ShapeError(_misfit(name, pieces, self.name_of) or f"{name} do not fit together: {error}") from error

    def _check_infos(self, name: str, pieces: list[Any]) -> None:
        for n, infos in enumerate(pieces):
            if not isinstance(infos, dict):
                raise TypeError(f"{name} of {self.name_of(n)} must be a dict of arrays, got {described(infos)}")
            for key, leaf in iterate_leaves(infos):
                if not np.ndim(leaf):
                    raise ShapeError(
                        f"{name}[{key[0]!r}] of {self.name_of(n)} must have one entry per step, got {leaf}"
                    )
                if len(leaf) != self.lengths[n]:
                    raise ShapeError(
                        f"{name}[{key[0]!r}] of {self.name_of(n)} must have one entry per step ({self.lengths[n]}), "
                        f"got {len(leaf)}"
                    )

    def name_of(self, path: int) -> str:
        """Name of a path in error messages."""
        return _name_of(path, self.tasks)

    def _refuse_bad_rewards(self) -> None:
        wrong = np.flatnonzero(~np.isfinite(self.rewards))
        if wrong.size:
            path = int(np.searchsorted(self.bounds, wrong[0], side="right")) - 1
            raise ValueError(
                f"rewards of {self.name_of(path)} must be finite, got {self.rewards[wrong[0]]} at step "
                f"{int(wrong[0] - self.bounds[path])}"
            )


def _as_rollouts(groups: list[Any]) -> Rollouts | None:
    """All groups as columns, if they are rollouts already stored as columns; ``None``: path by path."""
    if not all(isinstance(g, Rollouts) or all(isinstance(path, StepSequence) for path in g) for g in groups):
        return None
    if any(rollout.rollout_count != 1 for g in groups if not isinstance(g, Rollouts) for rollout in g):
        raise ShapeError(
            "each path must be one rollout; StepSequence.iterate_rollouts() gives those of a concatenation"
        )
    joined = Rollouts.joined(groups)
    return joined if joined.has_column("observations") and joined.has_column("actions") else None


def _of_rollouts(rollouts: Rollouts, tasks: np.ndarray) -> PathColumns:
    return PathColumns(
        rollouts.column("observations"),
        rollouts.column("actions"),
        np.asarray(rollouts.rewards, dtype=np.float64),
        rollouts.bounds,
        tasks,
        rollouts.terminated,
        has_finals=True,
        _source=rollouts,
    )


def _of_dicts(groups: list[Any], tasks: np.ndarray) -> PathColumns:
    paths = [_path_of(path, m, n) for m, group in enumerate(groups) for n, path in enumerate(group)]
    bounds = np.concatenate([[0], np.cumsum([len(path["rewards"]) for path in paths])])
    fields = {}
    for name in _NEEDED:
        pieces = [path[name] for path in paths]
        try:
            fields[name] = cat_to_format(pieces, "numpy")
        except (DataError, ShapeError) as error:
            misfit = _misfit(name, pieces, lambda n: _name_of(n, tasks))
            raise type(error)(misfit or f"{name} of the paths do not fit together: {error}") from error
    finals = [path.get("final_observation") for path in paths]
    flags = [path["terminated"] for path in paths if path.get("terminated") is not None]
    last, terminated = None, None
    if all(final is not None for final in finals):
        last = cat_to_format([map_leaves(lambda leaf, _: np.asarray(leaf)[None], final) for final in finals], "numpy")
    if len(flags) == len(paths):
        terminated = np.concatenate([np.asarray(flag, dtype=bool) for flag in flags])
    columns = (fields["observations"], fields["actions"], fields["rewards"], bounds, tasks, terminated)
    return PathColumns(*columns, finals=last, _source=paths)


def _path_of(path: Any, task: int, number: int) -> dict[str, Any]:
    """A checked path dict of arrays; the input is not modified."""
    name = f"path {number} of task {task}"
    if isinstance(path, StepSequence):
        path = to_path(path) | {"terminated": path.terminated}
    if not isinstance(path, Mapping):
        raise TypeError(f"{name} must be a path dict or a rollout, got {described(path)}")
    missing = [key for key in _NEEDED if key not in path]
    if missing:
        raise DataError(f"{name} has no {missing[0]!r}; it has: {', '.join(map(str, path)) or 'nothing'}")
    arrays = {**path, **{key: _as_numpy(path[key], f"{key} of {name}") for key in _NEEDED}}
    rewards = arrays["rewards"] = np.asarray(arrays["rewards"], dtype=np.float64)
    if rewards.ndim == 2 and rewards.shape[1] == 1:
        rewards = arrays["rewards"] = rewards[:, 0]
    if rewards.ndim != 1:
        raise ShapeError(f"rewards of {name} must have shape (t,), got {rewards.shape}")
    if not len(rewards):
        raise ShapeError(f"{name} must have at least one step, got none")
    for key in ("observations", "actions", "terminated"):
        for _, leaf in iterate_leaves(arrays.get(key)):
            if leaf is not None and len(leaf) != len(rewards):
                raise ShapeError(f"{key} of {name} must have one entry per reward ({len(rewards)}), got {len(leaf)}")
    return arrays


def _missing(example: Any, steps: int) -> Any:
    """Missing values like ``example``, for ``steps`` steps: NaN, or ``None`` where they are not numbers."""

    def blank(leaf: np.ndarray, _: Any) -> np.ndarray:
        fill = np.nan if leaf.dtype.kind in "biufc" else None
        return np.full((steps, *leaf.shape[1:]), fill, dtype=None if fill is not None else object)

    return map_leaves(blank, example)


def _as_numpy(tree: Any, name: str) -> Any:
    if isinstance(tree, Mapping):
        return {key: _as_numpy(value, f"{key!r} in {name}") for key, value in tree.items()}
    try:
        return map_leaves(lambda leaf, _: to_format(leaf, "numpy"), tree)
    except ValueError as error:
        raise ShapeError(f"{name} must have one shape at all steps: {error}") from error


def _name_of(path: int, tasks: np.ndarray) -> str:
    task = int(np.searchsorted(tasks, path, side="right")) - 1
    return f"path {path - int(tasks[task])} of task {task}" if len(tasks) > 2 else f"path {path}"


def _misfit(name: str, pieces: list[Any], name_of: Callable[[int], str]) -> str | None:
    """Error message about the first path whose entries differ in shape (per step) from those of path 0, if any."""
    shapes = [{key: np.shape(leaf)[1:] for key, leaf in iterate_leaves(piece)} for piece in pieces]
    for n, own in enumerate(shapes):
        for key, shape in own.items():
            wanted = shapes[0].get(key)
            if wanted is not None and shape != wanted:
                entry = "".join(f"[{part!r}]" for part in key)
                like = f"must have shape {wanted} at each step, as in {name_of(0)}"
                return f"{name}{entry} of {name_of(n)} {like}, got {shape}"
    return None
