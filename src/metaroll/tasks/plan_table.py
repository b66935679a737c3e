"""Plans as columns, and the randomness that belongs to a plan."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from metaroll.checks import described
from metaroll.functional.philox import integers32, stream_keys
from metaroll.seeding import fresh_seed
from metaroll.types import Context, EnvUpdate, Policy, RolloutPlan

__all__ = [
    "ENV_NOISE",
    "ENV_SEED",
    "INITIAL_STATE",
    "NO_LIMIT",
    "POLICY_NOISE",
    "SENSOR_NOISE",
    "START_NOISE",
    "PlanTable",
    "distinct_updates",
    "env_keys",
    "plan_env_seed",
    "plan_env_seeds",
    "resolve_plans",
]

# Roles of the streams of a rollout (see functional.philox): a number for each kind of number that is drawn.
ENV_SEED, POLICY_NOISE = 0, 1  # under the keys of the plan
SENSOR_NOISE, START_NOISE = 4, 5  # likewise: what is measured of a rollout, and how well its first state is known
INITIAL_STATE, ENV_NOISE = 2, 3  # under ``env_keys`` of the environment's integer seed

NO_LIMIT = np.iinfo(np.int64).max
"""``max_steps`` of plans without a limit."""


_FIELDS = {
    field: operator.attrgetter(field)
    for field in (
        "index",
        "seed",
        "env_update",
        "init_state",
        "parameters",
        "context",
        "max_steps",
        "eval",
        "deterministic",
        "stop_on_done",
        "extras",
    )
}
_AT_A_TIME = 256
"""Plans whose fields are listed one after the other: these stay in the processor's cache."""
_ARRAYS = ("indices", "seeds", "max_steps", "stop_on_done", "eval", "deterministic", "_flags", "update_of", "set_of")
"""Attributes of a table with an entry per plan."""
_OPEN = -1
"""``deterministic`` of plans that leave it open, in ``_flags``."""


