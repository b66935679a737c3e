"""Many rollouts as columns: one array per field, all rollouts one after the other, and where each begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError
from metaroll.types import RolloutPlan

__all__ = ["RolloutColumns", "Rollouts", "check_reduce", "plan_summary", "reduced_rows"]

WITH_FINAL = ("observations", "states")
"""Fields with one entry more than a rollout has steps."""

_ORDER = (
    "rewards",
    "observations",
    "actions",
    "hidden_states",
    "policy_infos",
    "env_infos",
    "actions_applied",
    "states",
    "time",
)
"""Fields of a rollout as it shows them; whatever else there is follows."""

TIME_STEP = "dt"
"""Entry of ``infos``: seconds per step, for rollouts that show their ``time``."""


@dataclass
class RolloutColumns:
    """Columns of N rollouts.

    Attributes:
        fields: Name -> array ``(sum T, ...)``, or a dict or tuple of such; those in ``WITH_FINAL`` have one entry more
            for each rollout.
        terminated: bool ``(sum T,)``.
        truncated: bool ``(sum T,)``.
        bounds: Where rollouts begin and end, ``(N + 1,)``.
        complete: Whether the last step of each is its end, bool ``(N,)``.
        infos: What stays constant in each rollout (``env_name``, ``domain_param``, ...), one dict each.
        own: Fields that not all of the rollouts have, or not at every step, by rollout; ``None`` where there are none.
        plans: The plan of each, where rollouts come from plans.
    """

    fields: dict[str, Any]
    terminated: np.ndarray
    truncated: np.ndarray
    bounds: np.ndarray
    complete: np.ndarray
    infos: Sequence[Mapping[str, Any]]
    own: list[dict[str, Any]] | None = None
    plans: Sequence[RolloutPlan] | None = None

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rollout(self, number: int) -> StepSequence:
        """Rollout ``number`` as views of the columns."""
        begin, end = int(self.bounds[number]), int(self.bounds[number + 1])
        steps, more = slice(begin, end), slice(begin + number, end + number + 1)
        fields = {name: _cut(value, more if name in WITH_FINAL else steps) for name, value in self.fields.items()}
        if self.own is not None:
            for name, value in self.own[number].items():
                both = isinstance(value, dict) and isinstance(fields.get(name), dict)
                fields[name] = {**fields[name], **value} if both else value
        fields = {name: fields[name] for name in (*_ORDER, *(fields.keys() - set(_ORDER))) if name in fields}
        dt = self.infos[number].get(TIME_STEP)
        if dt is not None:
            fields["time"] = np.arange(end - begin + 1) * dt
        done = np.zeros(end - begin, dtype=bool)
        done[-1] = self.complete[number]
        flags = {"terminated": self.terminated[steps], "truncated": self.truncated[steps], "done": done}
        return StepSequence._assemble(fields, {}, flags, np.array([0, end - begin]), self.info(number), "numpy")

    def info(self, number: int) -> dict[str, Any]:
        """``rollout_info`` of a rollout."""
        info = {name: value for name, value in self.infos[number].items() if name != TIME_STEP}
        if self.plans is not None:
            info["plan"] = plan_summary(self.plans[number])
        return info


class Rollouts(Sequence[StepSequence]):
    """Rollouts in the order of their plans: columns for those who compute, ``StepSequence`` for those who look.

    ``rollouts[i]`` is made anew whenever it is asked for, and its arrays are views of the columns: ``list(rollouts)``
    keeps what you change in ``rollout_info``, and a rollout that is kept keeps the memory of all that ran with it
    (``copy.deepcopy`` of it does not).

    Args:
        parts: Columns that follow one another.
    """

    def __init__(self, parts: Sequence[RolloutColumns] = ()) -> None:
        self._parts = [part for part in parts if len(part)]
        self._starts = np.cumsum([0, *(len(part) for part in self._parts)])
        self._columns: dict[str, Any] = {}

    # -- a sequence of rollouts ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, index: int) -> StepSequence: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepSequence]: ...
    def __getitem__(self, index: int | slice) -> StepSequence | list[StepSequence]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be below the number of rollouts, {len(self)}, got {index}")
        index = int(index) % len(self)
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[part].rollout(index - int(self._starts[part]))

    def __iter__(self) -> Iterator[StepSequence]:
        for part in self._parts:
            for number in range(len(part)):
                yield part.rollout(number)

    def __add__(self, other: Any) -> list[StepSequence]:
        return [*self, *other] if isinstance(other, Sequence) else NotImplemented

    def __radd__(self, other: Any) -> list[StepSequence]:
        return [*other, *self] if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return f"Rollouts({len(self)} rollouts, {int(self.bounds[-1])} steps)"

    @property
    def parts(self) -> list[RolloutColumns]:
        """The columns that follow one another."""
        return list(self._parts)

    # -- columns -----------------------------------------------------------------------------------------------------

    @property
    def bounds(self) -> np.ndarray:
        """Where rollouts begin and end among all steps, ``(N + 1,)``."""
        return self._cached("bounds", lambda: np.concatenate([[0], np.cumsum(self.lengths)]))

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each rollout, ``(N,)``."""
        return self._cached("lengths", lambda: _joined([np.diff(part.bounds) for part in self._parts], np.int64))

    @property
    def rewards(self) -> np.ndarray:
        """Rewards of all steps, ``(sum T,)``."""
        return self.column("rewards")

    @property
    def returns(self) -> np.ndarray:
        """Undiscounted return of each rollout, ``(N,)``."""

        def sums() -> np.ndarray:
            parts = [np.add.reduceat(part.fields["rewards"], part.bounds[:-1]) for part in self._parts]
            return _joined(parts, np.float64)

        return self._cached("returns", sums)

    @property
    def terminated(self) -> np.ndarray:
        """Bool ``(sum T,)``."""
        return self._cached("terminated", lambda: _joined([part.terminated for part in self._parts], np.bool_))

    @property
    def truncated(self) -> np.ndarray:
        """Bool ``(sum T,)``."""
        return self._cached("truncated", lambda: _joined([part.truncated for part in self._parts], np.bool_))

    @property
    def indices(self) -> np.ndarray:
        """Index of the plan of each rollout, ``(N,)``."""
        return np.array([plan.index for plan in self.plans], dtype=np.int64)

    @property
    def plans(self) -> list[RolloutPlan]:
        """The plan of each rollout.

        Raises:
            ValueError: They do not come from plans.
        """
        if any(part.plans is None for part in self._parts):
            raise ValueError("these rollouts do not come from plans")
        return [plan for part in self._parts for plan in part.plans or ()]

    def column(self, name: str) -> Any:
        """One field of all rollouts, ``(sum T, ...)``; ``observations`` and ``states`` have one entry more for each.

        Raises:
            KeyError: Not every step of all rollouts has it.
        """

        def found() -> Any:
            if any(name not in part.fields for part in self._parts) or not self._parts:
                known = sorted(set.intersection(*(set(part.fields) for part in self._parts))) if self._parts else []
                raise KeyError(f"not all rollouts have {name!r}; all have {known}")
            trees = [part.fields[name] for part in self._parts]
            if len(trees) == 1:
                return trees[0]
            leaves = [dict(iterate_leaves(tree)) for tree in trees]
            return map_leaves(lambda _, path: np.concatenate([found[path] for found in leaves]), trees[0])

        return self._cached(f"column {name}", found)

    def has_column(self, name: str) -> bool:
        """Whether ``column(name)`` is all there is of a field: no rollout lacks it, or has a part of its own."""
        return all(name in part.fields for part in self._parts) and not self._has_own(name)

    def has_none(self, name: str) -> bool:
        """Whether no rollout has this field."""
        return not any(name in part.fields for part in self._parts) and not self._has_own(name)

    def sorted_by(self, order: np.ndarray) -> Rollouts:
        """The same rollouts, sorted by ``order (N,)``."""
        return Rollouts([_gathered(self._parts, np.argsort(order, kind="stable"))])

    def take(self, numbers: Sequence[int] | np.ndarray) -> list[StepSequence]:
        """The rollouts with these numbers ``(K,)``."""
        return [self[int(number)] for number in numbers]

    def _has_own(self, name: str) -> bool:
        return any(name in entry for part in self._parts for entry in part.own or ())

    def _cached(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._columns:
            self._columns[name] = compute()
        return self._columns[name]


def _gathered(parts: Sequence[RolloutColumns], numbers: np.ndarray) -> RolloutColumns:
    """Columns of the rollouts ``numbers`` of several parts, in that order."""
    whole = Rollouts(parts)
    shared = set.intersection(*(set(part.fields) for part in parts))
    lengths = whole.lengths[numbers]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    steps = np.repeat(whole.bounds[:-1][numbers] - bounds[:-1], lengths) + np.arange(bounds[-1])
    begins = whole.bounds[:-1] + np.arange(len(whole))  # of fields that have an entry more for each rollout
    offset = begins[numbers] - bounds[:-1] - np.arange(len(numbers))
    finals = np.repeat(offset, lengths + 1) + np.arange(bounds[-1] + len(numbers))
    fields = {name: _cut(whole.column(name), finals if name in WITH_FINAL else steps) for name in shared}
    infos = [info for part in parts for info in part.infos]
    plans = None if any(part.plans is None for part in parts) else whole.plans
    own: list[dict[str, Any]] = []
    for part in parts:
        extra = set(part.fields) - shared
        for number in range(len(part)):
            rollout = part.rollout(number) if extra else None
            mine = {} if part.own is None else part.own[number]
            own.append({**{name: getattr(rollout, name) for name in extra}, **mine})
    return RolloutColumns(
        fields,
        whole.terminated[steps],
        whole.truncated[steps],
        bounds,
        np.concatenate([part.complete for part in parts])[numbers],
        [infos[number] for number in numbers],
        [own[number] for number in numbers] if any(own) else None,
        None if plans is None else [plans[number] for number in numbers],
    )


def reduced_rows(reduce: Callable[[dict[str, Any], np.ndarray], Any], columns: RolloutColumns) -> np.ndarray:
    """``reduce(columns, bounds)``, checked: one row for each of the N rollouts, ``(N, ...)``.

    Raises:
        TypeError: It returns no numbers.
        ShapeError: It returns another number of rows.
    """
    given = {**columns.fields, "terminated": columns.terminated, "truncated": columns.truncated}
    rows = np.asarray(reduce(given, columns.bounds))
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"reduce(columns, bounds) must return an array of numbers, got dtype {rows.dtype}")
    if rows.ndim == 0 or len(rows) != len(columns):
        raise ShapeError(
            f"reduce(columns, bounds) must return one row per rollout ({len(columns)}, ...), got shape {rows.shape}"
        )
    return rows


