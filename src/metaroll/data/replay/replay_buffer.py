"""The one replay memory of off-policy learners: each observation is stored once, all else follows from its place."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np

from metaroll.checks import check_unit_interval, check_whole
from metaroll.data.replay.hindsight import DESIRED, HindsightGoals
from metaroll.data.replay.priorities import Priorities
from metaroll.data.replay.streams import (
    START,
    STEP,
    TERMINATED,
    TRUNCATED,
    StepStreams,
    check_spaces,
    row_bytes,
    rows_of,
    take,
)
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError, option_text
from metaroll.functional.returns import n_step_sums
from metaroll.seeding import as_generator

__all__ = ["ReplayBatch", "ReplayBuffer", "SegmentBatch"]

_PATH = ("observation", "action", "reward", "next_observation", "terminal")


class ReplayBatch(NamedTuple):
    """N steps that were drawn.

    Attributes:
        observations: ``(N, ...)`` in the dtype of the space, or a dict or tuple of such.
        actions: ``(N, act_dim)`` float32, or indices.
        rewards: Sum of the next rewards, discounted, float32 ``(N,)``.
        next_observations: After the last of these rewards.
        discounts: Weight of the value of ``next_observations``: ``discount ** k`` after k rewards, 0 after a
            termination; float32 ``(N,)``.
        indices: Where the steps lie, ``(N,)``.
        weights: Weight of each in a loss, float32 ``(N,)``.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: Any
    discounts: np.ndarray
    indices: np.ndarray
    weights: np.ndarray