class PlanTable(Sequence[RolloutPlan]):
    """N plans as columns; an entry is a ``RolloutPlan``.

    Only columns are sent to another process, which makes the plans that are accessed.

    Attributes:
        indices: Position of each rollout in its batch, ``(N,)``.
        seeds: Seed triples ``(N, 3)``, as ``stream_keys`` takes them.
        max_steps: ``(N,)``, ``NO_LIMIT`` if there is none.
        stop_on_done: bool ``(N,)``.
        eval: bool ``(N,)``.
        deterministic: Whether the rollout acts deterministically, bool ``(N,)``.
        updates: The distinct environment updates; ``None`` means the environment as it was given.
        update_of: Which of them each rollout has, ``(N,)``.
        parameter_sets: The distinct arrays of policy parameters ``(P,)`` that plans bring.
        set_of: Which of them each rollout has, ``(N,)``; -1 for those that bring none.
        contexts: Context of each plan, or ``None`` where no plan has any.
        init_states: Initial state of each plan, or ``None`` where no plan has any.
    """

    def __init__(self, plans: Iterable[RolloutPlan]) -> None:
        listed = list(plans)
        self._fill(listed, _columns_of(listed))

    def _fill(self, plans: Sequence[RolloutPlan], columns: Mapping[str, list[Any]]) -> None:
        self._plans: list[RolloutPlan | None] = list(plans)
        self.indices = np.array(columns["index"], dtype=np.int64)
        self.seeds = _seed_table(columns["index"], columns["seed"])
        self.max_steps = _limits(columns["max_steps"])
        self.stop_on_done, self.eval = _flags(columns["stop_on_done"]), _flags(columns["eval"])
        flags = [_OPEN if flag is None else bool(flag) for flag in columns["deterministic"]]
        self._flags = np.array(flags, dtype=np.int8)
        self.deterministic = np.where(self._flags == _OPEN, self.eval, self._flags == 1)
        self.updates: list[EnvUpdate | None]
        self.parameter_sets: list[np.ndarray]
        self.updates, self.update_of = _distinct(columns["env_update"])
        self.parameter_sets, self.set_of = _sets(columns["parameters"])
        self.contexts: list[Context | None] | None = _column(columns["context"])
        self.init_states: list[np.ndarray | None] | None = _column(columns["init_state"])
        self._extras: list[Mapping[str, Any]] | None = columns["extras"] if any(columns["extras"]) else None
        self._can_make = self.seeds.dtype != object and math.inf not in columns["max_steps"]
        """Whether plans can be made from the columns alone."""
        self._keys: np.ndarray | None = None
        self._env_seeds: np.ndarray | None = None

    @classmethod
    def of(cls, plans: Sequence[RolloutPlan]) -> PlanTable:
        """``plans`` themselves if they are a table, else a table of them."""
        return plans if isinstance(plans, PlanTable) else cls(plans)

    @classmethod
    def of_columns(
        cls,
        seeds: np.ndarray,
        *,
        updates: Sequence[EnvUpdate | None],
        update_of: np.ndarray,
        max_steps: np.ndarray,
        parameter_sets: Sequence[np.ndarray] = (),
        set_of: np.ndarray | None = None,
        contexts: Sequence[Context | None] | None = None,
        init_states: Sequence[np.ndarray | None] | None = None,
        eval: bool = False,
        stop_on_done: bool = True,
    ) -> PlanTable:
        """N plans, numbered from 0, each of which is made when it is accessed. Nothing is checked.

        Args:
            seeds: Seed triples, uint64 ``(N, 3)``.
            updates, update_of, max_steps, parameter_sets, set_of, contexts, init_states: See the attributes.
            eval, stop_on_done: As in ``RolloutPlan``, for all.
        """
        table, count = object.__new__(cls), len(seeds)
        table._plans = [None] * count
        table.indices, table.seeds = np.arange(count), seeds
        table.max_steps = max_steps.astype(np.int64)
        table.stop_on_done, table.eval = np.full(count, stop_on_done), np.full(count, eval)
        table._flags, table.deterministic = np.full(count, _OPEN, dtype=np.int8), np.full(count, eval)
        table.updates, table.update_of = list(updates), update_of.astype(np.int64)
        table.parameter_sets = list(parameter_sets)
        table.set_of = np.full(count, -1, dtype=np.int64) if set_of is None else set_of.astype(np.int64)
        table.contexts = None if contexts is None else list(contexts)
        table.init_states = None if init_states is None else list(init_states)
        table._extras, table._can_make = None, True
        table._keys = table._env_seeds = None
        return table

    @property
    def has_extras(self) -> bool:
        """Whether some plan has ``extras``."""
        return self._extras is not None

    @property
    def keys(self) -> np.ndarray:
        """Keys of the rollouts' streams, uint32 ``(N, 4)``."""
        if self._keys is None:
            self._keys = stream_keys(self.seeds)
        return self._keys

    @property
    def env_seeds(self) -> np.ndarray:
        """The integers of 31 bits that seed the environments' ``reset``, int64 ``(N,)``."""
        if self._env_seeds is None:
            self._env_seeds = _env_seeds(self.keys)
        return self._env_seeds

    def take(self, rows: np.ndarray | Sequence[int] | slice) -> PlanTable:
        """The plans of ``rows``."""
        rows = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows, dtype=np.int64)
        part = object.__new__(PlanTable)
        listed = rows.tolist()
        part._plans = [self._plans[i] for i in listed]
        for name in _ARRAYS:
            part.__dict__[name] = self.__dict__[name][rows]
        part.updates, part.parameter_sets, part._can_make = self.updates, self.parameter_sets, self._can_make
        part.contexts = None if self.contexts is None else [self.contexts[i] for i in listed]
        part.init_states = None if self.init_states is None else [self.init_states[i] for i in listed]
        part._extras = None if self._extras is None else [self._extras[i] for i in listed]
        part._keys = None if self._keys is None else self._keys[rows]
        part._env_seeds = None if self._env_seeds is None else self._env_seeds[rows]
        return part

    def next_episodes(self, env_seeds: np.ndarray) -> PlanTable:
        """The same plans for further episodes: other seeds ``(N,)`` of environments, and no initial states."""
        part = self.take(slice(None))
        part._env_seeds = np.asarray(env_seeds, dtype=np.int64)
        if self.init_states is not None:
            part.init_states, part._plans = None, [None] * len(self)
        return part

    def with_init_states(self, init_states: Sequence[np.ndarray | None]) -> PlanTable:
        """The same plans with other initial states, one per plan."""
        part = self.take(slice(None))
        part.init_states, part._plans = list(init_states), [None] * len(self)
        return part

    @property
    def extras(self) -> Sequence[Mapping[str, Any]]:
        """``extras`` of each plan."""
        return [{}] * len(self) if self._extras is None else self._extras

    def map_updates(self, function: Callable[[EnvUpdate | None], Any]) -> list[Any]:
        """``function`` of each of ``updates`` that a plan has; ``None`` in place of the others."""
        used = set(self.update_of.tolist())
        return [function(update) if number in used else None for number, update in enumerate(self.updates)]

    def with_updates(
        self,
        updates: Sequence[EnvUpdate | None],
        *,
        update_of: np.ndarray | None = None,
        extras: Sequence[Mapping[str, Any]] | None = None,
    ) -> PlanTable:
        """The same plans, their environments' seeds included, with other updates.

        Args:
            updates: In place of those of ``self.updates``.
            update_of: Which of them each rollout has, ``(N,)``; ``None`` means as before.
            extras: ``extras`` of each plan; ``None`` means as before.
        """
        part = self.take(slice(None))
        part.updates, part._plans = list(updates), [None] * len(self)
        part.update_of = self.update_of if update_of is None else update_of
        part._extras = self._extras if extras is None else list(extras)
        return part

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, index: int) -> RolloutPlan: ...
    @overload
    def __getitem__(self, index: slice) -> list[RolloutPlan]: ...
    def __getitem__(self, index: int | slice) -> RolloutPlan | list[RolloutPlan]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        plan = self._plans[index]
        if plan is None:
            index = range(len(self))[index]
            plan = self._plans[index] = self._made(index)
        return plan

    def __iter__(self) -> Iterator[RolloutPlan]:
        return map(self.__getitem__, range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        used, update_of = np.unique(self.update_of, return_inverse=True)
        updates = [self.updates[number] for number in used.tolist()]  # a slice of a table shares them
        state = {**self.__dict__, "updates": updates, "update_of": update_of.reshape(-1)}
        return {**state, "_plans": [None] * len(self)} if self._can_make else state

    def _made(self, row: int) -> RolloutPlan:
        limit, flag, number = int(self.max_steps[row]), int(self._flags[row]), int(self.set_of[row])
        return RolloutPlan(
            index=int(self.indices[row]),
            seed=tuple(self.seeds[row].tolist()),
            env_update=self.updates[int(self.update_of[row])],
            init_state=None if self.init_states is None else self.init_states[row],
            parameters=None if number < 0 else self.parameter_sets[number],
            context=None if self.contexts is None else self.contexts[row],
            max_steps=None if limit == NO_LIMIT else limit,
            eval=bool(self.eval[row]),
            deterministic=None if flag == _OPEN else bool(flag),
            stop_on_done=bool(self.stop_on_done[row]),
            extras={} if self._extras is None else self._extras[row],
        )


def resolve_plans(plans: Sequence[RolloutPlan], policy: Policy | None = None) -> PlanTable:
    """Plans with checked limits and a seed each; those without one share fresh entropy and differ by position.

    Plans without a context get what ``policy`` believes: they give the same rollout again when it believes otherwise.
    """
    if isinstance(plans, RolloutPlan):
        raise TypeError("plans must be a list of RolloutPlan, got a single one; pass [plan]")
    if not isinstance(plans, Iterable):
        raise TypeError(f"plans must be a list of RolloutPlan, got {described(plans)}")
    if isinstance(plans, PlanTable) and (plans.contexts or policy is None or policy.plan_context() is None):
        return plans  # made of plans that were resolved, or of columns
    resolved = list(plans)
    if set(map(type, resolved)) != {RolloutPlan}:
        for position, plan in enumerate(resolved):
            if not isinstance(plan, RolloutPlan):
                raise TypeError(f"plans must be a list of RolloutPlan, got {described(plan)} at position {position}")
    columns = _columns_of(resolved)
    unseeded = [position for position, seed in enumerate(columns["seed"]) if seed is None]
    entropy = fresh_seed() if unseeded else 0
    for position in unseeded:
        resolved[position] = resolved[position].with_(seed=(entropy, 0, position))
    belief = None if policy is None or None not in columns["context"] else policy.plan_context()
    if belief is not None:
        resolved = [plan.with_(context=belief) if plan.context is None else plan for plan in resolved]
    if unseeded or belief is not None:
        columns = _columns_of(resolved)
    table = object.__new__(PlanTable)
    table._fill(resolved, columns)
    return table


def plan_env_seeds(plans: Sequence[RolloutPlan]) -> np.ndarray:
    """The integers of 31 bits that seed the environments' ``reset``, int64 ``(N,)``.

    Raises:
        ValueError: A plan has no seed.
    """
    return (
        plans.env_seeds
        if isinstance(plans, PlanTable)
        else _env_seeds(stream_keys(_seed_table([plan.index for plan in plans], [plan.seed for plan in plans])))
    )


def distinct_updates(plans: Sequence[RolloutPlan]) -> list[EnvUpdate]:
    """The updates of plans, each object once; those that have none bring none."""
    if isinstance(plans, PlanTable):
        distinct = [plans.updates[number] for number in np.unique(plans.update_of).tolist()]
        return [update for update in distinct if update is not None]
    updates = {id(plan.env_update): plan.env_update for plan in plans if plan.env_update is not None}
    return list(updates.values())


def plan_env_seed(seed: Sequence[int | None]) -> int:
    """The integer that seeds a Gymnasium environment's ``reset`` for the rollout seeded with ``seed``."""
    return int(_env_seeds(stream_keys(_triples([seed])))[0])


def env_keys(env_seeds: Any) -> np.ndarray:
    """Keys of the streams ``INITIAL_STATE`` and ``ENV_NOISE`` of simulators of our own, uint32 ``(N, 4)``.

    They hang on the integer ``env_seeds (N,)`` that ``reset(seed=)`` is given, so that an environment that is reset
    alone shows what it shows among many.
    """
    seeds = np.asarray(env_seeds, dtype=np.int64)
    return stream_keys(np.stack([seeds, np.zeros_like(seeds), np.zeros_like(seeds)], axis=1))


def _env_seeds(keys: np.ndarray) -> np.ndarray:
    return (integers32(keys, ENV_SEED, 1)[:, 0] >> 1).astype(np.int64)


def _columns_of(plans: Sequence[RolloutPlan]) -> dict[str, list[Any]]:
    """A list per field, without any object per plan, of which thousands would set off Python's garbage collector."""
    columns: dict[str, list[Any]] = {field: [] for field in _FIELDS}
    for begin in range(0, len(plans), _AT_A_TIME):
        part = plans[begin : begin + _AT_A_TIME]
        for field, value_of in _FIELDS.items():
            columns[field].extend(map(value_of, part))
    return columns


def _seed_table(indices: Sequence[int], seeds: Sequence[Any]) -> np.ndarray:
    if None in seeds:
        index = indices[list(seeds).index(None)]
        raise ValueError(f"seed of plan {index} must be set: RolloutEngine.run and rollout() set it, or do it yourself")
    return _triples(seeds)


def _triples(seeds: Sequence[Any]) -> np.ndarray:
    flat = list(itertools.chain.from_iterable(seeds))
    if len(flat) == 3 * len(seeds) and set(map(type, flat)) <= {int}:
        try:
            return np.array(flat, dtype=np.uint64).reshape(-1, 3)
        except OverflowError:  # negative, or of more than 64 bits
            pass
    # Sub-seeds that are None, or numbers of more than 64 bits (stream_keys refuses what is neither).
    table = np.empty((len(seeds), 3), dtype=object)
    for row, seed in zip(table, seeds, strict=True):
        row[:] = [0 if part is None else part for part in seed]
    return table


def _limits(limits: Sequence[Any]) -> np.ndarray:
    known = {limit: NO_LIMIT if limit is None or limit == math.inf else int(limit) for limit in set(limits)}
    if len(known) == 1:
        return np.full(len(limits), *known.values(), dtype=np.int64)
    return np.array([known[limit] for limit in limits], dtype=np.int64)


def _flags(values: Sequence[Any]) -> np.ndarray:
    return np.full(len(values), bool(values[0])) if _all_one(values) else np.array(values, dtype=bool)


def _distinct(values: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """The distinct objects, in the order of their first appearance, and which of them each entry is."""
    if _all_one(values):
        return [values[0]], np.zeros(len(values), dtype=np.int64)
    keys = list(map(id, values))
    distinct = dict(zip(keys, values, strict=True))
    numbers = {key: number for number, key in enumerate(distinct)}
    return list(distinct.values()), np.array([numbers[key] for key in keys], dtype=np.int64)


def _sets(parameters: Sequence[Any]) -> tuple[list[np.ndarray], np.ndarray]:
    """The distinct arrays, and which of them each entry is; -1 for ``None``."""
    sets, set_of = _distinct(parameters)
    none = next((i for i, each in enumerate(sets) if each is None), None)
    if none is None:
        return sets, set_of
    order = np.array([-1 if i == none else i - (i > none) for i in range(len(sets))], dtype=np.int64)
    return [each for each in sets if each is not None], order[set_of]


def _column(values: Sequence[Any]) -> list[Any] | None:
    return None if not values or (_all_one(values) and values[0] is None) else list(values)


def _all_one(values: Sequence[Any]) -> bool:
    """Whether all entries are one object, and there are some."""
    return bool(values) and all(map(operator.is_, values, itertools.repeat(values[0])))
