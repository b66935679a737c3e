"""The public names of metaroll.search, and where they are defined; written by tools/stubs.py."""

from metaroll.functional.search.averaging import AveragedMean
from metaroll.functional.search.cma import CMA
from metaroll.functional.search.finite_differences import ARS
from metaroll.functional.search.multi_start import MultiStart, Starts

__all__ = [
    "ARS",
    "CMA",
    "AveragedMean",
    "MultiStart",
    "Starts",
]
