"""specs/sampling.md 16.4: distributions of domain parameters, and the randomizer made of them."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import scipy.stats
import torch

from metaroll import (
    BernoulliDomainParam,
    DomainParamUpdate,
    DomainRandomizer,
    LogUniformDomainParam,
    MultivariateNormalDomainParam,
    NormalDomainParam,
    TaskSampler,
    UniformDomainParam,
)
from metaroll.errors import ShapeError, UnknownNameError
from metaroll.tasks.domain_randomizer import params_from_rules

MASS = UniformDomainParam("mass", 1.0, 0.25)


@pytest.mark.parametrize(
    ("param", "cdf"),
    [
        (UniformDomainParam("a", 2.0, 0.5), scipy.stats.uniform(1.5, 1.0).cdf),
        (NormalDomainParam("a", -1.0, 3.0), scipy.stats.norm(-1.0, 3.0).cdf),
        (LogUniformDomainParam("a", 0.01, 100.0), scipy.stats.loguniform(0.01, 100.0).cdf),
    ],
)
def test_draws_follow_the_distribution(param, cdf):
    drawn = param.sample(4000, 0)
    assert drawn.shape == (4000,) and drawn.dtype == np.float64
    assert scipy.stats.kstest(drawn, cdf).pvalue > 0.01
    np.testing.assert_array_equal(param.sample(3, 7), param.sample(3, np.random.default_rng(7)))


def test_joint_draws_and_coins():
    cov = np.array([[4.0, 1.0], [1.0, 0.5]])
    joint = MultivariateNormalDomainParam(("a", "b"), [1.0, -2.0], cov)
    drawn = joint.sample(20000, 1)
    np.testing.assert_allclose(drawn.mean(axis=0), [1.0, -2.0], atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.1)
    coin = BernoulliDomainParam("planet", 0.0, 1.0, 0.7).sample(10000, 2)
    assert set(coin) == {0.0, 1.0} and abs(coin.mean() - 0.7) < 0.02


def test_draws_are_clipped_then_rounded():
    param = UniformDomainParam("delay", 2.0, 5.0, clip_lo=0.0, clip_up=3.6, roundint=True)
    assert set(param.sample(500, 0)) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert NormalDomainParam("m", 1.0, 10.0, clip_lo=1e-3).sample(200, 0).min() == 1e-3


def test_a_single_draw_is_the_first_of_the_stream():
    params = [
        UniformDomainParam("a", 2.0, 5.0, clip_lo=0.0, clip_up=3.6, roundint=True),
        NormalDomainParam("b", 1.0, 10.0, clip_lo=1e-3),
        BernoulliDomainParam("c", 0.0, 1.0, 0.7),
        LogUniformDomainParam("d", 0.1, 10.0),
        MultivariateNormalDomainParam(("e", "f"), [1.0, -2.0], np.eye(2)),
    ]
    for seed in range(50):
        one, two = np.random.default_rng(seed), np.random.default_rng(seed)
        for param in params:
            expected = dict(zip(param.names, param.sample(1, one).reshape(-1).tolist(), strict=True))
            assert param.sample_one(two) == pytest.approx(expected, rel=1e-15)
        assert one.bit_generator.state == two.bit_generator.state
    drawn = DomainRandomizer(*params).draw(1, 5)
    assert drawn == DomainRandomizer(*params).draw(1, 5) and list(drawn[0]) == list("abcdef")


def test_adapt_changes_one_field_or_nothing():
    param = NormalDomainParam("mass", 1.0, 0.1)
    param.adapt("mean", torch.tensor(2.5))
    assert param == NormalDomainParam("mass", 2.5, 0.1)
    with pytest.raises(ValueError, match="std of 'mass' must"):
        param.adapt("std", -1.0)
    with pytest.raises(UnknownNameError, match=r"'meen'; did you mean 'mean'"):
        param.adapt("meen", 1.0)
    assert param == NormalDomainParam("mass", 2.5, 0.1)
    assert NormalDomainParam.get_field_names() == ["name", "clip_lo", "clip_up", "roundint", "mean", "std"]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: UniformDomainParam("a", 1.0, -0.1), ValueError, "halfspan of 'a' must"),
        (lambda: NormalDomainParam("a", math.nan, 0.1), ValueError, "mean of 'a' must"),
        (lambda: NormalDomainParam("a", "one", 0.1), TypeError, "mean of 'a' must"),
        (lambda: NormalDomainParam("", 1.0, 0.1), TypeError, "name must"),
        (lambda: NormalDomainParam("a", 1.0, 0.1, clip_lo=2.0, clip_up=1.0), ValueError, "clip_lo of 'a' must"),
        (lambda: LogUniformDomainParam("a", 0.0, 1.0), ValueError, "low .*'a' must"),
        (lambda: BernoulliDomainParam("a", 0.0, 1.0, 1.5), ValueError, r"prob_1 of 'a' must .*\[0, 1\]"),
        (lambda: MultivariateNormalDomainParam("ab", [0.0, 0.0], np.eye(2)), TypeError, "name must"),
        (lambda: MultivariateNormalDomainParam(("a", "b"), [0.0], np.eye(2)), ShapeError, r"mean of .*\(2,\)"),
        (lambda: MultivariateNormalDomainParam(("a",), [0.0, 1.0], [[1.0]]), ShapeError, r"mean of .*\(1,\)"),
        (lambda: MultivariateNormalDomainParam(("a", "b"), [0, 0], [[1, 2], [2, 1]]), ValueError, "cov .*definite"),
        (lambda: MultivariateNormalDomainParam(("a", "b"), [0, 0], [[1, 0.5], [0, 1]]), ValueError, "cov .*symmetric"),
        (
            lambda: MultivariateNormalDomainParam(("a",), [0.0], [[1.0]], clip_lo=[0.0, 1.0]),
            ShapeError,
            r"clip_lo of .*\(1,\).* got \(2,\)",
        ),
    ],
)
def test_impossible_distributions_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_a_randomizer_is_a_task_sampler():
    randomizer = DomainRandomizer(MASS, NormalDomainParam("length", 2.0, 0.1), generator=0)
    assert isinstance(randomizer, TaskSampler) and randomizer.n_tasks is None
    updates = randomizer.sample(5)
    assert all(isinstance(update, DomainParamUpdate) and set(update.task) == {"mass", "length"} for update in updates)
    assert len({update.task["mass"] for update in updates}) == 5
    again = DomainRandomizer(MASS, NormalDomainParam("length", 2.0, 0.1), generator=0)
    resumed = pickle.loads(pickle.dumps(randomizer))
    assert again.sample(5) == updates and resumed.sample(2) == randomizer.sample(2)


def test_get_params_in_all_forms():
    """specs/sampling.md 16.4 d: a dict of one sample holds arrays, like one of many."""
    randomizer = DomainRandomizer(MASS, MultivariateNormalDomainParam(("a", "b"), [0, 0], np.eye(2)), generator=3)
    with pytest.raises(ValueError, match="randomize"):
        randomizer.get_params()
    randomizer.randomize(4)
    listed, columns = randomizer.get_params(), randomizer.get_params(fmt="dict")
    assert [list(entry) for entry in listed] == [["mass", "a", "b"]] * 4
    np.testing.assert_array_equal(columns["b"], [entry["b"] for entry in listed])
    assert randomizer.get_params(1, "dict")["mass"].shape == (1,)
    tensors = randomizer.get_params(2, "dict", "torch")
    assert tensors["mass"].dtype == torch.float64 and tensors["mass"].tolist() == columns["mass"][:2].tolist()
    assert randomizer.get_params(2, dtype="torch")[1]["a"].ndim == 0
    columns["mass"][:] = 0.0
    assert randomizer.get_params(fmt="dict")["mass"].min() > 0.5
    for name, arguments in (
        ("num_samples", (5,)),
        ("num_samples", (0,)),
        ("fmt", (-1, "table")),
        ("dtype", (-1, "list", "jax")),
    ):
        with pytest.raises(ValueError, match=f"^{name} must .*{arguments[-1]}"):
            randomizer.get_params(*arguments)


def test_distributions_of_a_randomizer_are_adapted_by_name():
    randomizer = DomainRandomizer(UniformDomainParam("mass", 1.0, 0.2), NormalDomainParam("length", 2.0, 0.1))
    randomizer.adapt_one_distr_param("mass", "mean", 3.0)
    randomizer.rescale_distr_param("std", 0.5)
    assert randomizer["mass"] == UniformDomainParam("mass", 3.0, 0.2)
    assert randomizer["length"] == NormalDomainParam("length", 2.0, 0.05)
    with pytest.raises(UnknownNameError, match=r"'mas'; did you mean 'mass'"):
        randomizer.adapt_one_distr_param("mas", "mean", 3.0)
    with pytest.raises(UnknownNameError, match="'stdd'; did you mean 'std'"):
        randomizer.rescale_distr_param("stdd", 2.0)
    with pytest.raises(ValueError, match=r"'mass' must not .*twice"):
        randomizer.add_domain_params(NormalDomainParam("mass", 1.0, 0.1))
    with pytest.raises(TypeError, match="params must"):
        randomizer.add_domain_params({"mass": 1.0})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"params must .*, got \[UniformDomainParam.*\]; .*without the list"):
        DomainRandomizer([MASS])  # type: ignore[arg-type]
    extra = [NormalDomainParam("a", 0.0, 1.0), NormalDomainParam("b", 0.0, 1.0)]
    randomizer.add_domain_params(*extra, dp_mapping={0: ("b", "mean")})
    assert randomizer.names == ["mass", "length", "b"]


def test_spreads_come_from_nominal_values_and_are_narrowed():
    rules = {"mass": ("normal", 0.2, 1e-3), "offset": ("uniform", 0.1, -1.0, 1.0, True), "thold": ("uniform", 0.5)}
    params = params_from_rules({"mass": 2.0, "offset": 0.0, "thold": -0.1}, rules)
    assert params == [
        NormalDomainParam("mass", 2.0, 0.4, clip_lo=1e-3),
        UniformDomainParam("offset", 0.0, 0.1, clip_lo=-1.0, clip_up=1.0),
        UniformDomainParam("thold", -0.1, 0.05),
    ]
    joint = MultivariateNormalDomainParam(("a", "b"), [1, 1], np.eye(2))
    half = DomainRandomizer(*params, joint, LogUniformDomainParam("l", 0.1, 10.0)).narrowed(0.5)
    assert (half["mass"].std, half["offset"].halfspan) == (0.2, 0.05)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(half["a"].cov, 0.25 * np.eye(2))  # type: ignore[attr-defined]
    assert half["l"].high == pytest.approx(math.sqrt(10.0))  # type: ignore[attr-defined]
    with pytest.raises(UnknownNameError, match="'mas'; did you mean 'mass'"):
        params_from_rules({"mass": 1.0}, {"mas": ("normal", 0.1)})
    with pytest.raises(UnknownNameError, match="'norml'; did you mean 'normal'"):
        params_from_rules({"mass": 1.0}, {"mass": ("norml", 0.1)})


def test_numbers_of_draws_are_checked():
    with pytest.raises(ValueError, match=r"n_tasks must .*-1"):
        DomainRandomizer(MASS).sample(-1)
    with pytest.raises(TypeError, match=r"num must .*1\.5"):
        MASS.sample(1.5)  # type: ignore[arg-type]


def test_no_draws_are_an_empty_list_and_are_not_held():
    randomizer = DomainRandomizer(MASS, MultivariateNormalDomainParam(("a", "b"), [0.0, 1.0], np.eye(2)))
    assert randomizer.sample(0) == []
    randomizer.randomize(2)
    with pytest.raises(ValueError, match=r"num_samples must .*got 0"):
        randomizer.randomize(0)
    assert len(randomizer.get_params()) == 2


def test_wrong_rules_are_refused():
    for wrong in (0.1, "normal", ("normal",)):
        with pytest.raises(TypeError, match=r"rules\['mass'\] must"):
            params_from_rules({"mass": 1.0}, {"mass": wrong})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"rules\['mass'\] must .*got -0\.1"):
        params_from_rules({"mass": 1.0}, {"mass": ("normal", -0.1)})
