"""specs/sampling.md 12: many sets of policy parameters in the same domains and initial states."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pytest
import torch
from sampler_envs import NOMINAL, Oscillator, Started
from torch import nn

from metaroll.data.compare import first_difference
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperBuffer, DomainRandWrapperLive
from metaroll.errors import ShapeError
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.samplers.parameter_exploration import (
    ParameterExplorationSampler,
    ParameterSample,
    ParameterSamplingResult,
)
from metaroll.rollouts.single.rollout import rollout
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")

MASSES = [{"mass": 0.5}, {"mass": 1.5}, {"mass": 4.0}]


def gaussian(env=Oscillator):
    return GaussianMLPPolicy(EnvSpec.from_env(env()), hidden_sizes=(4,), generator=torch.Generator().manual_seed(0))


def sets_of(policy, count):
    flat = policy.acting_parameters()
    noise = np.random.default_rng(0).normal(size=(count, flat.size)).astype(np.float32)
    return torch.from_numpy(flat + noise)


def explorer(env=Started, policy=None, each=2, domains=2, workers=1, seed=7, **options):
    return ParameterExplorationSampler(env, policy or gaussian(), each, domains, workers, seed, **options)


def heavy_or_light():
    return DomainRandomizer(UniformDomainParam("mass", 2.0, 1.5), generator=0)


def domain_of(found):
    return found.rollout_info["domain_param"]["mass"]


def same(left, right):
    pairs = [pair for a, b in zip(left.rollouts, right.rollouts, strict=True) for pair in zip(a, b, strict=True)]
    return all(first_difference(a, b) is None for a, b in pairs)


# -- results -------------------------------------------------------------------------------------------------------


def test_samples_and_results():
    """specs/sampling.md 12.1, 12.2: means by hand, properties, slices are results."""
    with explorer(each=1, domains=2) as sampler:
        result = sampler.sample(sets_of(sampler.policy, 3))
    first = result[0]
    assert isinstance(first, ParameterSample) and first.num_rollouts == 2
    by_hand = [r.rewards.sum() for r in first.rollouts]
    assert first.mean_undiscounted_return == pytest.approx(np.mean(by_hand))
    assert torch.equal(first.params, sets_of(sampler.policy, 3)[0])
    assert first[1] is first.rollouts
    assert len(result) == 3 and result.num_rollouts == 6
    assert torch.equal(result.parameters, sets_of(sampler.policy, 3))
    assert result.mean_returns.shape == (3,) and result.mean_returns.dtype == np.float64
    assert result.mean_returns[0] == pytest.approx(first.mean_undiscounted_return)
    assert [len(rollouts) for rollouts in result.rollouts] == [2, 2, 2]
    part = result[1:]
    assert isinstance(part, ParameterSamplingResult) and torch.equal(part.parameters, result.parameters[1:])
    assert result[-1].rollouts is result.rollouts[2]
    assert result[3:].parameters.shape == (0, 0) and result[3:].num_rollouts == 0
    with pytest.raises(TypeError, match="samples must be a list of ParameterSample"):
        ParameterSamplingResult([(1, 2)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="at least one rollout"):
        _ = ParameterSample(first.params, []).mean_undiscounted_return


# -- pairing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("env", [Oscillator, Started])
def test_every_set_meets_the_same_pairs_of_domain_and_state(env, buffered):
    """specs/sampling.md 12.3 (4), 22 no. 4: domains repeat consecutively, states belong to theirs, all sets alike."""
    wrapped = (DomainRandWrapperBuffer if buffered else DomainRandWrapperLive)(env(), heavy_or_light())
    if buffered:
        wrapped.buffer = MASSES
    with explorer(wrapped, each=3, domains=2) as sampler:
        assert sampler.num_rollouts_per_param == 6
        first, second = sampler.sample(sets_of(sampler.policy, 4)), sampler.sample(sets_of(sampler.policy, 4))
    told = [[(domain_of(r), *r.states[0].tolist()) for r in rollouts] for rollouts in first.rollouts]
    assert told == [told[0]] * 4
    masses, states = [entry[0] for entry in told[0]], [entry[1:] for entry in told[0]]
    assert masses[0] == masses[1] == masses[2] and masses[3] == masses[4] == masses[5]
    assert len(set(states)) == 6
    assert [domain_of(r) for r in second[0].rollouts] != masses or buffered
    assert second[0].rollouts[0].states[0].tolist() != told[0][0][1:]
    assert set(masses) <= {entry["mass"] for entry in MASSES} or not buffered


def test_states_are_those_of_their_domain():
    """specs/sampling.md 12.3 (d): upstream pairs the states of one domain with another."""
    with explorer(DomainRandWrapperLive(Shifted(), heavy_or_light()), each=3, domains=2) as sampler:
        result = sampler.sample(sets_of(sampler.policy, 2))
    for found in [*result[0].rollouts, *result[1].rollouts]:
        assert found.states[0][0] == domain_of(found)


class Shifted(Started):
    """Starts where its mass says."""

    def reset(self, *, seed=None, options=None):
        options = options or {"init_state": (self.domain_param["mass"], 0.0)}
        return super().reset(seed=seed, options=options)


def test_given_states_belong_to_domains_in_order():
    """specs/sampling.md 12.3: exactly num_domains * num_init_states_per_domain of them."""
    states = [np.array([i, 0.0]) for i in range(4)]
    wrapped = DomainRandWrapperLive(Started(), heavy_or_light())
    with explorer(wrapped) as sampler:
        result = sampler.sample(sets_of(sampler.policy, 2), states)
        array = sampler.sample(sets_of(sampler.policy, 1), np.stack(states))
    for rollouts in [*result.rollouts, *array.rollouts]:
        assert [r.states[0][0] for r in rollouts] == [0.0, 1.0, 2.0, 3.0]
        assert domain_of(rollouts[0]) == domain_of(rollouts[1]) != domain_of(rollouts[2]) == domain_of(rollouts[3])


def test_without_randomization_domains_are_the_environment_s_own():
    """specs/sampling.md 12.3 (2), and the caller's environment is left alone."""
    env = Started()
    env.domain_param = {"mass": 3.0}
    with explorer(env) as sampler:
        result = sampler.sample(sets_of(sampler.policy, 1))
    assert {domain_of(r) for r in result[0].rollouts} == {3.0}
    assert env.resets == 0


