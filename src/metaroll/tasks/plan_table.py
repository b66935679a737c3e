"""Plans as columns, and the randomness that belongs to a plan."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np

from metaroll.functional.philox import integers32, stream_keys
from metaroll.seeding import fresh_seed
from metaroll.types import Context, EnvUpdate, Policy, RolloutPlan

__all__ = [
    "ENV_NOISE",
    "ENV_SEED",
    "INITIAL_STATE",
    "NO_LIMIT",
    "POLICY_NOISE",
    "PlanTable",
    "check_limit",
    "env_keys",
    "plan_env_seed",
    "plan_env_seeds",
    "resolve_plans",
]

# Roles of the streams of a rollout (see functional.philox): a number for each kind of number that is drawn.
ENV_SEED, POLICY_NOISE = 0, 1  # under the keys of the plan
INITIAL_STATE, ENV_NOISE = 2, 3  # under ``env_keys`` of the environment's integer seed

NO_LIMIT = np.iinfo(np.int64).max
"""``max_steps`` of plans without a limit."""


_FIELDS = (
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
_fields_of = operator.attrgetter(*_FIELDS)


class PlanTable(Sequence[RolloutPlan]):
    """N plans as columns; an entry is a ``RolloutPlan``, made when it is asked for.

    Attributes:
        indices: Position of each rollout in its batch, ``(N,)``.
        seeds: Seed triples ``(N, 3)``, as ``stream_keys`` takes them.
        max_steps: ``(N,)``, ``NO_LIMIT`` where there is none.
        stop_on_done: bool ``(N,)``.
        eval: bool ``(N,)``.
        deterministic: Whether the rollout acts deterministically, bool ``(N,)``.
        updates: The distinct environment updates; ``None`` stands for the environment as it was given.
        update_of: Which of them each rollout has, ``(N,)``.
        parameter_sets: The distinct arrays of policy parameters ``(P,)`` that plans bring.
        set_of: Which of them each rollout has, ``(N,)``; -1 for those that bring none.
        contexts: Context of each plan, or ``None`` where no plan has any.
        init_states: Initial state of each plan, or ``None`` where no plan has any.
        has_extras: Whether some plan has ``extras``.
    """

    def __init__(self, plans: Iterable[RolloutPlan]) -> None:
        self._plans = list(plans)
        columns = zip(*map(_fields_of, self._plans), strict=True) if self._plans else [()] * len(_FIELDS)
        index, seeds, updates, states, parameters, contexts, limits, evals, deterministic, stops, extras = columns
        self.indices = np.array(index, dtype=np.int64)
        self.seeds = _seed_table(self._plans, seeds)
        self.max_steps = _limits(limits)
        self.stop_on_done = np.array(stops, dtype=bool)
        self.eval = np.array(evals, dtype=bool)
        told = set(deterministic)
        self.deterministic = self.eval if told <= {None} else np.array(deterministic, dtype=bool)
        if len(told) > 1 and None in told:
            self.deterministic = np.array([plan.acts_deterministically for plan in self._plans], dtype=bool)
        self.updates: list[EnvUpdate | None]
        self.parameter_sets: list[np.ndarray]
        self.updates, self.update_of = _distinct(updates)
        sets, set_of = _distinct(parameters)
        if any(found is None for found in sets):
            none = next(i for i, found in enumerate(sets) if found is None)
            order = np.array([-1 if i == none else i - (i > none) for i in range(len(sets))], dtype=np.int64)
            sets, set_of = [found for found in sets if found is not None], order[set_of]
        self.parameter_sets, self.set_of = sets, set_of
        self.contexts: list[Context | None] | None = _column(contexts)
        self.init_states: list[np.ndarray | None] | None = _column(states)
        self.has_extras = any(extras)
        self._keys: np.ndarray | None = None
        self._env_seeds: np.ndarray | None = None

    @classmethod
    def of(cls, plans: Sequence[RolloutPlan]) -> PlanTable:
        """``plans`` themselves if they are a table, else a table of them."""
        return plans if isinstance(plans, PlanTable) else cls(plans)

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
        for name in ("indices", "seeds", "max_steps", "stop_on_done", "eval", "deterministic", "update_of", "set_of"):
            part.__dict__[name] = self.__dict__[name][rows]
        part.updates, part.parameter_sets, part.has_extras = self.updates, self.parameter_sets, self.has_extras
        part.contexts = None if self.contexts is None else [self.contexts[i] for i in listed]
        part.init_states = None if self.init_states is None else [self.init_states[i] for i in listed]
        part._keys = None if self._keys is None else self._keys[rows]
        part._env_seeds = None if self._env_seeds is None else self._env_seeds[rows]
        return part

    def with_env_seeds(self, env_seeds: np.ndarray) -> PlanTable:
        """The same plans, with other seeds ``(N,)`` for their environments' ``reset``."""
        part = self.take(slice(None))
        part._env_seeds = np.asarray(env_seeds, dtype=np.int64)
        return part

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, index: int) -> RolloutPlan: ...
    @overload
    def __getitem__(self, index: slice) -> list[RolloutPlan]: ...
    def __getitem__(self, index: int | slice) -> RolloutPlan | list[RolloutPlan]:
        return self._plans[index]


