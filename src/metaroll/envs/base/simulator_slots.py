"""Rows of a simulator behind the ``Slots`` protocol: the only one for simulators of every kind."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.checks import check_whole
from metaroll.data.space_batches import to_box_type
from metaroll.envs.base.simulator import Columns, NextState, Rows, Simulator, map_rows, rows_at, with_rows
from metaroll.errors import ShapeError, SlotError
from metaroll.functional.philox import uniforms
from metaroll.tasks.plan_table import ENV_NOISE, INITIAL_STATE, NO_LIMIT, PlanTable, env_keys
from metaroll.types import RolloutPlan, Slots, SlotsInfo, SlotStep

__all__ = ["SimulatorRows", "SimulatorSlots", "check_choices"]

_BLOCK = 16
"""Steps for which noise is drawn at a time."""


class SimulatorRows:
    """State, constants and ages of N rows, and the randomness of their episodes.

    Args:
        simulator: The simulator of the rows.
        num_rows: N.

    Attributes:
        state: Rows; of physics ``None`` before the first ``begin``.
        constants: Rows.
        ages: Steps since the start of each episode, ``(N,)``.
        tasks: Checked tasks, an array of objects ``(N,)``.
    """

    def __init__(self, simulator: Simulator, num_rows: int) -> None:
        self.simulator, self.num_rows = simulator, num_rows
        self._own_task = simulator.check_update(None)
        self.tasks = np.empty(num_rows, dtype=object)
        self.tasks.fill(self._own_task)
        self._is_own = True  # whether all rows have the simulator's own task
        self.constants: Rows = rows_at(simulator.constants([self._own_task], np), np.zeros(num_rows, dtype=np.int64))
        self.state: Rows = None
        if not simulator.is_physics:  # placeholders until episodes begin
            nothing = tuple(np.zeros(num_rows) for _ in range(simulator.num_uniforms))
            with np.errstate(all="ignore"):
                self.state = simulator.initial_state(nothing, self.constants, np)
        self.ages = np.zeros(num_rows, dtype=np.int64)
        self._waiting = np.ones(num_rows, dtype=bool)
        self._all_begun = False
        self._noise = _Noise(simulator.noise_dim, num_rows)

    def begin(
        self,
        rows: np.ndarray,
        seeds: np.ndarray,
        tasks: Sequence[Any] | None = None,
        task_of: np.ndarray | None = None,
        inits: Sequence[np.ndarray | None] | None = None,
        max_steps: np.ndarray | None = None,
    ) -> None:
        """Start episodes; all arguments have been checked.

        Args:
            rows: Which rows ``(k,)``.
            seeds: Seeds as for ``reset(seed=)``, ``(k,)``.
            tasks: Distinct checked tasks; ``None``: the simulator's own for all.
            task_of: Which of them each row gets, ``(k,)``.
            inits: First states that are wished, or ``None`` where one is drawn.
            max_steps: Steps after which each rollout ends at the latest, ``(k,)``; infinity: no such limit.
        """
        simulator, everyone = self.simulator, len(rows) == self.num_rows and bool((rows[:-1] < rows[1:]).all())
        # Until they have begun: what an error, or Ctrl-C, leaves of them is neither stepped nor released twice.
        ended, self._waiting[rows], self._all_begun = rows[~self._waiting[rows]], True, False
        if tasks is None and self._is_own:
            constants = self.constants if everyone else rows_at(self.constants, rows)
        else:
            own = tasks is None
            used, of = ([self._own_task], np.zeros(len(rows), dtype=np.int64)) if own else (tasks, task_of)
            with np.errstate(all="ignore"):
                constants = rows_at(simulator.constants(used, np), of)
            column = np.empty(len(used), dtype=object)
            for i, task in enumerate(used):
                column[i] = task
            self.tasks[rows] = column[of]
            self.constants = constants if everyone else with_rows(self.constants, rows, constants)
            self._is_own = own and (everyone or self._is_own)
        if simulator.is_physics and self.state is not None:
            simulator.release(rows_at(self.state, ended))
        keys = env_keys(seeds)
        with np.errstate(all="ignore"):
            state = self._first_states(seeds, keys, inits, constants)
            if max_steps is not None:
                state = simulator.limit_steps(state, max_steps, np)
        if everyone:
            self.state = state
        else:
            if self.state is None:
                self.state = map_rows(lambda a: np.zeros((self.num_rows, *a.shape[1:]), dtype=a.dtype), state)
            self.state = with_rows(self.state, rows, state)
        self.ages[rows] = 0
        self._noise.begin(rows, keys)
        self._waiting[rows] = False
        self._all_begun = not self._waiting.any()

    def step(self, actions: Any, active: np.ndarray | None = None, *, shows: bool = True) -> tuple[NextState, Any]:
        """Step all rows, or those where ``active (N,)``; the others stay, with reward 0 and no ending.

        Observations are those of all rows after it, unless they are not needed (``shows``).
        """
        if not self._all_begun:
            self._check_begun(active)
        simulator, num_rows = self.simulator, self.num_rows
        noise = self._noise.next(self.ages, active) if simulator.noise_dim else ()
        with np.errstate(all="ignore"):  # rows may diverge, which the loop above reports
            if active is None:
                result = simulator.step(self.state, actions, self.constants, noise, np)
                self.ages += 1
            elif simulator.is_physics:
                result = self._step_some(actions, noise, np.flatnonzero(active))
                self.ages += active
            else:
                result = self._masked(simulator.step(self.state, actions, self.constants, noise, np), active)
                self.ages += active
            self.state = result.state
            observations = simulator.observe(result.state, self.constants, np) if shows else None
        terminated = np.zeros(num_rows, dtype=bool) if result.terminated is None else result.terminated
        truncated = result.truncated
        if truncated is None and simulator.time_limit is not None:
            truncated = self.ages >= simulator.time_limit
            if active is not None:
                truncated &= active
        elif truncated is None:
            truncated = np.zeros(num_rows, dtype=bool)
        rewards = result.rewards if result.rewards.dtype == np.float64 else result.rewards.astype(np.float64)
        return NextState(result.state, rewards, terminated, truncated, result.infos), observations

    def observe(self, rows: np.ndarray | None = None) -> Any:
        """Present observations of all rows, or of ``rows (k,)``."""
        state, constants = self.state, self.constants
        if rows is not None:
            state, constants = rows_at(state, rows), rows_at(constants, rows)
        with np.errstate(all="ignore"):
            return self.simulator.observe(state, constants, np)

    def resume(self, before: SimulatorRows, state: Rows) -> None:
        """Continue from ``state`` in the episodes of ``before``, which has as many rows."""
        self.state, self.ages, self._noise = state, before.ages, before._noise
        self._waiting, self._all_begun = before._waiting, before._all_begun

    def running_state(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """All it takes to continue with ``rows (k,)``, name -> ``(k, ...)``."""
        own = {"age": self.ages[rows], "noise_key": self._noise.keys[rows]}
        return {**self.simulator.whole_state(rows_at(self.state, rows)), **own}

    def take_up(self, rows: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Continue in ``rows (k,)``, which have just begun, from the result of ``running_state``."""
        whole = {name: values for name, values in state.items() if name not in ("age", "noise_key")}
        self.state = with_rows(self.state, rows, self.simulator.with_whole_state(rows_at(self.state, rows), whole))
        self._noise.begin(rows, state["noise_key"])
        self.ages[rows] = state["age"]

    def keep(self, rows: np.ndarray) -> None:
        """Continue with ``rows (k,)`` only."""
        if self.state is not None:
            if self.simulator.is_physics:
                gone = np.setdiff1d(np.flatnonzero(~self._waiting), rows)
                if gone.size:
                    self.simulator.release(rows_at(self.state, gone))
            self.state = rows_at(self.state, rows)
        self.constants, self.tasks = rows_at(self.constants, rows), self.tasks[rows]
        self.ages, self._waiting = self.ages[rows], self._waiting[rows]
        self._all_begun = not self._waiting.any()
        self._noise.keep(rows)
        self.num_rows = len(rows)

    def _check_begun(self, active: np.ndarray | None) -> None:
        early = self._waiting if active is None else self._waiting & active
        if early.any() or self.state is None:
            slot = int(early.argmax())
            raise gymnasium.error.ResetNeeded(f"slot {slot} must be reset with a plan before it is stepped")

    def _first_states(
        self, seeds: np.ndarray, keys: np.ndarray, inits: Sequence[np.ndarray | None] | None, constants: Rows
    ) -> Rows:
        simulator, count = self.simulator, len(seeds)

        def drawn(rows: np.ndarray | None) -> Rows:
            part = constants if rows is None else rows_at(constants, rows)
            own = slice(None) if rows is None else rows
            num = simulator.num_uniforms
            if simulator.seeds_as_gymnasium:
                numbers = simulator.draw_rows(seeds[own])
            else:
                numbers = uniforms(keys[own], INITIAL_STATE, 0, num) if num else np.empty((count, 0))
            return simulator.initial_state(tuple(np.ascontiguousarray(numbers.T)), part, np)

        if inits is None:
            return drawn(None)
        distinct = {id(init): init for init in inits}  # many rollouts may share one
        if id(None) not in distinct and len({len(init) for init in distinct.values() if init is not None}) == 1:
            numbers = {key: number for number, key in enumerate(distinct)}
            values = np.stack([init for init in distinct.values() if init is not None])
            chosen = np.array([numbers[id(init)] for init in inits], dtype=np.int64)
            return simulator.state_from_init(values[chosen], constants, np)
        own = np.array([i for i, init in enumerate(inits) if init is None], dtype=np.int64)
        parts = [(own, drawn(own))] if own.size else []
        wished = {i: init for i, init in enumerate(inits) if init is not None}
        for width in sorted({len(init) for init in wished.values()}):
            rows = np.array([i for i, init in wished.items() if len(init) == width], dtype=np.int64)
            values = np.stack([wished[i] for i in rows.tolist()])
            parts.append((rows, simulator.state_from_init(values, rows_at(constants, rows), np)))
        state = map_rows(lambda a: np.zeros((count, *a.shape[1:]), dtype=a.dtype), parts[0][1])
        for rows, part in parts:
            state = with_rows(state, rows, part)
        return state

    def _step_some(self, actions: Any, noise: Columns, rows: np.ndarray) -> NextState:
        """Step ``rows`` alone, where steps are dear."""
        simulator, some = self.simulator, tuple(column[rows] for column in noise)
        part = (rows_at(self.state, rows), actions[rows], rows_at(self.constants, rows), some)
        try:
            result = simulator.step(*part, np)
        except SlotError as error:
            error.slot = None if error.slot is None else int(rows[error.slot])
            raise

        def spread(values: Any) -> np.ndarray:
            array = np.zeros((self.num_rows, *values.shape[1:]), dtype=values.dtype)
            array[rows] = values
            return array

        return NextState(
            with_rows(self.state, rows, result.state),
            spread(result.rewards),
            None if result.terminated is None else spread(result.terminated),
            None if result.truncated is None else spread(result.truncated),
            {name: spread(values) for name, values in result.infos.items()},
        )

    def _masked(self, result: NextState, active: np.ndarray) -> NextState:
        def stay(new: Any, old: Any) -> Any:
            return np.where(active.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        return NextState(
            map_rows(stay, result.state, self.state),
            np.where(active, result.rewards, 0.0),
            None if result.terminated is None else result.terminated & active,
            None if result.truncated is None else result.truncated & active,
            {name: stay(values, np.zeros_like(values)) for name, values in result.infos.items()},
        )


class _Noise:
    """Uniform numbers of the next steps of N rows, by position: those of a row hang on its key and its age alone."""

    def __init__(self, dim: int, num_rows: int) -> None:
        self._dim = dim
        self.keys = np.zeros((num_rows, 4), dtype=np.uint32)
        self._block = np.empty((_BLOCK, dim, num_rows if dim else 0))
        self._used = np.full(num_rows, _BLOCK)
        self._common: int | None = _BLOCK
        """How many steps of the block all rows have used; ``None`` where they differ, as in ``_used``."""

    def begin(self, rows: np.ndarray, keys: np.ndarray) -> None:
        self.keys[rows] = keys
        if not self._dim:
            return
        everyone = len(rows) == len(self.keys)
        if not everyone:
            self._part()
        self._common = _BLOCK if everyone else self._common
        self._used[rows] = _BLOCK

    def keep(self, rows: np.ndarray) -> None:
        self.keys, self._used = self.keys[rows], self._used[rows]
        if self._dim:
            self._block = np.ascontiguousarray(self._block[:, :, rows])

    def next(self, ages: np.ndarray, active: np.ndarray | None) -> Columns:
        """Numbers of a step of rows that have made ``ages (N,)``."""
        if active is not None:
            self._part()
        if self._common is None:
            due = self._used == _BLOCK if active is None else (self._used == _BLOCK) & active
            if due.any():
                self._fill(np.flatnonzero(due), ages)
            drawn = self._block[np.minimum(self._used, _BLOCK - 1), :, np.arange(len(self._used))]
            self._used += 1 if active is None else active
            return tuple(np.ascontiguousarray(drawn.T))
        if self._common == _BLOCK:
            self._fill(np.arange(len(self._used)), ages)
            self._common = 0
        self._common += 1
        return tuple(self._block[self._common - 1])

    def _part(self) -> None:
        if self._common is not None:
            self._used[:] = self._common
            self._common = None

    def _fill(self, rows: np.ndarray, ages: np.ndarray) -> None:
        numbers = uniforms(self.keys[rows], ENV_NOISE, ages[rows] * self._dim, _BLOCK * self._dim)
        self._block[:, :, rows] = numbers.reshape(len(rows), _BLOCK, self._dim).transpose(1, 2, 0)
        self._used[rows] = 0


class SimulatorSlots(Slots):
    """Rows of a simulator, stepped as arrays: task, first state and randomness of each come from its plan.

    A rollout is that of the single environment, bitwise identical.

    Args:
        num_slots: How many.
        simulator: The simulator.
    """

    def __init__(self, num_slots: int, simulator: Simulator) -> None:
        self.num_slots = check_whole("num_slots", num_slots)
        self.simulator = simulator
        self.env_spec = simulator.env_spec
        physics = simulator.is_physics
        self.info = SlotsInfo(
            simulator.name,
            "physics" if physics else "batched",
            steps_past_end=not physics,
            can_keep=True,
            resumes="state",
        )
        action_space = self.env_spec.action_space
        self._action_shape: tuple[int, ...] = action_space.shape or ()
        self._widens_actions = isinstance(action_space, Box) and action_space.dtype == np.float64
        """Whether actions of a policy, in float32, may lie beyond bounds that they mean (see ``to_box_type``)."""
        self.rows = SimulatorRows(simulator, self.num_slots)

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), ...)``.

        Raises:
            SlotError: A plan's update or first state cannot be simulated; nothing has changed then.
            ValueError: A plan has no seed.
        """
        table, rows = PlanTable.of(plans), np.asarray(slots, dtype=np.int64)
        if not len(rows):
            return self.rows.observe(rows)
        own = table.updates == [None]
        tasks, task_of = (None, None) if own else self._checked_tasks(table, rows)
        inits = None if table.init_states is None else self._checked_inits(table.init_states, rows)
        limits = table.max_steps
        max_steps = None if (limits == NO_LIMIT).all() else np.where(limits == NO_LIMIT, np.inf, limits)
        self.rows.begin(rows, table.env_seeds, tasks, task_of, inits, max_steps)
        return self.rows.observe(None if len(rows) == self.num_slots and self._in_order(rows) else rows)

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        """Step the rows where ``active (E,)`` with their rows of ``actions (E, ...)``.

        Raises:
            ShapeError: ``actions`` have another shape.
            SlotError: A choice is none of the Discrete action space.
        """
        active = np.asarray(active, dtype=bool)
        some = None if np.count_nonzero(active) == len(active) else active  # a third of the time of all()
        shows = self.shows or not self.info.steps_past_end
        result, observations = self.rows.step(self._checked_actions(actions, some), some, shows=shows)
        states = self.states() if self.record_states else None
        return SlotStep(observations, result.rewards, result.terminated, result.truncated, result.infos, states)

    def keep(self, slots: np.ndarray) -> None:
        """Continue with these slots only (``(k,)``, increasing)."""
        self.rows.keep(np.asarray(slots, dtype=np.int64))
        self.num_slots = self.rows.num_rows

    def running_state(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """States, ages and keys of noise of ``slots (k,)``, name -> ``(k, ...)``."""
        return self.rows.running_state(np.asarray(slots, dtype=np.int64))

    def resume(self, slots: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``running_state``."""
        self.rows.take_up(np.asarray(slots, dtype=np.int64), state)

    def states(self) -> np.ndarray | None:
        """States ``(E, S)``, in fresh memory; ``None`` if unknown."""
        return None if self.rows.state is None else self.simulator.state_rows(self.rows.state, np)

    def time_step(self, slot: int) -> float | None:
        """Seconds per step in a slot, where they are known."""
        return self.simulator.time_step(self._row(self.rows.state, slot), self._row(self.rows.constants, slot))

    def domain_param(self, slot: int) -> dict[str, Any] | None:
        """Domain parameters in a slot, where there are any."""
        return self.simulator.domain_param(self.rows.tasks[slot])

    def alike(self, slots: np.ndarray) -> Sequence[Hashable]:
        """Rows with one task are."""
        return list(map(id, self.rows.tasks[slots]))

    @staticmethod
    def _row(rows: Rows, slot: int) -> Rows:
        return None if rows is None else rows_at(rows, [slot])

    @staticmethod
    def _in_order(rows: np.ndarray) -> bool:
        return bool((rows[:-1] < rows[1:]).all())

    def _checked_tasks(self, table: PlanTable, rows: np.ndarray) -> tuple[list[Any], np.ndarray]:
        """Checked tasks of these plans alone (their table may know thousands of others), and which each row has."""
        numbers, task_of = np.unique(table.update_of, return_inverse=True)
        tasks: list[Any] = []
        wrong: dict[int, Exception] = {}
        for number in numbers.tolist():
            try:
                tasks.append(self.simulator.check_update(table.updates[number]))
            except Exception as error:
                wrong[number] = error
        if wrong:  # all at once: thousands of parameters may be out of range
            mine = np.flatnonzero(np.isin(table.update_of, list(wrong)))
            causes = {int(rows[row]): wrong[int(table.update_of[row])] for row in mine.tolist()}
            slot, cause = next(iter(causes.items()))
            raise SlotError(slot, others={other: why for other, why in causes.items() if other != slot}) from cause
        return tasks, task_of

    def _checked_inits(self, inits: Sequence[np.ndarray | None], rows: np.ndarray) -> list[np.ndarray | None]:
        checked: dict[int, np.ndarray | None] = {id(None): None}
        for slot, init in zip(rows.tolist(), inits, strict=True):
            if id(init) not in checked:  # many rollouts may share one
                try:
                    checked[id(init)] = self.simulator.check_init_state(init)
                except Exception as error:
                    raise SlotError(slot) from error
        return [checked[id(init)] for init in inits]

    def _checked_actions(self, actions: Any, active: np.ndarray | None) -> Any:
        space, array = self.env_spec.action_space, np.asarray(actions)
        expected = (self.num_slots, *self._action_shape)
        if array.shape != expected:
            raise ShapeError(f"actions must have shape {expected}, got {array.shape}")
        if isinstance(space, Discrete):
            return check_choices(space, array, active)
        return to_box_type(space, array) if self._widens_actions and array.dtype == np.float32 else array


def check_choices(space: Discrete, choices: np.ndarray, active: np.ndarray | None = None) -> np.ndarray:
    """Choices ``(N,)`` as int64; those of rows that are not active become 0.

    Raises:
        SlotError: One is not an index of ``space``.
    """
    if active is None and choices.dtype == np.int64 and choices.min() >= 0 and choices.max() < space.n:
        return choices  # the usual case, in a tenth of the time
    right = (choices >= 0) & (choices < space.n)
    if choices.dtype.kind not in "iu":
        right &= choices == np.floor(choices)
    if active is not None:
        right |= ~active
    if not right.all():
        slot = int(np.flatnonzero(~right)[0])
        raise SlotError(slot, "the action given to the environment") from ValueError(
            f"actions must be indices from 0 to {space.n - 1}, got {choices[slot].item()!r} in slot {slot}"
        )
    if active is not None:
        choices = np.where(active, choices, 0)
    return choices.astype(np.int64)
