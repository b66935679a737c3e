"""Calibration of posteriors: over simulations with known parameters, and at the observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from metaroll.functional.posteriors.calibration import (
    central_coverage,
    local_two_sample_test,
    local_weights,
    normal_scores,
    sbc_ranks,
    score_p_values,
    tarp_fractions,
    uniformity_distance,
    uniformity_p_value,
)
from metaroll.functional.posteriors.linear_gaussian import linear_gaussian_posterior
from metaroll.functional.series.features import constant_features
from metaroll.inference.feature_map import FeatureMap
from metaroll.inference.posterior import Posterior
from metaroll.inference.regions import Region
from metaroll.inference.simulations import Simulations
from metaroll.inference.verdicts import AT_MOST_WIDE, AT_OBSERVED, CALIBRATION, COVERAGE, Check, Outcome
from metaroll.seeding import derive_seed

__all__ = [
    "FEWEST_PAIRS",
    "Pairs",
    "calibration_checks",
    "check_at_observed",
    "constant_columns",
    "flat_rows",
    "missing",
    "pairs_of",
]

FEWEST_PAIRS = 50
"""Minimum number of usable simulations to judge calibration."""
_LEVEL = 0.9
_SHIFTED = "shifted"
_CONTEXTS, _MOST_CONTEXT = 3, 3.0
_ITEMS = 20
_SHRUNK = 1e-9
_LEAST_VARIANCE = 0.01
"""Lower limit of a predicted variance: a linear fit may be negative."""

_NARROW, _WIDE = 0.87, 0.93
"""Range of coverage of 90 % intervals in which a posterior is usable."""
_LEAST_SPREAD, _MOST_SPREAD = 0.908, 1.086
"""Range of standard deviations of normal scores: with these, nominal 90 % intervals hold 93 % and 87 %."""
_SHIFT, _DISTANCE, _JOINT = 0.25, 0.15, 0.25
"""Largest shift in posterior deviations, Kolmogorov distance, and error of a correlation of a usable posterior."""
_DOUBT, _SURE = 1.645, 2.33
"""One-sided 5 % and 1 % quantiles of a normal: for possible deviations, and for significant ones."""
_LEAST_RATIO, _MOST_APART = 0.7, 1.5
"""Limits for a posterior that is only too wide: its deviation over a linear-Gaussian fit's, and distance of means."""


class Pairs(NamedTuple):
    """Simulations with known parameters, and posterior draws for each, in the standard normal space.

    Attributes:
        truths: The parameters, ``(n, d)``.
        features: Features simulated with them, ``(n, *event_shape)``.
        draws: Posterior draws for each, ``(n, L, d)``.
        num_elsewhere: Number of simulations dropped because their posterior lies outside the region.
    """

    truths: np.ndarray
    features: np.ndarray
    draws: np.ndarray
    num_elsewhere: int = 0

    def with_others(self, others: Pairs) -> Pairs:
        """The simulations of both, concatenated."""
        truths, features, draws = (np.concatenate(both) for both in zip(self[:3], others[:3], strict=True))
        return Pairs(truths, features, draws, self.num_elsewhere + others.num_elsewhere)


def flat_rows(features: np.ndarray) -> np.ndarray:
    """``(n, F)`` of ``(n, *event_shape)``."""
    return features.reshape(len(features), -1)


def constant_columns(rows: np.ndarray) -> np.ndarray:
    """Which features ``(n, F)`` are the same in all simulations, judged in single precision whatever their dtype."""
    return constant_features(torch.as_tensor(rows, dtype=torch.float32)).numpy()


def pairs_of(posterior: Posterior, made: Simulations, num_draws: int, seed: int, region: Region | None) -> Pairs:
    """Posterior draws of each simulation, paired with its parameters.

    If the posterior is of the whole prior but parameters are drawn within a region, draws are truncated to it, too: the
    exact posterior of a parameter known to lie there is itself within the region.
    """
    normals = posterior.prior.to_normal(made.thetas)
    if region is not None:
        place = derive_seed("calibration draws", seed)
        drawn, kept = region.posterior_draws(made.features, num_draws, place)
        return Pairs(normals[kept], made.features[kept], drawn, len(normals) - len(kept))
    drawn = posterior.sample(num_draws, derive_seed("calibration draws", seed), observed=made.features)
    flat = posterior.prior.to_normal(drawn.reshape(-1, posterior.prior.dim))
    return Pairs(normals, made.features, flat.reshape(drawn.shape))


def missing(name: str, posterior: Posterior) -> Check:
    """A skipped check: it needs simulations and an estimator."""
    why = "no simulator was given" if posterior.has_estimator else "the posterior has draws only, no estimator"
    return Check(name, "not checked", why)


