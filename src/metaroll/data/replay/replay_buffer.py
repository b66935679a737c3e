"""The one replay memory of off-policy learners: each observation is stored once, all else follows from its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np

from metaroll.checks import check_unit_interval, check_whole
from metaroll.data.data_format import map_leaves
from metaroll.data.replay.streams import STEP, TERMINATED, TRUNCATED, StepStreams, check_spaces, row_bytes
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.functional.returns import n_step_sums
from metaroll.seeding import as_generator

__all__ = ["ReplayBatch", "ReplayBuffer"]

_PATH = ("observation", "action", "reward", "next_observation", "terminal")


class ReplayBatch(NamedTuple):
    """N steps that were drawn.

    Attributes:
        observations: ``(N, ...)`` in the dtype of the space, or a dict or tuple of such.
        actions: ``(N, act_dim)`` float32, or indices.
        rewards: Sum of the next rewards, discounted, float32 ``(N,)``.
        next_observations: After the last of these rewards.
        discounts: What the value of ``next_observations`` counts: ``discount ** k`` after k rewards, 0 after a
            termination; float32 ``(N,)``.
        indices: Where the steps lie, ``(N,)``.
        weights: What each counts in a loss, float32 ``(N,)``.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: Any
    discounts: np.ndarray
    indices: np.ndarray
    weights: np.ndarray


