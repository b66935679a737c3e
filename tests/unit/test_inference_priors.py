"""Issue 15 item 5: bounded priors as plain data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats
import torch

from metaroll import (
    BernoulliDomainParam,
    DomainRandomizer,
    LogUniformDomainParam,
    NormalDomainParam,
    UniformDomainParam,
)
from metaroll.errors import ShapeError, UnknownNameError
from metaroll.inference.priors import Marginal, Prior, as_prior

MIXED = {
    "mass": (0.5, 2.0),
    "length": ("log-uniform", 0.1, 10.0),
    "g": ("normal", 9.8, 0.5, 9.0, 12.0),
    "noise": ("normal", 0.0, 2.0),
}
REFERENCES = [
    scipy.stats.uniform(0.5, 1.5),
    scipy.stats.loguniform(0.1, 10.0),
    scipy.stats.truncnorm(-1.6, 4.4, 9.8, 0.5),
    scipy.stats.norm(0.0, 2.0),
]


def test_draws_and_densities_are_those_of_scipy():
    prior = as_prior(MIXED)
    drawn = prior.sample(4000, 0)
    assert drawn.shape == (4000, 4) and prior.names == tuple(MIXED)
    for column, reference in zip(drawn.T, REFERENCES, strict=True):
        assert scipy.stats.kstest(column, reference.cdf).pvalue > 0.01
    expected = sum(r.logpdf(drawn[:, i]) for i, r in enumerate(REFERENCES))
    np.testing.assert_allclose(prior.log_prob(drawn), expected, atol=1e-12)
    np.testing.assert_allclose(prior.std, [r.std() for r in REFERENCES], rtol=2e-3)
    np.testing.assert_array_equal(prior.sample(5, 3), prior.sample(5, np.random.default_rng(3)))


def test_the_normal_scale_and_back():
    prior = as_prior(MIXED)
    thetas = prior.sample(2000, 1)
    normal = prior.to_normal(thetas)
    for column in normal.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 0.01
    np.testing.assert_allclose(prior.from_normal(normal), thetas, rtol=1e-9)
    # The change of variables: p(theta) = N(u) |du/dtheta|, against a numerical derivative.
    step = 1e-6
    for i in range(4):
        moved = thetas.copy()
        moved[:, i] += step
        slope = (prior.to_normal(moved)[:, i] - normal[:, i]) / step
        marginal = Prior([prior.marginals[i]])
        np.testing.assert_allclose(marginal.log_stretch(thetas[:, [i]])[50:60], np.log(slope)[50:60], atol=1e-3)


def test_bounds_are_never_left_and_nothing_is_infinite_there():
    prior = as_prior({"a": (-1.0, 3.0), "b": ("log-uniform", 1e-3, 1.0), "c": ("normal", 0.0, 1.0, 5.0, 7.0)})
    ends = np.stack([prior.low, prior.high])
    assert np.isfinite(prior.to_normal(ends)).all()
    extreme = prior.from_normal(np.array([[-40.0] * 3, [40.0] * 3]))
    np.testing.assert_allclose(extreme, ends, rtol=1e-9)
    assert (prior.from_normal(np.full((1, 3), 12.0)) <= prior.high).all()
    outside = prior.log_prob([[4.0, 0.5, 6.0], [0.0, 0.5, 6.0]])
    assert outside[0] == -math.inf and math.isfinite(outside[1])
    # Deep in a tail: as scipy has it.
    reference = scipy.stats.truncnorm(5.0, 7.0)
    np.testing.assert_allclose(
        Prior([prior.marginals[2]]).from_normal(np.array([[-1.0], [0.0], [1.5]]))[:, 0],
        reference.ppf(scipy.stats.norm.cdf([-1.0, 0.0, 1.5])),
        rtol=1e-9,
    )


def test_plain_data_and_back():
    prior = as_prior(MIXED)
    text = json.dumps(prior.to_plain(), allow_nan=False)
    assert Prior.from_plain(json.loads(text)) == prior
    assert json.loads(text)[3]["low"] is None and math.isinf(prior.low[3])


def test_of_distributions_of_domain_parameters():
    params = [
        UniformDomainParam("mass", 1.0, 0.5, clip_up=1.2),
        NormalDomainParam("length", 1.0, 0.1, clip_lo=0.5),
        LogUniformDomainParam("friction", 0.01, 1.0),
    ]
    expected = as_prior(
        {"mass": (0.5, 1.2), "length": ("normal", 1.0, 0.1, 0.5, math.inf), "friction": ("log-uniform", 0.01, 1.0)}
    )
    assert as_prior(params) == as_prior(DomainRandomizer(*params)) == expected
    with pytest.raises(TypeError, match="BernoulliDomainParam"):
        as_prior(BernoulliDomainParam("planet", 0.0, 1.0, 0.5))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"a": (1.0, 1.0)}, ValueError, "low below high"),
        ({"a": (math.nan, 1.0)}, ValueError, "low of the prior of 'a'"),
        ({"a": (0.0, math.inf)}, ValueError, "finite"),
        ({"a": ("log-uniform", 0.0, 1.0)}, ValueError, "above 0"),
        ({"a": ("normal", 0.0, 0.0)}, ValueError, "std"),
        ({"a": ("normal", 0.0, 1.0, 8.0, 9.0)}, ValueError, "must have mass between"),
        ({"a": ("cauchy", 0.0, 1.0)}, TypeError, r"\(low, high\)"),
        ({}, TypeError, "must be a dict"),
        ("mass", TypeError, "must be a dict"),
    ],
)
def test_what_is_no_prior(given, error, words):
    with pytest.raises(error, match=words):
        as_prior(given)


def test_names_and_shapes():
    with pytest.raises(ValueError, match="'a' twice"):
        Prior([Marginal("a", "uniform", 0, 1), Marginal("a", "uniform", 0, 1)])
    with pytest.raises(UnknownNameError, match="log-uniform"):
        Marginal("a", "loguniform", 0.1, 1)
    prior = as_prior({"a": (0.0, 1.0), "b": (0.0, 1.0)})
    assert prior.log_prob(torch.tensor([0.5, 0.5])).shape == (1,)
    with pytest.raises(ShapeError, match=r"\(n, 2\), a column for each of \['a', 'b'\]"):
        prior.log_prob(np.zeros((4, 3)))