def check_reduce(reduce: Callable[[dict[str, Any], np.ndarray], Any], rollouts: Rollouts) -> None:
    """Whether ``reduce`` treats rollouts one by one, as it must: it is called with other numbers of them at a time.

    Args:
        reduce: From columns and bounds of N rollouts to ``(N, ...)``.
        rollouts: What a ``RolloutEngine`` has returned, two rollouts at least.

    Raises:
        ValueError: A row depends on which rollouts it is computed with.
    """
    if len(rollouts) < 2:
        raise ValueError(f"rollouts must hold at least two rollouts, got {len(rollouts)}")
    whole = rollouts.sorted_by(np.arange(len(rollouts))).parts[0]
    together = reduced_rows(reduce, whole)
    for number in range(len(rollouts)):
        alone = reduced_rows(reduce, _gathered([whole], np.array([number])))
        if alone.shape[1:] != together.shape[1:] or not np.array_equal(alone[0], together[number], equal_nan=True):
            raise ValueError(
                f"reduce(columns, bounds) must treat rollouts one by one, but rollout {number} gives {alone[0]} alone "
                f"and {together[number]} among {len(rollouts)}; use bounds (np.add.reduceat(x, bounds[:-1]), say)"
            )


def plan_summary(plan: RolloutPlan) -> dict[str, Any]:
    """What a rollout remembers of its plan (plain data)."""
    return {
        "index": plan.index,
        "seed": plan.seed,
        "task": plan.task,
        "max_steps": plan.max_steps,
        "eval": plan.eval,
        "deterministic": plan.acts_deterministically,
        "stop_on_done": plan.stop_on_done,
        "init_state": plan.init_state,
        "context": plan.context or None,
    }


def _cut(value: Any, rows: slice | np.ndarray) -> Any:
    if value.__class__ is np.ndarray:
        return value[rows]
    return map_leaves(lambda leaf, path: leaf[rows], value)


def _joined(arrays: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, dtype), *arrays])
