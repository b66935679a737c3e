"""Whether a posterior can be trained on: one call, a verdict in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch

from metaroll.checks import array_of, check_fraction, check_whole, described
from metaroll.errors import ShapeError
from metaroll.functional.posteriors.calibration import (
    central_coverage,
    effective_sample_size,
    local_two_sample_test,
    rank_p_value,
    sbc_ranks,
    tarp_fractions,
    uniformity_p_value,
)
from metaroll.functional.posteriors.distances import mahalanobis_distances, neighbor_distances
from metaroll.functional.series.features import constant_features
from metaroll.inference.estimators import FeatureMap
from metaroll.inference.neural import truncated_normals
from metaroll.inference.posterior import Posterior
from metaroll.inference.simulations import Simulate, Simulations
from metaroll.seeding import derive_seed

__all__ = ["Check", "Verdict", "check_posterior"]

_LEVEL = 0.9
_UNIDENTIFIED = 0.8
"""Share of the prior's deviation from which on a parameter counts as not identified."""
_OUTER, _PILED = 2.3263478740408408, 0.1
"""Beyond 2.326 standard deviations lies a hundredth of a normal; a tenth of all draws there is a pile at a bound."""
_FEWEST_EFFECTIVE = 10.0
_CONTEXTS, _MOST_CONTEXT = 3, 3.0
_NEIGHBORS, _ITEMS = 5, 20
_FEWEST_PAIRS = 50
_SHRUNK = 1e-9

_OF_WIDTH = {"calibration", "coverage", "calibration at the observed"}
"""What fails where a posterior is too wide, and nothing else is wrong."""

Outcome = Literal["passed", "failed", "note", "not checked"]


class Check(NamedTuple):
    """One of the checks.

    Attributes:
        name: What was checked.
        outcome: ``"passed"``, ``"failed"``, ``"note"`` (worth knowing, no reason to distrust it) or ``"not checked"``.
        words: What was found.
        p_value: That of the test, the smallest of several times their number; ``None`` where there is none.
        values: The numbers behind it, JSON types.
    """

    name: str
    outcome: Outcome
    words: str
    p_value: float | None = None
    values: Mapping[str, Any] = {}


@final
@dataclass(frozen=True)
class Verdict:
    """What the checks found; ``print`` shows it.

    Attributes:
        checks: All of them.
        names: The parameters.
        unidentified: Parameters of which this data says little.
    """

    checks: tuple[Check, ...]
    names: tuple[str, ...]
    unidentified: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.checks if check.outcome == "failed")

    @property
    def too_wide(self) -> bool:
        """Whether all that failed is that the posterior leaves open more than it has to."""
        found = {check.name: check for check in self.checks}
        told = found.get("calibration")
        return told is not None and told.words.startswith("too wide") and set(self.failed) <= _OF_WIDTH

    def __getitem__(self, name: str) -> Check:
        """The check of that name."""
        found = next((check for check in self.checks if check.name == name), None)
        if found is None:
            raise KeyError(f"no check is called {name!r}; there are {', '.join(check.name for check in self.checks)}")
        return found

    def to_plain(self) -> dict[str, Any]:
        """All of it as JSON types."""
        checks = [{**check._asdict(), "values": dict(check.values)} for check in self.checks]
        return {
            "passed": self.passed,
            "too_wide": self.too_wide,
            "unidentified": list(self.unidentified),
            "checks": checks,
        }

    def __str__(self) -> str:
        done = sum(check.outcome in ("passed", "failed") for check in self.checks)
        head = f"The posterior of {', '.join(self.names)} passed all {done} tests."
        if self.failed:
            head = (
                f"Do not train on this posterior of {', '.join(self.names)}: {len(self.failed)} of {done} tests failed."
            )
        if self.too_wide:
            head = (
                f"The posterior of {', '.join(self.names)} is wider than the data allows ({len(self.failed)} of {done} "
                "tests failed): a policy trained on it is more careful than it need be; more simulations narrow it."
            )
        width = max(len(check.name) for check in self.checks)
        return "\n".join([head, *(f"  {c.outcome:11}  {c.name:{width}}  {c.words}" for c in self.checks)])