def resolve_plans(plans: Sequence[RolloutPlan], policy: Policy | None = None) -> PlanTable:
    """Plans with checked limits and a seed each; those without one share fresh entropy and differ by position.

    Plans without a context get what ``policy`` believes: they give the same rollout again when it believes otherwise.
    """
    if isinstance(plans, RolloutPlan):
        raise TypeError("plans must be a list of RolloutPlan, got a single one; pass [plan]")
    resolved = list(plans)
    for position, plan in enumerate(resolved):
        if not isinstance(plan, RolloutPlan):
            raise TypeError(f"plans must be a list of RolloutPlan, got {plan!r} at position {position}")
    for limit, index in {plan.max_steps: plan.index for plan in reversed(resolved)}.items():
        if limit is not None:
            check_limit(limit, f" in plan {index}")
    for seed, index in ((plan.seed, plan.index) for plan in resolved):
        if seed is not None and (not isinstance(seed, tuple | list) or len(seed) != 3):
            raise ValueError(
                f"seed must be three integers (seed, sub_seed, sub_sub_seed) or None, got {seed!r} in plan {index}"
            )
    unseeded = [position for position, plan in enumerate(resolved) if plan.seed is None]
    entropy = fresh_seed() if unseeded else 0
    for position in unseeded:
        resolved[position] = resolved[position].with_(seed=(entropy, 0, position))
    untold = policy is not None and any(plan.context is None for plan in resolved)
    belief = policy.plan_context() if untold and policy is not None else None
    if belief is not None:
        resolved = [plan.with_(context=belief) if plan.context is None else plan for plan in resolved]
    return PlanTable(resolved)


def check_limit(limit: Any, where: str = "") -> None:
    """``max_steps`` must be a whole number of at least 1, or infinite."""
    whole = isinstance(limit, int | np.integer) and not isinstance(limit, bool)
    if not whole and limit != float("inf"):
        raise TypeError(f"max_steps must be a whole number (or None), got {limit!r}{where}")
    if limit < 1:
        raise ValueError(f"max_steps must be at least 1, got {limit}{where}")


def plan_env_seeds(plans: Sequence[RolloutPlan]) -> np.ndarray:
    """The integers of 31 bits that seed the environments' ``reset``, int64 ``(N,)``.

    Raises:
        ValueError: A plan has no seed.
    """
    return (
        plans.env_seeds
        if isinstance(plans, PlanTable)
        else _env_seeds(stream_keys(_seed_table(plans, [plan.seed for plan in plans])))
    )


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


def _seed_table(plans: Sequence[RolloutPlan], seeds: Sequence[Any]) -> np.ndarray:
    if None in seeds:
        index = plans[list(seeds).index(None)].index
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
    return np.array([known[limit] for limit in limits], dtype=np.int64)


def _distinct(values: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """The distinct objects, in the order of their first appearance, and which of them each entry is."""
    found = {id(value): value for value in values}
    numbers = {key: number for number, key in enumerate(found)}
    return list(found.values()), np.array([numbers[key] for key in map(id, values)], dtype=np.int64)


def _column(values: Sequence[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else list(values)
