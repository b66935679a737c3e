"""Names of seed document 001: ``metarl.np.algos``.

A name that is not built yet raises an AttributeError; ``docs/coverage.md`` lists the state of each.
"""

from __future__ import annotations

from metaroll.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    built={
        "learners.base": ["MetaRLAlgorithm", "NOP", "RLAlgorithm"],
        "compat.constructors": ["CEM", "CMAES", "OffPolicyRLAlgorithm"],
    },
)