class _Pairs(NamedTuple):
    """Simulations with known parameters, and what the posterior says of each, on the standard normal scale."""

    truths: np.ndarray
    features: np.ndarray
    draws: np.ndarray


def check_posterior(
    posterior: Posterior,
    simulate: Simulate | None = None,
    *,
    seed: int = 0,
    held_out: Any = None,
    calibration: Simulations | None = None,
    num_calibration: int = 300,
    num_draws: int = 200,
    num_predictive: int = 200,
    alpha: float = 0.01,
) -> Verdict:
    """Simulate with known parameters, compare with what the posterior says of them, and tell in words what is wrong.

    Calibration: ranks of the true parameters (simulation-based calibration), expected coverage (TARP), and a local
    two-sample test (l-C2ST) at what was observed, together with the number of simulations that this part of the
    posterior rests on. Misspecification: whether what was observed lies among what the simulator gives at all, and
    among what it gives with parameters of the posterior; the same of held-out rollouts. Identification: parameters
    whose posterior is as wide as their prior, or piles up at a bound of it.

    After rounds that were directed to one observation, parameters for calibration come from the region around it.

    Args:
        posterior: With an estimator; one with draws alone is checked for the rest.
        simulate: The simulator, ``(B, d) -> (B, F)``; ``None`` leaves out what needs it.
        seed: Of all randomness.
        held_out: Features ``(R, F)`` of rollouts of the robot that were not used for inference.
        calibration: Simulations, with parameters drawn from the prior, that were not trained on; ``None`` makes them.
        num_calibration: How many to make.
        num_draws: Draws for each of them.
        num_predictive: Simulations with parameters of the posterior.
        alpha: Each check fails below this p value (divided by the number of its tests).
    """
    check_fraction("alpha", alpha)
    for name, number in (("num_draws", num_draws), ("num_predictive", num_predictive)):
        check_whole(name, number, 20)
    check_whole("num_calibration", num_calibration, _FEWEST_PAIRS)
    made = _calibration_simulations(posterior, simulate, calibration, num_calibration, seed)
    pairs = None if made is None or not posterior.has_estimator else _pairs(posterior, made, num_draws, seed)
    checks = [*_calibration(posterior, pairs, alpha, seed), _at_observed(posterior, pairs, alpha, seed)]
    checks.append(_effective(posterior, made))
    checks.append(_reachable(posterior, made, alpha))
    checks += _predictive(posterior, simulate, held_out, num_predictive, alpha, seed)
    ratios = _ratios(posterior)
    unidentified = tuple(name for name, ratio in ratios.items() if ratio > _UNIDENTIFIED)
    checks += [_identified(ratios, unidentified), _bounds(posterior)]
    return Verdict(tuple(checks), posterior.names, unidentified)


def _features_of(simulate: Simulate, thetas: np.ndarray) -> Simulations:
    """What is simulated with ``thetas``; failed simulations are left out."""
    returned = simulate(thetas.copy())
    if isinstance(returned, torch.Tensor):
        returned = returned.detach().cpu().numpy()
    features = array_of("the features of simulate", returned, "an array (B, F)").astype(np.float64)
    if features.ndim < 2 or len(features) != len(thetas):
        raise ShapeError(f"simulate must return a row for each of {len(thetas)} rows, got {described(returned)}")
    return Simulations(thetas, features).usable


def _calibration_simulations(
    posterior: Posterior, simulate: Simulate | None, given: Simulations | None, num: int, seed: int
) -> Simulations | None:
    if given is not None:
        thetas = posterior.prior.check_rows("thetas of calibration", given.thetas)
        made = Simulations(thetas, np.asarray(given.features, dtype=np.float64)).usable
    elif simulate is None:
        return None
    else:
        made = _features_of(simulate, _calibration_thetas(posterior, num, derive_seed("calibration", seed)))
    if len(made.thetas) < _FEWEST_PAIRS:
        raise ValueError(f"calibration needs at least {_FEWEST_PAIRS} usable simulations, got {len(made.thetas)}")
    return made


