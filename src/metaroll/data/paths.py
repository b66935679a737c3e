"""Rollouts in the forms of other libraries: path dicts, trajectory dicts, ``TrajectoryBatch`` and ``TimeStep``.

``terminals`` and ``dones`` are true endings only (a value of 0 follows); a rollout that a time limit cut has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, overload

import gymnasium
import numpy as np

from metaroll.data.data_format import cat_to_format, map_leaves, to_format
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.types import EnvSpec

__all__ = ["Paths", "TimeStep", "TrajectoryBatch", "from_path", "to_path", "to_trajectory_dict"]


# ---- path dicts ------------------------------------------------------------------------------------------------------


def to_path(rollout: StepSequence) -> dict[str, Any]:
    """The path dict of one rollout, with views of its arrays.

    Keys: ``observations (T, ...)`` (each before its action), ``actions (T, ...)``, ``rewards (T,)``, and the dicts
    ``env_infos`` and ``agent_infos`` (the field ``policy_infos``) of arrays ``(T, ...)``. Always NumPy.

    Raises:
        ShapeError: It is not one rollout.
    """
    if rollout.rollout_count != 1:
        raise ShapeError(f"a path is one rollout, got {rollout.rollout_count}; see StepSequence.iterate_rollouts()")
    return {
        "observations": _rows(rollout, "observations"),
        "actions": _rows(rollout, "actions"),
        "rewards": _rows(rollout, "rewards"),
        "env_infos": _rows(rollout, "env_infos"),
        "agent_infos": _rows(rollout, "policy_infos"),
    }


class Paths(Sequence[dict[str, Any]]):
    """Rollouts as path dicts, each made (of views) when it is accessed; ``list(paths)`` makes them all.

    Args:
        rollouts: The rollouts.

    Attributes:
        rollouts: The same as columns, for those who compute.
    """

    def __init__(self, rollouts: Sequence[StepSequence]) -> None:
        self.rollouts = Rollouts.of(rollouts)

    def __len__(self) -> int:
        return len(self.rollouts)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Paths: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Paths:
        if isinstance(index, slice):
            return Paths(self.rollouts[index])
        return to_path(self.rollouts[index])

    def __repr__(self) -> str:
        return f"Paths({len(self)} paths, {int(self.rollouts.bounds[-1])} steps)"


def to_trajectory_dict(rollout: StepSequence) -> dict[str, Any]:
    """The path dict of one rollout with ``next_observations (T, ...)`` and ``dones (T,)`` (terminated) besides."""
    path = to_path(rollout)
    path["next_observations"] = _to_numpy(rollout.get_next_values("observations"))
    path["dones"] = rollout.terminated
    return path


def from_path(path: Mapping[str, Any], *, complete: bool = True, rollout_info: Any = None) -> StepSequence:
    """The rollout of a path dict; if inner steps end an episode, a sequence of several rollouts.

    Args:
        path: ``observations`` (T, or T+1 with the last one), ``actions``, ``rewards``; optional: ``env_infos``,
            ``agent_infos``, the last observation (``final_observation``, or the last row of ``next_observations``),
            ``terminated`` (or ``dones``, ``terminals``) and ``truncated``. Other entries become fields of their names.
        complete: False if the path is only the beginning of a rollout.
        rollout_info: Stored unchanged.

    Returns:
        Rollout in which the last step counts as terminated if the path has no entry for its ending.

    Raises:
        DataError: Observations, actions or rewards are missing.
    """
    return _from_path(path, complete=complete, rollout_info=rollout_info)


def _from_path(path: Mapping[str, Any], *, one_rollout: bool = False, **arguments: Any) -> StepSequence:
    data = dict(path)
    for key in ("observations", "actions", "rewards"):
        if key not in data:
            raise DataError(f"the path has no {key!r}; it has: {', '.join(map(str, data))}")
    rewards = _column(data.pop("rewards"))
    observations = _to_numpy(data.pop("observations"))
    next_observations, final = data.pop("next_observations", None), data.pop("final_observation", None)
    if final is None and next_observations is not None:
        final = _to_numpy(next_observations)[-1]
    if final is not None and len(observations) == len(rewards):
        observations = np.concatenate([observations, _to_numpy(final)[None]])
    flags = [data.pop(key) for key in ("terminated", "dones", "terminals") if key in data]
    if flags:
        data["terminated"] = _column(flags[0])
    if "agent_infos" in data:
        data["policy_infos"] = data.pop("agent_infos")
    bounds = [0, len(rewards)] if one_rollout else None
    return StepSequence(rewards=rewards, observations=observations, rollout_bounds=bounds, **data, **arguments)


def _rows(rollout: StepSequence, name: str) -> Any:
    """One entry per step of a field; an empty dict for infos that were not recorded."""
    if name not in rollout.data_names:
        return {}
    return _to_numpy(rollout.get_data_values(name, truncate_last=True))


def _to_numpy(tree: Any) -> Any:
    return map_leaves(lambda leaf, _: to_format(leaf, "numpy"), tree)


def _column(values: Any) -> Any:
    array = to_format(values, "numpy")
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


# ---- checks ----------------------------------------------------------------------------------------------------------


def _check_entry(name: str, array: Any, space: gymnasium.Space, num_rows: int | None) -> None:
    """One entry of ``space`` (``num_rows`` is None), or that many rows of entries; entries may be flat."""
    if not isinstance(array, np.ndarray | np.generic | int):
        raise TypeError(f"{name} must be a NumPy array, got {type(array).__name__}")
    shape, dtype = np.shape(array), np.asarray(array).dtype
    rows, entry = ((), shape) if num_rows is None else (shape[:1], shape[1:])
    if num_rows is not None and rows != (num_rows,):
        raise ShapeError(f"{name} must have {num_rows} rows, got shape {shape}")
    if space.shape is None:  # Dict, Tuple, Text...: anything goes through untouched
        return
    allowed = {tuple(space.shape), (int(gymnasium.spaces.flatdim(space)),)}
    if entry not in allowed:
        expected = " or ".join(str((*rows, *one)) for one in sorted(allowed, key=len))
        raise ShapeError(f"{name} must have shape {expected} to fit {space}, got {shape}")
    if dtype.kind not in "buif":
        raise TypeError(f"{name} must hold numbers to fit {space}, got dtype {dtype}")
    if isinstance(space, gymnasium.spaces.Discrete) and entry == () and dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers to fit {space}, got dtype {dtype}")


def _check_infos(name: str, infos: Any, num_rows: int) -> None:
    if not isinstance(infos, Mapping):
        raise TypeError(f"{name} must be a dict of arrays, got {type(infos).__name__}")
    for key, value in infos.items():
        if isinstance(value, Mapping):
            _check_infos(f"{name}[{key!r}]", value, num_rows)
        elif not isinstance(value, np.ndarray) or value.ndim == 0 or len(value) != num_rows:
            actual = f"shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise ShapeError(f"{name}[{key!r}] must be an array with {num_rows} rows, got {actual}")


def _check_env_spec(env_spec: Any) -> None:
    if not isinstance(env_spec, EnvSpec):
        raise TypeError(f"env_spec must be an EnvSpec, got {type(env_spec).__name__}; see EnvSpec.from_env(env)")


# ---- time steps and batches ------------------------------------------------------------------------------------------


class _TimeStepFields(NamedTuple):
    env_spec: EnvSpec
    observation: np.ndarray
    action: np.ndarray
    reward: float
    next_observation: np.ndarray
    terminal: bool
    env_info: dict[str, Any]
    agent_info: dict[str, Any]


class TimeStep(_TimeStepFields):
    """One step: observation, action, reward, next observation, and whether the episode ended.

    Shapes are checked against the spaces of ``env_spec``; ``terminal`` is False where a time limit cut the episode.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> TimeStep:
        self = super().__new__(cls, *args, **kwargs)
        _check_env_spec(self.env_spec)
        _check_entry("observation", self.observation, self.env_spec.observation_space, None)
        _check_entry("next_observation", self.next_observation, self.env_spec.observation_space, None)
        _check_entry("action", self.action, self.env_spec.action_space, None)
        if isinstance(self.reward, bool) or not isinstance(self.reward, int | float | np.floating | np.integer):
            raise TypeError(f"reward must be a number, got {self.reward!r}")
        if not isinstance(self.terminal, bool | np.bool_):
            raise TypeError(f"terminal must be a bool, got {self.terminal!r}")
        for name in ("env_info", "agent_info"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name} must be a dict, got {type(getattr(self, name)).__name__}")
        return self


