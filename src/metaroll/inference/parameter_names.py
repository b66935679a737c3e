"""Optional members of simulators: the names of their columns, in any order, and a count of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from metaroll.checks import described

__all__ = ["CountsCalls", "NamesParameters", "column_order", "named", "skip_call"]


@runtime_checkable
class CountsCalls(Protocol):
    """A simulator whose random numbers depend on how often it was called."""

    def skip_call(self) -> None:
        """Count a call whose simulations were read from disk instead."""
        ...


@runtime_checkable
class NamesParameters(Protocol):
    """A simulator that names the parameter of each column."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the parameters in the environment, in the order of the columns."""
        ...

    def __call__(self, thetas: np.ndarray, /) -> Any:
        """From rows of parameters to rows of features."""
        ...


def column_order(names: Sequence[str], theirs: Any, what: str) -> list[int]:
    """Positions in ``names`` of the parameters ``theirs``, in their order.

    If the columns of ``thetas`` are in the order of ``names``, those of ``thetas[:, column_order(names, theirs,
    what)]`` are in the order of ``theirs``.

    Args:
        names: Parameters of a prior.
        theirs: Parameters of a simulator, or of a table.
        what: Their owner, for errors.

    Raises:
        TypeError: ``theirs`` is not a list of names.
        ValueError: The parameters are not the same.
    """
    is_list = isinstance(theirs, Sequence) and not isinstance(theirs, str)
    if not is_list or not all(isinstance(name, str) for name in theirs):
        raise TypeError(f"names of {what} must be a list of names of parameters, got {described(theirs)}")
    lacking = [name for name in names if name not in theirs]
    unknown = [name for name in theirs if name not in names]
    if lacking or unknown or len(theirs) != len(names):
        parts = [f"it lacks {', '.join(lacking)}"] if lacking else []
        parts += [f"the prior lacks {', '.join(unknown)}"] if unknown else []
        parts = parts or ["one is named twice"]
        raise ValueError(
            f"{what} must be of the parameters of the prior, {list(names)}, in any order, got {list(theirs)}: "
            + " and ".join(parts)
        )
    return [names.index(name) for name in theirs]


def named(simulate: Any, names: Sequence[str], what: str = "simulate") -> Callable[[np.ndarray], Any]:
    """``simulate`` for rows of parameters in the order of ``names``, whatever its own order.

    A simulator names its parameters in an attribute ``names``, like ``SimRolloutSamplerForSBI``; one without is taken
    to have the columns of the prior.

    Args:
        simulate: ``thetas (B, d) -> features (B, F)``.
        names: Parameters of the prior.
        what: Its name in errors.

    Raises:
        TypeError: ``simulate`` is not a function.
        ValueError: It has other parameters.
    """
    if not callable(simulate):
        raise TypeError(f"{what} must be a function (B, d) -> (B, F), got {described(simulate)}")
    if not isinstance(simulate, NamesParameters):
        return simulate
    order = column_order(names, simulate.names, what)
    if order == list(range(len(names))):
        return simulate

    return _InItsOrder(simulate, order)


class _InItsOrder:
    """A simulator that is given its parameters in its own order."""

    def __init__(self, simulate: Any, order: list[int]) -> None:
        self._simulate, self._order = simulate, order

    def __call__(self, thetas: np.ndarray) -> Any:
        return self._simulate(thetas[:, self._order])

    def skip_call(self) -> None:
        skip_call(self._simulate)


def skip_call(simulate: Any) -> None:
    """Let a simulator that counts its calls count one that was skipped."""
    if isinstance(simulate, CountsCalls):
        simulate.skip_call()
