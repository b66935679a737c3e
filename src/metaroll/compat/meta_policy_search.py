"""Names of seed document 000: ``meta_policy_search.samplers`` (ProMP), and the baselines that belong to them.

A name that is not built yet raises an AttributeError; ``docs/coverage.md`` lists the state of each.
"""

from __future__ import annotations

from metaroll.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    built={
        "processing.baselines": ["LinearFeatureBaseline", "LinearTimeBaseline", "ZeroBaseline"],
        "processing.sample_processor": [
            "DiceMetaSampleProcessor",
            "DiceSampleProcessor",
            "MetaSampleProcessor",
            "SampleProcessor",
        ],
        "rollouts.samplers.executors": ["MetaIterativeEnvExecutor", "MetaParallelEnvExecutor"],
        "rollouts.samplers.meta_sampler": ["MetaSampler", "Sampler"],
    },
)
