"""Wrappers of environments: randomized parameters, delays, noise, normalization, trials."""

from metaroll.exports import lazy_exports

_MODULES = {
    "envs.wrappers.base": ["all_envs", "inner_env", "remove_envs", "typed_env"],
    "envs.wrappers.domain_rand": [
        "DomainRandWrapperBuffer",
        "DomainRandWrapperLive",
        "MetaDomainRandWrapper",
        "outermost_dr_wrapper",
        "remove_all_dr_wrappers",
    ],
    "envs.wrappers.actions": ["ActDelayWrapper", "ActNormWrapper", "DownsamplingWrapper"],
    "envs.wrappers.observations": ["GaussianObsNoiseWrapper", "ObsNormWrapper", "ObsPartialWrapper"],
    "envs.wrappers.own_params": ["InitStateWrapper"],
    "envs.wrappers.transforms": ["DomainParamTransformWrapper"],
    "envs.wrappers.trials": ["TrialUpdate", "TrialWrapper"],
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
