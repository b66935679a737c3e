"""Issue 15 item 6: formulas of calibration and distances, by hand and against sbi and scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from metaroll.functional.posteriors.calibration import (
    central_coverage,
    effective_sample_size,
    local_two_sample_test,
    rank_p_value,
    sbc_ranks,
    tarp_fractions,
    uniformity_p_value,
)
from metaroll.functional.posteriors.distances import mahalanobis_distances, neighbor_distances, shrunk_covariance


def gaussian(spread: float, num: int = 300, draws: int = 97):
    """Truths and draws of N(x / 2, 1/2): theta ~ N(0, 1), x = theta + N(0, 1), two of each."""
    generator = np.random.default_rng(0)
    truths = generator.standard_normal((num, 2))
    x = truths + generator.standard_normal((num, 2))
    noise = generator.standard_normal((num, draws, 2))
    return truths, x, x[:, None] / 2 + spread * np.sqrt(0.5) * noise, generator


def test_ranks_and_coverage_by_hand():
    draws = np.array([[[0.0], [1.0], [2.0], [3.0]], [[0.0], [1.0], [2.0], [3.0]]])
    ranks = sbc_ranks(np.array([[1.5], [9.0]]), draws)
    np.testing.assert_array_equal(ranks, [[2], [4]])
    np.testing.assert_allclose(central_coverage(ranks, 4, 0.5), [0.5])  # places 0.5 and 0.9
    np.testing.assert_allclose(central_coverage(ranks, 4, 0.9), [1.0])
    assert rank_p_value(2.0, np.array([1.0, 2.0, 3.0])) == pytest.approx(3 / 4)
    assert effective_sample_size(np.log([1.0, 1.0, 2.0]) + 700.0) == pytest.approx(16 / 6)


@pytest.mark.parametrize("spread", [1.0, 0.3])
def test_as_sbi_judges(spread):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sbi.diagnostics.sbc import check_uniformity_frequentist
        from sbi.diagnostics.tarp import _run_tarp
    truths, _, draws, generator = gaussian(spread)
    ranks = sbc_ranks(truths, draws)
    ours = [uniformity_p_value(ranks[:, i] / 97) for i in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = check_uniformity_frequentist(torch.tensor(ranks), 97)
        np.testing.assert_allclose(ours, reference, rtol=1e-5)
        references = generator.standard_normal(truths.shape)
        fractions = tarp_fractions(truths, draws, references)
        curve, _ = _run_tarp(
            torch.tensor(draws).transpose(0, 1),
            torch.tensor(truths),
            torch.tensor(references),
            num_bins=20,
            z_score_theta=False,
        )
    own = np.concatenate([[0.0], np.histogram(fractions, 20, (0.0, 1.0))[0].cumsum() / len(fractions)])
    np.testing.assert_allclose(own, curve.numpy(), atol=1e-6)
    assert (min(ours) > 0.01) == (uniformity_p_value(fractions) > 0.01) == (spread == 1.0)


@pytest.mark.parametrize(("spread", "shift", "alike"), [(1.0, 0.0, True), (0.3, 0.0, False), (1.0, 0.6, False)])
def test_the_local_test(spread, shift, alike):
    truths, x, draws, generator = gaussian(spread)
    draws = draws + shift
    mean, std = draws.mean(axis=1), draws.std(axis=1)
    there = generator.standard_normal((500, 2))
    units = (draws[:, :10] - mean[:, None]) / std[:, None]
    p_value = local_two_sample_test((truths - mean) / std, units, x, there, x[0], generator)
    assert (p_value > 0.05) == alike


def test_the_local_test_holds_its_level():
    p_values = []
    for seed in range(100):
        generator = np.random.default_rng(seed)
        rows = generator.standard_normal((80, 6, 1))
        contexts = generator.standard_normal((80, 2))
        there = generator.standard_normal((100, 1))
        p_values.append(local_two_sample_test(rows[:, 0], rows[:, 1:], contexts, there, contexts[0], generator, 100))
    assert uniformity_p_value(np.array(p_values)) > 0.01


def test_distances():
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((40, 3)) @ np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]])
    from sklearn import covariance

    np.testing.assert_allclose(shrunk_covariance(rows), covariance.ledoit_wolf(rows)[0], rtol=1e-10)
    few = rows[:2]
    assert np.isfinite(mahalanobis_distances(rows, few)).all()
    point = np.array([[3.0, 0.0, 1.0]])
    shifted = point[0] - rows.mean(axis=0)
    expected = np.sqrt(shifted @ np.linalg.inv(shrunk_covariance(rows)) @ shifted)
    np.testing.assert_allclose(mahalanobis_distances(point, rows), [expected])
    cloud = np.array([[0.0], [1.0], [3.0]])
    np.testing.assert_allclose(neighbor_distances(np.array([[2.5]]), cloud, 2), [1.0])
    np.testing.assert_allclose(neighbor_distances(cloud, cloud, 1, own=True), [1.0, 1.0, 2.0])
