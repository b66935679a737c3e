"""Ranges of domain parameters as they are typed: ``NAME=LOW:HIGH``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaroll.envs.lookup.source import make_env
from metaroll.tasks.domain_access import check_domain_params, set_domain_params
from metaroll.tasks.domain_randomizer import DomainRandomizer, as_randomizer

__all__ = ["parse_ranges", "ranges_randomizer"]


def parse_ranges(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Name -> (low, high) of each text."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, span = text.rpartition("=")  # names may have colons: body_mass:torso
        problem = ValueError(
            f"randomize_param must be NAME=LOW:HIGH with numbers LOW < HIGH, as length=0.3:0.7, got {text!r}"
        )
        try:
            low, high = map(float, span.split(":"))
        except ValueError:
            raise problem from None
        if not name or not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise problem
        if name in ranges:
            raise ValueError(f"randomize_param names {name!r} twice")
        ranges[name] = low, high
    return ranges


def ranges_randomizer(env: str, texts: Sequence[str], generator: int) -> DomainRandomizer:
    """Domain parameters that are uniform on the ranges of ``texts``, which ``env`` has been tried at both ends of.

    Raises:
        DataError: ``env`` has no such parameter; the message lists the nearest ones.
        ValueError: A text makes no sense, or ``env`` refuses an end of a range.
    """
    ranges = parse_ranges(texts)
    made = make_env(env)
    try:
        check_domain_params(made, ranges)
        for end in (0, 1):
            set_domain_params(made, {name: span[end] for name, span in ranges.items()})
    finally:
        made.close()
    return DomainRandomizer(*as_randomizer(ranges).domain_params, generator=generator)
