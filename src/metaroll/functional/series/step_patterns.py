"""Step patterns of dynamic time warping: the moves that a warping path may make, and their costs.

A path goes through pairs ``(i, j)`` of steps of two series. A pattern is a recursion for the minimum cost of a path
that ends in ``(i, j)``: the minimum over its moves of the cost where the move starts, plus weighted distances of the
pairs that it passes. Most patterns follow from two choices (Rabiner and Juang 1993, *Fundamentals of speech
recognition*, section 4.7.2 and table 4.5): the paths that a move may take, and the weight of each step ``(di, dj)`` of
such a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, Literal, NamedTuple, cast, final

import numpy as np

from metaroll.errors import unknown_name

__all__ = ["Move", "StepPattern", "rabiner_juang", "step_pattern_of"]

Norm = Literal["N+M", "N", "M", "none"]
"""Divisor of the cost of a path that makes paths of different lengths comparable: the number of steps of both series
(``N+M``), of the first (``N``), or of the second (``M``); ``none`` if no division makes them comparable."""


class Move(NamedTuple):
    """A move of a warping path from ``(i - rows, j - columns)`` to ``(i, j)``.

    Attributes:
        rows: Steps in the first series.
        columns: Steps in the second series.
        terms: ``(a, b, weight)``: the move costs the sum of ``weight`` times the distance of ``(i - a, j - b)``.
    """

    rows: int
    columns: int
    terms: tuple[tuple[int, int, float], ...]


@final
@dataclass(frozen=True)
class StepPattern:
    """A recursion ``g(i, j) = min over moves of (g(start of the move) + its cost)``.

    Attributes:
        name: Name in messages.
        moves: The moves that a path may make.
        norm: Normalization of costs, for paths that end in different steps of the second series.
    """

    name: str
    moves: tuple[Move, ...]
    norm: Norm


_PATHS: dict[int, tuple[tuple[tuple[int, int], ...], ...]] = {
    1: (((1, 0),), ((1, 1),), ((0, 1),)),
    2: (((1, 1), (1, 0)), ((1, 1),), ((1, 1), (0, 1))),
    3: (((2, 1),), ((1, 1),), ((1, 2),)),
    4: (((1, 1), (1, 0)), ((1, 2), (1, 0)), ((1, 1),), ((1, 2),)),
    5: (
        ((1, 1), (1, 0), (1, 0)),
        ((1, 1), (1, 0)),
        ((1, 1),),
        ((1, 1), (0, 1)),
        ((1, 1), (0, 1), (0, 1)),
    ),
    6: (((1, 1), (1, 1), (1, 0)), ((1, 1),), ((1, 1), (1, 1), (0, 1))),
    7: tuple(((1, j), *[(1, 0)] * more) for more in (2, 1, 0) for j in (1, 2, 3)),
}
"""Rabiner and Juang's types I to VII: the steps ``(di, dj)`` of each move, in order (table 4.5)."""

_ASYMMETRIC = (((1, 0),), ((1, 1),), ((1, 2),))

_WEIGHTINGS: dict[str, tuple[Any, Norm]] = {
    "a": (min, "none"),
    "b": (max, "none"),
    "c": (lambda di, dj: di, "N"),
    "d": (lambda di, dj: di + dj, "N+M"),
}
"""Slope weightings (Rabiner and Juang 1993, section 4.7.2.5): the weight of a step, and the norm that it allows."""


def _by_rule(
    name: str, paths: tuple[tuple[tuple[int, int], ...], ...], weighting: str, smoothed: bool = False
) -> StepPattern:
    weigh, norm = _WEIGHTINGS[weighting]
    moves = []
    for path in paths:
        weights = [float(weigh(*step)) for step in path]
        if smoothed:  # every step of a move weighs the same (figure 4.44)
            weights = [sum(weights) / len(weights)] * len(weights)
        # A step costs the distance of the pair that it reaches; the later steps of the move lead from there to (i, j).
        rows, columns = ([sum(step[axis] for step in path[k:]) for k in range(len(path) + 1)] for axis in (0, 1))
        moves.append(Move(rows[0], columns[0], tuple(zip(rows[1:], columns[1:], weights, strict=True))))
    return StepPattern(name, tuple(moves), norm)