def _calibration_thetas(posterior: Posterior, num: int, seed: int) -> np.ndarray:
    """Parameters of the prior; after directed rounds, of the prior within the region where the posterior lies."""
    directed = int(posterior.description.get("rounds", 1)) > 1
    if not directed or posterior.observed is None or not posterior.has_estimator:
        return posterior.prior.sample(num, seed)
    normals = truncated_normals(posterior.estimator, posterior.prior.dim, posterior.observed, num, seed)
    return posterior.prior.from_normal(normals)


def _pairs(posterior: Posterior, made: Simulations, num_draws: int, seed: int) -> _Pairs:
    drawn = posterior.sample(num_draws, derive_seed("calibration draws", seed), observed=made.features)
    normals = posterior.prior.to_normal(drawn.reshape(-1, posterior.prior.dim)).reshape(drawn.shape)
    return _Pairs(posterior.prior.to_normal(made.thetas), made.features, normals)


def _missing(name: str, posterior: Posterior) -> Check:
    why = "no simulator was given" if posterior.has_estimator else "there are draws alone, and no estimator"
    return Check(name, "not checked", why)


def _calibration(posterior: Posterior, pairs: _Pairs | None, alpha: float, seed: int) -> list[Check]:
    if pairs is None:
        return [_missing(name, posterior) for name in ("calibration", "coverage")]
    num_draws, dim = pairs.draws.shape[1:]
    ranks = sbc_ranks(pairs.truths, pairs.draws)
    places = (ranks + 0.5) / (num_draws + 1)
    tests = {name: uniformity_p_value(places[:, i]) for i, name in enumerate(posterior.names)}
    coverage = central_coverage(ranks, num_draws, _LEVEL)
    worst = min(min(tests.values()) * dim, 1.0)
    held = ", ".join(f"{name} {share:.0%}" for name, share in zip(posterior.names, coverage, strict=True))
    bad = [name for name, p_value in tests.items() if p_value * dim < alpha]
    words = f"{_LEVEL:.0%} intervals hold the true parameter in {held} of {len(ranks)} simulations"
    if bad:
        words = f"{_direction(coverage, posterior, bad)}: {words}"
    values = {"p_values": tests, "coverage": dict(zip(posterior.names, coverage.tolist(), strict=True))}
    sbc = Check("calibration", "failed" if bad else "passed", words, worst, values)
    references = np.random.default_rng(derive_seed("random points", seed)).standard_normal(pairs.truths.shape)
    fractions = tarp_fractions(pairs.truths, pairs.draws, references)
    p_value = uniformity_p_value(fractions)
    inside = float((np.abs(fractions - 0.5) <= 0.5 * _LEVEL).mean())
    words = f"joint regions of {_LEVEL:.0%} hold {inside:.0%} of the true parameters"
    return [sbc, Check("coverage", "failed" if p_value < alpha else "passed", words, p_value, {"inside": inside})]


def _direction(coverage: np.ndarray, posterior: Posterior, bad: list[str]) -> str:
    lowest = min(coverage[posterior.names.index(name)] for name in bad)
    if lowest < _LEVEL - 0.05:
        return f"too narrow in {', '.join(bad)}"
    highest = max(coverage[posterior.names.index(name)] for name in bad)
    return f"too wide in {', '.join(bad)}" if highest > _LEVEL + 0.04 else f"shifted in {', '.join(bad)}"