def calibration_checks(posterior: Posterior, pairs: Pairs | None, alpha: float) -> list[Check]:
    """Calibration of each parameter (simulation-based calibration), and of all jointly (TARP)."""
    if pairs is None:
        return [missing(name, posterior) for name in (CALIBRATION, COVERAGE)]
    if len(pairs.truths) < FEWEST_PAIRS:
        number = len(pairs.truths) + pairs.num_elsewhere
        words = f"for {pairs.num_elsewhere} of {number} simulations with parameters of the region where this posterior "
        words += "lies, the posterior lies outside of it: too narrow, or shifted"
        left_out = Check(COVERAGE, "not checked", "too few posteriors lie near their true parameters")
        return [Check(CALIBRATION, "failed", words, 0.0, {AT_MOST_WIDE: False}), left_out]
    num_draws, dim = pairs.draws.shape[1:]
    ranks = sbc_ranks(pairs.truths, pairs.draws)
    judged = {name: _judged(ranks[:, i], num_draws) for i, name in enumerate(posterior.names)}
    worst = min(min(each.p_value for each in judged.values()) * dim, 1.0)
    held = ", ".join(f"{name} {100 * each.coverage:.0f} %" for name, each in judged.items())
    words = f"{100 * _LEVEL:.0f} % intervals hold the true parameter in {held} of {len(ranks)} simulations"
    sure = {name: each for name, each in judged.items() if each.p_value * dim < alpha}
    wrong = {name: each.deviations for name, each in sure.items() if each.deviations}
    if wrong:
        words = f"{_grouped(wrong, {name: each.shift for name, each in judged.items()})}: {words}"
    elif sure:
        most = max(each.distance for each in sure.values())
        words = f"slightly off in {', '.join(sure)}, at some level by {100 * most:.1f} %: {words}"
    values = {
        "p_values": {name: each.p_value for name, each in judged.items()},
        "coverage": {name: each.coverage for name, each in judged.items()},
        "shift": {name: each.shift for name, each in judged.items()},
        "spread": {name: each.spread for name, each in judged.items()},
        "deviations": {name: list(each) for name, each in wrong.items()},
        AT_MOST_WIDE: not any(each.doubtful for each in judged.values())
        and all(judged[name].careful for name in wrong),
    }
    sbc = Check(CALIBRATION, "failed" if wrong else "small" if sure else "passed", words, worst, values)
    return [sbc, _joint_coverage(pairs, alpha)]


class _Judged(NamedTuple):
    """Deviations of the posteriors of one parameter from calibrated ones.

    Attributes:
        p_value: p-value of the null hypothesis that they are calibrated.
        coverage: Share of truths within intervals of nominal level ``_LEVEL``.
        centered: Coverage after removing the shift.
        shift: Mean normal score of the truths, in posterior deviations.
        spread: Standard deviation of the truths' normal scores, in posterior deviations.
        distance: Kolmogorov distance of the truths' quantiles from uniform ones.
        number: Number of truths.
    """

    p_value: float
    coverage: float
    centered: float
    shift: float
    spread: float
    distance: float
    number: int

    @property
    def deviations(self) -> tuple[str, ...]:
        """Deviations that matter, in words."""
        shifted = abs(self.shift) >= _SHIFT
        held = self.centered if shifted else self.coverage
        # Intervals that often miss the truth are reported as shifted, not as too wide.
        wide = held > _WIDE and self.coverage >= _NARROW
        deviations = ["too narrow"] if held < _NARROW else ["too wide"] if wide else []
        deviations += [_SHIFTED] if shifted else []
        return tuple(deviations) or (("of a different shape",) if self.distance >= _DISTANCE else ())

    @property
    def careful(self) -> bool:
        """Whether they are conservative (at most too wide): intervals hold the truth too often, even if shifted."""
        kinds = set(self.deviations)
        return kinds == {"too wide"} or (kinds == {"too wide", _SHIFTED} and self.coverage > _WIDE)

    @property
    def doubtful(self) -> bool:
        """Whether they may be too narrow, or shifted: certain enough not to call them conservative."""
        error = self.number**-0.5
        missed = (_LEVEL - self.centered) / (np.sqrt(_LEVEL * (1.0 - _LEVEL)) * error)
        return bool(
            (self.centered < _NARROW and missed > _DOUBT)
            or (self.spread > _MOST_SPREAD and self.spread - 1.0 > _DOUBT * error / np.sqrt(2.0))
            or (abs(self.shift) >= max(_SHIFT, _DOUBT * error * self.spread) and not self.careful)
        )


