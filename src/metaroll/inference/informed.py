"""Whether a posterior uses all information on each parameter: regressions on features must not explain its residual."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from metaroll.functional.posteriors.smoothers import Predicted, Smoothers
from metaroll.inference.calibration import FEWEST_PAIRS, Pairs, flat_rows, missing
from metaroll.inference.feature_map import FeatureMap
from metaroll.inference.posterior import Posterior
from metaroll.inference.simulations import Simulations
from metaroll.inference.verdicts import AT_MOST_WIDE, INFORMED, Check
from metaroll.seeding import derive_seed

__all__ = ["check_identified", "check_informed"]

_UNIDENTIFIED, _DOUBTFUL = 0.8, 0.5
"""Share of the prior's deviation above which a parameter counts as not identified; and the one above which it does if
regressions explain nothing of it either, since networks trained on few simulations are narrower by chance."""
_MOST_ROWS = 500
"""Number of simulations for regressions: their cost is cubic in it."""
_MOST_FEATURE, _MOST_RESIDUAL = 5.0, 5.0
_IGNORED = 0.25
"""Largest explained share of the variance of a usable posterior: it could be an eighth narrower."""
_NUM_PERMUTATIONS = 300
_LEVEL, _HELD = 0.9, 0.8
"""Minimum coverage of intervals of this level."""


def check_informed(posterior: Posterior, pairs: Pairs | None, alpha: float, seed: int) -> Check:
    """Whether the residual of a parameter (``truth - posterior mean``) can be predicted from features.

    For the exact posterior it cannot: the residual has mean 0 given any features. A posterior that equals the prior
    although the data identifies a parameter is calibrated nevertheless; only this check detects it. Under the null
    hypothesis draws of a simulation's posterior are exchangeable with its truth, which makes the test exact.

    Args:
        posterior: The posterior.
        pairs: Simulations with known parameters.
        alpha: The check fails below this p value, divided by the number of parameters.
        seed: Seed of all randomness.
    """
    if pairs is None or len(pairs.truths) < FEWEST_PAIRS:
        return missing(INFORMED, posterior)
    rows, dim = slice(0, _MOST_ROWS), pairs.truths.shape[1]
    smoothers = _smoothers(posterior, pairs.features[rows])
    if smoothers is None:
        return Check(INFORMED, "not checked", "no feature varies")
    # Truth (index 0) and draws are treated alike, so that they are exchangeable under the null hypothesis.
    items = np.concatenate([pairs.truths[rows, None], pairs.draws[rows]], axis=1)
    items = (items - items.mean(axis=1, keepdims=True)) / (items.std(axis=1, keepdims=True) + 1e-9)
    generator = np.random.default_rng(derive_seed("stand for truths", seed))
    chosen = generator.integers(items.shape[1], size=(len(items), 1 + _NUM_PERMUTATIONS))
    chosen[:, 0] = 0
    left = np.clip(items[np.arange(len(items))[:, None], chosen], -_MOST_RESIDUAL, _MOST_RESIDUAL)
    p_values = {name: smoothers.p_value(left[:, :, i]) for i, name in enumerate(posterior.names)}
    fits = {name: smoothers.predicted(left[:, 0, i]) for i, name in enumerate(posterior.names)}
    sure = [name for name, p_value in p_values.items() if p_value * dim < alpha]
    ignored = [name for name in sure if fits[name].share >= _IGNORED]
    words = "regressions on features predict nothing that the posterior leaves open"
    if ignored:
        shares = ", ".join(f"{100 * fits[name].share:.0f} %" for name in ignored)
        words = f"ignores information in the data about {', '.join(ignored)}: a regression on features predicts "
        words += f"{shares} of what the posterior leaves open"
    elif sure:
        words = f"slightly off: regressions on features predict {', '.join(sure)} a little better"
    values = {
        "p_values": p_values,
        "shares": {name: each.share for name, each in fits.items()},
        "ignored": ignored,
        AT_MOST_WIDE: posterior.observed is not None and all(_held(fits[name]) >= _HELD for name in ignored),
    }
    worst = min(min(p_values.values()) * dim, 1.0)
    return Check(INFORMED, "failed" if ignored else "small" if sure else "passed", words, worst, values)


def check_identified(posterior: Posterior, made: Simulations | None, alpha: float, seed: int) -> Check:
    """Poorly identified parameters, by the width of the posterior and by regressions on features.

    Args:
        posterior: The posterior.
        made: Simulations with parameters of the prior, or of the prior within a region.
        alpha: Significance level of a regression.
        seed: Seed of the permutations.
    """
    ratios = dict(zip(posterior.names, (posterior.std / posterior.prior.std).tolist(), strict=True))
    shown = ", ".join(f"{name} {ratio:.2g}" for name, ratio in ratios.items())
    words = f"posterior over prior deviation: {shown}"
    looked_at = [name for name, ratio in ratios.items() if ratio > (_UNIDENTIFIED if made is None else _DOUBTFUL)]
    shares = {} if made is None or not looked_at else _shares(posterior, made, looked_at, alpha, seed)
    wide = [name for name in looked_at if ratios[name] > _UNIDENTIFIED or shares[name] == 0.0]
    missed = [name for name in wide if shares.get(name, 0.0) >= 1.0 - _UNIDENTIFIED**2]
    little = [name for name in wide if name not in missed and shares.get(name, 0.0) > 0.0]
    nothing = [name for name in wide if name not in missed and name not in little]
    parts = []
    if nothing and shares:
        parts.append(f"this data does not identify {', '.join(nothing)}")
    elif nothing:
        parts.append(f"{', '.join(nothing)} nearly as wide as the prior (whether the data identifies it: not tested)")
    for names, text in (
        (little, "this data hardly identifies"),
        (missed, "the features identify, but the posterior does not,"),
    ):
        each = ", ".join(f"{name} ({100 * shares[name]:.0f} % of its variance by a regression)" for name in names)
        parts += [f"{text} {each}"] if names else []
    words = "; ".join([*parts, words])
    values = {"ratios": ratios, "shares": shares, "unidentified": [*nothing, *little]}
    return Check("identified", "note" if wide else "passed", words, None, values)


def _shares(posterior: Posterior, made: Simulations, names: list[str], alpha: float, seed: int) -> dict[str, float]:
    """For each parameter, the share of its variance explained by regressions; 0 if not significant."""
    smoothers = _smoothers(posterior, made.features[:_MOST_ROWS])
    truths = posterior.prior.to_normal(made.thetas[:_MOST_ROWS])
    shares = dict.fromkeys(names, 0.0)
    generator = np.random.default_rng(derive_seed("permutations", seed))
    for name in names if smoothers is not None else ():
        values = truths[:, posterior.names.index(name)]
        others = [generator.permutation(values) for _ in range(_NUM_PERMUTATIONS)]
        if smoothers is not None and smoothers.p_value(np.stack([values, *others], axis=1)) < alpha:
            shares[name] = smoothers.predicted(values).share
    return shares


def _smoothers(posterior: Posterior, features: np.ndarray) -> Smoothers | None:
    """Regressions on the non-constant features; ``None`` if there is none."""
    rows = flat_rows(features)
    try:
        seen = FeatureMap.fitted(rows.astype(np.float32))
    except ValueError:
        return None
    there = rows.mean(axis=0) if posterior.observed is None else posterior.observed.reshape(-1)
    both = seen(torch.as_tensor(np.concatenate([rows, there[None]]))).numpy().astype(np.float64)
    both = np.clip(both, -_MOST_FEATURE, _MOST_FEATURE)
    return Smoothers(both[:-1], both[-1])


def _held(predicted: Predicted) -> float:
    """Predicted coverage of intervals of level ``_LEVEL`` at the observation."""
    edge = ndtri(0.5 + 0.5 * _LEVEL)
    spread = max(predicted.rest, 1e-3)
    return float(ndtr((edge - predicted.there) / spread) - ndtr((-edge - predicted.there) / spread))
