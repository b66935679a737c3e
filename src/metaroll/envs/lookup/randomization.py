"""Randomizers by name: the default ranges of an environment's constants, and narrower ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import metaroll.envs.lookup.registry  # noqa: F401 (it knows the names of all environments)
from metaroll.envs.base.constructors import is_env_instance, make_env
from metaroll.envs.sims.sim_env import SimEnv
from metaroll.envs.wrappers.base import inner_env, typed_env
from metaroll.envs.wrappers.transforms import DomainParamTransformWrapper
from metaroll.errors import DataError
from metaroll.tasks.distributions import DomainParam
from metaroll.tasks.domain_access import read_domain_params
from metaroll.tasks.domain_randomizer import DomainRandomizer, params_from_rules
from metaroll.tasks.updates import env_layers, layer_with

__all__ = [
    "conservative_randomizer",
    "default_randomizer",
    "empty_randomizer",
    "zero_variance_randomizer",
]

Rules = Mapping[str, Sequence[Any] | DomainParam]


def default_randomizer(
    env: Any, rules: Rules | None = None, *, generator: np.random.Generator | int | None = None
) -> DomainRandomizer:
    """Random domain parameters around the nominal ones.

    Args:
        env: An environment, its id or constructor; or the nominal domain parameters themselves, a dict.
        rules: How far which parameter varies, ``{"mass": ("normal", 0.2, 1e-3)}`` (kind, fraction of the nominal value,
            lowest value; see ``RandomizationRange``), or a distribution of its own. ``None`` means the defaults
            of our simulated systems.
        generator: Source of randomness; ``None`` means fresh entropy.
    """
    if isinstance(env, Mapping):
        if rules is None:
            raise ValueError("rules must be given with nominal domain parameters, e.g. {'mass': ('normal', 0.2)}")
        return DomainRandomizer(*params_from_rules(env, rules), generator=generator)
    instance = env if is_env_instance(env) else make_env(env)
    try:
        used_rules = _rules_of(instance) if rules is None else rules
        return DomainRandomizer(*params_from_rules(_nominal(instance, used_rules), used_rules), generator=generator)
    finally:
        if instance is not env:
            instance.close()


def conservative_randomizer(
    env: Any, rules: Rules | None = None, *, generator: np.random.Generator | int | None = None
) -> DomainRandomizer:
    """``default_randomizer`` with half of the spread."""
    return default_randomizer(env, rules, generator=generator).narrowed(0.5)


def zero_variance_randomizer(
    env: Any, rules: Rules | None = None, *, generator: np.random.Generator | int | None = None
) -> DomainRandomizer:
    """``default_randomizer`` with a ten-thousandth of the spread: practically the nominal values."""
    return default_randomizer(env, rules, generator=generator).narrowed(1e-4)


def empty_randomizer() -> DomainRandomizer:
    """A randomizer that leaves everything unchanged, to be filled with ``add_domain_params``."""
    return DomainRandomizer()


def _rules_of(env: Any) -> Rules:
    sim = typed_env(env, SimEnv)
    rules = {} if sim is None else sim.model.default_ranges
    if not rules:
        raise ValueError(
            f"there are no default ranges for {type(inner_env(env)).__name__}; give, e.g., "
            "rules={'mass': ('normal', 0.2, 1e-3)} (kind, fraction of the nominal value, lowest value)"
        )
    for wrapper in _transforms(env):
        for name in wrapper.scales:
            if name in rules:
                raise ValueError(
                    f"the default ranges are those of {name!r} itself, which is set as its {wrapper.scales[name]} "
                    "here; randomize the environment inside of DomainParamTransformWrapper, or give rules"
                )
    return rules


def _transforms(env: Any) -> list[DomainParamTransformWrapper]:
    """From the innermost to the outermost."""
    return [layer for layer in env_layers(env) if isinstance(layer, DomainParamTransformWrapper)][::-1]


def _nominal(env: Any, rules: Rules) -> dict[str, float]:
    owner = layer_with(env, "get_nominal_domain_param")
    nominal = {} if owner is None else dict(owner.get_nominal_domain_param())
    for wrapper in _transforms(env):
        nominal = wrapper.forward(nominal)
    missing = [name for name in rules if name not in nominal]
    present = read_domain_params(env, missing)
    for name in missing:
        if name not in present:
            raise DataError(f"the nominal entries of {name!r} differ; vary single ones, or all by a factor: '{name}:*'")
    return {**nominal, **present}