def _judged(ranks: np.ndarray, num_draws: int) -> _Judged:
    places, scores = (ranks + 0.5) / (num_draws + 1), normal_scores(ranks, num_draws)
    tests = (uniformity_p_value(places), *score_p_values(scores))
    shift = float(scores.mean())
    return _Judged(
        p_value=min(len(tests) * min(tests), 1.0),
        coverage=float(central_coverage(ranks, num_draws, _LEVEL)),
        centered=float((np.abs(scores - shift) <= ndtri(0.5 + 0.5 * _LEVEL)).mean()),
        shift=shift,
        spread=float(scores.std()),
        distance=uniformity_distance(places),
        number=len(ranks),
    )


def _grouped(deviations: Mapping[str, tuple[str, ...]], shifts: Mapping[str, float]) -> str:
    """``too narrow in a, b; shifted in b (too low by 0.3 sd)``."""
    parts = []
    for kind in dict.fromkeys(kind for each in deviations.values() for kind in each):
        names = [name for name in deviations if kind in deviations[name]]
        sizes = ", ".join(f"too {'low' if shifts[name] > 0 else 'high'} by {abs(shifts[name]):.2f}" for name in names)
        parts.append(f"{kind} in {', '.join(names)}" + (f" ({sizes} sd)" if kind == _SHIFTED else ""))
    return "; ".join(parts)


def _joint_coverage(pairs: Pairs, alpha: float) -> Check:
    # Reference points near the parameters, in units of their deviations: the truth of another simulation. From far
    # away, all distances would be the same projection, that of the widest parameter.
    scale = pairs.truths.std(axis=0) + _SHRUNK
    truths = pairs.truths / scale
    fractions = tarp_fractions(truths, pairs.draws / scale, np.roll(truths, 1, axis=0))
    p_value = uniformity_p_value(fractions)
    inside = float((np.abs(fractions - 0.5) <= 0.5 * _LEVEL).mean())
    distance = uniformity_distance(fractions)
    usable = _NARROW <= inside <= _WIDE and distance < _DISTANCE
    outcome: Outcome = "passed" if p_value >= alpha else "small" if usable else "failed"
    words = f"joint regions of {100 * _LEVEL:.0f} % hold {100 * inside:.0f} % of the true parameters"
    values = {"inside": inside, AT_MOST_WIDE: outcome != "failed" or inside >= _LEVEL}
    if outcome == "small":
        words = f"slightly off, at some level by {100 * distance:.1f} %: {words}"
    return Check(COVERAGE, outcome, words, p_value, values)


def check_at_observed(
    posterior: Posterior,
    pairs: Pairs | None,
    near: Simulations | None,
    alpha: float,
    seed: int,
    region: Region | None = None,
) -> Check:
    """Calibration at the observation (l-C2ST), and the direction of its deviation there.

    Args:
        posterior: The posterior.
        pairs: Simulations with known parameters.
        near: Simulations with parameters of the posterior.
        alpha: The check fails below this p value.
        seed: Seed of all randomness.
        region: Region of the parameters and draws of ``pairs``; ``None`` means the whole prior.
    """
    if pairs is None or posterior.observed is None or len(pairs.truths) < FEWEST_PAIRS:
        no_pairs = Check(AT_OBSERVED, "not checked", "nothing was observed")
        return missing(AT_OBSERVED, posterior) if pairs is None else no_pairs
    mean, std = pairs.draws.mean(axis=1), pairs.draws.std(axis=1) + _SHRUNK
    truths = (pairs.truths - mean) / std
    draws = (pairs.draws[:, :_ITEMS] - mean[:, None]) / std[:, None]
    there = posterior.prior.to_normal(posterior.draws[:1000])
    if region is not None:
        there = there[region.holds(there)]
    there = (there - there.mean(axis=0)) / (there.std(axis=0) + _SHRUNK)
    contexts, context = _contexts(pairs.features, posterior.observed)
    generator = np.random.default_rng(derive_seed("swaps", seed))
    p_value = local_two_sample_test(truths, draws, contexts, there, context, generator)
    weights = local_weights(contexts, context)
    scores = normal_scores(sbc_ranks(pairs.truths, pairs.draws), pairs.draws.shape[1])
    marginals = dict(zip(posterior.names, _judged_there(scores, weights), strict=True))
    wrong = {name: each.deviations for name, each in marginals.items() if each.deviations}
    crossed = weights @ (_products(np.clip(truths, -3.0, 3.0)) - _products(draws).mean(axis=1))
    failed = p_value < alpha
    little = failed and all(each.little for each in marginals.values()) and np.abs(crossed).max(initial=0.0) < _JOINT
    words = "true parameters and draws " + ("are distinguishable there" if failed else "are indistinguishable there")
    words = f"{words} (l-C2ST, p = {p_value:.3g})"
    if failed:
        how = _grouped(wrong, {name: each.shift for name, each in marginals.items()})
        words = ("slightly off: " if little else f"{how}: " if wrong else "") + words
    wide = all(marginals[name].careful for name in wrong) and (bool(wrong) or not failed or bool(little))
    compared = _compared(posterior, near)
    against = [text for fits, text in compared.values() if not fits]
    if wide and against:
        words += f"; a linear regression on simulations there finds {', '.join(against)}"
    values = {
        "deviations": {name: list(each) for name, each in wrong.items()} if failed else {},
        AT_MOST_WIDE: wide and bool(compared) and not against,
    }
    return Check(AT_OBSERVED, "small" if little else "failed" if failed else "passed", words, p_value, values)


