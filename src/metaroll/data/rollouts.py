"""Many rollouts as columns: one array per field, all rollouts one after the other, and where each begins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np

from metaroll.checks import check_list, described, row_numbers
from metaroll.data.data_format import iterate_leaves, map_leaves, to_format
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError, unknown_name
from metaroll.functional.returns import discounted_sum
from metaroll.types import RolloutPlan

__all__ = ["RolloutColumns", "Rollouts", "listed_rollouts", "plan_summary", "time_step"]

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
"""Fields of a rollout in the order in which it shows them; all others follow."""

_FLAGS = ("terminated", "truncated")
_NONE: Any = object()

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
        infos: Constants of each rollout (``env_name``, ``domain_param``, ...); rollouts may share one dict.
        own: Fields that not all of the rollouts have, or not at every step, by rollout; ``None`` if there are none.
        plans: The plan of each, where rollouts come from plans.
        common: Constants of all of them, as ``infos``.
        firsts: Steps that each rollout had taken before, ``(N,)``, where these are pieces; ``None``: they begin here.
    """

    fields: dict[str, Any]
    terminated: np.ndarray
    truncated: np.ndarray
    bounds: np.ndarray
    complete: np.ndarray
    infos: Sequence[Mapping[str, Any]]
    own: list[dict[str, Any]] | None = None
    plans: Sequence[RolloutPlan] | None = None
    common: dict[str, Any] = field(default_factory=dict)
    firsts: np.ndarray | None = None
    _sums: dict[float, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def column(self, name: str) -> Any:
        """A field, or flags, of all steps; ``KeyError`` where there is no such column."""
        if name in _FLAGS:
            return self.terminated if name == "terminated" else self.truncated
        return self.fields[name]

    def discounted_sums(self, gamma: float) -> np.ndarray:
        """``sum_t gamma^t r_t`` of each rollout, ``(N,)``; computed once."""
        if gamma not in self._sums:
            rewards, bounds = self.fields["rewards"], self.bounds
            if gamma != 1.0:
                ages = np.arange(int(bounds[-1])) - np.repeat(bounds[:-1], np.diff(bounds))
                rewards = rewards * (gamma ** np.arange(int(ages.max(initial=0)) + 1))[ages]
            self._sums[gamma] = np.add.reduceat(rewards, bounds[:-1])
        return self._sums[gamma]

    def rows(self, name: str, first: int, stop: int) -> slice:
        """The slice of a column that holds the rollouts ``first`` to ``stop``."""
        begin, end = int(self.bounds[first]), int(self.bounds[stop])
        return slice(begin + first, end + stop) if name in WITH_FINAL else slice(begin, end)

    def first(self, count: int) -> RolloutColumns:
        """The first ``count`` rollouts, as views."""
        fields = {name: _cut(value, self.rows(name, 0, count)) for name, value in self.fields.items()}
        steps, own = self.rows("rewards", 0, count), None if self.own is None else self.own[:count]
        return replace(
            self,
            fields=fields,
            terminated=self.terminated[steps],
            truncated=self.truncated[steps],
            bounds=self.bounds[: count + 1],
            complete=self.complete[:count],
            infos=self.infos[:count],
            own=own,
            plans=None if self.plans is None else self.plans[:count],
            firsts=None if self.firsts is None else self.firsts[:count],
        )

    def values(self, name: str, first: int, stop: int) -> Iterator[Any]:
        """A field of each of the rollouts ``first`` to ``stop``: views; ``_NONE`` where it is missing."""
        column = self.column(name) if name in self.fields or name in _FLAGS else _NONE
        final = name in WITH_FINAL
        edges = itertools.pairwise(self.bounds[first : stop + 1].tolist())
        for number, (begin, end) in enumerate(edges, first):
            rows = slice(begin + number, end + number + 1) if final else slice(begin, end)
            value = column if column is _NONE else _cut(column, rows)
            if self.own is not None and name in self.own[number]:
                value = _merged(value, self.own[number][name])
            yield value

    def rollout(self, number: int) -> StepSequence:
        """Rollout ``number`` as views of the columns."""
        begin, end = int(self.bounds[number]), int(self.bounds[number + 1])
        steps, more = slice(begin, end), slice(begin + number, end + number + 1)
        fields = {name: _cut(value, more if name in WITH_FINAL else steps) for name, value in self.fields.items()}
        if self.own is not None:
            fields |= {name: _merged(fields.get(name), value) for name, value in self.own[number].items()}
        fields = {name: fields[name] for name in (*_ORDER, *(fields.keys() - set(_ORDER))) if name in fields}
        dt = self.infos[number].get(TIME_STEP)
        if dt is not None:
            before = 0 if self.firsts is None else int(self.firsts[number])
            fields["time"] = np.arange(before, before + end - begin + 1) * dt
        done = np.zeros(end - begin, dtype=bool)
        done[-1] = self.complete[number]
        flags = {"terminated": self.terminated[steps], "truncated": self.truncated[steps], "done": done}
        return StepSequence._assemble(fields, {}, flags, np.array([0, end - begin]), self.info(number), "numpy")

    def info(self, number: int) -> dict[str, Any]:
        """``rollout_info`` of a rollout."""
        info = {
            name: dict(value) if value.__class__ is dict else value  # rollouts of one task share theirs
            for name, value in self.infos[number].items()
            if name != TIME_STEP
        }
        if self.plans is not None:
            info["plan"] = plan_summary(self.plans[number])
        return info | self.common


def time_step(rollout: StepSequence) -> float | None:
    """Seconds per step: the slope of ``time``, which single late steps do not move; else that of the log."""
    if "time" in rollout.data_names and rollout.continuous and rollout.rollout_count == 1:
        times = np.asarray(rollout.get_data_values("time"), dtype=np.float64).reshape(-1)
        if len(times) > 1 and np.isfinite(times).all():
            return float(np.polyfit(np.arange(len(times)), times - times[0], 1)[0])
    recorded = (rollout.rollout_info or {}).get(TIME_STEP)
    return None if recorded is None else float(recorded)


def listed_rollouts(rollouts: Iterable[StepSequence], name: str = "rollouts") -> list[StepSequence]:
    """``rollouts`` as a list.

    Args:
        rollouts: The user's argument.
        name: Its name in errors.

    Raises:
        TypeError: It is one rollout alone, or holds something else.
    """
    return check_list(name, rollouts, "StepSequences", StepSequence, "; load_log and load_rollouts return one")


class Rollouts(Sequence[StepSequence]):
    """Rollouts in the order of their plans: columns to compute with, ``StepSequence`` to inspect.

    ``rollouts[i]`` is rebuilt at each access, and fills itself with views of the columns when it is
    first read: ``list(rollouts)`` keeps what you change in ``rollout_info``, and a rollout that is kept keeps the
    memory of all that ran with it (``copy.deepcopy`` of it does not). Slices, ``take`` and ``+`` share the columns;
    pickled, they hold their own rollouts only. ``returns``, ``lengths`` and columns are computed once: treat them as
    read-only, since what you write into a column no longer changes ``returns``.

    Args:
        parts: Columns that follow one another.
    """

    def __init__(self, parts: Sequence[RolloutColumns] = ()) -> None:
        self._set_spans([(part, 0, len(part)) for part in parts if len(part)])

    @classmethod
    def of(cls, rollouts: Iterable[StepSequence]) -> Rollouts:
        """The columns of ``rollouts``: nothing is copied where they come from columns and were not read.

        Raises:
            TypeError: One is no ``StepSequence``.
        """
        if isinstance(rollouts, Rollouts):
            return rollouts
        if not isinstance(rollouts, Iterable):
            raise TypeError(f"rollouts must be a list of StepSequences, got {described(rollouts)}")
        spans = []
        for rollout in rollouts:
            if not isinstance(rollout, StepSequence):
                raise TypeError(f"rollouts must be StepSequences, got {type(rollout).__name__}")
            part, number = rollout._place or (_columns_of(rollout), 0)
            follows = bool(spans) and spans[-1][0] is part and spans[-1][2] == number
            spans.append((part, spans.pop()[1] if follows else number, number + 1))
        return cls._of_spans(spans)

    @classmethod
    def joined(cls, groups: Iterable[Iterable[StepSequence]]) -> Rollouts:
        """The columns of all groups, one after the other."""
        spans: list[_Span] = []
        for position, group in enumerate(groups):
            if isinstance(group, StepSequence) or not isinstance(group, Iterable):
                raise TypeError(f"groups must be lists of rollouts, got {described(group)} at position {position}")
            for part, first, stop in cls.of(group)._spans:
                follows = bool(spans) and spans[-1][0] is part and spans[-1][2] == first  # cut apart before: no copy
                spans.append((part, spans.pop()[1] if follows else first, stop))
        return cls._of_spans(spans)

    @classmethod
    def _of_spans(cls, spans: list[_Span]) -> Rollouts:
        rollouts = cls()
        rollouts._set_spans(spans)
        return rollouts

    def _set_spans(self, spans: list[_Span]) -> None:
        self._spans = spans
        self._starts = np.array([0, *itertools.accumulate(stop - first for _, first, stop in spans)])
        self._columns: dict[str, Any] = {}

    # -- a sequence of rollouts ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, index: int) -> StepSequence: ...
    @overload
    def __getitem__(self, index: slice) -> Rollouts: ...
    def __getitem__(self, index: int | slice) -> StepSequence | Rollouts:
        if isinstance(index, slice):
            chosen = range(*index.indices(len(self)))
            near = chosen.step == 1
            return self._of_spans(_cut_spans(self._spans, chosen.start, chosen.stop)) if near else self.take(chosen)
        if isinstance(index, bool) or not isinstance(index, int | np.integer):
            raise TypeError(
                f"index must be a whole number or a slice, got {index!r}; take(numbers) gives several rollouts, "
                "column(name) a field of all of them"
            )
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be below the number of rollouts, {len(self)}, got {index}")
        index = int(index) % len(self)
        span = int(np.searchsorted(self._starts, index, side="right")) - 1
        part, first, _ = self._spans[span]
        return StepSequence._in_columns(part, first + index - int(self._starts[span]))

    def __iter__(self) -> Iterator[StepSequence]:
        return (StepSequence._in_columns(part, number) for part, number in self._members())

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Rollouts):
            return self.joined([self, other])
        return [*self, *other] if isinstance(other, Sequence) else NotImplemented

    def __radd__(self, other: Any) -> list[StepSequence]:
        return [*other, *self] if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return f"Rollouts({len(self)} rollouts, {int(self.bounds[-1])} steps)"

    def __getattr__(self, name: str) -> Any:
        """Only for an error that names where a field is."""
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        known = {field for part in self.parts for field in part.fields} if "_spans" in vars(self) else set()
        if name in known:
            message += f"; rollouts.column({name!r}) has it for all steps, rollouts.each({name!r}) for each rollout"
        elif name in vars(StepSequence) or name in ("done", "rollout_info", "states", "time"):
            message += f"; a single one has: rollouts[0].{name}"
        elif known and not name.startswith("_"):
            message += f"; rollouts.column(name) and rollouts.each(name) give what is recorded: {self._names()}"
        raise AttributeError(message, name=name, obj=self)

    @property
    def parts(self) -> list[RolloutColumns]:
        """The columns in which these rollouts lie, perhaps among others."""
        return list({id(part): part for part, _, _ in self._spans}.values())

    def add_info(self, name: str, value: Any) -> None:
        """Put an entry into ``rollout_info`` of all that ran together with these."""
        for part in self.parts:
            part.common[name] = value

    def __reduce__(self) -> tuple[Any, ...]:
        whole = all(stop - first == len(part) for part, first, stop in self._spans)
        own = self if whole else self.sorted_by(np.arange(len(self)))
        return Rollouts, ([part for part, _, _ in own._spans],)

    def take(self, numbers: Sequence[int] | np.ndarray) -> Rollouts:
        """The rollouts with these numbers, in this order; negative ones count from the end, a mask ``(N,)`` chooses.

        Raises:
            TypeError: They are not whole numbers.
            IndexError: There is no rollout of such a number, or a mask has another length.
        """
        chosen = row_numbers(numbers, len(self))
        return self._of_spans(_chosen_spans(self._spans, self._starts, chosen))

    def sorted_by(self, order: np.ndarray) -> Rollouts:
        """The same rollouts, sorted by ``order (N,)``, in their own columns."""
        if len(order) != len(self):
            raise ShapeError(f"order must have one entry per rollout ({len(self)},), got {len(order)}")
        if not len(self):
            return self
        parts = self.parts
        first_of = dict(zip(map(id, parts), itertools.accumulate(map(len, parts), initial=0), strict=False))
        numbers = [first_of[id(part)] + np.arange(first, stop) for part, first, stop in self._spans]
        return Rollouts([_gathered(parts, np.concatenate(numbers)[np.argsort(order, kind="stable")])])

    def with_column(self, name: str, values: np.ndarray) -> Rollouts:
        """The same rollouts with other values of a field, in their own columns.

        Args:
            name: Name of a field that all of them have, such as ``rewards``.
            values: Values of all steps ``(sum T, ...)``; ``observations`` and ``states`` have one entry more for each
                rollout.

        Raises:
            TypeError: ``values`` is not an array.
            ShapeError: There are more or fewer values.
            UnknownNameError: There is no such field; flags are none.
        """
        part = self.sorted_by(np.arange(len(self))).parts[0] if len(self) else None
        if part is not None and name not in part.fields:
            raise unknown_name("field", name, sorted(part.fields))
        if not isinstance(values, np.ndarray):
            raise TypeError(f"values of {name!r} must be an array, got {type(values).__name__}")
        entries = int(self.bounds[-1]) + (len(self) if name in WITH_FINAL else 0)
        if len(values) != entries:
            raise ShapeError(
                f"values of {name!r} must have {entries} entries, of all rollouts together, got {len(values)}"
            )
        if part is None:
            return self
        own = None if part.own is None else [{k: v for k, v in one.items() if k != name} for one in part.own]
        return Rollouts([replace(part, fields={**part.fields, name: values}, own=own)])

    def _members(self) -> Iterator[tuple[RolloutColumns, int]]:
        return ((part, number) for part, first, stop in self._spans for number in range(first, stop))

    # -- columns -----------------------------------------------------------------------------------------------------

    @property
    def bounds(self) -> np.ndarray:
        """Boundaries of the rollouts among all steps, ``(N + 1,)``."""
        return self._cached("bounds", lambda: np.concatenate([[0], np.cumsum(self.lengths)]))

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each rollout, ``(N,)``."""

        def compute() -> np.ndarray:
            return _joined([np.diff(part.bounds[first : stop + 1]) for part, first, stop in self._spans], np.int64)

        return self._cached("lengths", compute)

    @property
    def num_steps(self) -> int:
        """Steps of all rollouts together."""
        return sum(int(part.bounds[stop] - part.bounds[first]) for part, first, stop in self._spans)

    @property
    def firsts(self) -> np.ndarray:
        """Steps that each rollout had taken before, where these are pieces, ``(N,)``."""
        parts = [np.zeros(b - a, int) if part.firsts is None else part.firsts[a:b] for part, a, b in self._spans]
        return _joined(parts, np.int64)

    @property
    def complete(self) -> np.ndarray:
        """Whether the last step of each is its end, bool ``(N,)``; others are pieces that continue."""
        return _joined([part.complete[first:stop] for part, first, stop in self._spans], bool)

    @property
    def rewards(self) -> np.ndarray:
        """Rewards of all steps, ``(sum T,)``."""
        return self.column("rewards") if self._spans else np.zeros(0)

    @property
    def returns(self) -> np.ndarray:
        """Undiscounted return of each rollout, ``(N,)``; computed once."""
        return self.discounted_sums(1.0)

    def discounted_sums(self, gamma: float) -> np.ndarray:
        """``discounted_returns``, of all rollouts at once and with other last bits, ``(N,)``; computed once."""
        parts = [part.discounted_sums(gamma)[first:stop] for part, first, stop in self._spans]
        return parts[0] if len(parts) == 1 else _joined(parts, np.float64)

    def discounted_returns(self, gamma: float) -> np.ndarray:
        """``discounted_return(gamma)`` of each rollout, bitwise identical to it, ``(N,)``."""
        return np.array([discounted_sum(rewards, gamma) for rewards in self.each("rewards")], dtype=np.float64)

    @property
    def terminated(self) -> np.ndarray:
        """Bool ``(sum T,)``."""
        return self.column("terminated") if self._spans else np.zeros(0, dtype=bool)

    @property
    def truncated(self) -> np.ndarray:
        """Bool ``(sum T,)``."""
        return self.column("truncated") if self._spans else np.zeros(0, dtype=bool)

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
        if any(part.plans is None for part in self.parts):
            raise ValueError("these rollouts do not come from plans")
        return [plan for part, first, stop in self._spans for plan in (part.plans or ())[first:stop]]

    @property
    def infos(self) -> list[dict[str, Any]]:
        """``rollout_info`` of each rollout."""
        return [part.info(number) for part, number in self._members()]

    def column(self, name: str) -> Any:
        """One field of all rollouts, ``(sum T, ...)``; ``observations`` and ``states`` have one entry more for each.

        Raises:
            KeyError: Not every step of all rollouts has it.
        """

        def compute() -> Any:
            known = self.parts
            if not known:
                raise KeyError(f"there are no rollouts here, so there is no {name!r}")
            if name not in _FLAGS and any(name not in part.fields for part in known):
                raise KeyError(f"not all rollouts have {name!r}; all have {self._names()}")
            return _joined_trees([_column_of(part, name, first, stop) for part, first, stop in self._spans])

        return self._cached(f"column {name}", compute)

    def each(self, name: str, default: Any = _NONE) -> list[Any]:
        """One field of each rollout as views of its column, ``(T, ...)`` (``(T + 1, ...)`` for ``observations``).

        Args:
            name: Name of the field, ``"terminated"`` or ``"truncated"``.
            default: For rollouts that do not have it.

        Raises:
            KeyError: A rollout does not have it, and there is no default.
        """
        values = [value for part, first, stop in self._spans for value in part.values(name, first, stop)]
        if default is _NONE and any(value is _NONE for value in values):
            raise KeyError(f"not all rollouts have {name!r}; all have {self._names()}")
        return values if default is _NONE else [default if value is _NONE else value for value in values]

    def steps_and_final(self, name: str) -> tuple[Any, Any]:
        """``observations`` or ``states`` at each step ``(sum T, ...)``, and after the last one of each ``(N, ...)``."""
        is_final = np.zeros(int(self.bounds[-1]) + len(self), dtype=bool)
        is_final[self.bounds[1:] + np.arange(len(self))] = True
        column = self.column(name)
        return _cut(column, ~is_final), _cut(column, is_final)

    def require_final_observations(self) -> None:
        """``ShapeError`` unless every rollout holds the observation after its last step."""
        if not self.has_column("observations"):
            raise ShapeError("a rollout must hold the observation after its last step: one more than it has rewards")

    def has_column(self, name: str) -> bool:
        """Whether ``column(name)`` holds a field in full: no rollout lacks it, or has a separate part of it."""
        return not self._has_own(name) and all(name in part.fields for part in self.parts)

    def whole_column(self, name: str) -> Any | None:
        """``column(name)`` if it is all there is of a field, ``{}`` if no rollout has the field, else ``None``."""
        if self._has_own(name):
            return None
        have = [name in part.fields for part in self.parts]
        return {} if not any(have) else self.column(name) if all(have) else None

    def _names(self) -> list[str]:
        """Fields and flags that all rollouts have."""
        return sorted({*set.intersection(*(set(part.fields) for part in self.parts)), *_FLAGS})

    def _has_own(self, name: str) -> bool:
        return any(name in own for part, first, stop in self._spans if part.own for own in part.own[first:stop])

    def _cached(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._columns:
            self._columns[name] = compute()
        return self._columns[name]


_Span = tuple[RolloutColumns, int, int]
"""Rollouts of a part that follow one another: the first one, and the one after the last."""


def _cut_spans(spans: list[_Span], first: int, stop: int) -> list[_Span]:
    """The spans of the rollouts from ``first`` to before ``stop``; cheap, since populations need hundreds."""
    cut, begin = [], 0
    for part, a, b in spans:
        low, high = max(first - begin, 0), min(stop - begin, b - a)
        if low < high:
            cut.append((part, a + low, a + high))
        begin += b - a
    return cut


def _chosen_spans(spans: list[_Span], starts: np.ndarray, chosen: np.ndarray) -> list[_Span]:
    """The spans of the rollouts ``chosen (n,)``, in this order."""
    span = np.searchsorted(starts, chosen, side="right") - 1
    firsts = np.array([first for _, first, _ in spans], dtype=np.int64)
    inside = chosen - starts[span] + firsts[span] if len(chosen) else chosen
    breaks = np.flatnonzero((np.diff(span) != 0) | (np.diff(inside) != 1)) + 1
    edges = [0, *breaks.tolist(), len(chosen)] if len(chosen) else []
    span, inside = span.tolist(), inside.tolist()
    return [(spans[span[a]][0], inside[a], inside[b - 1] + 1) for a, b in itertools.pairwise(edges)]


def _columns_of(rollout: StepSequence) -> RolloutColumns:
    """The columns of a single rollout."""
    count = len(rollout)
    fields: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name in rollout.data_names:
        values = rollout.get_data_values(name, truncate_last=name == "actions")
        tree = map_leaves(lambda leaf, path: to_format(leaf, "numpy"), values)
        lengths = {len(leaf) for _, leaf in iterate_leaves(tree)} or {count}
        (fields if lengths == {count + (name in WITH_FINAL)} else own)[name] = tree
    fields["rewards"] = fields["rewards"].reshape(count)
    info = rollout.rollout_info if isinstance(rollout.rollout_info, Mapping) else {}
    return RolloutColumns(
        fields,
        rollout.terminated,
        rollout.truncated,
        np.array([0, count]),
        np.array([rollout.done[-1]]),
        [info],
        [own] if own else None,
    )


def _gathered(parts: Sequence[RolloutColumns], numbers: np.ndarray) -> RolloutColumns:
    """Columns of the rollouts ``numbers`` of several parts, in that order."""
    whole = Rollouts(parts)
    shared = set.intersection(*(set(part.fields) for part in parts))
    lengths = whole.lengths[numbers]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    steps = np.repeat(whole.bounds[:-1][numbers] - bounds[:-1], lengths) + np.arange(bounds[-1])
    begins = whole.bounds[:-1] + np.arange(len(whole))  # for fields with one more entry per rollout
    offset = begins[numbers] - bounds[:-1] - np.arange(len(numbers))
    finals = np.repeat(offset, lengths + 1) + np.arange(bounds[-1] + len(numbers))
    fields = {name: _cut(whole.column(name), finals if name in WITH_FINAL else steps) for name in shared}
    infos, common = _infos_of(parts)
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
        common,
        np.concatenate([np.zeros(len(p), dtype=np.int64) if p.firsts is None else p.firsts for p in parts])[numbers],
    )


def _infos_of(parts: Sequence[RolloutColumns]) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    """``infos`` of all rollouts, and their common entries; rollouts get the entries in which their parts differ."""
    entries = [{name: id(value) for name, value in part.common.items()} for part in parts]
    if all(entry == entries[0] for entry in entries):
        return [info for part in parts for info in part.infos], dict(parts[0].common)
    return [{**info, **part.common} for part in parts for info in part.infos], {}


def plan_summary(plan: RolloutPlan) -> dict[str, Any]:
    """Notes of a rollout about its plan (plain data)."""
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


def _merged(value: Any, own: Any) -> Any:
    """A field of a rollout of which it has ``own`` as well."""
    return {**value, **own} if isinstance(value, dict) and isinstance(own, dict) else own


def _cut(value: Any, rows: slice | np.ndarray) -> Any:
    if value.__class__ is np.ndarray:
        return value[rows]
    return map_leaves(lambda leaf, path: leaf[rows], value)


def _column_of(part: RolloutColumns, name: str, first: int, stop: int) -> Any:
    whole = part.column(name)
    return whole if stop - first == len(part) else _cut(whole, part.rows(name, first, stop))


def _joined_trees(trees: list[Any]) -> Any:
    if len(trees) == 1:
        return trees[0]
    if trees[0].__class__ is np.ndarray:
        return np.concatenate(trees)
    leaves = [dict(iterate_leaves(tree)) for tree in trees]
    return map_leaves(lambda _, path: np.concatenate([by_path[path] for by_path in leaves]), trees[0])


def _joined(arrays: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, dtype), *arrays])
