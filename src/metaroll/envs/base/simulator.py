"""The one protocol of batched simulators: pure functions of rows, each with its own constants.

States and constants are *rows*: arrays whose first axis is the row ``(N, ...)``, or tuples and dicts of such arrays; a
plain number in them holds for all rows. A *column* is one number of every row, ``(N,)``, in contiguous memory.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from metaroll.envs.base.pcg64 import pcg64_uniforms
from metaroll.errors import ShapeError
from metaroll.tasks.plan_table import distinct_updates
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, TaskNote

__all__ = [
    "Columns",
    "NextState",
    "Rows",
    "Simulator",
    "TaskSimulator",
    "finite_state",
    "map_rows",
    "rows_at",
    "stacked",
    "with_rows",
]

Rows = Any
"""Arrays ``(N, ...)``, tuples and dicts of them, and plain numbers, which hold for all rows."""

Columns = tuple[Any, ...]
"""Columns ``(N,)``, or plain numbers."""


class NextState(NamedTuple):
    """The result of a step of N rows.

    Attributes:
        state: Rows.
        rewards: Shape ``(N,)``.
        terminated: bool ``(N,)``; ``None``: none has ended.
        truncated: bool ``(N,)``, where the simulator itself counts steps; ``None``: ``Simulator.time_limit`` decides.
        infos: Name -> array ``(N, ...)``.
    """

    state: Rows
    rewards: Any
    terminated: Any = None
    truncated: Any = None
    infos: Mapping[str, Any] = {}


class Simulator(ABC):
    """One system, of which any number of copies are stepped as rows. No row depends on another, bitwise identical.

    ``SimulatorSlots`` makes ``Slots`` of it, ``BatchedEnv`` a single environment: the batch of width one.

    Attributes:
        name: Its name in messages and rollouts.
        env_spec: Spaces, labels and horizon.
        num_uniforms: Random numbers that a first state takes.
        noise_dim: Random numbers that a step takes.
        time_limit: Steps after which an episode is truncated in any case (Gymnasium's ``TimeLimit``).
        is_physics: Steps cost so much that rows which do not run are left out, and rows that have ended are never
            stepped.
        seeds_as_gymnasium: First states are drawn from the generator that Gymnasium's ``reset(seed=)`` makes; else they
            are made from Philox numbers.
        runs_on_torch: ``step``, ``observe`` and ``state_rows`` also take tensors, on any device, with torch's namespace
            of ``array_api_compat``, and do not wait for the device. (First states are always NumPy's.)
        takes: Which updates it can apply, in words.
    """

    name: str
    env_spec: EnvSpec
    num_uniforms: int = 0
    noise_dim: int = 0
    time_limit: int | None = None
    is_physics: ClassVar[bool] = False
    seeds_as_gymnasium: ClassVar[bool] = False
    runs_on_torch: ClassVar[bool] = False
    takes: str = "no updates"

    # -- tasks and constants ------------------------------------------------------------------------------------------

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether rows can apply ``update``; by default only none at all."""
        return update is None or isinstance(update, TaskNote)

    def accepts_plans(self, plans: Sequence[RolloutPlan]) -> bool:
        """Whether rows can run ``plans``."""
        return all(map(self.accepts_update, distinct_updates(plans)))

    def check_update(self, update: EnvUpdate | None) -> Any:
        """The task that ``update`` sets, checked: once for all rows that share it.

        Raises:
            TypeError: ``update`` does something else.
            ValueError: Its task cannot be simulated.
        """
        if not self.accepts_update(update):
            raise TypeError(
                f"batched {self.name} takes {self.takes}, got {update!r}; step a list of environments: "
                "make_slots(..., plans=plans)"
            )
        return self.task_of(update)

    def task_of(self, update: EnvUpdate | None) -> Any:
        """The checked task of an update that is accepted; by default there are none."""
        return None

    @abstractmethod
    def constants(self, tasks: Sequence[Any], xp: Any) -> Rows:
        """All that holds still during an episode, for U checked tasks: rows ``(U, ...)``."""

    def domain_param(self, task: Any) -> dict[str, Any] | None:
        """Domain parameters under a checked task, where there are any."""
        return None

    def time_step(self, state: Rows, constants: Rows) -> float | None:
        """Seconds per step of one row, where they are known; they do not change under a task."""
        return None

    # -- states -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def initial_state(self, uniforms: Columns, constants: Rows, xp: Any) -> Rows:
        """Where episodes start.

        Args:
            uniforms: ``num_uniforms`` columns of random numbers, uniform on [0, 1) unless ``draw_rows`` changes that.
            constants: Of these rows.
            xp: Array namespace.
        """

    def draw_rows(self, seeds: np.ndarray) -> np.ndarray:
        """``uniforms`` of rows, ``(N, num_uniforms)``, for simulators with ``seeds_as_gymnasium``.

        Args:
            seeds: Seeds of the generators that Gymnasium's ``reset(seed=)`` makes, ``(N,)``.
        """
        return pcg64_uniforms(seeds, self.num_uniforms)

    def check_init_state(self, init_state: Any) -> np.ndarray:
        """A requested first state, ``(D,)``, in its own memory.

        Raises:
            ShapeError: It has another shape.
            ValueError: It cannot be simulated.
        """
        raise ValueError(
            f"init_state must be None: {self.name} does not read reset(options={{'init_state': ...}}), got {init_state}"
        )

    def state_from_init(self, inits: np.ndarray, constants: Rows, xp: Any) -> Rows:
        """States that start as wished, from checked ``inits (N, D)``."""
        raise NotImplementedError(f"{self.name} chooses its first states itself")

    def limit_steps(self, state: Rows, max_steps: np.ndarray, xp: Any) -> Rows:
        """First states of rollouts that end after ``max_steps (N,)`` at the latest (infinity: no such limit)."""
        return state

    def release(self, state: Rows) -> None:  # noqa: B027 (most hold nothing)
        """These rows of a state are never used again; objects that they hold besides arrays may be reused."""

    def whole_state(self, state: Rows) -> dict[str, np.ndarray]:
        """All it takes to continue with these rows, name -> ``(N, ...)``; by default the arrays of ``state``."""
        arrays: dict[str, np.ndarray] = {}
        map_rows(lambda array: arrays.setdefault(str(len(arrays)), array), state)
        return arrays

    def with_whole_state(self, state: Rows, whole: Mapping[str, np.ndarray]) -> Rows:
        """``state``, of rows that have just begun under the same tasks, where ``whole_state`` was taken."""
        numbers = itertools.count()
        return map_rows(lambda array: np.array(whole[str(next(numbers))], dtype=array.dtype), state)

    def state_rows(self, state: Rows, xp: Any) -> Any:
        """The state of the system, ``(N, S)``, in fresh memory; ``None`` if unknown."""
        return None

    @abstractmethod
    def observe(self, state: Rows, constants: Rows, xp: Any) -> Any:
        """Observations ``(N, ...)``, in fresh memory."""

    # -- steps --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def step(self, state: Rows, actions: Any, constants: Rows, noise: Columns, xp: Any) -> NextState:
        """One step of N rows; arguments are not changed.

        Args:
            state: Rows.
            actions: Shape ``(N, ...)``; int64 ``(N,)`` for Discrete spaces.
            constants: Of these rows.
            noise: ``noise_dim`` columns of numbers, uniform on [0, 1).
            xp: Array namespace.
        """


class TaskSimulator(Simulator):
    """A simulator whose tasks are mappings of arrays, set by the ``set_task`` of a class of environments.

    Args:
        env_type: The class of the single environment, as ``SetTaskUpdate`` names it.
        env_spec: Spaces, labels and horizon.
        task: The task of plans that set none.

    Attributes:
        state_dim: Length S of a requested first state.
    """

    state_dim: int = 0

    def __init__(self, env_type: type, env_spec: EnvSpec, task: Any) -> None:
        self.name, self.env_type, self.env_spec = env_type.__name__, env_type, env_spec
        self.takes = f"SetTaskUpdate({self.name}, task) without a wrapper"
        self.task = self.check_task(task)

    @abstractmethod
    def check_task(self, task: Any) -> dict[str, np.ndarray]:
        """The arrays of ``task`` by name, in their own memory.

        Raises:
            ShapeError: One has another shape.
            ValueError: It is not a task of this system.
        """

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        return super().accepts_update(update) or (
            isinstance(update, SetTaskUpdate) and update.env_type is self.env_type and not update.wrapper_constructor
        )

    def task_of(self, update: EnvUpdate | None) -> dict[str, np.ndarray]:
        return self.check_task(update.task) if isinstance(update, SetTaskUpdate) else self.task

    def check_init_state(self, init_state: Any) -> np.ndarray:
        """A finite state ``(S,)``."""
        return finite_state(init_state, self.state_dim)

    def constants(self, tasks: Sequence[Any], xp: Any) -> dict[str, Any]:
        """By default the entries of the tasks, ``(U, ...)``."""
        return {name: xp.asarray(np.stack([task[name] for task in tasks])) for name in tasks[0]}


def map_rows(function: Callable[..., Any], rows: Rows, *others: Rows) -> Rows:
    """``function`` of every array of ``rows`` and those at the same places in ``others``; plain numbers stay."""
    if rows.__class__ is np.ndarray:
        return function(rows, *others)
    if isinstance(rows, tuple):
        parts = [map_rows(function, *same) for same in zip(rows, *others, strict=True)]
        return tuple(parts) if type(rows) is tuple else type(rows)(*parts)
    if isinstance(rows, dict):
        return {name: map_rows(function, part, *(other[name] for other in others)) for name, part in rows.items()}
    return rows if isinstance(rows, int | float) else function(rows, *others)


def rows_at(rows: Rows, indices: Any) -> Rows:
    """The rows at ``indices (k,)``, in their own memory."""
    return map_rows(lambda array: array[indices], rows)


def with_rows(rows: Rows, indices: Any, values: Rows) -> Rows:
    """A copy of ``rows`` that has ``values (k, ...)`` at ``indices (k,)``."""

    def write(array: Any, new: Any) -> Any:
        array = array.copy()
        array[indices] = new
        return array

    return map_rows(write, rows, values)


def stacked(columns: Sequence[Any], num_rows: int, dtype: Any, xp: Any = np) -> Any:
    """Columns (or numbers) as rows ``(N, len(columns))``; ``np.stack`` takes four times as long for a few."""
    if xp is not np:
        like = next(column for column in columns if not isinstance(column, int | float))
        full = [xp.zeros_like(like) + column for column in columns]
        return xp.asarray(xp.stack(full, axis=1), dtype=getattr(xp, np.dtype(dtype).name))
    rows = np.empty((num_rows, len(columns)), dtype=dtype)
    for i, column in enumerate(columns):
        rows[:, i] = column
    return rows


def finite_state(init_state: Any, size: int) -> np.ndarray:
    """``init_state`` as float64 ``(size,)``, in its own memory.

    Raises:
        ShapeError: It has another shape.
        ValueError: It is not finite.
    """
    state = np.array(init_state, dtype=np.float64)
    if state.shape != (size,):
        raise ShapeError(f"init_state must have shape ({size},), got {state.shape}")
    if not np.isfinite(state).all():
        raise ValueError(f"init_state must be finite, got {state}")
    return state
