"""Draws of the prior within the region of a posterior: all distinct, and distributed as by rejection."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import ks_2samp, kstest

from metaroll.functional.posteriors.populations import systematic_choice
from metaroll.functional.posteriors.truncation import truncated_normal_chains
from metaroll.inference.regions import Region, find_region


class Normal:
    """A posterior that is normal around a point, moved by the feature."""

    event_shape = (1,)

    def __init__(self, mean, root) -> None:
        self.mean, self.root = np.asarray(mean, dtype=float), np.asarray(root, dtype=float)

    def sample(self, num, features, seed):
        noise = np.random.default_rng(seed).standard_normal((len(features), num, len(self.mean)))
        return self.mean + features[:, None] + noise @ self.root.T

    def log_prob(self, normals, features):
        points = np.broadcast_to(normals, (len(features), *normals.shape[-2:])) - self.mean - features[:, None]
        scaled = np.linalg.solve(self.root, points.reshape(-1, len(self.mean)).T).T
        return -0.5 * np.square(scaled).sum(axis=1).reshape(points.shape[:2])


def by_rejection(region: Region, posterior: Normal, num: int) -> np.ndarray:
    """Points of a box around the region, kept where they are inside, by the density of the prior."""
    generator, reach = np.random.default_rng(0), 5.0 * np.linalg.norm(posterior.root, axis=1)
    found: list[np.ndarray] = []
    while sum(map(len, found)) < num:
        rows = generator.uniform(posterior.mean - reach, posterior.mean + reach, (100_000, len(reach)))
        rows = rows[region.holds(rows)]
        logs = -0.5 * np.square(rows).sum(axis=1)
        found.append(rows[np.log(generator.random(len(rows))) < logs - logs.max()])
    return np.concatenate(found)[:num]


@pytest.mark.parametrize(
    ("mean", "root"),
    [
        ([1.5], [[1e-3]]),  # 1e-3 of the prior
        ([3.0], [[0.2]]),  # where its density falls to a hundredth within the region
        ([0.7, -0.5], [[0.01, 0.0], [0.05, 0.001]]),  # 1e-5, a narrow valley
        ([0.7, 1.0, 0.0], [[0.02, 0.0, 0.0], [0.03, 0.01, 0.0], [0.0, 0.02, 0.02]]),  # 1e-5
    ],
)
def test_draws_of_the_prior_within_a_small_region(mean, root):
    posterior = Normal(mean, root)
    region = find_region(posterior, len(mean), np.zeros(1), 0)
    drawn = region.sample(1000, len(mean), 1)
    assert len(np.unique(drawn, axis=0)) == 1000 and region.holds(drawn).all()
    exact = by_rejection(region, posterior, 5000)
    for i in range(len(mean)):
        assert ks_2samp(drawn[:, i], exact[:, i]).pvalue > 1e-3
    assert ks_2samp(region.log_prob(drawn), region.log_prob(exact)).pvalue > 1e-3
    np.testing.assert_array_equal(region.sample(1000, len(mean), 1), drawn)


def test_chains_keep_to_a_region_of_two_parts_and_their_shares():
    def log_density(points):  # 1 within (1, 1.5) and (2.5, 4), and no number elsewhere
        inside = ((points > 1.0) & (points < 1.5)) | ((points > 2.5) & (points < 4.0))
        return np.where(inside[:, 0], 1.0, np.nan)

    starts = np.full((3000, 1), 1.2)
    drawn = truncated_normal_chains(starts, log_density, 0.0, np.ones((1, 1)), 12, np.random.default_rng(3))[:, 0]
    masses = ndtr([1.5, 4.0]) - ndtr([1.0, 2.5])
    share = masses[1] / masses.sum()
    assert abs((drawn > 2.0).mean() - share) < 4.0 * np.sqrt(share / 3000)
    low = drawn[drawn < 2.0]
    assert kstest((ndtr(low) - ndtr(1.0)) / masses[0], "uniform").pvalue > 1e-3
    assert truncated_normal_chains(starts, log_density, 2.0, np.ones((1, 1)), 1, np.random.default_rng(0)).max() == 1.2


def test_a_region_is_its_estimator_and_border():
    posterior = Normal([0.2, 0.4], np.diag([0.1, 0.3]))
    found = find_region(posterior, 2, np.zeros(1), 5)
    # -|z|^2 / 2 is below -9.21 for 1e-4 of a normal in two dimensions.
    assert abs(found.border + 9.21) < 1.5
    again = Region(posterior, np.zeros(1), found.border)
    np.testing.assert_array_equal(again.sample(50, 2, 3), found.sample(50, 2, 3))


def test_draws_of_other_posteriors_within_the_region():
    posterior = Normal([0.0], [[0.1]])
    region = Region(posterior, np.zeros(1), -0.5)  # within (-0.1, 0.1)
    features = np.array([[0.0], [0.1], [5.0], [-0.15]])
    drawn, numbers = region.posterior_draws(features, 400, 0)
    assert numbers.tolist() == [0, 1, 3] and drawn.shape == (3, 400, 1)
    for rows, (center,) in zip(drawn[:, :, 0], features[numbers], strict=True):
        ends = ndtr((np.array([-0.1, 0.1]) - center) / 0.1)
        assert kstest((ndtr((rows - center) / 0.1) - ends[0]) / (ends[1] - ends[0]), "uniform").pvalue > 1e-3
    none, numbers = region.posterior_draws(features[2:3], 400, 0)
    assert none.shape == (0, 400, 1)  # so that it is joined to others
    assert len(none) == len(numbers) == 0


def test_systematic_choice_by_hand():
    class Half:
        def random(self):
            return 0.5

    chosen = systematic_choice(np.array([0.5, 0.0, 0.3, 0.2]), 5, Half())  # places 0.1, 0.3, 0.5, 0.7, 0.9
    assert chosen.tolist() == [0, 0, 0, 2, 3]
