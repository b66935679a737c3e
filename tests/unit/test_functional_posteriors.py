"""Issue 15 item 6: formulas of calibration and distances, by hand and against sbi and scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from metaroll.functional.posteriors.calibration import (
    central_coverage,
    effective_sample_size,
    latent_normal,
    local_two_sample_test,
    local_weights,
    mixture_factor,
    normal_scores,
    rank_p_value,
    sbc_ranks,
    score_p_values,
    tail_p_value,
    tarp_fractions,
    uniformity_distance,
    uniformity_p_value,
)
from metaroll.functional.posteriors.distances import mahalanobis_distances, neighbor_distances, shrunk_covariance
from metaroll.functional.posteriors.linear_gaussian import linear_gaussian_posterior


def gaussian(spread: float, num: int = 300, draws: int = 97):
    """Truths and draws of N(x / 2, 1/2): theta ~ N(0, 1), x = theta + N(0, 1), two of each."""
    generator = np.random.default_rng(0)
    truths = generator.standard_normal((num, 2))
    x = truths + generator.standard_normal((num, 2))
    noise = generator.standard_normal((num, draws, 2))
    return truths, x, x[:, None] / 2 + spread * np.sqrt(0.5) * noise, generator


def test_a_base_has_the_mean_and_correlations_of_all_simulations_and_the_width_of_unseen_ones():
    # Ten more latents, standard normal ones: means (6, 3) / 12.
    latents = np.array([[0.0, 3.5], [6.0, -0.5]])
    mean, root = latent_normal(latents, latents[1:])
    np.testing.assert_allclose(mean, [0.5, 0.25])
    first, second = latents - mean
    together = np.outer(first, first) + np.outer(second, second) + 10.0 * np.eye(2)
    found = root @ root.T
    np.testing.assert_allclose(np.diag(found), [(5.5**2 + 10.0) / 11.0, (0.75**2 + 10.0) / 11.0])
    correlation = together[0, 1] / np.sqrt(together[0, 0] * together[1, 1])
    np.testing.assert_allclose(found[0, 1] / np.sqrt(found[0, 0] * found[1, 1]), correlation)
    assert root[0, 1] == 0.0
    for std in (0.7, 1.4):
        drawn = std * np.random.default_rng(0).standard_normal(200)
        drawn -= drawn.mean()
        grid = np.linspace(0.5, 2.0, 3001)
        prior = stats.invgamma(4.0, scale=5.0).logpdf(grid**2)
        likeliest = grid[np.argmax(stats.norm.logpdf(drawn[:, None], scale=grid).sum(axis=0) + prior)]
        assert latent_normal(drawn[:, None], drawn[:, None])[1][0, 0] == pytest.approx(likeliest, abs=1e-3)


def test_a_fitted_base_is_that_under_which_correlated_latents_are_likeliest():
    root = np.array([[1.2, 0.0], [-0.6, 0.8]])
    latents = np.random.default_rng(1).standard_normal((20_000, 2)) @ root.T + [0.3, -0.2]
    mean, found = latent_normal(latents, latents)
    np.testing.assert_allclose(mean, [0.3, -0.2], atol=0.02)
    np.testing.assert_allclose(found, root, atol=0.02)


def test_members_are_narrower_by_what_their_mixture_adds():
    # One observation, two members, three draws: variances 1 and means -1 and 1, so W = 1; B = 1 - 1 / 3 * 1 / 2.
    draws = np.array([[[[-2.0], [-1.0], [0.0]]], [[[0.0], [1.0], [2.0]]]])
    assert mixture_factor(draws) == 0.5  # 1 - 2 * 5 / 6 is below a quarter
    assert mixture_factor(np.stack([draws[0], draws[0]])) == 1.0
    near = np.stack([draws[0], draws[0] + 1.0])  # B = 1 / 4 - 1 / 6
    assert mixture_factor(near) == pytest.approx(np.sqrt(1.0 - 2.0 / 12.0))


def test_a_mixture_of_members_that_are_right_is_right_with_that_factor():
    """Each member's mean errs by a common part and one of its own; its width is right for both together."""
    generator = np.random.default_rng(0)
    common, own, members, number, draws = 1.0, 0.5, 3, 4000, 200
    centers = own * generator.standard_normal((members, number, 1, 1))
    width = np.hypot(common, own)
    noise = generator.standard_normal((members, number, draws, 1))
    factor = mixture_factor(centers + width * noise)
    truths = common * generator.standard_normal((number, 1))

    def spread(factor):
        mixed = (centers + factor * width * noise).transpose(1, 0, 2, 3).reshape(number, -1, 1)
        return normal_scores(sbc_ranks(truths, mixed), mixed.shape[1]).std()

    assert spread(factor) == pytest.approx(1.0, abs=0.03) and spread(1.0) < 0.93


