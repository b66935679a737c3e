"""How much of a ranking is noise, by candidates that are evaluated twice (Hansen et al. 2009, IEEE TEC 13(1))."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

__all__ = ["ACCEPTED_CHANGE", "rank_noise"]

ACCEPTED_CHANGE = 0.2
"""theta: share of possible rank changes that is taken as no noise."""


def rank_noise(fitness: np.ndarray, again: np.ndarray, theta: float = ACCEPTED_CHANGE) -> float:
    """The noise measure s: positive where ranks change more between two evaluations than is accepted, else negative.

    For the two values of a candidate, their ranks among all ``2 K`` and ``Delta`` the number of values between them,
    ``s = mean(2 |Delta| - limit(rank of one) - limit(rank of the other))``, where ``limit(R)`` is the median of
    ``theta |1 - R|, ..., theta |2 K - 1 - R|`` (section III; each
    rank is that without the other value).

    Args:
        fitness: First values of all candidates ``(K,)``.
        again: Second values of the first M of them ``(M,)``, M at least 1; those of the others are taken as equal.
        theta: See ``ACCEPTED_CHANGE``.
    """
    count, twice = len(fitness), len(again)
    first, second = fitness, np.concatenate([again, fitness[twice:]])
    ranks = rankdata(np.nan_to_num(np.concatenate([first, second]), nan=-np.inf), method="ordinal").astype(float)
    old, new = ranks[:twice], ranks[count : count + twice]
    between = np.abs(new - old) - 1.0
    places = np.arange(1, 2 * count)
    limits = [
        theta * np.median(np.abs(places[None, :] - rank[:, None]), axis=1)
        for rank in (new - (new > old), old - (old > new))
    ]
    return float(np.mean(2.0 * between - limits[0] - limits[1]))
