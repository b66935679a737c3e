"""Options that all samplers share: seed, and workers of their own or a pool that is given."""

from __future__ import annotations

import enum
from typing import Any

from metaroll.checks import check_whole
from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
from metaroll.seeding import get_base_seed

__all__ = ["LAST_SEED", "SeedOption", "chosen_seed", "make_pool"]


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
    return None if seed is None else check_whole("seed", seed, low=0)


def make_pool(
    num_workers: Any, transport: str, timeouts: PoolTimeouts | None, address: str | None = None
) -> SamplerPool:
    """A pool of ``num_workers`` workers."""
    number = check_whole("num_workers", num_workers)
    return SamplerPool(number, transport=transport, address=address, timeouts=timeouts)
