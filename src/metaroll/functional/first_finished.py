"""The success rate of Meta-World's own evaluation, which is biased: the first episodes that finish are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.errors import ShapeError
from metaroll.functional.arrays import to_flags, to_numpy

__all__ = ["first_finished_rates"]


def first_finished_rates(names: Sequence[str], lengths: Any, success: Any, num_episodes: int = 3) -> dict[str, float]:
    """Share of successes among the first ``num_episodes`` episodes to finish of each name: for old comparisons only.

    So counts ``metaworld.evaluation.evaluation`` (and garage before it): all instances of all tasks step together, each
    begins its next episode when one ends, and episodes end at success. Where several instances share a name, short
    episodes finish first, and these are the successes: the rate is too high. Planned episodes have no such bias.

    Args:
        names: Name of each of I instances.
        lengths: Steps of the episodes of each instance, in order, shape ``(I, E)``; up to the first success where there
            is one.
        success: Which of them had success, shape ``(I, E)``.
        num_episodes: Episodes that count per name (3 is what metaworld-algorithms uses).

    Returns:
        Rate per name. Episodes that finish in the same step count in the order of the instances.

    Raises:
        ShapeError: Lengths and successes do not fit the names.
        TypeError: ``success`` holds neither booleans nor numbers.
        ValueError: ``success`` holds numbers other than 0 and 1; or E is so small that another episode might have been
            among the first.
    """
    steps, flags = to_numpy("lengths", lengths), to_flags("success", success)
    check_whole("num_episodes", num_episodes)
    if steps.ndim != 2 or not steps.size or steps.shape != flags.shape or len(names) != len(steps):
        raise ShapeError(
            f"lengths and success must have shape (I, E) for I={len(names)} names, got {steps.shape}, {flags.shape}"
        )
    if (steps < 1).any():
        raise ValueError(f"lengths must be at least 1, got {steps.min()}")
    finished = np.cumsum(steps, axis=1)
    rates: dict[str, float] = {}
    for name in dict.fromkeys(names):
        members = [i for i, other in enumerate(names) if other == name]
        times = finished[members].ravel()
        first = np.argsort(times, kind="stable")[:num_episodes]
        # Episodes that were not run would finish later than the last one of their instance.
        if len(first) < num_episodes or times[first[-1]] > finished[members, -1].min():
            raise ValueError(
                f"the first {num_episodes} episodes of {name!r} to finish are not certain with {steps.shape[1]} "
                f"episodes per instance: run at least {num_episodes}"
            )
        rates[name] = float(flags[members].ravel()[first].mean())
    return rates
