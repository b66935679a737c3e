"""Issue 15 item 6: one call says whether a posterior can be trained on."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from metaroll.errors import ShapeError
from metaroll.inference.checks import check_posterior
from metaroll.inference.posterior import Posterior
from metaroll.inference.regions import Region
from metaroll.inference.simulations import Simulations
from metaroll.inference.verdicts import Check, Verdict

PRIOR = {"a": ("normal", 0.0, 1.0), "b": ("normal", 0.0, 1.0), "idle": ("normal", 0.0, 1.0)}
MIX = np.random.default_rng(5).standard_normal((2, 6))
NOISE = 0.5


def simulate(thetas: np.ndarray) -> np.ndarray:
    """Six linear features of two parameters; the third parameter does nothing."""
    words = np.ascontiguousarray(thetas).view(np.uint64).sum(axis=1)
    noise = np.stack([np.random.default_rng(int(word)).standard_normal(6) for word in words])
    return thetas[:, :2] @ MIX + NOISE * noise


class Exact:
    """The exact posterior of the linear simulator, with a planted spread and shift."""

    event_shape = (6,)

    def __init__(self, spread=1.0, shift=0.0, near=None, blind=()) -> None:
        blind = list(blind)
        self.cov = np.eye(3)
        self.cov[:2, :2] = np.linalg.inv(np.eye(2) + MIX @ MIX.T / NOISE**2)
        self.shift = shift * np.array([1.0, 1.0, 0.0])
        kept = np.setdiff1d(np.arange(3), blind)
        self.root = np.zeros((3, 3))
        self.root[np.ix_(kept, kept)] = np.linalg.cholesky(self.cov[np.ix_(kept, kept)])
        self.root[blind, blind] = 1.0
        self.root *= np.broadcast_to(spread, 3)[:, None]
        self.blind = blind  # parameters that keep their prior, whatever was observed
        self.near = near  # features around which it is wrong in another way: 0.3 x as wide, and a off by 2.5 deviations

    def means(self, features):
        mean = np.zeros((len(features), 3))
        mean[:, :2] = features @ MIX.T / NOISE**2 @ self.cov[:2, :2]
        mean[:, self.blind] = 0.0
        return mean + self.shift

    def sample(self, num, features, seed):
        noise = np.random.default_rng(seed).standard_normal((len(features), num, 3)) @ self.root.T
        mean = self.means(features)
        if self.near is not None:
            close = np.linalg.norm(features - self.near, axis=1) < 0.5
            noise[close] *= 0.3
            mean[close, 0] += 2.5 * np.sqrt(self.cov[0, 0])
        return mean[:, None] + noise

    def log_prob(self, normals, features):
        points = np.broadcast_to(normals, (len(features), *normals.shape[-2:])) - self.means(features)[:, None]
        scaled = points.reshape(-1, 3) @ np.linalg.inv(self.root).T
        return (-0.5 * (scaled**2).sum(axis=1) - np.log(np.diag(self.root)).sum()).reshape(points.shape[:2])

    def weights(self):
        return {}

    def to_plain(self):
        return {}


FEW = {"num_calibration": 100}
"""Simulations for calibration that find a large error; it takes a moment with the usual 300, which are then 900."""
TRUTH = np.array([[0.5, -1.0, 0.3]])
OBSERVED = simulate(TRUTH)[0]


def test_an_exact_posterior_passes():
    held_out = simulate(TRUTH + np.array([[0, 0, 0], [0, 0, 0.1], [0, 0, 0.2]]))
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact()), simulate, held_out=held_out)
    assert verdict.passed and verdict.unidentified == ("idle",), str(verdict)
    assert all(check.outcome != "not checked" for check in verdict.checks)
    assert "passed all 8 tests" in str(verdict) and "does not identify idle" in str(verdict)
    assert 0.84 <= verdict["calibration"].values["coverage"]["a"] <= 0.96
    json.dumps(verdict.to_plain(), allow_nan=False)
    again = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact()), simulate, held_out=held_out)
    assert str(again) == str(verdict)


@pytest.mark.parametrize(
    ("planted", "failed", "words"),
    [
        (Exact(spread=0.3), {"calibration", "coverage", "calibration at the observed"}, "too narrow in"),
        (Exact(spread=2.5), {"calibration", "coverage", "calibration at the observed"}, "too wide in"),
        (Exact(shift=0.3), {"calibration", "calibration at the observed"}, "shifted in a, b (too high by"),
        (Exact(spread=[1.6, 1.6, 1.0], near=OBSERVED), {"calibration"}, "too wide in a, b"),
        (Exact(spread=[2.5, 0.86, 1.0]), {"calibration"}, "too wide in a"),
        (Exact(spread=[2.5, 0.5, 1.0]), {"calibration"}, "too wide in a; too narrow in b:"),
        (Exact(spread=[2.0, 1.1, 1.0]), {"calibration"}, "too wide in a:"),
    ],
)
def test_planted_errors_fail(planted, failed, words):
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=planted), simulate, **FEW)
    assert failed <= set(verdict.failed) and not verdict.passed, str(verdict)
    assert words in verdict["calibration"].words
    careful = words in (
        "too wide in",
        "too wide in a:",
    )  # and no parameter is narrow, nor the posterior at the observed
    assert verdict.too_wide == careful, str(verdict)
    assert ("is wider than the data allows" if verdict.too_wide else "Do not train on this") in str(verdict)


def test_a_posterior_too_wide_elsewhere_is_not_excused_where_it_matters():
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact([1.6, 1.6, 1.0], near=OBSERVED)), simulate)
    assert "a linear regression on simulations there finds a 2." in verdict["calibration at the observed"].words


def test_a_posterior_that_seems_to_be_off_is_looked_at_with_three_times_as_many_simulations():
    def numbers(**planted):
        verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact(**planted)), simulate, seed=12)
        return verdict.passed, int(verdict["calibration"].words.split(" of ")[-1].split()[0])

    assert numbers() == (True, 900)  # of 300, chance makes it seem off
    assert numbers(spread=0.6) == (False, 900)
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact()), simulate)
    assert "of 300 simulations" in verdict["calibration"].words and verdict.passed


@pytest.mark.parametrize(("spread", "shift"), [(0.95, 0.0), (1.0, 0.03)])
def test_a_certain_deviation_of_no_practical_size_does_not_fail(spread, shift):
    estimator = Exact([spread, spread, 1.0], shift)
    thetas = Posterior(PRIOR, OBSERVED, estimator=estimator).prior.sample(2500, 4)
    posterior = Posterior(PRIOR, OBSERVED, estimator=estimator)
    verdict = check_posterior(posterior, calibration=Simulations(thetas, simulate(thetas)), num_draws=50)
    found = verdict["calibration"]
    assert found.outcome == "small" and found.p_value < 0.01 and "slightly off in" in found.words, str(verdict)
    assert re.search(r"slightly off in .*, at some level by [1-9][\d.]* %: 90 % intervals", found.words), found.words
    assert re.search(r"\n  acceptable +calibration +slightly off", str(verdict))
    assert verdict.passed and "calibration" in verdict.small and "is usable" in str(verdict)
    assert verdict.to_plain()["passed"] and verdict.to_plain()["small"] == list(verdict.small)


def test_a_small_deviation_of_joint_regions_says_how_large_it_is():
    posterior = Posterior(PRIOR, OBSERVED, estimator=Exact([1.08] * 3, 0.1))
    thetas = posterior.prior.sample(2500, 4)
    verdict = check_posterior(
        posterior,
        simulate,
        calibration=Simulations(thetas, simulate(thetas)),
        num_draws=50,
        held_out=simulate(TRUTH),
    )
    found = verdict["coverage"]
    assert found.outcome == "small"
    assert re.search(r"^slightly off, at some level by [1-9][\d.]* %: joint regions of 90 %", found.words), found.words
    assert "give 1 held-out rollout (" in verdict["reproduces held-out rollouts"].words


ROUNDS = {"rounds": 2, "num_simulations": [1000, 1000]}


def test_an_exact_posterior_passes_after_directed_rounds():
    # Parameters then come from a region, and draws of all posteriors have to: else the half of these would fail.
    rejected = []
    for seed in range(12):
        observed = simulate(Posterior(PRIOR, None, [[0.0] * 3]).prior.sample(1, seed))[0]
        posterior = Posterior(PRIOR, observed, estimator=Exact(), description=ROUNDS, seed=seed)
        rejected += [str(verdict)] if not (verdict := check_posterior(posterior, simulate, seed=seed)).passed else []
    assert len(rejected) <= 1, "\n".join(rejected)


@pytest.mark.parametrize(
    ("planted", "failed", "words"),
    [
        (Exact(spread=0.6), "calibration", "too narrow in a, b"),
        (Exact(spread=1.8), "calibration", "too wide in"),
        (Exact(shift=0.12), "calibration", "shifted in"),
        (Exact(spread=0.03), "calibration", "simulations with parameters of the region where this posterior lies"),
        (Exact(blind=[0]), "uses the data", "about a: a regression"),
        (Exact(blind=[0, 1, 2]), "uses the data", "about a, b: a regression"),
    ],
)
def test_planted_errors_fail_after_directed_rounds(planted, failed, words):
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=planted, description=ROUNDS), simulate, **FEW)
    assert failed in verdict.failed and words in verdict[failed].words, str(verdict)


class Within(Exact):
    """Of the prior within a region: nothing of it lies outside."""

    def __init__(self, region, **planted) -> None:
        super().__init__(**planted)
        self.region = region

    def sample(self, num, features, seed):
        drawn = super().sample(8 * num, features, seed)  # at least an eighth lies within, or as much as there is
        outside = ~self.region.holds(drawn.reshape(-1, 3)).reshape(drawn.shape[:2])
        return np.take_along_axis(drawn, np.argsort(outside, axis=1, kind="stable")[:, :num, None], axis=1)


def within(deviations: float, **planted) -> Region:
    """What lies so near to the middle of a posterior of the observation."""
    earlier = Exact(**planted)
    top = earlier.log_prob(earlier.means(OBSERVED[None]), OBSERVED[None])[0, 0]
    return Region(earlier, OBSERVED, float(top - 0.5 * deviations**2))


EARLIER = within(2.5, shift=0.3)
"""Of a posterior that is off: beyond its edge lies some of what a right one of the whole prior holds likely."""


def test_a_posterior_of_the_prior_within_a_region_is_judged_by_parameters_of_that_region():
    told = {"estimator": Within(EARLIER), "description": ROUNDS, "seed": 0}
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, **told, region=EARLIER), simulate, seed=0)
    assert verdict.passed, verdict
    assert not check_posterior(Posterior(PRIOR, OBSERVED, **told), simulate, seed=0, **FEW).passed


def test_a_posterior_much_narrower_than_its_region_is_judged_where_it_lies():
    class WrongFarAway(Exact):
        def sample(self, num, features, seed):
            means = self.means(features)[:, None]
            apart = np.abs(means[:, 0, :2] - self.means(OBSERVED[None])[0, :2]) / np.sqrt(np.diag(self.cov)[:2])
            factor = np.where(apart.max(axis=1) > 9.0, 3.0, 1.0)[:, None, None]
            return means + factor * (super().sample(num, features, seed) - means)

    for deviations, passes in ((14.0, True), (6.0, True)):
        posterior = Posterior(
            PRIOR, OBSERVED, estimator=WrongFarAway(), description=ROUNDS, region=within(deviations, spread=1.0)
        )
        verdict = check_posterior(posterior, simulate)
        assert verdict.passed == passes, str(verdict)
    thetas = within(14.0).sample(500, 3, 0)
    everywhere = Posterior(PRIOR, OBSERVED, estimator=WrongFarAway())
    made = Simulations(everywhere.prior.from_normal(thetas), simulate(everywhere.prior.from_normal(thetas)))
    assert "calibration" in check_posterior(everywhere, calibration=made).failed


@pytest.mark.parametrize("planted", [{"spread": 0.6}, {"shift": 0.2}, {"blind": [0, 1]}])
def test_planted_errors_fail_within_a_region(planted):
    wide = within(4.0, spread=1.2)
    estimator = Within(wide, **planted)
    verdict = check_posterior(
        Posterior(PRIOR, OBSERVED, estimator=estimator, description=ROUNDS, region=wide), simulate, **FEW
    )
    assert {"calibration", "uses the data"} & set(verdict.failed), str(verdict)


def test_calibration_that_is_given_counts_within_the_region_alone():
    posterior = Posterior(PRIOR, OBSERVED, estimator=Exact(), description=ROUNDS)
    thetas = posterior.prior.sample(3000, 1)
    verdict = check_posterior(posterior, calibration=Simulations(thetas, simulate(thetas)))
    assert verdict.passed and "of 1000 simulations of the last round" in verdict["simulations that count"].words
    told = verdict["calibration"].words.split(" of ")[-1]
    assert 50 <= int(told.split()[0]) < 1500, told
    with pytest.raises(ValueError, match="parameters of the region that rounds were directed to, got"):
        check_posterior(posterior, calibration=Simulations(thetas[:60], simulate(thetas[:60])))


@pytest.mark.parametrize("blind", [[0], [0, 1, 2]])
def test_a_posterior_that_ignores_what_the_data_says_fails(blind):
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact(blind=blind)), simulate)
    assert verdict["calibration"].outcome == "passed"  # the prior is calibrated
    found = verdict["uses the data"]
    names = "a, b" if len(blind) > 1 else "a"
    assert found.outcome == "failed" and f"about {names}: a regression" in found.words
    assert found.values["shares"]["a"] > 0.5 and "idle" not in found.values["ignored"]
    # What the data tells is not called unidentified, however wide the posterior is.
    words = verdict["identified"].words
    assert "a" not in verdict.unidentified and "idle" in verdict.unidentified
    assert "does not identify idle;" in words and "but the posterior does not, a (9" in words


def test_whether_data_tells_of_a_wide_parameter_is_measured():
    def faint(thetas):
        return np.concatenate([simulate(thetas), thetas[:, 2:] + 2.0 * simulate(thetas)[:, :1]], axis=1)

    class Wide(Exact):
        event_shape = (7,)

        def means(self, features):
            return super().means(features[:, :6])

    observed = faint(TRUTH)[0]
    verdict = check_posterior(Posterior(PRIOR, observed, estimator=Wide()), faint)
    assert "but the posterior does not, idle" in verdict["identified"].words
    alone = check_posterior(Posterior(PRIOR, observed, estimator=Wide()))
    assert alone.unidentified == ("idle",) and "not tested" in alone["identified"].words


def test_a_width_alone_identifies_nothing():
    """Networks of few simulations are narrower than the prior by chance."""
    narrow = Exact(spread=[1.0, 1.0, 0.7])
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=narrow), simulate)
    assert verdict.unidentified == ("idle",) and "does not identify idle" in verdict["identified"].words
    # One that the data does tell, as wide, passes.
    some = np.ascontiguousarray(MIX * [[0.3], [1.0]])

    def faint(thetas):
        return thetas[:, :2] @ some + simulate(thetas) - thetas[:, :2] @ MIX

    class Told(Exact):
        def __init__(self):
            super().__init__()
            self.cov[:2, :2] = np.linalg.inv(np.eye(2) + some @ some.T / NOISE**2)
            self.root = np.linalg.cholesky(self.cov)

        def means(self, features):
            mean = np.zeros((len(features), 3))
            mean[:, :2] = features @ some.T / NOISE**2 @ self.cov[:2, :2]
            return mean

    found = check_posterior(Posterior(PRIOR, faint(TRUTH)[0], estimator=Told()), faint)["identified"]
    assert found.values["unidentified"] == ["idle"] and 0.5 < found.values["ratios"]["a"] < 0.8, found


FAR = 30.0 * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])


@pytest.mark.parametrize("num", [20, 50])
def test_few_simulations_still_find_what_cannot_be(num):
    posterior = Posterior(PRIOR, FAR, estimator=Exact())
    verdict = check_posterior(posterior, simulate, num_calibration=max(num, 50), num_draws=20, num_predictive=num)
    assert {"within reach of the simulator", "reproduces the observed"} <= set(verdict.failed), str(verdict)


def test_intervals_that_miss_every_truth_are_not_called_too_wide():
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact(shift=30.0)), simulate, num_calibration=60)
    for name in ("calibration", "calibration at the observed"):
        assert all(verdict[name].values["deviations"][param] == ["shifted"] for param in ("a", "b")), str(verdict)
    assert verdict["calibration"].values["coverage"]["a"] == 0.0 and not verdict.too_wide


def test_many_held_out_rollouts_of_which_one_is_off():
    held_out = simulate(TRUTH + np.linspace(0.0, 0.1, 10)[:, None] * [[0, 0, 1]])
    posterior = Posterior(PRIOR, OBSERVED, Exact().sample(500, OBSERVED[None], 0)[0])
    assert check_posterior(posterior, simulate, held_out=held_out)["reproduces held-out rollouts"].outcome == "passed"
    held_out[3] = FAR
    assert check_posterior(posterior, simulate, held_out=held_out).failed == ("reproduces held-out rollouts",)


def test_held_out_rollouts_with_features_of_another_width():
    def two_rollouts(thetas):
        return np.concatenate([simulate(thetas), simulate(thetas + 1e-9)], axis=1)

    name = "reproduces held-out rollouts"
    posterior = Posterior(PRIOR, OBSERVED, Exact().sample(500, OBSERVED[None], 0)[0])
    recorded = two_rollouts(TRUTH)
    verdict = check_posterior(posterior, simulate, held_out=recorded[0], held_out_simulate=two_rollouts)
    assert verdict[name].outcome == "passed", str(verdict)
    other = two_rollouts(-2.0 * TRUTH)
    verdict = check_posterior(posterior, simulate, held_out=other, held_out_simulate=two_rollouts)
    assert verdict.failed == (name,)
    alone = check_posterior(posterior, held_out=recorded, held_out_simulate=two_rollouts)
    assert alone[name].outcome == "passed" and alone["reproduces the observed"].outcome == "not checked"
    with pytest.raises(ShapeError, match=r"held_out must have the shape .*got \(1, 12\); held_out_simulate"):
        check_posterior(posterior, simulate, held_out=recorded)
    with pytest.raises(ValueError, match="held_out"):
        check_posterior(posterior, simulate, held_out_simulate=two_rollouts)
    with pytest.raises(ValueError, match="held_out"):
        check_posterior(posterior, simulate, held_out=np.full(6, np.nan))


def test_calibration_simulations_can_be_given_and_failed_ones_do_no_harm():
    prior = Posterior(PRIOR, OBSERVED, estimator=Exact()).prior
    thetas = prior.sample(200, 3)
    features = simulate(thetas)
    features[::7] = np.nan
    verdict = check_posterior(Posterior(PRIOR, OBSERVED, estimator=Exact()), calibration=Simulations(thetas, features))
    assert verdict["calibration"].outcome == "passed"
    assert verdict["reproduces the observed"].outcome == "not checked"
    with pytest.raises(ValueError, match="at least 50 usable simulations, got 10"):
        check_posterior(
            Posterior(PRIOR, OBSERVED, estimator=Exact()),
            calibration=Simulations(thetas[1:11], features[1:7].repeat(2, 0)[:10]),
        )


def swing(thetas: np.ndarray, friction: float = 0.0) -> np.ndarray:
    """Angles of pendulums of lengths and amplitudes ``thetas (B, 2)`` at 20 times in 4 s, with noise of the sensor."""
    angle, speed, seen = thetas[:, 1].copy(), np.zeros(len(thetas)), []
    for step in range(200):
        speed = speed + 0.02 * (-9.81 / thetas[:, 0] * np.sin(angle) - friction * speed)
        angle = angle + 0.02 * speed
        if step % 10 == 9:
            seen.append(angle)
    words = np.ascontiguousarray(thetas).view(np.uint64).sum(axis=1)
    noise = np.stack([np.random.default_rng(int(word)).standard_normal(20) for word in words])
    return np.stack(seen, axis=1) + 0.02 * noise


@pytest.mark.parametrize("friction", [0.0, 0.3])
def test_an_unmodelled_friction_is_raised(friction):
    prior = {"length": (0.5, 1.5), "amplitude": (0.3, 1.0)}
    observed = swing(np.array([[0.9, 0.7]]), friction)[0]
    # Draws alone, by rejection: the nearest of many simulations.
    tried = Posterior(prior, None, [[1.0, 0.5]]).prior.sample(4000, 0)
    nearest = np.argsort(np.linalg.norm(swing(tried) - observed, axis=1))[:80]
    verdict = check_posterior(Posterior(prior, observed, tried[nearest]), swing)
    raised = {"within reach of the simulator", "reproduces the observed"} & set(verdict.failed)
    assert bool(raised) == (friction > 0.0), str(verdict)
    assert verdict["calibration"].outcome == "not checked" and "draws only" in verdict["calibration"].words


def test_a_feature_that_never_varies_but_was_observed_otherwise():
    def with_constant(thetas):
        return np.concatenate([simulate(thetas), np.full((len(thetas), 1), 2.0)], axis=1)

    draws = Exact().sample(100, OBSERVED[None], 0)[0]
    verdict = check_posterior(Posterior(PRIOR, np.append(OBSERVED, 3.0), draws), with_constant)
    assert "feature 6 is 2 in all simulations, but 3" in str(verdict)


def test_a_posterior_at_the_bound_of_its_prior():
    draws = np.random.default_rng(0).uniform(0.985, 1.0, (500, 1))
    verdict = check_posterior(Posterior({"mass": (0.0, 1.0)}, None, draws))
    assert verdict["bounds"].outcome == "note" and "may exclude the truth" in verdict["bounds"].words


def test_what_leans_against_a_bound_is_said_where_a_posterior_is_refused():
    leaning = Check(
        "bounds",
        "note",
        "draws pile up at a bound of the prior of a",
    )
    for outcome, words in (
        ("failed", "1 of 1 tests failed. Note: draws pile up at a bound of the prior of a"),
        ("passed", "passed all 1"),
    ):
        assert words in str(Verdict((Check("coverage", outcome, "."), leaning), ("a",), ())).splitlines()[0]