def test_ranks_and_coverage_by_hand():
    draws = np.array([[[0.0], [1.0], [2.0], [3.0]], [[0.0], [1.0], [2.0], [3.0]]])
    ranks = sbc_ranks(np.array([[1.5], [9.0]]), draws)
    np.testing.assert_array_equal(ranks, [[2], [4]])
    np.testing.assert_allclose(central_coverage(ranks, 4, 0.5), [0.5])  # places 0.5 and 0.9
    np.testing.assert_allclose(central_coverage(ranks, 4, 0.9), [0.875])  # of 0.8 to 1, three quarters
    for num_draws in (20, 50, 200):  # ranks that are uniform are covered as they should be
        np.testing.assert_allclose(central_coverage(np.arange(num_draws + 1)[:, None], num_draws, 0.9), [0.9])
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


def test_scores_and_their_p_values():
    scores = normal_scores(np.array([[0], [1], [2]]), 2)
    one = stats.norm.ppf(5 / 6)  # places 1/6, 1/2, 5/6
    np.testing.assert_allclose(scores[:, 0], np.array([-one, 0.0, one]) / np.sqrt(2 * one**2 / 3))
    given = np.random.default_rng(2).standard_normal(200)
    of_mean, of_spread = score_p_values(1.2 * given + 0.1)
    rows = 1.2 * given + 0.1
    assert of_mean == pytest.approx(2 * stats.norm.sf(abs(rows.mean()) * np.sqrt(200)))
    assert of_spread == pytest.approx(2 * stats.chi2(200).sf((rows**2).sum()))
    assert score_p_values(np.zeros(50))[1] < 1e-10
    assert uniformity_distance(np.array([0.5, 0.5])) == pytest.approx(0.5)


def test_weights_of_a_local_line():
    generator = np.random.default_rng(4)
    contexts, values, there = generator.standard_normal((30, 2)), generator.standard_normal(30), np.array([1.0, -2.0])
    design = np.column_stack([np.ones(30), contexts])
    expected = np.append(1.0, there) @ np.linalg.lstsq(design, values, rcond=None)[0]
    assert local_weights(contexts, there) @ values == pytest.approx(expected)


def test_the_tail_goes_on_beyond_all_references():
    reference = np.arange(1.0, 101.0)
    assert tail_p_value(95.5, reference) == rank_p_value(95.5, reference) == 6 / 101
    exponent = np.log(np.arange(91.0, 101.0) / 90.0).mean()  # by hand: a tenth of the hundred lies above 90
    assert tail_p_value(180.0, reference) == pytest.approx(0.1 * 2.0 ** (-1.0 / exponent))
    assert tail_p_value(2.0, np.ones(50)) == rank_p_value(2.0, np.ones(50))
    generator = np.random.default_rng(0)
    drawn = stats.pareto(3.0).rvs(20_000, random_state=generator)
    beyond = 2.0 * drawn.max()
    assert tail_p_value(beyond, drawn) == pytest.approx(stats.pareto(3.0).sf(beyond), rel=0.5)
    light = stats.chi(4).rvs(400, random_state=generator)
    assert stats.chi(4).sf(7.0) < tail_p_value(7.0, light) < 1e-3


def test_a_linear_simulator_tells_its_posterior():
    generator = np.random.default_rng(3)
    mix, root = generator.standard_normal((2, 4)), np.tril(generator.standard_normal((4, 4))) + 2.0 * np.eye(4)
    noise, observed = root @ root.T, np.array([1.0, -2.0, 0.5, 3.0])
    precision = np.eye(2) + mix @ np.linalg.inv(noise) @ mix.T
    expected = np.linalg.solve(precision, mix @ np.linalg.inv(noise) @ (observed - 0.7))
    points = 0.4 * generator.standard_normal((40_000, 2)) + 1.0  # drawn from another density than the prior
    features = 0.7 + points @ mix + generator.standard_normal((40_000, 4)) @ root.T
    mean, covariance = linear_gaussian_posterior(points, features, observed)
    np.testing.assert_allclose(mean, expected, atol=0.03)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=0.02)
    nothing = generator.standard_normal((400, 3))
    mean, covariance = linear_gaussian_posterior(points[:400], nothing, np.zeros(3))
    np.testing.assert_allclose(covariance, np.eye(2), atol=0.15)  # features that say nothing leave the prior


def test_what_linear_features_say_far_from_the_middle_of_the_prior():
    """36 features, 400 simulations: what is known of J leaves the precision too small, which must not move the mean."""
    generator = np.random.default_rng(3)
    scores = []
    for _ in range(20):
        slopes = np.concatenate([np.full(6, 20.0), np.zeros(30)])
        points = 2.0 + 0.03 * generator.standard_normal((401, 1))
        features = points * slopes + generator.standard_normal((401, 36))
        mean, covariance = linear_gaussian_posterior(points[1:], features[1:], features[0])
        scores.append((mean[0] - points[0, 0]) / np.sqrt(covariance[0, 0]))
    assert abs(np.mean(scores)) < 0.6 and np.std(scores) < 1.5
