"""Diagnostics of a posterior: one call decides whether it is fit for training, and reports why."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metaroll.checks import array_of, check_fraction, check_instance, check_seed, check_whole, described
from metaroll.errors import ShapeError, counted
from metaroll.functional.posteriors.calibration import effective_sample_size, tail_p_value
from metaroll.functional.posteriors.distances import mahalanobis_distances, neighbor_distances
from metaroll.inference.calibration import (
    FEWEST_PAIRS,
    Pairs,
    calibration_checks,
    check_at_observed,
    constant_columns,
    flat_rows,
    missing,
    pairs_of,
)
from metaroll.inference.feature_map import FeatureMap
from metaroll.inference.informed import check_identified, check_informed
from metaroll.inference.parameter_names import column_order, named
from metaroll.inference.posterior import BORDER, Posterior
from metaroll.inference.regions import Region, find_region
from metaroll.inference.simulations import Simulate, Simulations
from metaroll.inference.verdicts import BOUNDS, Check, Verdict
from metaroll.seeding import derive_seed

__all__ = ["check_posterior"]

_OUTER, _PILED = 2.3263478740408408, 0.1
"""1 % of a normal lies above 2.326 standard deviations; if 10 % of all draws do, they pile up at a bound."""
_FEWEST_EFFECTIVE = 10.0
_NEIGHBORS = 5
_FEWEST_PREDICTIVE = 20
_AGAIN = 2
"""Additional simulations per original one, if those indicate a deviation that matters."""
_PLACES, _WITHIN, _SMALL = 1000, 0.99, 0.25
"""Draws of the prior to compare two regions with; shares of them for which one region lies well within the other."""


def check_posterior(
    posterior: Posterior,
    simulate: Simulate | None = None,
    *,
    seed: int = 0,
    held_out: Any = None,
    held_out_simulate: Simulate | None = None,
    calibration: Simulations | None = None,
    num_calibration: int = 300,
    num_draws: int = 200,
    num_predictive: int = 200,
    alpha: float = 0.01,
) -> Verdict:
    """Simulate with known parameters, compare these with their posteriors, and report discrepancies.

    *Calibration*: ranks of the true parameters (simulation-based calibration), expected coverage (TARP), and a local
    two-sample test (l-C2ST) at the observation, together with the number of simulations that support this part of the
    posterior. *Misspecification*: whether the observation lies within the prior predictive distribution and within the
    posterior predictive one; the same for held-out rollouts. *Identification*: parameters whose posterior is as wide as
    their prior, or piles up at a bound of it.

    A deviation that is significant but too small to matter (90 % intervals that hold 87 to 93 %, shifts below a quarter
    of a posterior deviation) is reported, but is no failure. Few simulations estimate its size badly: if calibration
    fails, twice as many simulations are added, and the check is repeated on all of them.

    After rounds directed to one observation, parameters for calibration are drawn from the region of the posterior, and
    draws outside it are dropped. If it reaches the edge of the region on which the estimator was trained
    (``Posterior.region``), parameters are drawn from the latter, and all draws are compared.

    Args:
        posterior: The posterior. Without an estimator, the checks that need one are skipped.
        simulate: The simulator, ``(B, d) -> (B, F)``; ``None`` skips the checks that need it. Columns are in the order
            of the posterior, or of its attribute ``names``, as with ``held_out_simulate`` and ``calibration``.
        seed: Seed of all randomness.
        held_out: Features ``(R, F)`` of rollouts of the robot that were not used for inference.
        held_out_simulate: Simulates features like those of ``held_out``, ``(B, d) -> (B, F')``, if they differ from
            those of ``simulate`` (other start states and actions, or another number of rollouts).
        calibration: Held-out simulations with parameters drawn from the prior; ``None`` simulates them.
        num_calibration: Number of these simulations; three times as many if calibration fails.
        num_draws: Posterior draws per simulation.
        num_predictive: Simulations with parameters of the posterior.
        alpha: A check fails below this p value (divided by its number of tests).

    Raises:
        ShapeError: ``held_out``, or a simulator's output, has another shape than expected.
        ValueError: Too few simulations are usable, or ``held_out`` is not finite, empty, or missing.
    """
    check_fraction("alpha", alpha)
    for name, number in (("num_draws", num_draws), ("num_predictive", num_predictive)):
        check_whole(name, number, 20)
    check_whole("num_calibration", num_calibration, FEWEST_PAIRS)
    names = check_instance("posterior", posterior, Posterior, "a Posterior").names
    seed = check_seed("seed", seed)
    simulate = None if simulate is None else named(simulate, names)
    if held_out_simulate is not None:
        held_out_simulate = named(held_out_simulate, names, "held_out_simulate")
    region, within = _regions(posterior, seed)
    tried = _calibration_simulations(posterior, simulate, calibration, num_calibration, seed, region)
    if held_out_simulate is not None and held_out is None:
        raise ValueError("held_out (features of held-out rollouts) must be given with held_out_simulate, got None")
    asked = posterior.observed is not None or held_out is not None
    thetas = posterior.sample(2 * num_predictive, derive_seed("predictive", seed)) if asked else None
    drawn = None if simulate is None or thetas is None else _features_of(simulate, thetas)
    there = None if drawn is None else drawn.usable

    made = None if tried is None else tried.usable
    pairs = None if made is None or not posterior.has_estimator else pairs_of(posterior, made, num_draws, seed, within)
    judged = _calibrated(posterior, pairs, there, alpha, seed, within)
    if pairs is not None and calibration is None and any(check.outcome == "failed" for check in judged):
        again = derive_seed("again", seed)
        more = _calibration_simulations(posterior, simulate, None, _AGAIN * num_calibration, again, region)
        assert more is not None and tried is not None
        pairs = pairs.with_others(pairs_of(posterior, more.usable, num_draws, again, within))
        tried = tried.with_others(more)
        made = tried.usable
        judged = _calibrated(posterior, pairs, there, alpha, seed, within)
    unseen = there
    if held_out_simulate is not None and thetas is not None:
        unseen = _features_of(held_out_simulate, thetas).usable
    checks = [
        *judged,
        _effective(posterior, made),
        _reachable(posterior, made, alpha),
        _reproduced("reproduces the observed", there, posterior.observed, alpha),
        _reproduced("reproduces held-out rollouts", unseen, held_out, alpha),
    ]
    identified = check_identified(posterior, made, alpha, seed)
    checks += [identified, _bounds(posterior), _failures(posterior, tried, drawn)]
    return Verdict(tuple(checks), posterior.names, tuple(identified.values["unidentified"]))


def _calibrated(
    posterior: Posterior,
    pairs: Pairs | None,
    there: Simulations | None,
    alpha: float,
    seed: int,
    within: Region | None,
) -> list[Check]:
    """Calibration of the posterior on simulations with known parameters."""
    return [
        *calibration_checks(posterior, pairs, alpha),
        check_at_observed(posterior, pairs, there, alpha, seed, within),
        check_informed(posterior, pairs, alpha, seed),
    ]


def _regions(posterior: Posterior, seed: int) -> tuple[Region | None, Region | None]:
    """After rounds directed to an observation: the region of the parameters, and the one to which draws are truncated.

    An estimator trained on a region approximates the posterior of the prior within it. Networks put some mass beyond
    its edge by mistake, so near the edge no draw is dropped: the remaining ones would seem too narrow. If the posterior
    is much narrower than the region, the region is uninformative, and parameters are drawn where the posterior lies.
    """
    around, learned = _around(posterior, seed), posterior.region
    if learned is None or around is None:
        return around, around
    dim, place = posterior.prior.dim, derive_seed("regions", seed)
    near = around.sample(_PLACES, dim, place)
    if learned.holds(near).mean() >= _WITHIN and around.holds(learned.sample(_PLACES, dim, place)).mean() <= _SMALL:
        return around, around
    return learned, None


def _around(posterior: Posterior, seed: int) -> Region | None:
    """Region where the posterior lies, after rounds directed to an observation."""
    directed = int(posterior.description.get("rounds", 1)) > 1
    if not directed or posterior.observed is None or not posterior.has_estimator:
        return None
    border = posterior.description.get(BORDER)
    if border is not None:
        return Region(posterior.estimator, posterior.observed, float(border))
    normals = posterior.prior.to_normal(posterior.draws)
    place = derive_seed("region", seed)
    return find_region(posterior.estimator, posterior.prior.dim, posterior.observed, place, normals)


def _features_of(simulate: Simulate, thetas: np.ndarray) -> Simulations:
    """Features simulated with ``thetas``."""
    returned = simulate(thetas.copy())
    if isinstance(returned, torch.Tensor):
        returned = returned.detach().cpu().numpy()
    features = array_of("the features of simulate", returned, "an array (B, F)").astype(np.float64)
    if features.ndim < 2 or len(features) != len(thetas):
        raise ShapeError(f"simulate must return a row for each of {len(thetas)} rows, got {described(returned)}")
    return Simulations(thetas, features)


def _calibration_simulations(
    posterior: Posterior,
    simulate: Simulate | None,
    given: Simulations | None,
    num: int,
    seed: int,
    region: Region | None,
) -> Simulations | None:
    """Simulations with parameters of the prior; after directed rounds, of the prior within the region."""
    prior, place = posterior.prior, derive_seed("calibration", seed)
    if given is not None:
        thetas = prior.check_rows("thetas of calibration", given.thetas)
        if given.names is not None:  # inverse: from their order to that of the prior
            order = column_order(prior.names, given.names, "calibration")
            thetas = thetas[:, np.argsort(order)]
        made = Simulations(thetas, np.asarray(given.features, dtype=np.float64))
        if region is not None:
            inside = region.holds(prior.to_normal(made.thetas))
            made = Simulations(made.thetas[inside], made.features[inside])
    elif simulate is None:
        return None
    elif region is None:
        made = _features_of(simulate, prior.sample(num, place))
    else:
        made = _features_of(simulate, prior.from_normal(region.sample(num, prior.dim, place)))
    usable = len(made.thetas) - made.num_failed
    if usable < FEWEST_PAIRS:
        where = "" if region is None else " with parameters of the region that rounds were directed to"
        raise ValueError(f"calibration needs at least {FEWEST_PAIRS} usable simulations{where}, got {usable}")
    return made


def _effective(posterior: Posterior, made: Simulations | None) -> Check:
    name = "simulations that count"
    if made is None or not posterior.has_estimator or posterior.observed is None:
        return missing(name, posterior)
    log_weights = posterior.log_prob(made.thetas) - posterior.prior.log_prob(made.thetas)
    trained = posterior.description.get("num_simulations")
    total = sum(trained[-1:]) if isinstance(trained, list) else len(made.thetas)
    size = effective_sample_size(log_weights) if np.isfinite(log_weights).any() else 0.0
    effective = size / len(made.thetas) * total
    words = f"about {effective:.0f} of {total} simulations of the last round lie where the posterior does"
    few = effective < _FEWEST_EFFECTIVE
    words += "; more rounds or more simulations would be more informative" if few else ""
    return Check(name, "note" if few else "passed", words, None, {"effective": effective, "of": total})


def _reachable(posterior: Posterior, made: Simulations | None, alpha: float) -> Check:
    """Prior predictive check: whether the observation is among simulations with parameters of the prior."""
    name = "within reach of the simulator"
    if made is None or posterior.observed is None:
        return Check(name, "not checked", "no simulator was given" if made is None else "nothing was observed")
    rows, observed = flat_rows(made.features), flat_rows(posterior.observed[None])
    stuck = _changed_constants(rows, observed[0])
    if stuck is not None:
        return Check(name, "failed", stuck, 0.0)
    seen = FeatureMap.fitted(rows.astype(np.float32))
    cloud, point = (seen(torch.as_tensor(part)).numpy().astype(np.float64) for part in (rows, observed))
    half = len(cloud) // 2
    reference = mahalanobis_distances(cloud[half:], cloud[:half])
    far = tail_p_value(mahalanobis_distances(point, cloud[:half])[0], reference)
    among = neighbor_distances(cloud, cloud, _NEIGHBORS, own=True)
    lonely = tail_p_value(neighbor_distances(point, cloud, _NEIGHBORS)[0], among)
    p_value = min(2.0 * min(far, lonely), 1.0)
    words = f"the features lie among {len(cloud)} simulated ones (p = {p_value:.3g})"
    if p_value < alpha:
        words = (
            f"no simulation comes near these features (p = {p_value:.3g}): the prior may exclude the truth, a channel "
            "may have other units or another sign, the simulator may lack something (such as the time step of the "
            "log), or its sensor noise may differ"
        )
    values = {"p_mahalanobis": far, "p_neighbors": lonely}
    return Check(name, "failed" if p_value < alpha else "passed", words, p_value, values)


def _changed_constants(rows: np.ndarray, observed: np.ndarray) -> str | None:
    """Text for a feature that is constant in all simulations, but differs in the observation."""
    mean = rows.mean(axis=0)
    off = np.flatnonzero(constant_columns(rows) & (np.abs(observed - mean) > 1e-4 * np.abs(mean) + 1e-6))
    if not off.size:
        return None
    first = int(off[0])
    return f"feature {first} is {mean[first]:.4g} in all simulations, but {observed[first]:.4g} in the observation"


def _reproduced(name: str, made: Simulations | None, value: Any, alpha: float) -> Check:
    """Posterior predictive check, of the observation or of held-out rollouts."""
    if made is None or value is None:
        return Check(name, "not checked", "none were given" if value is None else "no simulator was given")
    points = _points(name, value, made.features.shape[1:])
    rows = flat_rows(made.features)
    if len(rows) < _FEWEST_PREDICTIVE:
        return Check(name, "failed", f"only {len(rows)} simulations with its parameters gave finite features")
    half = len(rows) // 2
    varying = ~constant_columns(rows)
    stuck = [_changed_constants(rows, point) for point in points]
    if any(words is not None for words in stuck):
        return Check(name, "failed", next(words for words in stuck if words is not None), 0.0)
    scale = rows[:, varying].std(axis=0)
    cloud, given = rows[:, varying] / scale, points[:, varying] / scale
    reference = mahalanobis_distances(cloud[half:], cloud[:half])
    each = [tail_p_value(distance, reference) for distance in mahalanobis_distances(given, cloud[:half])]
    p_value = min(min(each) * len(each), 1.0)
    failed = p_value < alpha
    what = "the observed features" if name.endswith("observed") else counted(len(points), "held-out rollout")
    words = f"simulations with its parameters {'do not give' if failed else 'give'} {what} (p = {p_value:.3g})"
    return Check(name, "failed" if failed else "passed", words, p_value, {"p_values": each})


def _points(name: str, value: Any, event_shape: tuple[int, ...]) -> np.ndarray:
    """Recorded features ``(R, F)``, of the same width as simulated ones."""
    label = "the observed" if name.endswith("observed") else "held_out"
    points = array_of(label, value, "an array of features").astype(np.float64)
    points = points[None] if points.shape == event_shape else points
    if points.shape[1:] != event_shape or not len(points):
        hint = "" if label == "the observed" else "; held_out_simulate(thetas) simulates features of another width"
        raise ShapeError(
            f"{label} must have the shape of simulated features, (R, {', '.join(map(str, event_shape))}) with R at "
            f"least 1, got {points.shape}{hint}"
        )
    if not np.isfinite(points).all():
        raise ValueError(f"{label} must be finite, got features with NaN or infinity")
    return points.reshape(len(points), -1)


def _bounds(posterior: Posterior) -> Check:
    """Whether the posterior piles up at a bound: the truth may lie beyond."""
    normals = posterior.prior.to_normal(posterior.draws)
    shares = {
        name: max(float((normals[:, i] < -_OUTER).mean()), float((normals[:, i] > _OUTER).mean()))
        for i, name in enumerate(posterior.names)
    }
    piled = [name for name, share in shares.items() if share > _PILED]
    words = "the posterior keeps away from the bounds of the prior"
    if piled:
        words = (
            f"draws pile up at a bound of the prior of {', '.join(piled)}: the prior may exclude the truth, or a unit, "
            "a sign or the simulator may be wrong"
        )
    return Check(BOUNDS, "note" if piled else "passed", words, None, {"shares": shares})


def _failures(posterior: Posterior, tried: Simulations | None, drawn: Simulations | None) -> Check:
    """Numbers of failed simulations: those of training, and those of the checks."""
    parts = [posterior.failures] if posterior.failures else []
    counts = {}
    for made, whose in ((tried, "for calibration"), (drawn, "with parameters of the posterior")):
        if made is not None:
            counts[whose] = made.num_failed
            parts.append(f"{made.num_failed:,} of {len(made.thetas):,} {whose}")
    words = "; ".join(parts)
    if not parts:
        return Check("failed simulations", "not checked", "no simulator was given")
    return Check("failed simulations", "note", words, None, {"posterior": posterior.failures, **counts})