def _at_observed(posterior: Posterior, pairs: _Pairs | None, alpha: float, seed: int) -> Check:
    name = "calibration at the observed"
    if pairs is None or posterior.observed is None:
        return _missing(name, posterior) if pairs is None else Check(name, "not checked", "nothing was observed")
    mean, std = pairs.draws.mean(axis=1), pairs.draws.std(axis=1) + _SHRUNK
    truths = (pairs.truths - mean) / std
    draws = (pairs.draws[:, :_ITEMS] - mean[:, None]) / std[:, None]
    there = posterior.prior.to_normal(posterior.draws[:1000])
    there = (there - there.mean(axis=0)) / (there.std(axis=0) + _SHRUNK)
    rows = _flat(pairs.features)
    seen = FeatureMap.fitted(rows.astype(np.float32))
    both = seen(torch.as_tensor(np.concatenate([rows, _flat(posterior.observed[None])]))).numpy().astype(np.float64)
    axes = np.linalg.svd(both[:-1], full_matrices=False)[2][:_CONTEXTS]
    contexts = both @ axes.T
    contexts = np.clip(contexts / (contexts[:-1].std(axis=0) + _SHRUNK), -_MOST_CONTEXT, _MOST_CONTEXT)
    generator = np.random.default_rng(derive_seed("swaps", seed))
    p_value = local_two_sample_test(truths, draws, contexts[:-1], there, contexts[-1], generator)
    failed = p_value < alpha
    words = "true parameters and draws " + ("can be told apart there" if failed else "cannot be told apart there")
    return Check(name, "failed" if failed else "passed", f"{words} (l-C2ST, p = {p_value:.3g})", p_value)


def _effective(posterior: Posterior, made: Simulations | None) -> Check:
    name = "simulations that count"
    if made is None or not posterior.has_estimator or posterior.observed is None:
        return _missing(name, posterior)
    log_weights = posterior.log_prob(made.thetas) - posterior.prior.log_prob(made.thetas)
    trained = posterior.description.get("num_simulations")
    total = sum(trained[-1:]) if isinstance(trained, list) else len(made.thetas)
    size = effective_sample_size(log_weights) if np.isfinite(log_weights).any() else 0.0
    effective = size / len(made.thetas) * total
    words = f"about {effective:.0f} of {total} simulations of the last round lie where the posterior does"
    few = effective < _FEWEST_EFFECTIVE
    words += "; more rounds, or more simulations, would tell more" if few else ""
    return Check(name, "note" if few else "passed", words, None, {"effective": effective, "of": total})


def _flat(features: np.ndarray) -> np.ndarray:
    return features.reshape(len(features), -1)


def _reachable(posterior: Posterior, made: Simulations | None, alpha: float) -> Check:
    """Whether what was observed is among what the simulator gives with parameters of the prior."""
    name = "within reach of the simulator"
    if made is None or posterior.observed is None:
        return Check(name, "not checked", "no simulator was given" if made is None else "nothing was observed")
    rows, observed = _flat(made.features), _flat(posterior.observed[None])
    stuck = _changed_constants(rows, observed[0])
    if stuck is not None:
        return Check(name, "failed", stuck, 0.0)
    seen = FeatureMap.fitted(rows.astype(np.float32))
    cloud, point = (seen(torch.as_tensor(part)).numpy().astype(np.float64) for part in (rows, observed))
    half = len(cloud) // 2
    reference = mahalanobis_distances(cloud[half:], cloud[:half])
    far = rank_p_value(mahalanobis_distances(point, cloud[:half])[0], reference)
    among = neighbor_distances(cloud, cloud, _NEIGHBORS, own=True)
    lonely = rank_p_value(neighbor_distances(point, cloud, _NEIGHBORS)[0], among)
    p_value = min(2.0 * min(far, lonely), 1.0)
    words = f"the features lie among {len(cloud)} simulated ones (p = {p_value:.3g})"
    if p_value < alpha:
        words = (
            f"no simulation comes near these features (p = {p_value:.3g}): the simulator lacks something, or the prior"
        )
    values = {"p_mahalanobis": far, "p_neighbors": lonely}
    return Check(name, "failed" if p_value < alpha else "passed", words, p_value, values)


def _constant(rows: np.ndarray) -> np.ndarray:
    # Features come in single precision, whatever their type says.
    return constant_features(torch.as_tensor(rows, dtype=torch.float32)).numpy()


