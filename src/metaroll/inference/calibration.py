"""Whether a posterior keeps what it promises: for simulations with known parameters, and at what was observed."""

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
"""Usable simulations below which calibration is not judged."""
_LEVEL = 0.9
_SHIFTED = "shifted"
_CONTEXTS, _MOST_CONTEXT = 3, 3.0
_ITEMS = 20
_SHRUNK = 1e-9
_LEAST_VARIANCE = 0.01
"""A line may predict less than nothing."""

_NARROW, _WIDE = 0.87, 0.93
"""Coverage of 90 % intervals between which a posterior is usable."""
_LEAST_SPREAD, _MOST_SPREAD = 0.908, 1.086
"""Deviations of normal scores of which 93 % and 87 % lie where 90 % should."""
_SHIFT, _DISTANCE, _JOINT = 0.25, 0.15, 0.25
"""Shift in posterior deviations, Kolmogorov's distance, and error of a correlation up to which it is usable."""
_DOUBT, _SURE = 1.645, 2.33
"""Standard errors of a twentieth and a hundredth: of what leaves doubt, and of what says less and must be sure."""
_LEAST_RATIO, _MOST_APART = 0.7, 1.5
"""Deviation over that of a linear regression, and means apart in deviations, that fit a posterior that is too wide."""


class Pairs(NamedTuple):
    """Simulations with known parameters, and what the posterior says of each, on the standard normal scale.

    Attributes:
        truths: The parameters, ``(n, d)``.
        features: What was simulated with them, ``(n, *event_shape)``.
        draws: Of the posterior of each, ``(n, L, d)``.
        num_elsewhere: Simulations left out: their posterior does not lie in the region their parameters come from.
    """

    truths: np.ndarray
    features: np.ndarray
    draws: np.ndarray
    num_elsewhere: int = 0

    def with_others(self, others: Pairs) -> Pairs:
        """All simulations of both."""
        truths, features, draws = (np.concatenate(both) for both in zip(self[:3], others[:3], strict=True))
        return Pairs(truths, features, draws, self.num_elsewhere + others.num_elsewhere)


def flat_rows(features: np.ndarray) -> np.ndarray:
    """``(n, F)`` of ``(n, *event_shape)``."""
    return features.reshape(len(features), -1)


def constant_columns(rows: np.ndarray) -> np.ndarray:
    """Which features ``(n, F)`` are the same in all simulations; they come in single precision, whatever their type."""
    return constant_features(torch.as_tensor(rows, dtype=torch.float32)).numpy()


def pairs_of(posterior: Posterior, made: Simulations, num_draws: int, seed: int, region: Region | None) -> Pairs:
    """Draws of the posterior of each simulation, beside its parameters.

    Where parameters of a posterior of the whole prior come from the prior within a region, so do the draws: what a
    right posterior says of a parameter that is known to lie there is itself within the region, and no draw of it may be
    compared with what is outside.
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
    """A check that needs simulations and an estimator, without them."""
    why = "no simulator was given" if posterior.has_estimator else "there are draws alone, and no estimator"
    return Check(name, "not checked", why)


def calibration_checks(posterior: Posterior, pairs: Pairs | None, alpha: float) -> list[Check]:
    """Calibration of each parameter (simulation-based calibration), and of all together (TARP)."""
    if pairs is None:
        return [missing(name, posterior) for name in (CALIBRATION, COVERAGE)]
    if len(pairs.truths) < FEWEST_PAIRS:
        words = f"of {len(pairs.truths) + pairs.num_elsewhere} simulations with parameters of the region where this "
        words += f"posterior lies, those of {pairs.num_elsewhere} lie elsewhere: too narrow, or shifted"
        left_out = Check(COVERAGE, "not checked", "too few posteriors lie where their parameters do")
        return [Check(CALIBRATION, "failed", words, 0.0, {AT_MOST_WIDE: False}), left_out]
    num_draws, dim = pairs.draws.shape[1:]
    ranks = sbc_ranks(pairs.truths, pairs.draws)
    judged = {name: _judged(ranks[:, i], num_draws) for i, name in enumerate(posterior.names)}
    worst = min(min(each.p_value for each in judged.values()) * dim, 1.0)
    held = ", ".join(f"{name} {each.coverage:.0%}" for name, each in judged.items())
    words = f"{_LEVEL:.0%} intervals hold the true parameter in {held} of {len(ranks)} simulations"
    sure = {name: each for name, each in judged.items() if each.p_value * dim < alpha}
    wrong = {name: each.deviations for name, each in sure.items() if each.deviations}
    if wrong:
        words = f"{_grouped(wrong, {name: each.shift for name, each in judged.items()})}: {words}"
    elif sure:
        words = f"off by little in {', '.join(sure)}: {words}"
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
    """How the posteriors of one parameter differ from right ones.

    Attributes:
        p_value: That they are right.
        coverage: Share of truths in intervals that should hold ``_LEVEL``.
        centered: The same, were they not shifted.
        shift: Of the truths, in posterior deviations.
        spread: Of the truths, in posterior deviations.
        distance: Of quantiles from uniform ones.
        number: Of truths.
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
        """Those that matter, in words."""
        shifted = abs(self.shift) >= _SHIFT
        held = self.centered if shifted else self.coverage
        # Intervals that miss the truth are not called too wide: they are certain to be shifted, and no more.
        wide = held > _WIDE and self.coverage >= _NARROW
        deviations = ["too narrow"] if held < _NARROW else ["too wide"] if wide else []
        deviations += [_SHIFTED] if shifted else []
        return tuple(deviations) or (("of another shape",) if self.distance >= _DISTANCE else ())

    @property
    def careful(self) -> bool:
        """Whether they are at most too wide: where they are shifted, intervals hold the truth too often."""
        kinds = set(self.deviations)
        return kinds == {"too wide"} or (kinds == {"too wide", _SHIFTED} and self.coverage > _WIDE)

    @property
    def doubtful(self) -> bool:
        """Whether they may well be too narrow, or shifted: certain enough not to call them careful."""
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
    # Random points from where the parameters are, in units of their deviations: the truth of another simulation. From
    # far away, all distances would be one and the same projection, and that of the widest parameter.
    scale = pairs.truths.std(axis=0) + _SHRUNK
    truths = pairs.truths / scale
    fractions = tarp_fractions(truths, pairs.draws / scale, np.roll(truths, 1, axis=0))
    p_value = uniformity_p_value(fractions)
    inside = float((np.abs(fractions - 0.5) <= 0.5 * _LEVEL).mean())
    usable = _NARROW <= inside <= _WIDE and uniformity_distance(fractions) < _DISTANCE
    outcome: Outcome = "passed" if p_value >= alpha else "small" if usable else "failed"
    words = f"joint regions of {_LEVEL:.0%} hold {inside:.0%} of the true parameters"
    values = {"inside": inside, AT_MOST_WIDE: outcome != "failed" or inside >= _LEVEL}
    return Check(COVERAGE, outcome, ("off by little: " if outcome == "small" else "") + words, p_value, values)


