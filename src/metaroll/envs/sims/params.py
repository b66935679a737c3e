"""Domain parameters of simulated systems: nominal value, allowed range, and variation."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from metaroll.tasks.distributions import DomainParam
from metaroll.tasks.domain_randomizer import RandomizationRange

__all__ = ["EFFICIENCY", "NON_NEGATIVE", "POSITIVE", "Param", "normal", "uniform", "within"]

POSITIVE = (0.0, math.inf)
"""Range of masses, lengths, inertias."""
NON_NEGATIVE = (-math.ulp(0.0), math.inf)
"""Range of friction and damping, which may be 0."""
EFFICIENCY = (0.0, 1.0)
"""Range of shares of power that arrive."""

normal = functools.partial(RandomizationRange, "normal")
"""Normal around the nominal value: standard deviation as a fraction of it, lowest value."""
uniform = functools.partial(RandomizationRange, "uniform")
"""Uniform around the nominal value: half span as a fraction of it, lowest and highest value."""
within = functools.partial(RandomizationRange, "uniform", absolute=True)
"""Uniform around the nominal value, with this half span."""


class Param(NamedTuple):
    """A domain parameter.

    Attributes:
        nominal: Its value in the undisturbed system.
        allowed: Interval (low, high) that it must lie in, low excluded where it is 0.
        varies: How it varies by default, around the nominal value or by a distribution; ``None``: not at all.
    """

    nominal: float
    allowed: tuple[float, float] = (-math.inf, math.inf)
    varies: RandomizationRange | DomainParam | None = None
