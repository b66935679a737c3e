"""Options that all samplers share: seed, and workers of their own or a pool that is given."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from gymnasium.spaces.utils import flatdim

from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import ShapeError
from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
from metaroll.seeding import get_base_seed
from metaroll.types import EnvSpec

__all__ = ["LAST_SEED", "SeedOption", "check_env_fits", "chosen_seed", "make_pool", "positive_int"]


class _Default(enum.Enum):
    LAST_SEED = enum.auto()

    def __repr__(self) -> str:
        return "<the seed of metaroll.set_seed>"


LAST_SEED = _Default.LAST_SEED
"""Stands for the seed that ``metaroll.set_seed`` was given last, at the time when it is asked for."""

SeedOption = int | _Default | None


def chosen_seed(seed: SeedOption) -> int | None:
    """``seed``, or the one that it stands for; ``None`` means fresh entropy."""
    if isinstance(seed, _Default):
        return get_base_seed()
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an integer or None, got {seed!r} of type {type(seed).__name__}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    return int(seed)


def make_pool(
    num_workers: Any, transport: str, timeouts: PoolTimeouts | None, address: str | None = None
) -> SamplerPool:
    """A pool of ``num_workers`` workers."""
    number = positive_int("num_workers", num_workers)
    return SamplerPool(number, transport=transport, address=address, timeouts=timeouts)


def positive_int(name: str, value: Any) -> int:
    """``value``, if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer of at least 1, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def check_env_fits(env: Any, known: EnvSpec, *, keeps_policy: bool) -> None:
    """Error if ``env`` makes no environment, or one that a policy for ``known`` cannot act in."""
    spec = EnvSource.of(env).spec
    for name in ("observation_space", "action_space") if keeps_policy else ():
        new, old = getattr(spec, name), getattr(known, name)
        # Bounds may follow from domain parameters.
        if type(new) is not type(old) or new.shape != old.shape or flatdim(new) != flatdim(old):
            raise ShapeError(
                f"env must have an {name} like the present one, {old}, for which the policy is, got {new}; give a "
                "policy as well: reinit(env=env, policy=policy)"
            )
