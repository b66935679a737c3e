"""Replay buffers per task: transitions, and a context; written from rollouts, and sampled for batches.

A transition is one float32 row ``observation | action | reward | next observation | terminated``. A context entry is
the start of such a row (without the ending, and without the next observation unless asked for), so a batch of either
kind is one gather per task and one copy to the device.
"""

from __future__ import annotations

import bisect
import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from torch import Tensor

from metaroll.data.data_format import map_leaves
from metaroll.data.replay.path_buffer import PathBuffer
from metaroll.data.rollouts import Rollouts
from metaroll.data.space_batches import flatten_batch
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.policies.scaling import ActionScaling
from metaroll.processing.on_policy import info_rewards, rollout_groups
from metaroll.types import EnvSpec

__all__ = ["RowLayout", "TaskBuffers", "TransitionBatch", "context_rows"]

_KEY = "transitions"


class TransitionBatch(NamedTuple):
    """Transitions of X tasks, B of each."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    terminated: Tensor


@dataclass(frozen=True)
class RowLayout:
    """Column layout of a row."""

    observation_space: gymnasium.Space
    obs_dim: int
    act_dim: int
    use_next_obs: bool
    scaling: ActionScaling | None = None
    """How the policy scales its actions to the bounds of the environment; rows hold them in the policy's units."""

    @classmethod
    def of(cls, env_spec: EnvSpec, use_next_obs: bool, scaling: ActionScaling | None = None) -> RowLayout:
        """Layout for the observations and actions of ``env_spec``."""
        return cls(env_spec.observation_space, env_spec.obs_dim, env_spec.act_dim, use_next_obs, scaling)

    @property
    def width(self) -> int:
        """Numbers in a transition."""
        return 2 * self.obs_dim + self.act_dim + 2

    @property
    def context_width(self) -> int:
        """Numbers in a context entry."""
        return self.obs_dim + self.act_dim + 1 + (self.obs_dim if self.use_next_obs else 0)

    def own_actions(self, actions: Any, observations: np.ndarray) -> np.ndarray:
        """Actions ``(T, act_dim)`` in the policy's units.

        Raises:
            ShapeError: They, or the flat ``observations`` that belong to them, come from another environment.
        """
        rows = _numpy(actions)
        rows = rows.reshape(len(rows), -1)
        if observations.shape[1] != self.obs_dim or rows.shape[1] != self.act_dim:
            raise ShapeError(
                f"trajectories must have observations (T, {self.obs_dim}) and actions (T, {self.act_dim}), got "
                f"{observations.shape} and {rows.shape}: they come from another environment than the one learned in"
            )
        return rows if self.scaling is None else self.scaling.unscaled(rows)

    def split(self, rows: Tensor) -> TransitionBatch:
        """Views of the columns of ``rows (..., width)``; reward and ending keep their last axis of length 1."""
        obs, act = self.obs_dim, self.act_dim
        return TransitionBatch(
            rows[..., :obs],
            rows[..., obs : obs + act],
            rows[..., obs + act : obs + act + 1],
            rows[..., obs + act + 1 : -1],
            rows[..., -1:],
        )


def _flat_observations(observations: Any, space: gymnasium.Space, count: int) -> np.ndarray:
    """The first ``count`` observations as ``(count, obs_dim)``."""
    if isinstance(space, gymnasium.spaces.Box):
        return _numpy(observations)[:count].reshape(count, -1)
    return flatten_batch(space, map_leaves(lambda leaf, path: _numpy(leaf)[:count], observations))