def test_the_environment_with_its_randomization_is_left_alone():
    """specs/sampling.md 12.3: wrappers are stripped from a copy."""
    env = DomainRandWrapperLive(Started(), heavy_or_light())
    env.reset(seed=0)
    before = env.domain_param
    with explorer(env) as sampler:
        sampler.sample(sets_of(sampler.policy, 1))
    assert env.domain_param == before and before != NOMINAL and env.unwrapped.resets == 1


# -- randomness ----------------------------------------------------------------------------------------------------


def test_groups_are_the_rollouts_of_samples():
    wrapped = DomainRandWrapperLive(Started(), heavy_or_light())
    with explorer(wrapped) as sampler:
        sets = sets_of(sampler.policy, 3)
        samples = sampler.sample(sets, number=4)
        groups, lean = (sampler.sample_groups(sets, number=4, fields=fields) for fields in (None, ("rewards",)))
    for sample, group, rewards in zip(samples, groups, lean, strict=True):
        assert all(first_difference(a, b) is None for a, b in zip(sample.rollouts, group, strict=True))
        np.testing.assert_array_equal(rewards.rewards, group.rewards)
        assert group.num_steps == len(group.rewards) and group[1:3].indices.tolist() == rewards.indices[1:3].tolist()
        np.testing.assert_allclose(rewards.discounted_sums(0.9), group.discounted_returns(0.9), rtol=1e-12)
        np.testing.assert_allclose(rewards.returns.mean(), sample.mean_undiscounted_return, rtol=1e-12)


def test_noise_is_common_to_all_sets_on_request():
    """specs/sampling.md 12.3 (4), 22: seeds (seed, call, i), or (seed, call, j) for pair j."""
    parameters = sets_of(gaussian(), 1).repeat(3, 1)
    with explorer() as apart, explorer(common_noise=True) as alike, explorer(Oscillator) as no_space:
        results = [sampler.sample(parameters) for sampler in (apart, alike, no_space)]
    seeds = [[r.rollout_info["plan"]["seed"][2] for rs in result.rollouts for r in rs] for result in results]
    assert seeds == [list(range(12)), [0, 1, 2, 3] * 3, [0, 1, 2, 3] * 3]
    assert [len(set(result.mean_returns)) for result in results] == [3, 1, 1]
    with explorer() as sampler:  # nothing but noise differs
        assert len(set(sampler.sample(parameters, eval=True).mean_returns)) == 1


