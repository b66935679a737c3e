"""The public names of metaroll.statistics, and where they are defined; written by tools/stubs.py."""

from metaroll.functional.cvar import conditional_value_at_risk
from metaroll.functional.robust_statistics import (
    interquartile_mean,
    interval_of_improvement,
    interval_of_iqm,
    probability_of_improvement,
    wilson_interval,
)

__all__ = [
    "conditional_value_at_risk",
    "interquartile_mean",
    "interval_of_improvement",
    "interval_of_iqm",
    "probability_of_improvement",
    "wilson_interval",
]