@final
class ReplayBuffer:
    """Steps of live collection, of which the newest are kept; each observation is stored once, in its own dtype.

    Every slot has a ring of rows. The next observation of a step is the next row, and the final observation of a
    rollout is a row without a step, so that it takes the place of one. ``terminated`` and ``truncated`` are kept apart:
    only a termination is worth nothing, whatever else ends or interrupts a rollout leaves its last observation.

    Args:
        observation_space: Of the environment.
        action_space: Of the environment.
        capacity: Number of steps after which the oldest are overwritten, rounded up to a multiple of ``num_slots``.
        num_slots: Number of slots E of the live collection; a rollout belongs to slot ``plan.index % E``.
        planned_steps: Steps that will be taken at most, if that is known: room is made for no more.
        memory_limit: Refuse a buffer that could outgrow so many bytes; ``None`` means no limit.
        memory_map: Folder of the files that are to hold the data in place of main memory; they vanish with the process.

    Raises:
        ValueError: A number is too small, a space is of another kind, or the memory would not do; says the estimate.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        capacity: int,
        *,
        num_slots: int = 1,
        planned_steps: int | None = None,
        memory_limit: int | None = None,
        memory_map: str | Path | None = None,
    ) -> None:
        self._capacity = check_whole("capacity", capacity)
        check_whole("num_slots", num_slots)
        check_spaces(observation_space, action_space)
        needed = self.memory_estimate(observation_space, action_space, capacity, planned_steps)
        if memory_limit is not None and memory_map is None and needed > memory_limit:
            each = row_bytes(observation_space, action_space)
            raise ValueError(
                f"the replay buffer needs {needed:,} bytes ({needed // each:,} steps of {each:,} bytes), more than "
                f"memory_limit={memory_limit:,}; set its capacity to at most {memory_limit // each:,}, name a folder "
                "with memory_map, or raise memory_limit"
            )
        # Every rollout has an observation more than steps; memory that is not written to costs nothing.
        rows = capacity if planned_steps is None else min(capacity, 2 * planned_steps)
        num_rows = -(-rows // num_slots) + 1
        self._streams = StepStreams(observation_space, action_space, num_slots, num_rows, memory_map)

    @staticmethod
    def memory_estimate(
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        capacity: int,
        planned_steps: int | None = None,
    ) -> int:
        """Bytes that such a buffer takes when it is full, or when all planned steps are stored."""
        if planned_steps is not None:
            capacity = min(capacity, check_whole("planned_steps", planned_steps))
        return capacity * row_bytes(observation_space, action_space)

    @property
    def capacity(self) -> int:
        """Number of steps after which the oldest are overwritten."""
        return self._capacity

    @property
    def num_slots(self) -> int:
        """Number of slots."""
        return self._streams.num_slots

    @property
    def n_transitions_stored(self) -> int:
        """Number of steps that can be sampled."""
        return self._streams.num_steps

    def __len__(self) -> int:
        return self._streams.num_steps

    def clear(self) -> None:
        """Forget everything."""
        self._streams.clear()

    def add(self, rollouts: Rollouts | Iterable[StepSequence], actions: Any = None) -> int:
        """Store rollouts, or pieces of them as ``runner.advance`` returns them; number of steps.

        Args:
            rollouts: A piece that goes on where that of the call before ended is joined to it; where it does not, the
                rollout before was cut off at its last observation.
            actions: To be stored in place of theirs, ``(sum T, ...)``: in the policy's units, say.

        Raises:
            DataError: An observation, action or reward is NaN or infinite; names the place.
            ShapeError: They are of other spaces, or lack the observation after the last step.
            TypeError: Something is no rollout, or of another dtype. Whatever is raised, nothing was stored.
        """
        pieces = Rollouts.of(rollouts)
        return len(self._streams.add(pieces, actions)) if len(pieces) else 0

    def sample(
        self,
        n: int,
        generator: np.random.Generator | int | None = None,
        *,
        n_step: int = 1,
        discount: float = 0.99,
    ) -> ReplayBatch:
        """``n`` steps, drawn uniformly with replacement.

        Args:
            n: How many.
            generator: What draws.
            n_step: Rewards to sum, as far as the rollout goes.
            discount: Discount factor.

        Raises:
            ValueError: Nothing is stored, or an argument is out of range.
        """
        self._require_steps()
        check_whole("n_step", n_step)
        discount = check_unit_interval("discount", discount)
        rows = self._streams.draw(check_whole("n", n), as_generator(generator))
        return self._batch(rows, n_step, discount, np.ones(n, dtype=np.float32))

    def _batch(self, rows: np.ndarray, n_step: int, discount: float, weights: np.ndarray) -> ReplayBatch:
        streams, columns = self._streams, self._streams.columns
        if n_step == 1:
            rewards, last = columns.rewards.take(rows), 1
            discounts = np.where(columns.flags.take(rows) & TERMINATED, 0.0, discount)
        else:
            window = streams.ahead(rows[:, None], np.arange(n_step + 1))
            flags = columns.flags.take(window)
            terminated = flags[:, :-1] & TERMINATED != 0
            goes_on = (flags[:, 1:] & STEP != 0) & (flags[:, :-1] & (TERMINATED | TRUNCATED) == 0)
            rewards, last, discounts = n_step_sums(columns.rewards.take(window[:, :-1]), terminated, goes_on, discount)
        seen = streams.observations(np.concatenate([rows, streams.ahead(rows, last)]))
        observations, successors = _halves(seen, len(rows))
        return ReplayBatch(
            observations,
            columns.actions.take(rows, axis=0),
            rewards.astype(np.float32, copy=False),
            successors,
            discounts.astype(np.float32),
            rows,
            weights,
        )

    def _require_steps(self) -> None:
        if not self._streams.num_steps:
            raise ValueError("the buffer is empty; add rollouts before sampling from it")

    # -- as garage's buffers ------------------------------------------------------------------------------------------

    def add_path(self, path: Mapping[str, Any]) -> None:
        """Add a whole path: ``observation``, ``action``, ``reward``, ``next_observation``, ``terminal``, ``(T, ...)``.

        Raises:
            DataError: One of them is missing, or holds NaN or Inf.
            ShapeError: They are of other spaces, of unequal lengths, or an observation does not follow the one before.
        """
        if missing := [key for key in _PATH if key not in path]:
            raise DataError(f"a path must have the keys {', '.join(_PATH)}: {missing[0]!r} is missing")
        self.add(Rollouts([_columns_of_path(path)]))

    def sample_transitions(self, n: int, generator: np.random.Generator | int | None = None) -> dict[str, Any]:
        """``n`` steps under the keys of ``add_path``; rewards and endings are float32 ``(n, 1)``."""
        batch = self.sample(n, generator, discount=1.0)
        return {
            "observation": batch.observations,
            "action": batch.actions,
            "reward": batch.rewards[:, None],
            "next_observation": batch.next_observations,
            "terminal": 1.0 - batch.discounts[:, None],
        }

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All that the buffer holds, as arrays and numbers.

        Args:
            copy: False gives views, which change with the buffer: for writing to a file at once. They say which of
                their rows are new (``RingRows``).
        """
        return {"capacity": self._capacity, "streams": self._streams.state_dict(copy)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the buffer into the state that ``state_dict`` returned: it samples the same, and pieces go on.

        Raises:
            DataError: Something is missing in the state.
            ValueError: It is of a buffer of another capacity, of other spaces or slots. Nothing has changed.
        """
        if missing := {"capacity", "streams"} - state.keys():
            raise DataError(f"this is not the state of a ReplayBuffer: {sorted(missing)[0]!r} is missing")
        if int(state["capacity"]) != self._capacity:
            raise ValueError(f"the state is of a buffer of {state['capacity']} steps, this has {self._capacity}")
        self._streams.load_state_dict(state["streams"])


def _halves(tree: Any, count: int) -> tuple[Any, Any]:
    if tree.__class__ is np.ndarray:
        return tree[:count], tree[count:]
    return map_leaves(lambda leaf, path: leaf[:count], tree), map_leaves(lambda leaf, path: leaf[count:], tree)


def _columns_of_path(path: Mapping[str, Any]) -> RolloutColumns:
    """A path as a whole rollout."""
    rewards = np.asarray(path["reward"], dtype=np.float64).reshape(-1)
    count = len(rewards)
    if not count:
        raise ShapeError("a path must have at least one step, got none")

    def joined(seen: Any, following: Any) -> Any:
        if isinstance(seen, Mapping):
            return {key: joined(seen[key], following[key]) for key in seen}
        before, after = np.asarray(seen), np.asarray(following)
        if before.shape != after.shape or len(before) != count:
            raise ShapeError(
                f"observations and next observations of a path must have one entry per step ({count}), got shapes "
                f"{before.shape} and {after.shape}"
            )
        if not (before[1:] == after[:-1]).all():
            raise ShapeError("each next observation of a path must be the observation after it; add paths one by one")
        return np.concatenate([before, after[-1:]])

    terminated = np.asarray(path["terminal"]).astype(bool).reshape(-1)
    actions = np.asarray(path["action"])
    if len(terminated) != count or len(actions) != count:
        raise ShapeError(f"a path must have {count} actions and terminals, got {len(actions)} and {len(terminated)}")
    fields = {
        "rewards": rewards,
        "observations": joined(path["observation"], path["next_observation"]),
        "actions": actions,
    }
    truncated = np.zeros(count, dtype=bool)
    truncated[-1] = not terminated[-1]
    return RolloutColumns(fields, terminated, truncated, np.array([0, count]), np.array([True]), [{}])
