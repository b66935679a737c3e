"""The public names of metaroll.wrappers, and where they are defined; written by tools/stubs.py."""

from metaroll.envs.wrappers.actions import ActDelayWrapper, ActNormWrapper, DownsamplingWrapper
from metaroll.envs.wrappers.base import all_envs, inner_env, remove_envs, typed_env
from metaroll.envs.wrappers.domain_rand import (
    DomainRandWrapperBuffer,
    DomainRandWrapperLive,
    MetaDomainRandWrapper,
    outermost_dr_wrapper,
    remove_all_dr_wrappers,
)
from metaroll.envs.wrappers.observations import GaussianObsNoiseWrapper, ObsNormWrapper, ObsPartialWrapper
from metaroll.envs.wrappers.own_params import InitStateWrapper
from metaroll.envs.wrappers.transforms import DomainParamTransformWrapper
from metaroll.envs.wrappers.trials import TrialUpdate, TrialWrapper

__all__ = [
    "ActDelayWrapper",
    "ActNormWrapper",
    "DomainParamTransformWrapper",
    "DomainRandWrapperBuffer",
    "DomainRandWrapperLive",
    "DownsamplingWrapper",
    "GaussianObsNoiseWrapper",
    "InitStateWrapper",
    "MetaDomainRandWrapper",
    "ObsNormWrapper",
    "ObsPartialWrapper",
    "TrialUpdate",
    "TrialWrapper",
    "all_envs",
    "inner_env",
    "outermost_dr_wrapper",
    "remove_all_dr_wrappers",
    "remove_envs",
    "typed_env",
]
