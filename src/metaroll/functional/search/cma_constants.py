"""Weights and learning rates of CMA-ES, from the number of parameters and of candidates.

Equations are those of Hansen 2016, "The CMA Evolution Strategy: A Tutorial" (arXiv:1604.00772, version of 2023).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

__all__ = ["CMAConstants", "cma_constants"]


@dataclass(frozen=True, kw_only=True)
class CMAConstants:
    """The constants of a CMA-ES run.

    Attributes:
        num_parents: Number of candidates with a positive weight, mu.
        weights: Weights of the candidates, the best first ``(K,)``; those of the parents sum to 1, the others are
            negative, or 0 without the active update.
        mueff: Variance effective selection mass of the parents.
        cc, c1, cmu: Learning rates of the path, the rank-one and the rank-mu update of the covariance.
        cs, damps: Learning rate of the path of the step size, and its damping.
        chi: Expected length of a vector of P standard normal numbers.
        eigen_gap: Generations between two eigendecompositions.
    """

    num_parents: int
    weights: np.ndarray
    mueff: float
    cc: float
    c1: float
    cmu: float
    cs: float
    damps: float
    chi: float
    eigen_gap: float


@functools.lru_cache(maxsize=64)
def cma_constants(num_params: int, population: int, separable: bool, active: bool) -> CMAConstants:
    """The constants of table 1 of the tutorial.

    Args:
        num_params: Number of parameters P.
        population: Number of candidates K, at least 2.
        separable: Only the diagonal of the covariance is learned, faster by ``(P + 2) / 3`` (Ros and Hansen 2008,
            section 3).
        active: The worse half of the candidates reduces the variance in their directions (negative weights).
    """
    n, half = num_params, population // 2
    raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))  # eq. (49)
    mueff, negative_mueff = (part.sum() ** 2 / np.square(part).sum() for part in (raw[:half], raw[half:]))
    cc = (4 + mueff / n) / (n + 4 + 2 * mueff / n)  # eq. (56)
    faster = (n + 2) / 3 if separable else 1.0
    c1 = min(1.0, faster * min(1.0, population / 6) * 2 / ((n + 1.3) ** 2 + mueff))  # eq. (57)
    cmu = faster * 2 * (1 / 4 + mueff + 1 / mueff - 2) / ((n + 2) ** 2 + mueff)  # eq. (58) with alpha_cov = 2
    cmu = min(1 - c1, cmu)
    cs = (mueff + 2) / (n + mueff + 5)  # eq. (55)
    damps = 1 + 2 * max(0.0, math.sqrt((mueff - 1) / (n + 1)) - 1) + cs  # eq. (55)
    weights = np.where(raw > 0, raw, 0.0) / raw[:half].sum()  # eq. (53)
    if active and cmu > 0:
        limits = (1 + c1 / cmu, 1 + 2 * negative_mueff / (mueff + 2), (1 - c1 - cmu) / (n * cmu))  # eqs. (50) to (52)
        negative = raw < 0
        weights[negative] = min(limits) * raw[negative] / np.abs(raw[negative]).sum()  # eq. (53)
    weights.flags.writeable = False
    return CMAConstants(
        num_parents=half,
        weights=weights,
        mueff=float(mueff),
        cc=cc,
        c1=c1,
        cmu=float(cmu),
        cs=cs,
        damps=damps,
        chi=math.sqrt(2) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)),  # below eq. (44)
        # Five times the tutorial's gap (B.2): in between, the covariance changes by 1 / (2 P) or less.
        eigen_gap=0.5 / (n * (c1 + cmu)),
    )
