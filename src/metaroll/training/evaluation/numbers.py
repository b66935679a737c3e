"""Format of returns and their intervals: three significant digits, wherever numbers are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["short_number", "with_interval"]

_SIGNIFICANT = 3
_ROUNDING = 1e-7


def short_number(value: float, digits: int = 1, sign: str = "") -> str:
    """``value`` with ``digits`` decimals, or as many more as show three significant digits: ``-165.3``, ``0.0123``."""
    return _fixed(value, _decimals([value], digits), sign)


def with_interval(value: float, bounds: Sequence[float | None], digits: int = 1, sign: str = "") -> str:
    """``12.3 [11.0, 13.5]``, which consoles take for no markup; without the bounds if there are none.

    All three have the same decimals: those with which the largest has three significant digits, or ``digits``.
    """
    known = [bound for bound in bounds if bound is not None and math.isfinite(bound)]
    if len(known) != 2:
        return short_number(value, digits, sign)
    decimals = _decimals([value, *known], digits)
    return _fixed(value, decimals, sign) + f" [{_fixed(known[0], decimals)}, {_fixed(known[1], decimals)}]"


def _decimals(values: Sequence[float], least: int) -> int:
    largest = max(map(abs, values))
    if not _ROUNDING < largest < math.inf:
        return least
    return max(least, _SIGNIFICANT - 1 - math.floor(math.log10(largest)))


def _fixed(value: float, decimals: int, sign: str = "") -> str:
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"  # adding 0 makes -0.0 of rounding 0.0
