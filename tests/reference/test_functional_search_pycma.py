"""CMA-ES beside pycma: its constants, one step of the same samples, and how many evaluations an optimum takes."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metaroll.functional.search import cma as own
from metaroll.functional.search.cma_constants import cma_constants
from metaroll.seeding import isolated_rng

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that it looks for
    import cma


def theirs(mean: Any, sigma: float, seed: int = 1, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cma.CMAEvolutionStrategy(mean, sigma, {"verbose": -9, "seed": seed, **options})


@pytest.fixture(autouse=True)
def its_generator_is_the_global_one():
    with isolated_rng(0):
        yield


@pytest.mark.parametrize(("n", "population"), [(2, 6), (5, 8), (10, 10), (10, 200), (40, 15), (100, 17)])
def test_constants(n, population):
    es, ours = theirs(np.ones(n), 0.5, popsize=population), cma_constants(n, population, False, True)
    assert ours.num_parents == es.sp.weights.mu
    assert ours.weights == pytest.approx(np.array(es.sp.weights), rel=1e-9)
    assert ours.mueff == pytest.approx(es.sp.weights.mueff)
    assert ours.cc == pytest.approx(es.sp.cc)
    assert (ours.c1, ours.cmu) == (pytest.approx(es.sp.c1), pytest.approx(es.sp.cmu))
    # pycma divides by n + mueff + 3 where the tutorial has 5, and takes a half at most.
    assert es.adapt_sigma.cs == pytest.approx(min(0.5, ours.cs * (n + ours.mueff + 5) / (n + ours.mueff + 3)))
    if population < 100:  # of large populations pycma's damping is another one
        assert ours.damps - ours.cs == pytest.approx(es.adapt_sigma.damps - es.adapt_sigma.cs)


@pytest.mark.parametrize("n", [3, 12])
def test_steps_of_the_same_samples(n, monkeypatch):
    """Mean, step size, path and covariance agree, with pycma's rate of the step size and length of a normal vector."""
    es = theirs(np.full(n, 2.0), 0.4, updatecovwait=0)
    search = own.CMA(sigma=0.4, population=es.popsize)
    state = search.start(np.full(n, 2.0))
    rates = {"cs": es.adapt_sigma.cs, "damps": es.adapt_sigma.damps, "eigen_gap": 0.0, "chi": es.sm.chin}
    constants = functools.partial(_with, rates)
    monkeypatch.setattr(own, "cma_constants", constants)
    for _ in range(8):
        rows = np.array(es.ask())
        fitness = np.square(rows) @ np.arange(1.0, n + 1.0)
        es.tell(rows, fitness)
        state = search.tell(state, rows, -fitness)
        assert state.mean == pytest.approx(es.mean, rel=1e-8)
        assert state.path == pytest.approx(es.pc, abs=5e-4)
        assert state.sigma == pytest.approx(es.sigma, rel=1e-4)
        assert state.covariance == pytest.approx(es.C, abs=2e-4)  # pycma's is tilted by 1e-4 at first


def _with(rates: dict[str, float], *arguments: Any) -> Any:
    return replace(cma_constants(*arguments), **rates)


def test_an_ellipsoid_takes_as_many_evaluations():
    weights = 1e4 ** np.linspace(0.0, 1.0, 6)
    counts: list[list[int]] = [[], []]
    for seed in range(5):
        search = own.CMA(target=-1e-8)
        state, generator = search.start(np.ones(6)), np.random.default_rng(seed)
        while not search.stop(state):
            rows = search.ask(state, generator)
            state = search.tell(state, rows, -np.square(rows) @ weights)
        counts[0].append(state.evaluations)
        es = theirs(np.ones(6), 0.5, seed + 1, ftarget=1e-8)
        while not es.stop():
            rows = es.ask()
            es.tell(rows, np.square(np.array(rows)) @ weights)
        counts[1].append(es.countevals)
    assert np.median(counts[0]) == pytest.approx(np.median(counts[1]), rel=0.2)