def _numpy(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _refuse_non_finite(rows: np.ndarray, what: str) -> None:
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        step = int(np.flatnonzero(~finite)[0])
        raise DataError(f"{what} holds NaN or Inf at step {step}: {rows[step]}")


class _RolloutRows:
    """Rollouts to be written as rows; their observations are not copied until then.

    The successor of a last step is the true final observation; only terminations count as endings, time limits do not.

    Args:
        layout: Columns of the rows.
        rollouts: The rollouts.
    """

    def __init__(self, layout: RowLayout, rollouts: Rollouts) -> None:
        self._layout = layout
        self.bounds = rollouts.bounds.tolist()
        self.lengths = rollouts.lengths.tolist()
        rollouts.require_final_observations()
        space, seen = layout.observation_space, rollouts.each("observations")
        is_box = isinstance(space, gymnasium.spaces.Box)
        self._observations = [
            _flat_observations(part, space, length + 1) for part, length in zip(seen, self.lengths, strict=True)
        ]
        # Rollouts collected together (possibly of many tasks) are checked as a whole.
        self._seen = [part.fields["observations"] for part in rollouts.parts] if is_box else self._observations
        self._actions = layout.own_actions(rollouts.column("actions"), self._observations[0])
        self.rewards = np.asarray(rollouts.rewards)
        self._terminated = rollouts.terminated

    def write(self, rows: np.ndarray, first: int, stop: int) -> None:
        """Write the steps ``first`` to ``stop``: transitions or context entries, depending on the width of ``rows``."""
        obs, act = self._layout.obs_dim, self._layout.act_dim
        rows[:, obs : obs + act] = self._actions[first:stop]
        rows[:, obs + act] = self.rewards[first:stop]
        if rows.shape[1] == self._layout.width:
            rows[:, -1] = self._terminated[first:stop]
        seen, successors = rows[:, :obs], rows[:, obs + act + 1 : 2 * obs + act + 1]
        number = bisect.bisect_right(self.bounds, first) - 1
        while number < len(self.lengths) and (begin := self.bounds[number]) < stop:
            start, end = max(begin, first), min(self.bounds[number + 1], stop)
            observations = self._observations[number][start - begin : end - begin + 1]
            seen[start - first : end - first] = observations[:-1]
            if successors.shape[1]:
                successors[start - first : end - first] = observations[1:]
            number += 1

    def refuse_non_finite(self, what: str, width: int) -> None:
        """``DataError`` if rows of this width held NaN or Inf."""
        columns = (self._actions, self.rewards, *self._seen)
        if all(np.isfinite(column.astype(np.float32, copy=False)).all() for column in columns):
            return
        for begin, end in itertools.pairwise(self.bounds):
            rows = np.empty((end - begin, width), dtype=np.float32)
            self.write(rows, begin, end)
            _refuse_non_finite(rows, what)


def _parts(trajectories: Any) -> Iterator[Any]:
    """The trajectory batches and step sequences in ``trajectories``, in order."""
    if hasattr(trajectories, "observations"):
        yield trajectories
    elif isinstance(trajectories, Sequence):
        for part in trajectories:
            yield from _parts(part)
    else:
        raise TypeError(
            f"exploration_trajectories must be a TrajectoryBatch, a StepSequence or a sequence of them, got "
            f"{type(trajectories).__name__}"
        )


def _part_rows(part: Any, layout: RowLayout, reward_key: str | None) -> np.ndarray:
    count = len(part.rewards)
    # A StepSequence may hold the observation after the last step as well.
    flat = _flat_observations(part.observations, layout.observation_space, count)
    rewards = part.rewards if reward_key is None else info_rewards(getattr(part, "env_infos", None), reward_key, count)
    rows = np.empty((count, layout.context_width), dtype=np.float32)
    obs, act = layout.obs_dim, layout.act_dim
    rows[:, obs : obs + act] = layout.own_actions(part.actions, flat)
    rows[:, :obs] = flat
    rows[:, obs + act] = _numpy(rewards).reshape(count)
    if layout.use_next_obs:
        rows[:, obs + act + 1 :] = _flat_observations(part.next_observations, layout.observation_space, count)
    _refuse_non_finite(rows, "exploration_trajectories")
    return rows


def context_rows(trajectories: Any, layout: RowLayout, context_reward_key: str | None = None) -> np.ndarray:
    """Context ``(n_steps, context_width)`` of all steps of ``trajectories`` in order.

    Args:
        trajectories: A ``TrajectoryBatch``, a ``StepSequence``, or a sequence of either, of one task.
        layout: Columns of the context.
        context_reward_key: Name of the env_info to use as reward; ``None`` means the reward itself.
    """
    rows = [_part_rows(part, layout, context_reward_key) for part in _parts(trajectories)]
    if not rows or not sum(map(len, rows)):
        raise ValueError("exploration_trajectories must hold at least one step, got none")
    return np.concatenate(rows)


class TaskBuffers:
    """Two ring buffers per task: all transitions, and the recent ones that make its context. They stay on the CPU."""

    def __init__(self, num_tasks: int, capacity: int, layout: RowLayout, context_reward_key: str | None) -> None:
        self.layout = layout
        self._reward_key = context_reward_key
        self._transitions = [PathBuffer(capacity) for _ in range(num_tasks)]
        self._contexts = [PathBuffer(capacity) for _ in range(num_tasks)]

    @property
    def empty_tasks(self) -> list[int]:
        """Tasks without transitions or without a context."""
        pairs = zip(self._transitions, self._contexts, strict=True)
        return [task for task, pair in enumerate(pairs) if not all(buffer.n_transitions_stored for buffer in pair)]

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        return sum(buffer.nbytes for buffer in (*self._transitions, *self._contexts))

    def num_transitions(self, task: int) -> int:
        """Transitions stored for ``task``."""
        return self._transitions[task].n_transitions_stored

    def num_context(self, task: int) -> int:
        """Context entries stored for ``task``."""
        return self._contexts[task].n_transitions_stored

    def add(self, tasks: Sequence[int], groups: Sequence[Sequence[StepSequence]], *, to_context: bool) -> list[int]:
        """Store the rollouts of each of ``tasks``, optionally as context too; returns the numbers of steps.

        If the buffers have a reward key, the context holds that env_info instead of the reward.

        Raises:
            DataError: A rollout holds NaN or Inf, or lacks the env_info; nothing is stored.
        """
        edges = [0, *itertools.accumulate(map(len, groups))]
        rollouts, key = Rollouts.joined(groups), self._reward_key
        if not len(rollouts):
            return [0] * len(tasks)
        rows = entries = _RolloutRows(self.layout, rollouts)
        rows.refuse_non_finite("a rollout", self.layout.width)
        if to_context and key is not None:
            infos = zip(rollouts.each("env_infos", None), rows.lengths, strict=True)
            entries = copy.copy(rows)
            entries.rewards = np.concatenate([info_rewards(each, key, length) for each, length in infos])
            entries.refuse_non_finite(f"the context (with {key!r} as reward) of a rollout", self.layout.context_width)
        for task, (begin, end) in zip(tasks, itertools.pairwise(edges), strict=True):
            self._write(self._transitions[task], rows, self.layout.width, range(begin, end))
            if to_context:
                self._write(self._contexts[task], entries, self.layout.context_width, range(begin, end))
        return [rows.bounds[end] - rows.bounds[begin] for begin, end in itertools.pairwise(edges)]

    @staticmethod
    def _write(buffer: PathBuffer, rows: _RolloutRows, width: int, which: range) -> None:
        """Write the rollouts ``which`` straight into the memory of ``buffer``."""
        for group in rollout_groups(which, rows.bounds, buffer.capacity) if which else ():
            begin = rows.bounds[group[0]]
            for steps, memory in buffer.new_paths([rows.lengths[i] for i in group], {_KEY: (width, np.float32)}):
                rows.write(memory[_KEY], begin + steps.start, begin + steps.stop)

    def clear_context(self, task: int) -> None:
        """Forget the context of ``task``; its transitions are kept."""
        self._contexts[task].clear()

    def sample_transitions(self, tasks: Sequence[int], count: int, generator: np.random.Generator) -> np.ndarray:
        """Rows ``(X, count, width)``, uniform with replacement over each task's transitions."""
        rows = np.empty((len(tasks), count, self.layout.width), dtype=np.float32)
        return self._sample(self._transitions, tasks, rows, generator, "transitions")

    def sample_context(self, tasks: Sequence[int], count: int, generator: np.random.Generator) -> np.ndarray:
        """Rows ``(X, count, context_width)``, uniform with replacement over each task's context; also for one task."""
        rows = np.empty((len(tasks), count, self.layout.context_width), dtype=np.float32)
        return self._sample(self._contexts, tasks, rows, generator, "context")

    @staticmethod
    def _sample(
        buffers: Sequence[PathBuffer], tasks: Sequence[int], rows: np.ndarray, generator: np.random.Generator, what: str
    ) -> np.ndarray:
        for task in tasks:
            if not buffers[task].n_transitions_stored:
                raise ValueError(f"task {task} has no {what} yet; collect rollouts in it before sampling")
        for task, drawn in zip(tasks, rows, strict=True):
            buffers[task].sample_transitions(len(drawn), generator, out={_KEY: drawn})
        return rows

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All stored data as a tree of arrays; ``copy=False`` gives views, which change with the buffers."""
        return {
            "transitions": {str(i): buffer.state_dict(copy) for i, buffer in enumerate(self._transitions)},
            "contexts": {str(i): buffer.state_dict(copy) for i, buffer in enumerate(self._contexts)},
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Take over the data of ``state_dict``."""
        for name, buffers in (("transitions", self._transitions), ("contexts", self._contexts)):
            if len(tree[name]) != len(buffers):
                raise ValueError(f"the saved buffers hold {len(tree[name])} tasks, there are {len(buffers)}")
            for i, buffer in enumerate(buffers):
                buffer.load_state_dict(tree[name][str(i)])