class SegmentBatch(NamedTuple):
    """N stretches of T rows that follow one another, T = burn-in and length.

    Attributes:
        observations: And the one after them, ``(N, T + 1, ...)``.
        actions: ``(N, T, ...)``.
        rewards: float32 ``(N, T)``.
        discounts: Weight of the next observation: the discount factor, 0 after a termination; float32 ``(N, T)``.
        starts: Where an episode begins, so that a memory must be empty before, bool ``(N, T + 1)``.
        mask: Rows to learn from: steps after the burn-in, bool ``(N, T)``; what the others hold means nothing.
        indices: Where each begins, ``(N,)``.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    starts: np.ndarray
    mask: np.ndarray
    indices: np.ndarray


@final
class ReplayBuffer:
    """Steps of live collection, of which the newest are kept; each observation is stored once, in its own dtype.

    Every slot has a ring of rows. The next observation of a step is the next row, and the final observation of a
    rollout is a row without a step, so that it takes the place of one. ``terminated`` and ``truncated`` are kept apart:
    only a termination has no future value; any other end or interruption of a rollout leaves its last observation.

    Args:
        observation_space: Observation space of the environment.
        action_space: Action space of the environment.
        capacity: Number of steps after which the oldest are overwritten, rounded up to a multiple of ``num_slots``.
        num_slots: Number of slots E of the live collection; a rollout belongs to slot ``plan.index % E``.
        planned_steps: Steps that will be taken at most, if that is known: room is made for no more.
        memory_limit: Refuse a buffer that could outgrow this many bytes; ``None``: more than this machine has.
        memory_map: Folder of the files that are to hold the data in place of main memory; they vanish with the process.
        priority_exponent: Draw steps in proportion to this power of their priorities (``update_priorities``); new ones
            have the largest so far. ``None``: uniformly.
        compute_reward: Give steps goals in hindsight, with rewards
            ``compute_reward(achieved (N, ...), desired (N, ...), {}) -> (N,)``: observations are a Dict with
            ``achieved_goal`` and ``desired_goal``. ``None``: goals stay unchanged.
        hindsight_ratio: Share of the steps that get such goals, from later in their episodes.
        compute_terminated: With such goals, whether episodes end there, as ``compute_reward``, bool ``(N,)``; ``None``:
            they end where they have ended.

    Raises:
        ValueError: A number is too small, a space is of another kind, or the memory would not suffice; names the
            estimate.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        capacity: int,
        *,
        num_slots: int = 1,
        planned_steps: int | None = None,
        memory_limit: int | None = None,
        memory_map: str | Path | None = None,
        priority_exponent: float | None = None,
        compute_reward: Callable[[Any, Any, Any], Any] | None = None,
        hindsight_ratio: float = 0.8,
        compute_terminated: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        self._capacity = check_whole("capacity", capacity)
        check_whole("num_slots", num_slots)
        check_spaces(observation_space, action_space)
        goals = compute_reward and HindsightGoals(
            observation_space, compute_reward, hindsight_ratio, compute_terminated
        )
        needed = self.memory_estimate(observation_space, action_space, capacity, planned_steps)
        if memory_map is None:
            _check_memory(needed, row_bytes(observation_space, action_space), memory_limit)
        # Every rollout has an observation more than steps; memory that is not written to costs nothing.
        rows = capacity if planned_steps is None else min(capacity, 2 * planned_steps)
        num_rows = -(-rows // num_slots) + 1
        self._streams = StepStreams(observation_space, action_space, num_slots, num_rows, memory_map)
        self._goals = goals or None
        self._ends_unknown = goals is not None and compute_terminated is None
        self._priorities = None if priority_exponent is None else Priorities(num_slots * num_rows, priority_exponent)

    @staticmethod
    def memory_estimate(
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
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
    def draws_plainly(self) -> bool:
        """Whether it draws uniformly, with the goals that were seen."""
        return self._priorities is None and self._goals is None

    @property
    def n_transitions_stored(self) -> int:
        """Number of steps that can be sampled."""
        return self._streams.num_steps

    def __len__(self) -> int:
        return self._streams.num_steps

    def clear(self) -> None:
        """Forget everything."""
        self._streams.clear()
        if self._priorities is not None:
            self._priorities.clear()

    def add(self, rollouts: Rollouts | Iterable[StepSequence], actions: Any = None) -> int:
        """Store rollouts, or pieces of them as ``runner.advance`` returns them; number of steps.

        Args:
            rollouts: A piece that continues where that of the call before ended is joined to it; where it does not, the
                rollout before was cut off at its last observation.
            actions: To be stored in place of theirs, ``(sum T, ...)``: e.g. in the policy's units.

        Raises:
            DataError: An observation, action or reward is NaN or infinite; names the place.
            ShapeError: They are of other spaces, or lack the observation after the last step.
            TypeError: Something is not a rollout, or of another dtype. After an error nothing was stored.
        """
        pieces = Rollouts.of(rollouts)
        if not len(pieces):
            return 0
        rows = self._streams.add(pieces, actions)
        if self._priorities is not None:
            self._priorities.begin(rows, self._are_steps(rows))
        if self._ends_unknown and pieces.terminated.any():
            self._ends_unknown = False
            warnings.warn(
                "episodes end by themselves, and it is unknown whether they would end at other goals: with goals in "
                "hindsight steps count as if they continued there; give the environment compute_terminated(achieved, "
                "desired, info), as Gymnasium-Robotics has it",
                stacklevel=2,
            )
        return int(pieces.bounds[-1])

    def sample(
        self,
        n: int,
        generator: np.random.Generator | int | None = None,
        *,
        n_step: int = 1,
        discount: float = 0.99,
        weight_exponent: float = 0.0,
    ) -> ReplayBatch:
        """``n`` steps with replacement: drawn uniformly, or one from each of ``n`` equal shares of all priorities.

        Args:
            n: How many.
            generator: Source of randomness.
            n_step: Rewards to sum, as far as the rollout goes.
            discount: Discount factor.
            weight_exponent: How far weights make up for priorities, from 0 (not at all) to 1.

        Raises:
            ValueError: Nothing is stored, or an argument is out of range.
        """
        self._require_steps()
        check_whole("n", n)
        check_whole("n_step", n_step)
        check_unit_interval("weight_exponent", weight_exponent)
        discount, generator = check_unit_interval("discount", discount), as_generator(generator)
        if self._priorities is None:
            rows, weights = self._streams.draw(n, generator), np.ones(n, dtype=np.float32)
        else:
            rows, weights = self._priorities.draw(n, generator, len(self), weight_exponent)
        return self._batch(rows, weights, n_step, discount, generator)

    def _batch(
        self, rows: np.ndarray, weights: np.ndarray, n_step: int, discount: float, generator: np.random.Generator
    ) -> ReplayBatch:
        streams, columns, n = self._streams, self._streams.columns, len(rows)
        window = streams.ahead(rows[:, None], np.arange(n_step + 1))
        rewards, flags = columns.rewards.take(window[:, :-1]), columns.flags.take(window)
        terminated = flags[:, :-1] & TERMINATED != 0
        goals = self._goals and self._goals.relabel(streams, window, rewards, terminated, generator)
        if n_step == 1:
            sums, last, discounts = rewards[:, 0], window[:, 1], np.where(terminated[:, 0], 0.0, discount)
        else:
            continues = (flags[:, 1:] & STEP != 0) & (flags[:, :-1] & TRUNCATED == 0) & ~terminated
            sums, counts, discounts = n_step_sums(rewards, terminated, continues, discount)
            last = window[np.arange(n), counts]
        seen = take(columns.observations, np.concatenate([rows, last]))
        if goals is not None:
            for half in (seen[DESIRED][:n], seen[DESIRED][n:]):
                half[goals[0]] = goals[1]
        return ReplayBatch(
            rows_of(seen, slice(n)),
            columns.actions.take(rows, axis=0),
            sums.astype(np.float32, copy=False),
            rows_of(seen, slice(n, None)),
            discounts.astype(np.float32),
            rows,
            weights,
        )

    def update_priorities(self, indices: np.ndarray, errors: np.ndarray) -> None:
        """Set priorities of steps that were drawn, before others are added.

        Args:
            indices: ``batch.indices (N,)``; of one that comes twice, the last counts.
            errors: How surprising each was: temporal difference errors of either sign, ``(N,)``.

        Raises:
            ShapeError: There is not one finite number for each index.
            ValueError: The buffer draws uniformly.
        """
        if self._priorities is None:
            raise ValueError("this buffer draws uniformly; give it a priority_exponent (e.g. 0.6)")
        self._priorities.update(indices, errors, self._are_steps(indices))

    def _are_steps(self, rows: np.ndarray) -> np.ndarray:
        return self._streams.columns.flags.take(rows) & STEP != 0

    def sample_segments(
        self,
        n: int,
        generator: np.random.Generator | int | None = None,
        *,
        length: int,
        burn_in: int = 0,
        discount: float = 0.99,
    ) -> SegmentBatch:
        """``n`` stretches of steps that follow one another in a slot, for learners with a memory, drawn uniformly.

        They may lead over the end of an episode: its last observation has a row without a step, which ``mask`` leaves
        out, and the next row starts over (``starts``). Priorities and goals in hindsight are not for them.

        Args:
            n: How many.
            generator: Source of randomness.
            length: Rows to learn from.
            burn_in: Rows before these, which only bring the memory up.
            discount: Discount factor.

        Raises:
            ValueError: It is longer than anything stored, or an argument is out of range.
        """
        self._require_steps()
        check_whole("n", n)
        discount = check_unit_interval("discount", discount)
        count = check_whole("length", length) + check_whole("burn_in", burn_in, low=0)
        columns = self._streams.columns
        window = self._streams.segments(n, count, as_generator(generator))
        flags = columns.flags.take(window)
        steps = flags[:, :-1]
        mask = steps & STEP != 0
        mask[:, :burn_in] = False
        return SegmentBatch(
            take(columns.observations, window),
            columns.actions.take(window[:, :-1], axis=0),
            columns.rewards.take(window[:, :-1]),
            np.where(steps & TERMINATED, 0.0, discount).astype(np.float32),
            flags & START != 0,
            mask,
            window[:, 0],
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
            copy: False gives views, which change with the buffer: for writing to a file at once. They mark which of
                their rows are new (``RingRows``).
        """
        state = {"capacity": self._capacity, "streams": self._streams.state_dict(copy)}
        if self._priorities is not None:
            state["priorities"] = self._priorities.state_dict(self._streams.rows_in_order())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the buffer into the state that ``state_dict`` returned: it samples the same, and pieces continue.

        Raises:
            DataError: Something is missing in the state.
            ValueError: It is of a buffer of another capacity, of other spaces or slots. Nothing has changed.
        """
        if missing := {"capacity", "streams"} - state.keys():
            raise DataError(f"this is not the state of a ReplayBuffer: {sorted(missing)[0]!r} is missing")
        if int(state["capacity"]) != self._capacity:
            raise ValueError(f"the state is of a buffer of {state['capacity']} steps, this has {self._capacity}")
        saved = state.get("priorities")
        if (saved is None) != (self._priorities is None):
            raise ValueError("one of the state and this buffer draws by priorities, the other uniformly")
        self._streams.load_state_dict(state["streams"])
        if self._priorities is not None:
            self._priorities.load_state_dict(state["priorities"], self._streams.rows_in_order())


def _check_memory(needed: int, each: int, limit: int | None) -> None:
    most = _main_memory() if limit is None else limit
    if needed <= most:
        return
    available = f"the {most:,} bytes of this machine" if limit is None else f"memory_limit={limit:,}"
    fits = int(most / each)
    ways = [f"make room for at most {fits:,} steps ({option_text('replay_size', fits)})"] * (fits > 0)
    ways += ["in Python, give ReplayBuffer a folder (memory_map=...)"] + ["raise memory_limit"] * (limit is not None)
    raise ValueError(
        f"the replay buffer needs {needed:,} bytes ({needed // each:,} steps of {each:,} bytes), more than "
        f"{available}: {', or '.join(ways)}"
    )


def _main_memory() -> float:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not available here
        return math.inf


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