def test_a_rollout_is_that_of_the_policy_with_these_parameters():
    """specs/sampling.md 12.3, 0.4: bitwise what rollout() gives, whatever shares the batch."""
    for env in (Started, PendulumEnv):
        policy = gaussian(env)
        sets = sets_of(policy, 5)
        with explorer(env, policy, each=3, domains=1, max_steps=30) as sampler:
            found = sampler.sample(sets)[2].rollouts[1]
        policy.set_param_values(sets[2])
        start = {"init_state": found.states[0]}
        alone = rollout(env(), policy, seed=7, sub_seed=0, sub_sub_seed=7, reset_kwargs=start, max_steps=30)
        assert np.array_equal(alone.observations, found.observations)
        assert np.array_equal(alone.actions, found.actions) and np.array_equal(alone.rewards, found.rewards)


class Normed(nn.Module):
    """A module with a buffer that acts, and dropout."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 2), 0.1))
        self.bias = nn.Parameter(torch.zeros(1))
        self.drop = nn.Dropout(0.5)
        self.register_buffer("shift", torch.zeros(1))

    def forward(self, obs):
        return self.drop(obs @ self.weight.T + self.bias) + self.shift


@pytest.mark.parametrize("workers", [1, 2])
def test_buffers_reach_the_workers(workers):
    """specs/sampling.md 12.3 (d): upstream sends parameters only, so statistics of a normalization stay old."""
    policy = Normed()
    sets = torch.tensor([[0.1, 0.1, 0.0], [0.2, 0.1, 0.0]])
    with explorer(policy=policy, workers=workers, each=1, domains=1) as sampler:
        before = sampler.sample(sets, [np.zeros(2)], eval=True)
        policy.shift += 0.25
        after = sampler.sample(sets, [np.zeros(2)], eval=True)
        dropped = sampler.sample(sets, [np.ones(2)])
    assert [r.actions[0].item() for rs in (*before.rollouts, *after.rollouts) for r in rs] == [0.0, 0.0, 0.25, 0.25]
    assert policy.training and torch.equal(policy.bias, torch.zeros(1))
    assert len({a for r in dropped[0].rollouts for a in np.round(r.actions[:, 0] - 0.25, 6).tolist()} & {0.0}) == 1


def test_reinit_takes_the_new_environment_s_randomization():
    """specs/sampling.md 12.3 (d): upstream keeps drawing from the old one."""
    light = DomainRandomizer(UniformDomainParam("mass", 1.0, 0.1), generator=0)
    heavy = DomainRandomizer(UniformDomainParam("mass", 9.0, 0.1), generator=0)
    with explorer(DomainRandWrapperLive(Started(), light)) as sampler:
        sets = sets_of(sampler.policy, 1)
        assert all(domain_of(r) < 2 for r in sampler.sample(sets)[0].rollouts)
        sampler.reinit(env=DomainRandWrapperLive(Started(), heavy))
        assert all(domain_of(r) > 8 for r in sampler.sample(sets)[0].rollouts)
        sampler.reinit(policy=gaussian())
        assert [r.rollout_info["plan"]["seed"][1] for r in sampler.sample(sets)[0].rollouts] == [2] * 4
        sampler.reinit(env=Started)
        assert all(domain_of(r) == 1.0 for r in sampler.sample(sets)[0].rollouts)


def test_sets_in_any_memory_order_are_taken():
    with explorer() as sampler:
        sets = sets_of(sampler.policy, 3).numpy()
        forward = sampler.sample(np.ascontiguousarray(sets[::-1]), number=0)
        assert [s.mean_undiscounted_return for s in sampler.sample(sets[::-1], number=0)] == [
            s.mean_undiscounted_return for s in forward
        ]


def test_reinit_refuses_an_environment_that_the_policy_is_not_for_and_goes_on():
    """specs/sampling.md 12.3."""
    with explorer() as sampler:
        sets = sets_of(sampler.policy, 1)
        env = sampler.env
        with pytest.raises(ShapeError, match=r"env must have an observation_space like the present one.*reinit\(env"):
            sampler.reinit(env=PendulumEnv())
        assert sampler.env is env and sampler.sample(sets)[0].rollouts


def test_a_pickled_sampler_goes_on_with_the_next_call():
    """specs/sampling.md 12.3: documented as serializable."""
    with explorer() as sampler:
        sets = sets_of(sampler.policy, 2)
        sampler.sample(sets)
        with cloudpickle.loads(cloudpickle.dumps(sampler)) as copied:
            assert same(copied.sample(sets), sampler.sample(sets))


def test_populations_of_batched_simulators_do_not_depend_on_slots():
    """specs/sampling.md 12.3 (e), 22 no. 3: one batched simulation, the same bits as one environment per rollout."""
    policy = gaussian(PendulumEnv)
    sets = sets_of(policy, 12)
    randomizer = DomainRandomizer(UniformDomainParam("pole_mass", 0.1, 0.05), generator=0)
    env = DomainRandWrapperLive(PendulumEnv(), randomizer)
    results = []
    for slots in (None, 5):
        with explorer(env, policy, max_steps=25, slots_per_unit=slots) as sampler:
            results.append(sampler.sample(sets))
    assert same(*results)
    found = results[0][3].rollouts[2]
    params = {"pole_mass": found.rollout_info["domain_param"]["pole_mass"]}
    assert DomainParamUpdate(params).task == params and 0.05 <= params["pole_mass"] <= 0.15
    assert found.states.shape == (26, 2)


# -- wrong input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"each": 0}, ValueError, "num_init_states_per_domain must be an integer of at least 1, got 0"),
        ({"domains": 0}, ValueError, "num_domains must be an integer of at least 1, got 0"),
        ({"domains": 1.5}, TypeError, "num_domains must be an integer"),
        ({"workers": 0}, ValueError, "num_workers must be an integer of at least 1, got 0"),
        ({"seed": "seven"}, TypeError, "seed must be an integer"),
        ({"seed": -1}, ValueError, "seed must be an integer of at least 0"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    """specs/sampling.md 12.3: integers of at least 1."""
    with pytest.raises(error, match=text):
        explorer(**arguments)


def test_wrong_samples_are_refused_and_the_sampler_stays_usable():
    """specs/sampling.md 12.3: nothing is run, and no call is counted."""
    with explorer() as sampler:
        sets = sets_of(sampler.policy, 2)
        width = sets.shape[1]
        for bad, error, text in [
            (sets[:0], ValueError, "param_sets must hold at least one set of parameters, got none"),
            (sets[0], ShapeError, rf"param_sets must have shape \(n, {width}\), got \({width},\)"),
            (sets[:, 1:], ShapeError, rf"got \(2, {width - 1}\)"),
            (sets.tolist(), TypeError, "param_sets must be a tensor or array"),
            (sets.long(), TypeError, "floating point"),
            (torch.cat([sets, sets * float("nan")]), ValueError, "param_sets must be finite, set 2 is not"),
        ]:
            with pytest.raises(error, match=text):
                sampler.sample(bad)
        for states, error, text in [
            ([], ValueError, "init_states must hold at least one state, got none"),
            ([np.zeros(2)] * 3, ShapeError, "init_states must hold 4 states, 2 for each of 2 domains, got 3"),
            ([np.zeros(2)] * 3 + [np.zeros(3)], ShapeError, r"states of one length, got lengths \[2, 3\]"),
            (np.zeros(4), ShapeError, r"states \(S,\), got shape \(\) at position 0"),
            (3, TypeError, "init_states must be a list of states, got a int"),
            ([np.full(2, np.inf)] * 4, ValueError, "init_states must be finite"),
        ]:
            with pytest.raises(error, match=text):
                sampler.sample(sets, states)
        with pytest.raises(TypeError, match="eval must be True or False"):
            sampler.sample(sets, eval=1)  # type: ignore[arg-type]
        assert sampler.sample(sets)[0].rollouts[0].rollout_info["plan"]["seed"] == (7, 0, 0)
    with pytest.raises(RuntimeError, match="closed"):
        sampler.sample(sets)
    with explorer(policy=lambda obs: np.zeros(1)) as sampler, pytest.raises(TypeError, match="flat parameters"):
        sampler.sample(sets)
