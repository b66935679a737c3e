"""Statistics of evaluations: interquartile means, intervals, risk."""

from metaroll.exports import lazy_exports

_MODULES = {
    "functional.cvar": ["conditional_value_at_risk"],
    "functional.robust_statistics": [
        "interquartile_mean",
        "interval_of_improvement",
        "interval_of_iqm",
        "probability_of_improvement",
        "wilson_interval",
    ],
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
