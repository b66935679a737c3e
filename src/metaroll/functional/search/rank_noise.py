"""Noise of a ranking, measured with candidates that are evaluated twice (Hansen et al. 2009, IEEE TEC 13(1))."""

from __future__ import annotations

import numpy as np

__all__ = ["ACCEPTED_CHANGE", "rank_noise"]

ACCEPTED_CHANGE = 0.2
"""theta: share of possible rank changes that does not count as noise."""


def rank_noise(fitness: np.ndarray, again: np.ndarray, theta: float = ACCEPTED_CHANGE) -> float:
    """The noise measure s: positive if ranks change more between two evaluations than accepted, else negative.

    For the two values of a candidate with ranks R1, R2 among all ``2 K`` values and ``Delta`` values between them,
    ``s = mean(2 |Delta| - limit(R1) - limit(R2))``, where ``limit(R)`` is the median of
    ``theta |1 - R|, ..., theta |2 K - 1 - R|`` (section III; each rank excludes the other value).

    Args:
        fitness: First values of all candidates ``(K,)``.
        again: Second values of the first M of them ``(M,)``, M at least 1; the others are assumed unchanged.
        theta: See ``ACCEPTED_CHANGE``.
    """
    from scipy.stats import rankdata  # here: it loads slowly, and searches without this noise do not need it

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