def check_at_observed(
    posterior: Posterior,
    pairs: Pairs | None,
    near: Simulations | None,
    alpha: float,
    seed: int,
    region: Region | None = None,
) -> Check:
    """Calibration at what was observed (l-C2ST), and in which direction it is off there.

    Args:
        posterior: The posterior.
        pairs: Simulations with known parameters.
        near: Simulations with parameters of the posterior.
        alpha: It fails below this p value.
        seed: Of all randomness.
        region: Where parameters and draws of ``pairs`` come from; ``None``: from everywhere.
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
    words = "true parameters and draws " + ("can be told apart there" if failed else "cannot be told apart there")
    words = f"{words} (l-C2ST, p = {p_value:.3g})"
    if failed:
        how = _grouped(wrong, {name: each.shift for name, each in marginals.items()})
        words = ("off by little: " if little else f"{how}: " if wrong else "") + words
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
    """A few numbers of about unit size that tell most of simulated features, and of observed ones."""
    rows = flat_rows(features)
    seen = FeatureMap.fitted(rows.astype(np.float32))
    both = seen(torch.as_tensor(np.concatenate([rows, flat_rows(observed[None])]))).numpy().astype(np.float64)
    axes = np.linalg.svd(both[:-1], full_matrices=False)[2][:_CONTEXTS]
    contexts = both @ axes.T
    contexts = np.clip(contexts / (contexts[:-1].std(axis=0) + _SHRUNK), -_MOST_CONTEXT, _MOST_CONTEXT)
    return contexts[:-1], contexts[-1]


def _products(points: np.ndarray) -> np.ndarray:
    """Of each two coordinates of ``(..., d)``."""
    rows, columns = np.triu_indices(points.shape[-1], 1)
    return points[..., rows] * points[..., columns]


class _JudgedThere(NamedTuple):
    """How the posterior of one parameter differs from a right one at the observation.

    Attributes:
        shift: Of the truth, in posterior deviations.
        spread: Of the truth, in posterior deviations.
        error: Standard error of the shift of a right one.
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
        """Those that matter and are sure, in words."""
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
        """Share of truths in an interval that should hold ``_LEVEL``."""
        edge = ndtri(0.5 + 0.5 * _LEVEL)
        return float(ndtr((edge - self.shift) / self.spread) - ndtr((-edge - self.shift) / self.spread))

    @property
    def careful(self) -> bool:
        """Whether it is at most too wide: where it is shifted, its interval holds the truth too often all the same."""
        kinds = set(self.deviations)
        return kinds == {"too wide"} or (kinds == {"too wide", _SHIFTED} and self.held > _WIDE)


def _judged_there(scores: np.ndarray, weights: np.ndarray) -> list[_JudgedThere]:
    """For each parameter, what a linear regression of normal scores predicts at the observation."""
    shifts = weights @ scores
    spreads = np.sqrt(np.maximum(weights @ np.square(scores) - np.square(shifts), _LEAST_VARIANCE))
    error = float(np.linalg.norm(weights))
    return [_JudgedThere(float(a), float(b), error) for a, b in zip(shifts, spreads, strict=True)]


def _compared(posterior: Posterior, near: Simulations | None) -> dict[str, tuple[bool, str]]:
    """For each parameter, whether it may be too wide by what a linear regression there finds, and that in words."""
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