@cache
def rabiner_juang(kind: int, weighting: str = "d", smoothed: bool = False) -> StepPattern:
    """Rabiner and Juang's step pattern of type ``kind`` with slope weighting ``weighting``.

    Args:
        kind: 1 to 7 (their types I to VII).
        weighting: Weight of a step ``(di, dj)``: ``"a"`` is ``min(di, dj)``, ``"b"`` is ``max(di, dj)``, ``"c"`` is
            ``di``, ``"d"`` is ``di + dj``. Only ``"c"`` and ``"d"`` can be normalized, and thus have open ends.
        smoothed: All steps of a move have the same weight.

    Raises:
        ValueError: There is no such type or weighting.
    """
    if kind not in _PATHS or weighting not in _WEIGHTINGS:
        raise ValueError(
            "a Rabiner-Juang step pattern has a type from 1 to 7 and a slope weighting of 'a', 'b', 'c' or 'd', "
            f"got {kind!r} and {weighting!r}"
        )
    name = f"Rabiner-Juang {kind}{weighting}{' smoothed' if smoothed else ''}"
    return _by_rule(name, _PATHS[kind], weighting, smoothed)


_NAMED: dict[str, tuple[int, str, bool]] = {
    "symmetric1": (1, "b", False),  # White and Neely 1976
    "symmetric2": (1, "d", False),
    # Sakoe and Chiba 1978, table I
    **{f"symmetricP{p}": (kind, "d", False) for p, kind in (("0", 1), ("05", 5), ("1", 2), ("2", 6))},
    **{f"asymmetricP{p}": (kind, "c", kind > 1) for p, kind in (("0", 1), ("05", 5), ("1", 2), ("2", 6))},
    # Myers, Rabiner and Rosenberg 1980
    **{f"typeI{w}": (2, w, False) for w in "abcd"},
    **{f"typeI{w}s": (2, w, True) for w in "abcd"},
    **{f"typeII{w}": (3, w, False) for w in "abcd"},
    "typeIIIc": (4, "c", False),
    "typeIVc": (7, "c", False),
}
"""Name -> type, weighting and smoothing; the names are those of the packages ``dtw`` of R and Python."""


@cache
def _named(name: str) -> StepPattern:
    if name == "asymmetric":
        return _by_rule(name, _ASYMMETRIC, "c")
    if name not in _NAMED:
        raise unknown_name("step pattern", name, [*_NAMED, "asymmetric"])
    kind, weighting, smoothed = _NAMED[name]
    return _by_rule(name, _PATHS[kind], weighting, smoothed)


def step_pattern_of(given: Any = None) -> StepPattern:
    """Convert a name or an object to a step pattern.

    Args:
        given: A ``StepPattern``, a name (``"symmetric2"``, ``"symmetric1"``, ``"asymmetric"``, Sakoe and
            Chiba's ``"symmetricP1"``, Myers' ``"typeIc"``, ...), ``None`` for ``"symmetric2"``, or a ``StepPattern`` of
            the package dtw-python: its attributes ``mx`` and ``hint`` are read, and the package is not imported.

    Raises:
        UnknownNameError: No pattern has this name.
        TypeError: ``given`` is none of these.
        ValueError: The rows of the object are not a recursion that can be computed row by row.
    """
    if isinstance(given, StepPattern):
        return given
    if given is None:
        return _named("symmetric2")
    if isinstance(given, str):
        return _named(given)
    try:
        rows, hint = np.asarray(given.mx, dtype=np.float64), given.hint
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(
            "step_pattern must be a name such as 'symmetric2', or a StepPattern (rabiner_juang(6, 'c'), or one of "
            f"dtw-python), got {given!r}"
        ) from error
    return _from_rows(rows, str(hint))


def _from_rows(rows: np.ndarray, hint: str) -> StepPattern:
    """A pattern from rows ``(move, rows back, columns back, weight)``; weight -1 marks the start of a move."""
    if rows.ndim != 2 or rows.shape[1] != 4 or not np.isfinite(rows).all() or np.any(rows[:, :3] % 1):
        raise ValueError(
            "a StepPattern's mx must have rows of four numbers (move, rows back, columns back, weight), the first "
            f"three of them whole, got shape {rows.shape}"
        )
    moves = []
    for _, group in groupby(sorted(rows.tolist(), key=lambda row: row[0]), key=lambda row: row[0]):
        (_, back, left, mark), *terms = group
        inside = all(0 <= a <= back and 0 <= b <= left and weight != -1 for _, a, b, weight in terms)
        if mark != -1 or back < 0 or left < 0 or back + left == 0 or not inside:
            raise ValueError(
                "each move of a StepPattern must begin with its start (weight -1), which lies before (i, j), and pass "
                f"pairs between that and (i, j) only; got mx {rows.tolist()}"
            )
        moves.append(Move(int(back), int(left), tuple((int(a), int(b), weight) for _, a, b, weight in terms)))
    norm = {"NA": "none"}.get(hint, hint)
    if norm not in ("N+M", "N", "M", "none"):
        raise ValueError(f"a StepPattern's hint must be 'N+M', 'N', 'M' or 'NA', got {hint!r}")
    return StepPattern("of its own", tuple(moves), cast("Norm", norm))