_PER_STEP = ("observations", "actions", "rewards", "terminals", "env_infos", "agent_infos")


class _TrajectoryBatchFields(NamedTuple):
    env_spec: EnvSpec
    observations: np.ndarray
    last_observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminals: np.ndarray
    env_infos: dict[str, Any]
    agent_infos: dict[str, Any]
    lengths: np.ndarray


class TrajectoryBatch(_TrajectoryBatchFields):
    """Trajectories one after the other, N steps in K trajectories, as NumPy arrays.

    Attributes:
        env_spec: Spec of the environment; entries are in the shape of its spaces, or flat.
        observations: ``(N, ...)``, each before its action.
        last_observations: ``(K, ...)``, the true observations after the last steps.
        actions: ``(N, ...)``.
        rewards: ``(N,)``.
        terminals: Bool ``(N,)``: steps that ended an episode (time limits do not).
        env_infos: Dict of arrays ``(N, ...)``, possibly nested.
        agent_infos: The same for infos of the policy.
        lengths: Integers ``(K,)``, numbers of steps.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> TrajectoryBatch:
        self = super().__new__(cls, *args, **kwargs)
        self._check()
        return self

    def _check(self) -> None:
        _check_env_spec(self.env_spec)
        lengths = self.lengths
        if not isinstance(lengths, np.ndarray) or lengths.ndim != 1 or lengths.dtype.kind not in "iu":
            raise ShapeError(f"lengths must be an integer array of shape (K,), got {lengths!r}")
        if len(lengths) == 0 or lengths.min() < 1:
            raise ShapeError(f"lengths must be positive, and at least one, got {lengths}")
        total = int(lengths.sum())
        _check_entry("observations", self.observations, self.env_spec.observation_space, total)
        _check_entry("last_observations", self.last_observations, self.env_spec.observation_space, len(lengths))
        _check_entry("actions", self.actions, self.env_spec.action_space, total)
        if self.last_observations.shape[1:] != self.observations.shape[1:]:
            raise ShapeError(
                f"last_observations must have entries like observations {self.observations.shape[1:]}, "
                f"got {self.last_observations.shape[1:]}"
            )
        for name, kinds, what in (("rewards", "buif", "numbers"), ("terminals", "b", "bools")):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.shape != (total,):
                raise ShapeError(f"{name} must be an array of shape ({total},), got {np.shape(array)}")
            if array.dtype.kind not in kinds:
                raise TypeError(f"{name} must hold {what}, got dtype {array.dtype}")
        _check_infos("env_infos", self.env_infos, total)
        _check_infos("agent_infos", self.agent_infos, total)

    @property
    def next_observations(self) -> np.ndarray:
        """Observations after each step, ``(N, ...)``; after the last step of a trajectory its ``last_observations``."""
        result = np.concatenate([self.observations[1:], self.last_observations[-1:]])
        result[np.cumsum(self.lengths) - 1] = self.last_observations
        return result

    def _ranges(self) -> list[tuple[int, int]]:
        ends = np.cumsum(self.lengths)
        return [(int(end - length), int(end)) for end, length in zip(ends, self.lengths, strict=True)]

    def _steps(self) -> list[dict[str, Any]]:
        """All per-step data, by trajectory (views)."""
        return [
            {name: _cut(getattr(self, name), int(end - length), int(end)) for name in _PER_STEP}
            for end, length in zip(np.cumsum(self.lengths), self.lengths, strict=True)
        ]

    def split(self) -> list[TrajectoryBatch]:
        """One batch for each trajectory (views)."""
        return [
            TrajectoryBatch(
                env_spec=self.env_spec,
                last_observations=self.last_observations[i : i + 1],
                lengths=self.lengths[i : i + 1],
                **steps,
            )
            for i, steps in enumerate(self._steps())
        ]

    @classmethod
    def concatenate(cls, *batches: TrajectoryBatch) -> TrajectoryBatch:
        """One batch with the trajectories of all, in order; specs and keys of infos must agree.

        Raises:
            DataError: Keys of infos differ.
            ShapeError: Arrays do not fit together.
            ValueError: There is no batch, or their specs differ.
        """
        if not batches:
            raise ValueError("concatenate needs at least one TrajectoryBatch, got none")
        for i, batch in enumerate(batches[1:], start=1):
            if batch.env_spec != batches[0].env_spec:
                raise ValueError(f"all batches must have the same env_spec, batch {i} has {batch.env_spec}")
        names = [name for name in cls._fields if name != "env_spec"]
        joined = {name: _join(name, [getattr(batch, name) for batch in batches]) for name in names}
        return cls(env_spec=batches[0].env_spec, **joined)

    def to_trajectory_list(self) -> list[dict[str, Any]]:
        """Dicts of observations, next_observations, actions, rewards, dones, env_infos, agent_infos, by trajectory."""
        following = np.split(self.next_observations, np.cumsum(self.lengths)[:-1])
        return [
            {"dones": steps.pop("terminals"), "next_observations": after, **steps}
            for steps, after in zip(self._steps(), following, strict=True)
        ]

    @classmethod
    def from_trajectory_list(cls, env_spec: EnvSpec, paths: Sequence[Mapping[str, Any]]) -> TrajectoryBatch:
        """The batch of several trajectory dicts.

        Args:
            env_spec: Spec of their environment.
            paths: Dicts as in ``to_trajectory_list``; instead of ``next_observations`` they may have one more entry in
                ``observations``, or ``final_observation``.

        Raises:
            DataError: A path lacks an entry, or has none for its ending.
        """
        for i, path in enumerate(paths):
            if not any(key in path for key in ("dones", "terminals", "terminated")):
                raise DataError(f"path {i} does not mark where it ended: give it 'dones' (T,), False for time limits")
        return cls.from_rollouts(env_spec, [_from_path(path, one_rollout=True) for path in paths])

    @classmethod
    def from_rollouts(cls, env_spec: EnvSpec, rollouts: Sequence[StepSequence]) -> TrajectoryBatch:
        """The batch of several rollouts (concatenations count as all their sub-rollouts).

        The last observation of each must be stored: observations have one entry more than rewards.

        Raises:
            DataError: A last observation is not stored, or keys of infos differ.
            ValueError: There is no rollout.
        """
        if not rollouts:
            raise ValueError("rollouts must hold at least one, got none")
        if isinstance(rollouts, Rollouts):
            names = {"env_infos": "env_infos", "agent_infos": "policy_infos", "actions": "actions"}
            columns = {name: rollouts.whole_column(field) for name, field in names.items()}
            if all(column is not None for column in columns.values()):
                columns |= {"rewards": rollouts.rewards, "terminals": rollouts.terminated, "lengths": rollouts.lengths}
                copies = {name: map_leaves(lambda leaf, _: leaf.copy(), tree) for name, tree in columns.items()}
                observations, last = rollouts.steps_and_final("observations")
                return cls(env_spec=env_spec, observations=observations, last_observations=last, **copies)
        parts = [
            cls(
                env_spec=env_spec,
                observations=_rows(rollout, "observations"),
                last_observations=_to_numpy(rollout.get_final_values("observations")),
                actions=_rows(rollout, "actions"),
                rewards=_rows(rollout, "rewards"),
                terminals=rollout.terminated,
                env_infos=_rows(rollout, "env_infos"),
                agent_infos=_rows(rollout, "policy_infos"),
                lengths=rollout.rollout_lengths,
            )
            for rollout in rollouts
        ]
        return cls.concatenate(*parts)

    def to_rollouts(self) -> list[StepSequence]:
        """A rollout for each trajectory; its last step is truncated if it is not terminal."""
        return [_from_path(path, one_rollout=True) for path in self.to_trajectory_list()]


def _cut(tree: Any, start: int, stop: int) -> Any:
    if isinstance(tree, Mapping):
        return {key: _cut(value, start, stop) for key, value in tree.items()}
    return tree[start:stop]


def _join(name: str, trees: list[Any]) -> Any:
    try:
        return cat_to_format(trees, "numpy")
    except (DataError, ShapeError) as error:
        raise type(error)(f"{name}: {error}") from error