def _changed_constants(rows: np.ndarray, observed: np.ndarray) -> str | None:
    """Words for a feature that is the same in all simulations, and another in what was observed."""
    mean = rows.mean(axis=0)
    off = np.flatnonzero(_constant(rows) & (np.abs(observed - mean) > 1e-4 * np.abs(mean) + 1e-6))
    if not off.size:
        return None
    first = int(off[0])
    return f"feature {first} is {mean[first]:.4g} in all simulations, and {observed[first]:.4g} in what was observed"


def _predictive(
    posterior: Posterior, simulate: Simulate | None, held_out: Any, num: int, alpha: float, seed: int
) -> list[Check]:
    """Whether parameters of the posterior give what was observed, and what was held out."""
    named = {"reproduces the observed": posterior.observed, "reproduces held-out rollouts": held_out}
    if simulate is None or all(value is None for value in named.values()):
        return [Check(name, "not checked", "no simulator was given, or nothing to compare") for name in named]
    thetas = posterior.sample(2 * num, derive_seed("predictive", seed))
    rows = _flat(_features_of(simulate, thetas).features)
    if len(rows) < 20:
        words = f"only {len(rows)} of {len(thetas)} simulations with its parameters gave finite features"
        return [Check("reproduces the observed", "failed", words)]
    checks = []
    for name, value in named.items():
        if value is None:
            checks.append(Check(name, "not checked", "none were given"))
            continue
        points = array_of(name, value, "an array of features").astype(np.float64).reshape(-1, rows.shape[1])
        checks.append(_reproduced(name, rows, points, alpha))
    return checks


def _reproduced(name: str, rows: np.ndarray, points: np.ndarray, alpha: float) -> Check:
    half = len(rows) // 2
    varying = ~_constant(rows)
    stuck = [_changed_constants(rows, point) for point in points]
    if any(words is not None for words in stuck):
        return Check(name, "failed", next(words for words in stuck if words is not None), 0.0)
    scale = rows[:, varying].std(axis=0)
    cloud, given = rows[:, varying] / scale, points[:, varying] / scale
    reference = mahalanobis_distances(cloud[half:], cloud[:half])
    each = [rank_p_value(distance, reference) for distance in mahalanobis_distances(given, cloud[:half])]
    p_value = min(min(each) * len(each), 1.0)
    failed = p_value < alpha
    what = "the observed features" if name.endswith("observed") else f"{len(points)} held-out rollouts"
    words = f"simulations with its parameters {'do not give' if failed else 'give'} {what} (p = {p_value:.3g})"
    return Check(name, "failed" if failed else "passed", words, p_value, {"p_values": each})


def _ratios(posterior: Posterior) -> dict[str, float]:
    """Deviation of each parameter's posterior over that of its prior."""
    return dict(zip(posterior.names, (posterior.std / posterior.prior.std).tolist(), strict=True))


def _identified(ratios: Mapping[str, float], unidentified: tuple[str, ...]) -> Check:
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    words = f"posterior over prior deviation: {shown}"
    if unidentified:
        words = f"this data does not identify {', '.join(unidentified)}; {words}"
    return Check("identified", "note" if unidentified else "passed", words, None, {"ratios": dict(ratios)})


def _bounds(posterior: Posterior) -> Check:
    """Whether the posterior leans against a bound: the truth may lie beyond."""
    normals = posterior.prior.to_normal(posterior.draws)
    shares = {
        name: max(float((normals[:, i] < -_OUTER).mean()), float((normals[:, i] > _OUTER).mean()))
        for i, name in enumerate(posterior.names)
    }
    piled = [name for name, share in shares.items() if share > _PILED]
    words = "the posterior keeps away from the bounds of the prior"
    if piled:
        words = f"{', '.join(piled)} piles up at a bound of its prior, which may exclude the truth: widen it"
    return Check("bounds", "note" if piled else "passed", words, None, {"shares": shares})