def _contexts(features: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A few principal features of about unit scale, of simulated and observed features."""
    rows = flat_rows(features)
    seen = FeatureMap.fitted(rows.astype(np.float32))
    both = seen(torch.as_tensor(np.concatenate([rows, flat_rows(observed[None])]))).numpy().astype(np.float64)
    axes = np.linalg.svd(both[:-1], full_matrices=False)[2][:_CONTEXTS]
    contexts = both @ axes.T
    contexts = np.clip(contexts / (contexts[:-1].std(axis=0) + _SHRUNK), -_MOST_CONTEXT, _MOST_CONTEXT)
    return contexts[:-1], contexts[-1]


def _products(points: np.ndarray) -> np.ndarray:
    """Products of all pairs of coordinates of ``(..., d)``."""
    rows, columns = np.triu_indices(points.shape[-1], 1)
    return points[..., rows] * points[..., columns]


class _JudgedThere(NamedTuple):
    """Deviation of the posterior of one parameter from a calibrated one at the observation.

    Attributes:
        shift: Predicted mean of the truth, in posterior deviations.
        spread: Predicted standard deviation of the truth, in posterior deviations.
        error: Standard error of the shift of a calibrated posterior.
    """

    shift: float
    spread: float
    error: float

    @property
    def little(self) -> bool:
        """Whether it is usable."""
        return abs(self.shift) < _SHIFT and _LEAST_SPREAD <= self.spread <= _MOST_SPREAD

    @property
    def deviations(self) -> tuple[str, ...]:
        """Deviations that matter and are significant, in words."""
        error = _SURE * self.error
        least = min(_LEAST_SPREAD, 1.0 - self.spread * error / np.sqrt(2.0))
        kinds = {
            "too narrow": self.spread > max(_MOST_SPREAD, 1.0 + error / np.sqrt(2.0)),
            "too wide": self.spread < least and self.held >= _NARROW,
            _SHIFTED: abs(self.shift) >= max(_SHIFT, error * self.spread),
        }
        return tuple(kind for kind, is_so in kinds.items() if is_so)

    @property
    def held(self) -> float:
        """Share of truths within an interval of nominal level ``_LEVEL``."""
        edge = ndtri(0.5 + 0.5 * _LEVEL)
        return float(ndtr((edge - self.shift) / self.spread) - ndtr((-edge - self.shift) / self.spread))

    @property
    def careful(self) -> bool:
        """Whether it is conservative (at most too wide): its interval holds the truth too often, even if shifted."""
        kinds = set(self.deviations)
        return kinds == {"too wide"} or (kinds == {"too wide", _SHIFTED} and self.held > _WIDE)


def _judged_there(scores: np.ndarray, weights: np.ndarray) -> list[_JudgedThere]:
    """For each parameter, the prediction of a linear regression of normal scores at the observation."""
    shifts = weights @ scores
    spreads = np.sqrt(np.maximum(weights @ np.square(scores) - np.square(shifts), _LEAST_VARIANCE))
    error = float(np.linalg.norm(weights))
    return [_JudgedThere(float(a), float(b), error) for a, b in zip(shifts, spreads, strict=True)]


def _compared(posterior: Posterior, near: Simulations | None) -> dict[str, tuple[bool, str]]:
    """For each parameter, whether a linear-Gaussian fit is compatible with a posterior that is too wide; and a text."""
    if near is None or posterior.observed is None or len(near.thetas) < FEWEST_PAIRS:
        return {}
    rows = flat_rows(near.features)
    varying = ~constant_columns(rows)
    if not varying.any():
        return {}
    points = posterior.prior.to_normal(near.thetas)
    mean, covariance = linear_gaussian_posterior(
        points, rows[:, varying], flat_rows(posterior.observed[None])[0, varying]
    )
    deviations, ours = np.sqrt(np.diag(covariance)), posterior.prior.to_normal(posterior.draws[:1000])
    ratios = ours.std(axis=0) / deviations
    apart = np.abs(ours.mean(axis=0) - mean) / np.maximum(deviations, ours.std(axis=0))
    return {
        name: (
            bool(ratios[i] >= _LEAST_RATIO and apart[i] <= _MOST_APART),
            f"{name} {apart[i]:.1f} sd away and {1.0 / max(ratios[i], 1e-3):.2g} times as wide",
        )
        for i, name in enumerate(posterior.names)
    }
