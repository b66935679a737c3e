"""Searches without gradients, with ``ask`` and ``tell``; those of ``metaroll.contrib`` work alike."""

from metaroll.exports import lazy_exports

_MODULES = {
    "functional.search.averaging": ["AveragedMean"],
    "functional.search.cma": ["CMA"],
    "functional.search.finite_differences": ["ARS"],
    "functional.search.multi_start": ["MultiStart", "Starts"],
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
