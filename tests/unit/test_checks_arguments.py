"""Calls that are bound to fail are told before they are made, and no others."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import metaroll
from metaroll import lab, policies, sims
from metaroll.checks import (
    check_flag,
    check_fraction,
    check_list,
    check_number,
    check_seed,
    check_unit_interval,
    check_whole,
    described,
    plain_number,
    takes_arguments,
)
from metaroll.errors import shortened
from metaroll.types import EnvSpec


def with_namespace(func):
    """Hands on one argument more than it is given, under the name and signature of ``func``."""

    @functools.wraps(func)
    def handed_on(*args):
        return func("extra", *args)

    return handed_on


class Called:
    def __call__(self, x, axis):
        return x


@pytest.mark.parametrize(
    ("func", "taken"),
    [
        (lambda x, axis: x, True),
        (lambda x, **kwargs: x, True),
        (functools.partial(np.quantile, q=0.5), True),
        (Called(), True),
        (np.mean, True),
        (max, True),  # tells nothing about itself
        (lambda x: x, False),
        (lambda x, y, axis: x, False),
    ],
)
def test_what_takes_an_array_and_an_axis(func, taken):
    assert takes_arguments(func, np.zeros(3), axis=0) is taken


def test_what_a_decorator_hands_on_is_its_own_affair():
    assert takes_arguments(with_namespace(lambda extra, x: x), 1)


@pytest.mark.parametrize("bits", [2000, 20_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_that_no_float_and_no_text_holds_are_refused_in_short(bits, sign):
    """Python raised ``OverflowError``, or would not write them, wherever they were looked at."""
    huge = sign << bits
    for check in (
        lambda: check_whole("n", huge),
        lambda: check_seed("n", huge),
        lambda: check_number("n", huge, -np.inf),
        lambda: check_unit_interval("n", huge),
        lambda: check_fraction("n", huge),
        lambda: plain_number("n", huge),
    ):
        with pytest.raises(ValueError, match=r"^n must .*got (-?inf$|.*\.\.\.)") as caught:
            check()
        assert len(str(caught.value)) < 160
    assert len(described(huge)) < 80 and shortened([1 << 20_000]) == "an object of type list"


def test_seeds_may_be_larger_than_counts():
    assert check_seed("seed", 2**128 - 1) == 2**128 - 1 and check_whole("n", 2**63 - 1) == 2**63 - 1
    for check, value in ((check_seed, 2**128), (check_whole, 2**63)):
        with pytest.raises(ValueError, match="n must be at most"):
            check("n", value)


SPEC = EnvSpec(Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (1,)))
ROLLOUT = metaroll.StepSequence(rewards=np.ones(2), observations=np.zeros((3, 1)), actions=np.zeros((2, 1)))
REWARD = sims.QuadrErr([1.0, 1.0], [1.0])
MISTAKES = [
    (lambda wrong: metaroll.replay(wrong, None, None), "plan"),
    (lambda wrong: metaroll.discounted_values(wrong, 0.9), "rollouts"),
    (lambda wrong: metaroll.check_act_equal(wrong, wrong), "rollout_1"),
    (lambda wrong: metaroll.check_domain_params(wrong, 1.0, "mass"), "rollouts"),
    (lambda wrong: metaroll.StepSequence.concat(wrong), "parts"),
    (lambda wrong: metaroll.PathBuffer(9).add_path(wrong), "path"),
    (lambda wrong: metaroll.FixedTaskSampler(wrong), "updates"),
    (lambda wrong: metaroll.SplitTaskSampler(wrong, "train"), "sampler"),
    (lambda wrong: metaroll.check_split(wrong, [1]), "train_tasks"),
    (lambda wrong: metaroll.ParameterSamplingResult(wrong), "samples"),
    (lambda wrong: metaroll.format_workers(wrong), "workers"),
    (lambda wrong: metaroll.MLPBaseline(wrong), "hidden_sizes"),
    (lambda wrong: metaroll.gen_ordered_batches(wrong, 2), "inp"),
    (lambda wrong: metaroll.Prior(wrong), "marginals"),
    (lambda wrong: metaroll.check_posterior(wrong), "posterior"),
    (lambda wrong: metaroll.FeatureStandardizer(wrong), "features"),
    (lambda wrong: policies.PlaybackPolicy(SPEC, wrong), "act_recordings"),
    (lambda wrong: policies.LastActionPolicy(wrong, SPEC), "policy"),
    (lambda wrong: policies.UniformFirstPolicy(wrong), "policy"),
    (lambda wrong: sims.AbsErr(wrong, [1.0]), "state_weights"),
    (lambda wrong: sims.DesStateTask(wrong, REWARD), "state_des"),
    (lambda wrong: sims.DesStateTask([0.0, 0.0], wrong), "reward"),
    (lambda wrong: sims.MujocoEnvDefinition(wrong, 1, REWARD), "mjcf"),
    (lambda wrong: lab.SocketEnv(3, wrong, 0.1), "env_spec"),
    (lambda wrong: lab.load_log(wrong), "path"),
    (lambda wrong: lab.write_video(wrong, []), "path"),
    (lambda wrong: lab.write_report(wrong), "run_dir"),
    (lambda wrong: lab.infer(None, [], None, wrong), "folder"),
]


@pytest.mark.parametrize(("call", "argument"), MISTAKES)
@pytest.mark.parametrize("wrong", [None, object()], ids=["None", "object"])
def test_arguments_of_another_kind_are_refused_by_name(call, argument, wrong):
    with pytest.raises(TypeError, match=rf"^{argument} must be .*, got (None|an object of type object)"):
        call(wrong)


OPTIONAL = [
    (lambda wrong: lab.load_log("log.csv", env_spec=wrong), "env_spec"),
    (lambda wrong: lab.infer("pend", [], {"pole_mass": (0.5, 2.0)}, "out", wrong), "options"),
    (lambda wrong: lab.SimulatedDevice("pend", faults=wrong), "faults"),
]


@pytest.mark.parametrize(("call", "argument"), OPTIONAL)
@pytest.mark.parametrize(
    "wrong", [object(), "pend", {"rounds": 1}, sims.PendulumEnv], ids=lambda wrong: type(wrong).__name__
)
def test_arguments_that_may_be_left_out_are_refused_by_name(call, argument, wrong):
    with pytest.raises(TypeError, match=rf"^{argument} must be .*, got"):
        call(wrong)


FAMILY = metaroll.TaskFamily.from_params(sims.PendulumEnv, {"pole_mass": (0.5, 2.0)}, horizon=5)
OPEN = metaroll.Posterior({"mass": (0.5, 2.0)}, None, [[1.0], [1.5]])
SEEDED = [
    lambda seed: FAMILY.split(3, 2, seed),
    lambda seed: FAMILY.samplers(seed),
    lambda seed: OPEN.sample(1, seed),
    lambda seed: metaroll.Posterior({"mass": (0.5, 2.0)}, None, [[1.0]], seed=seed),
    lambda seed: metaroll.check_posterior(OPEN, seed=seed),
]


@pytest.mark.parametrize("call", SEEDED)
@pytest.mark.parametrize("wrong", [1.9, "7", "x", np.nan, np.inf, None, True, {}, -1])
def test_seeds_are_whole_numbers(call, wrong):
    with pytest.raises(ValueError if wrong == -1 else TypeError, match=r"^seed must be an integer of at least 0, got"):
        call(wrong)


def test_numbers_of_numpy_are_the_same_seeds():
    np.testing.assert_array_equal(OPEN.sample(9, np.int64(3)), OPEN.sample(9, 3))
    assert FAMILY.split(3, 2, np.int64(3)) == FAMILY.split(3, 2, 3)


def test_a_list_names_the_entry_that_does_not_belong_there():
    assert check_list("updates", (1, 2), "integers", int) == [1, 2]
    for value, told in (([1, "a"], "'a' of type str at position 1; hint"), (3, r"a single one; pass \[update\]")):
        with pytest.raises(TypeError, match=f"updates must be a list of integers, got {told}"):
            check_list("updates", value, "integers", int, "; hint")

    class Entries:
        def __getitem__(self, index):
            return [1, 2][index]

    assert check_list("updates", Entries(), "integers", int) == [1, 2]


def test_values_are_described_so_that_they_can_be_told_apart():
    assert described(np.int64(-3)) == "-3 of type int64" and described(np.float32(2.5)) == "2.5 of type float32"
    assert described(np.random.default_rng(0)) == "an object of type numpy.random.Generator"
    assert described(torch.Generator()) == "an object of type torch.Generator"


FLAGS = [
    (lambda wrong: metaroll.load("run", trust=wrong), "trust"),
    (lambda wrong: metaroll.save_rollout(ROLLOUT, "r.npz", wrong), "overwrite"),
    (lambda wrong: metaroll.save_rollouts([ROLLOUT], ".", overwrite=wrong), "overwrite"),
    (lambda wrong: metaroll.LocalRunner(exist_ok=wrong), "exist_ok"),
    (lambda wrong: metaroll.MetaEvaluator(allow_overlap=wrong), "allow_overlap"),
]


@pytest.mark.parametrize(("call", "argument"), FLAGS)
def test_flags_that_permit_something_are_true_or_false(call, argument, tmp_path):
    """A text is true in Python, so that ``trust="no"`` ran the code, and ``overwrite="False"`` wrote over a file."""
    metaroll.save_rollout(ROLLOUT, "r.npz")
    for wrong in ("no", "False", "", 0, 1, None, np.ones(1, bool)):
        with pytest.raises(TypeError, match=rf"^{argument} must be True or False, got "):
            call(wrong)
    metaroll.save_rollout(ROLLOUT, "r.npz", overwrite=np.True_)
    assert check_flag("x", np.False_) is False
