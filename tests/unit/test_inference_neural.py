"""Issue 15 item 5: neural posteriors on sbi: against an exact one, from folders, in rounds, with simulations kept."""

from __future__ import annotations

import math
import os
import random
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from metaroll.data.posteriors import folder as posterior_folder
from metaroll.errors import MissingPackageError, PosteriorError, ShapeError
from metaroll.functional.posteriors.random_features import (
    matern_frequencies,
    median_distance,
)
from metaroll.inference.checks import check_posterior
from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.estimators import NeuralEstimator
from metaroll.inference.feature_map import FeatureMap
from metaroll.inference.neural import NPDR, BayesSim
from metaroll.inference.posterior import Posterior
from metaroll.inference.regions import find_region
from metaroll.seeding import isolated_rng

PRIOR = {"a": ("normal", 0.0, 1.0), "b": (-4.0, 4.0)}
NOISE = 0.5
QUICK = EstimatorConfig(model="maf", hidden_features=16, num_transforms=2, max_epochs=2, batch_size=50)
FLOW = replace(QUICK, max_epochs=25, learning_rate=1e-2)
MIXTURE = EstimatorConfig(hidden_features=16, max_epochs=30, batch_size=50, learning_rate=1e-2)


class Linear:
    """``x = theta + noise``, a constant feature, and failures of ``a > 2``; noise depends on the parameters alone."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, thetas: np.ndarray) -> np.ndarray:
        self.calls.append(len(thetas))
        words = np.ascontiguousarray(thetas).view(np.uint64).reshape(len(thetas), -1).sum(axis=1)
        noise = np.stack([np.random.default_rng(int(word)).standard_normal(2) for word in words])
        features = np.concatenate([thetas + NOISE * noise, np.full((len(thetas), 1), 7.0)], axis=1)
        features[thetas[:, 0] > 2.0] = np.nan
        return features


OBSERVED = np.array([0.5, 1.0, 7.0])
# The exact posterior: of a, normal times normal; of b, a normal in a wide box.
EXACT_MEAN, EXACT_STD = np.array([0.4, 1.0]), np.array([np.sqrt(0.2), NOISE])


def globals_now():
    return torch.get_rng_state().numpy().tobytes(), str(np.random.get_state()), random.getstate()


@pytest.mark.parametrize(
    "make",
    [
        lambda: NPDR(PRIOR, FLOW),
        lambda: NPDR(PRIOR, FLOW, rounds=2),
        lambda: NPDR(PRIOR, replace(FLOW, max_epochs=8), rounds=2, proposal="posterior"),
        lambda: BayesSim(PRIOR, 1, config=MIXTURE),
        lambda: BayesSim(PRIOR, 1, config=MIXTURE, rounds=2, proposal="posterior"),
        lambda: BayesSim(PRIOR, 1, 64, config=MIXTURE),
        pytest.param(lambda: NPDR(PRIOR, replace(MIXTURE, method="fmpe", max_epochs=60)), marks=pytest.mark.slow),
    ],
    ids=["amortized", "truncated", "atomic", "mixture", "mixture in rounds", "random features", "flow matching"],
)
def test_near_the_exact_posterior_and_the_same_from_its_folder(make, tmp_path):
    before, threads, listed = globals_now(), torch.get_num_threads(), os.listdir()
    posterior = make().infer(Linear(), OBSERVED[None], 400)
    assert globals_now() == before and torch.get_num_threads() == threads and os.listdir() == listed
    assert posterior.draws.shape == (10_000, 2)
    np.testing.assert_allclose(posterior.mean, EXACT_MEAN, atol=0.35)
    assert (posterior.std > 0.5 * EXACT_STD).all() and (posterior.std < 1.7 * EXACT_STD).all()
    told = posterior.description
    assert sum(told["num_simulations"]) + told["num_failed"] == 400 and told["num_failed"] > 0
    back = Posterior.load(posterior.save(tmp_path / "p"))
    rows = posterior.draws[:20]
    np.testing.assert_array_equal(back.draws, posterior.draws)
    np.testing.assert_array_equal(back.sample(5, seed=9), posterior.sample(5, seed=9))
    np.testing.assert_array_equal(back.log_prob(rows), posterior.log_prob(rows))
    assert posterior.log_prob([[0.0, 4.1]])[0] == -np.inf
    assert (posterior.region is not None) == (told["rounds"] > 1 and told["proposal"] == "truncated")
    if (region := posterior.region) is not None:
        normals = posterior.prior.to_normal(posterior.prior.sample(200, 0))
        assert back.region is not None and back.at(OBSERVED).region == back.region
        np.testing.assert_array_equal(back.region.holds(normals), region.holds(normals))
        assert 20 < region.holds(normals).sum() < 180 and region.holds(posterior.prior.to_normal(rows)).all()
        assert Posterior.load(back.save(tmp_path / "q")).region is not None


def test_a_prior_that_excludes_the_truth_ends_in_a_posterior_and_its_verdict():
    def simulate(thetas):
        return thetas + 0.05 * np.sin(1e6 * thetas)

    prior = {"a": (-2.0, 2.0), "b": (-4.0, 4.0)}
    posterior = BayesSim(prior, 1, config=MIXTURE, rounds=2).infer(simulate, [12.0, 40.0], 200)
    np.testing.assert_allclose(posterior.mean, [2.0, 4.0], rtol=1e-3)  # as near as the prior allows
    verdict = check_posterior(posterior, simulate, num_calibration=60, num_draws=40, num_predictive=40)
    assert {"within reach of the simulator", "reproduces the observed"} <= set(verdict.failed)
    assert "exclude the truth" in str(verdict) and "time step" in str(verdict)


def test_the_region_of_a_posterior_beyond_the_prior_is_what_is_nearest_to_it():
    class Beyond:
        """A posterior that lies where no draw of the prior does."""

        event_shape = (1,)

        def sample(self, num, features, seed):
            return self.center + 0.3 * np.random.default_rng(seed).standard_normal((1, num, 2))

        def log_prob(self, normals, features):
            return -0.5 * np.square((normals - self.center) / 0.3).sum(axis=-1)[None]

    Beyond.center = np.array([-20.0, 9.0])
    found = find_region(Beyond(), 2, np.zeros(1), 0).sample(1000, 2, 0)
    assert len(np.unique(found, axis=0)) == 1000
    nearest = np.sort(np.random.default_rng(0).standard_normal((100_000, 2)) @ [-20.0, 9.0])[-1000:].mean()
    assert abs((found @ [-20.0, 9.0]).mean() / nearest - 1.0) < 0.05  # all but a hundredth of the prior is left out
    Beyond.center = np.array([-4.0, 3.9])  # narrow, and far out, but where the prior draws: as it is
    found = find_region(Beyond(), 2, np.zeros(1), 0).sample(1000, 2, 0)
    assert np.abs(found - Beyond.center).max() < 1.5 and len(np.unique(found, axis=0)) == 1000


@pytest.mark.parametrize("model", ["nsf", "autoregressive_nsf"])
def test_an_ensemble_of_one_parameter_is_a_density(model, tmp_path):
    config = EstimatorConfig(model=model, ensemble=2, max_epochs=8, learning_rate=3e-3, num_transforms=2)

    def simulate(thetas):
        return np.concatenate([thetas, thetas**2], axis=1) + 0.3 * np.sin(1e5 * thetas)

    posterior = NPDR({"m": ("log-uniform", 0.1, 10.0)}, config).infer(simulate, None, 300)
    at = posterior.at([2.0, 4.0])
    edges = np.linspace(0.1, 10.0, 4001)
    middle = 0.5 * (edges[1:] + edges[:-1])
    assert np.exp(at.log_prob(middle[:, None])).sum() * (edges[1] - edges[0]) == pytest.approx(1.0, abs=0.02)
    assert posterior.sample(0, 0, observed=np.zeros(2)).shape == (0, 1)
    assert at.sample(0, 0).shape == (0, 1) and at.sample(0, 0, observed=np.zeros((2, 2))).shape == (2, 0, 1)
    batch = posterior.sample(4, 0, observed=np.array([[2.0, 4.0], [5.0, 25.0]]))
    assert batch.shape == (2, 4, 1)
    pairs = posterior.log_prob([[2.0], [5.0]], observed=np.array([[2.0, 4.0], [5.0, 25.0]]))
    assert pairs[0] == pytest.approx(at.log_prob([[2.0]])[0], abs=1e-4)
    again = Posterior.load(at.save(tmp_path / "p"))
    np.testing.assert_array_equal(again.log_prob(middle[:9, None]), at.log_prob(middle[:9, None]))
    with pytest.raises(ValueError, match="nothing was observed"):
        posterior.save(tmp_path / "q")


def test_what_was_learned_by_heart_is_not_too_sure():
    """Of 30 features one tells the parameter; a network of few simulations fits the others as well."""
    generator = np.random.default_rng(0)

    def simulate(thetas):
        told = thetas[:, :1] + 0.3 * generator.standard_normal((len(thetas), 1))
        return np.concatenate([told, generator.standard_normal((len(thetas), 29))], axis=1)

    config = EstimatorConfig(model="maf", num_transforms=2, learning_rate=2e-3, stop_after_epochs=30, batch_size=50)
    posterior = NPDR({"m": ("normal", 0.0, 1.0)}, config).infer(simulate, None, 150)
    thetas = generator.standard_normal((300, 1))
    features = simulate(thetas)
    drawn = posterior.sample(300, 0, observed=features)[..., 0]
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    held = ((thetas[:, 0] >= low) & (thetas[:, 0] <= high)).mean()
    root = posterior.estimator.weights()["0.net.base.scale_tril"]
    assert root > 1.1 and 0.83 < held < 0.97
    root.fill_(1.0)  # as it was trained
    sure = np.quantile(posterior.sample(300, 0, observed=features)[..., 0], [0.05, 0.95], axis=1)
    assert ((thetas[:, 0] >= sure[0]) & (thetas[:, 0] <= sure[1])).mean() < held - 0.03


@pytest.mark.slow
def test_a_learned_likelihood():
    config = replace(MIXTURE, method="nle", model="mdn", num_components=1, max_epochs=20)
    posterior = NPDR(PRIOR, config).infer(Linear(), None, 300).at(OBSERVED)
    draws = posterior.sample(120, seed=0)
    np.testing.assert_allclose(draws.mean(axis=0), EXACT_MEAN, atol=0.35)
    assert (draws.std(axis=0) > 0.5 * EXACT_STD).all() and (draws.std(axis=0) < 1.7 * EXACT_STD).all()


def test_an_embedding_is_trained_with_the_density(tmp_path):
    def simulate(thetas):
        return thetas[:, :, None] + 0.1 * np.sin(np.arange(6) * 1e4 * thetas[:, :1])[:, None]

    def net():
        with isolated_rng(0):
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))

    first = net()
    posterior = NPDR(PRIOR, QUICK, embedding_net=first).infer(simulate, np.ones((2, 6)), 200)
    np.testing.assert_array_equal(first[1].weight.detach(), net()[1].weight.detach())
    folder = posterior.save(tmp_path / "p")
    with pytest.raises(PosteriorError, match="embedding_net="):
        Posterior.load(folder).log_prob([[0.0, 0.0]])
    back = Posterior.load(folder, embedding_net=net())
    np.testing.assert_array_equal(back.log_prob(posterior.draws[:3]), posterior.log_prob(posterior.draws[:3]))
    assert len(Posterior.load(folder).draws) == 10_000
    # After two rounds the network of the region is another one, and both come back as they were.
    twice = NPDR(PRIOR, QUICK, embedding_net=first, rounds=2).infer(simulate, np.ones((2, 6)), 200)
    given, rows = net(), twice.prior.to_normal(twice.prior.sample(50, 0))
    again = Posterior.load(twice.save(tmp_path / "q"), embedding_net=given)
    np.testing.assert_array_equal(again.region.log_prob(rows), twice.region.log_prob(rows))
    np.testing.assert_array_equal(again.log_prob(twice.draws[:3]), twice.log_prob(twice.draws[:3]))
    np.testing.assert_array_equal(again.region.log_prob(rows), twice.region.log_prob(rows))
    np.testing.assert_array_equal(given[1].weight.detach(), net()[1].weight.detach())


def test_flows_with_a_base_of_deviations_alone_are_read(tmp_path):
    posterior = NPDR(PRIOR, QUICK).infer(Linear(), OBSERVED, 200)
    estimator = posterior.estimator
    weights = {name: value.clone() for name, value in estimator.weights().items()}
    root = weights.pop("0.net.base.scale_tril")
    weights["0.net.base.scale"] = root.diagonal().clone()
    earlier = NeuralEstimator.from_weights(2, estimator.to_plain(), weights)
    np.testing.assert_array_equal(earlier.weights()["0.net.base.scale_tril"], torch.diag(root.diagonal()))
    # The base of a likelihood is not fitted, and is read as it is.
    likelihood = NPDR(PRIOR, replace(QUICK, method="nle")).infer(Linear(), None, 100).estimator
    assert "0.net.base.scale" in likelihood.weights()
    again = NeuralEstimator.from_weights(2, likelihood.to_plain(), likelihood.weights())
    points = posterior.prior.to_normal(posterior.prior.sample(5, 0))
    np.testing.assert_array_equal(again.log_prob(points, OBSERVED[None]), likelihood.log_prob(points, OBSERVED[None]))


@pytest.mark.parametrize(
    ("name", "value"),
    [("border", math.inf), ("observed", None), ("observed", [1.0]), ("observed", [1.0, math.nan, 1.0])],
)
def test_a_damaged_region_is_an_error(name, value, tmp_path):
    posterior = NPDR(PRIOR, QUICK, rounds=2).infer(Linear(), OBSERVED, 200)
    told = posterior_folder.read_description(folder := posterior.save(tmp_path / "p"))
    told["region"][name] = value
    with pytest.MonkeyPatch.context() as patch, pytest.raises(PosteriorError, match="holds no posterior of this"):
        patch.setattr("metaroll.inference.posterior.read_description", lambda path: told)
        Posterior.load(folder)


def test_the_last_of_several_rounds_has_half_of_all_simulations():
    posterior = NPDR(PRIOR, replace(QUICK, max_epochs=2), rounds=4).infer(Linear(), OBSERVED, 200)
    told = posterior.description  # some of them fail
    made = np.add(told["num_simulations"], told["num_failed_in_rounds"])
    assert made.tolist() == [33, 33, 34, 100]
    with pytest.raises(ValueError, match=r"at least 120 in 4 rounds.*got 119: .*rounds=3"):
        NPDR(PRIOR, QUICK, rounds=4).infer(Linear(), OBSERVED, 119)
    with pytest.raises(ValueError, match=r"at least 40 in 2 rounds.*got 10"):
        NPDR(PRIOR, QUICK, rounds=2).infer(Linear(), OBSERVED, 10)


def test_one_more_round_follows_where_a_posterior_is_not_enough(tmp_path):
    config, asked, told = replace(QUICK, max_epochs=2), [], []

    def made(rounds, *answers):
        asked.clear()
        method = NPDR(PRIOR, config, rounds=rounds, run_dir=tmp_path, progress=told.append)
        return method.infer(
            Linear(), OBSERVED, 200, lambda posterior: asked.append(posterior) or answers[len(asked) - 1]
        )

    plain = NPDR(PRIOR, config, rounds=3).infer(Linear(), OBSERVED, 200)
    enough = made(3, True)
    assert asked == [enough] and enough.description["rounds"] == 3
    np.testing.assert_array_equal(enough.draws, plain.draws)
    further = made(3, False, False)  # there is no other round after it, whatever is said then
    assert asked[1] is further and len(asked) == 2 and further.description["rounds"] == 4
    counts = np.add(further.description["num_simulations"], further.description["num_failed_in_rounds"])
    assert counts.tolist() == [50, 50, 100, 100] and further.description["num_reused"] == 200
    np.testing.assert_array_equal(asked[0].draws, plain.draws)
    assert further.std[0] != plain.std[0] and further.region.border != plain.region.border
    assert {(step.round_number, step.rounds) for step in told} == {(1, 3), (2, 3), (3, 3), (4, 4)}
    np.testing.assert_array_equal(made(3, False, True).draws, further.draws)  # of simulations that are all there
    assert made(1, False).description["rounds"] == 1  # it holds for every observation, and stays so


def test_where_one_more_round_cannot_be_simulated_the_posterior_stays():
    asked, simulate = [], Linear()

    def fails_later(thetas):
        return np.full((len(thetas), 3), np.nan) if asked else simulate(thetas)

    method = NPDR(PRIOR, replace(QUICK, max_epochs=2), rounds=2)
    posterior = method.infer(fails_later, OBSERVED, 100, lambda posterior: bool(asked.append(posterior)))
    assert asked == [posterior] and posterior.description["rounds"] == 2
    assert posterior.failures == "52 of 150 simulations failed" and posterior.description["num_unlearned"] == 0


def test_simulations_are_kept_and_used_again(tmp_path):
    told, first = [], Linear()
    options = {"run_dir": tmp_path, "batch_size": 80, "simulator": "linear 1"}
    one = NPDR(PRIOR, QUICK, **options, progress=told.append).infer(first, OBSERVED, 200)
    assert first.calls == [80, 80, 40] and [step.done for step in told if step.phase == "simulate"] == [0, 80, 160, 200]
    again = Linear()
    two = NPDR(PRIOR, QUICK, **options).infer(again, OBSERVED, 200)
    assert again.calls == [] and two.description["num_reused"] == 200
    np.testing.assert_array_equal(one.draws, two.draws)
    more = Linear()
    NPDR(PRIOR, QUICK, **options).infer(more, OBSERVED, 260)
    assert more.calls == [40, 20]
    fewer = NPDR(PRIOR, QUICK, **options).infer(again, OBSERVED, 100)
    assert again.calls == [] and fewer.description["num_reused"] == 100
    # What another prior, seed or simulator asks for is not what is there.
    for changed in ({"simulator": "linear 2"}, {"seed": 1}):
        other = Linear()
        NPDR(PRIOR, QUICK, **{**options, **changed}).infer(other, OBSERVED, 80)
        assert other.calls == [80]
    # A damaged part is made again.
    part = sorted((tmp_path / "simulations").glob("round-1-from-0000000-*"))
    for path in part:
        path.write_bytes(path.read_bytes()[:50])
    mended = Linear()
    three = NPDR(PRIOR, QUICK, **options).infer(mended, OBSERVED, 200)
    assert mended.calls == [80]
    np.testing.assert_array_equal(three.draws, one.draws)


def test_a_run_that_was_stopped_goes_on(tmp_path):
    class Stops(Linear):
        def __call__(self, thetas):
            if len(self.calls) == 3:
                raise KeyboardInterrupt
            return super().__call__(thetas)

    options = {"run_dir": tmp_path, "batch_size": 50, "rounds": 2}
    with pytest.raises(KeyboardInterrupt):
        NPDR(PRIOR, QUICK, **options).infer(Stops(), OBSERVED, 200)
    after, straight = Linear(), Linear()
    resumed = NPDR(PRIOR, QUICK, **options).infer(after, OBSERVED, 200)
    whole = NPDR(PRIOR, QUICK, batch_size=50, rounds=2).infer(straight, OBSERVED, 200)
    assert len(after.calls) == 1 and len(straight.calls) == 4
    np.testing.assert_array_equal(resumed.draws, whole.draws)


def test_features_that_never_vary_are_left_out():
    rows = np.random.default_rng(0).normal(5.0, 2.0, (400, 3))
    rows[:, 1] = 1e4 + 1e-4 * rows[:, 0]  # rounding of single precision
    rows = rows.astype(np.float32)
    seen = FeatureMap.fitted(rows)(torch.as_tensor(rows)).numpy()
    assert seen.shape == (400, 2) and seen.dtype == np.float32
    np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=0), 1.0, atol=1e-5)
    with pytest.raises(ValueError, match="must vary with the parameters"):
        FeatureMap.fitted(np.ones((9, 2)))


def test_regressions_of_simulations_are_those_of_others():
    """What a regression says of what it was made of is nearer to it than what it says of anything else."""
    generator = np.random.default_rng(0)
    truths = generator.normal(size=(800, 2))
    rows = np.concatenate([truths + generator.normal(size=(800, 2)), generator.normal(size=(800, 100))], axis=1)
    plain = FeatureMap.fitted(rows[:400])
    found = plain.regressed(rows[:400], truths[:400], 0)
    assert found is not None
    made, said = found
    assert said.shape == (400, 2) and said.dtype == torch.float32
    np.testing.assert_allclose(said.mean(dim=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(said.std(dim=0, correction=0), 1.0, atol=1e-6)

    def told(seen, of):
        return [np.corrcoef(seen[:, i], of[:, i])[0, 1] for i in range(2)]

    others = told(made(torch.as_tensor(rows[400:])).numpy(), truths[400:])
    np.testing.assert_allclose(told(said.numpy(), truths[:400]), others, atol=0.1)
    assert min(told(made(torch.as_tensor(rows[:400])).numpy(), truths[:400])) > max(others) + 0.05
    assert list(plain.state_dict()) == ["kept", "mean", "scale", "frequencies"]  # as it was written before
    assert plain.regressed(rows[:400], generator.normal(size=(400, 1)), 0) is None  # nothing is told of it
    one = plain.regressed(rows[:400], np.stack([truths[:400, 0], generator.normal(size=400)], axis=1), 0)
    assert one is not None and not one[1][:, 1].any() and not one[0](torch.as_tensor(rows))[:, 1].any()


@pytest.mark.parametrize(("kind", "regressed"), [("linear", True), ("square", False)])
def test_networks_see_regressions_where_they_learn_more_from_these(kind, regressed, tmp_path):
    """Of 40 features in a narrow region they do; where a regression says nothing, features are seen."""
    generator = np.random.default_rng(0)

    def simulate(thetas):
        told = thetas if kind == "linear" else thetas**2
        noise = generator.standard_normal((len(thetas), 40))
        return np.concatenate([told + 0.3 * noise[:, :1], told + noise[:, 1:9], noise[:, 9:]], axis=1)

    sizes = {"num_transforms": 2, "hidden_features": 16, "batch_size": 50, "stop_after_epochs": 10}
    config = EstimatorConfig(model="maf", regressions=True, ensemble=2, learning_rate=4e-3, **sizes)
    posterior = NPDR({"m": ("normal", 0.0, 1.0)}, config).infer(simulate, None, 300)
    assert posterior.description["regressed"] == [regressed]
    assert [len(posterior.description[name][0]) for name in ("epochs", "validation_losses")] == [2, 2]
    thetas = generator.standard_normal((300, 1))
    features = simulate(thetas)
    drawn = posterior.sample(300, 0, observed=features)[..., 0]
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    assert 0.82 < ((thetas[:, 0] >= low) & (thetas[:, 0] <= high)).mean() < 0.97
    if regressed:
        precision = 1.0 + 1.0 / 0.09 + 8.0
        np.testing.assert_allclose(drawn.std(axis=1).mean(), precision**-0.5, rtol=0.15)
    there = posterior.at(features[0])
    there.save(tmp_path / "posterior")
    np.testing.assert_array_equal(Posterior.load(tmp_path / "posterior").sample(9, 0), there.sample(9, 0))


@pytest.mark.parametrize(("num_features", "num_params"), [(1, 2), (12, 3)])
def test_a_parameter_that_no_feature_depends_on_keeps_the_width_of_its_prior(num_features, num_params):
    """With leave-one-out regressions, the difference to the regression on all rows gives away a row's own parameter:
    90 % intervals of such a parameter contained 4 % of the true values."""
    generator = np.random.default_rng(0)
    mixed = generator.normal(size=(num_params - 1, num_features))

    def simulate(thetas):
        means = thetas[:, : num_params - 1] @ mixed
        return means + 0.02 * generator.standard_normal((len(thetas), num_features))

    sizes = {"num_transforms": 2, "hidden_features": 16, "batch_size": 50, "stop_after_epochs": 10}
    config = EstimatorConfig(model="maf", regressions=True, learning_rate=3e-3, **sizes)
    prior = {f"p{i}": ("normal", 0.0, 1.0) for i in range(num_params)}
    posterior = NPDR(prior, config).infer(simulate, None, 300)
    thetas = generator.standard_normal((300, num_params))
    drawn = posterior.sample(200, 0, observed=simulate(thetas))[..., -1]
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    assert 0.82 < ((thetas[:, -1] >= low) & (thetas[:, -1] <= high)).mean() < 0.97
    assert 0.85 < drawn.std(axis=1).mean() < 1.15


def test_random_features_estimate_the_matern_kernel():
    rows = np.random.default_rng(1).normal(size=(30, 3))
    scale = median_distance(rows)
    angles = rows @ matern_frequencies(4096, 3, scale, 2.5, 0).T
    made = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / 64.0  # Rahimi and Recht 2007, algorithm 1
    distance = np.linalg.norm(rows[:, None] - rows[None], axis=2) * np.sqrt(5.0) / scale
    kernel = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)  # Rasmussen and Williams 2006, eq. 4.17
    np.testing.assert_allclose(made @ made.T, kernel, atol=0.02)


def test_bad_input():
    with pytest.raises(TypeError, match="regressions must"):
        EstimatorConfig(regressions=1)
    for wrong in ({"method": "nle"}, {"num_random_features": 8}):
        with pytest.raises(ValueError, match=r"regressions must .* method="):
            EstimatorConfig(regressions=True, **wrong)
    with pytest.raises(ValueError, match="rounds above 1"):
        NPDR(PRIOR, QUICK, rounds=2).infer(Linear(), None, 100)
    with pytest.raises(ShapeError, match=r"shape of simulated features, \(3,\), got \(2,\)"):
        NPDR(PRIOR, QUICK).infer(Linear(), [1.0, 2.0], 40)
    with pytest.raises(ValueError, match="observed must"):
        NPDR(PRIOR, QUICK).infer(Linear(), [1.0, 2.0, np.nan], 40)
    with pytest.raises(ShapeError, match=r"a row for each row of thetas"):
        NPDR(PRIOR, QUICK).infer(lambda thetas: np.ones(3), OBSERVED, 40)
    with pytest.raises(ValueError, match="only 0 of 40 simulations"):
        NPDR(PRIOR, QUICK).infer(lambda thetas: np.full((len(thetas), 3), np.nan), OBSERVED, 40)
    with pytest.raises(ValueError, match="num_simulations"):
        NPDR(PRIOR, QUICK).infer(Linear(), OBSERVED, 5)
    with pytest.raises(ValueError, match=r"model must be 'nsf' or .*, got 'mfa'; did you mean 'maf'"):
        EstimatorConfig(model="mfa")
    with pytest.raises(ValueError, match="'truncated' or 'posterior'"):
        NPDR(PRIOR, proposal="prior")


def test_without_sbi_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sbi", None)
    monkeypatch.setitem(sys.modules, "sbi.inference", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'sbi>="):
        NPDR(PRIOR).infer(Linear(), OBSERVED, 100)
