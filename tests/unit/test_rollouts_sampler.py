"""specs/sampling.md 9: the interface of samplers and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampler_envs import Oscillator

from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.samplers.evaluation import eval_domain_params, eval_nominal_domain, eval_randomized_domain
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.rollouts.samplers.parameter_exploration import ParameterExplorationSampler
from metaroll.rollouts.samplers.sampler import SamplerBase
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import set_seed
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.types import EnvSpec


class Empty(SamplerBase):
    def reinit(self, env=None, policy=None):
        self.given = (env, policy)

    def sample(self):
        return []


def test_sampler_base_is_abstract_and_keeps_its_bounds():
    """specs/sampling.md 9: reinit and sample are abstract; at least one bound is needed."""
    with pytest.raises(TypeError, match="abstract"):
        SamplerBase(min_rollouts=1)
    sampler = Empty(min_rollouts=3)
    assert (sampler.min_rollouts, sampler.min_steps, sampler.sample()) == (3, None, [])
    sampler.reinit("env")
    assert sampler.given == ("env", None)


def test_set_min_count_replaces_both():
    """specs/sampling.md 9: set_min_count replaces both bounds."""
    sampler = Empty(min_rollouts=3)
    sampler.set_min_count(min_steps=np.int64(5))
    assert (sampler.min_rollouts, sampler.min_steps) == (None, 5)
    sampler.set_min_count(2, 4)
    assert (sampler.min_rollouts, sampler.min_steps) == (2, 4)


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ({}, ValueError),
        ({"min_rollouts": 0}, ValueError),
        ({"min_rollouts": 2, "min_steps": -1}, ValueError),
        ({"min_steps": 2.5}, TypeError),
        ({"min_rollouts": True}, TypeError),
    ],
)
def test_bad_bounds_are_refused_and_change_nothing(bounds, error):
    with pytest.raises(error, match="min_"):
        Empty(**bounds)
    sampler = Empty(min_rollouts=3)
    with pytest.raises(error, match="min_"):
        sampler.set_min_count(**bounds)
    assert (sampler.min_rollouts, sampler.min_steps) == (3, None)


def push(obs):
    return np.tanh(obs[:1])


def parallel():
    sampler = ParallelRolloutSampler(Oscillator, push, 1, min_rollouts=2, show_progress_bar=False)
    set_seed(99)  # later than the sampler was made
    return sampler.sample


def exploration():
    spec = EnvSpec.from_env(Oscillator())
    policy = GaussianMLPPolicy(spec, hidden_sizes=(4,), generator=torch.Generator().manual_seed(0))
    sampler = ParameterExplorationSampler(Oscillator, policy, 1, 2, 1)
    set_seed(99)
    sets = torch.from_numpy(policy.acting_parameters())[None]
    return lambda: sampler.sample(sets)[0].rollouts


POOL = SamplerPool(1, transport="serial")
STATES = [np.array([1.0, 0.0])] * 2
HEAVY = DomainRandomizer(UniformDomainParam("mass", 9.0, 1.0), generator=0)
CALLS = {
    "ParallelRolloutSampler": parallel,
    "ParameterExplorationSampler": exploration,
    "eval_domain_params": lambda: lambda: eval_domain_params(POOL, Oscillator, push, [{"mass": 2.0}] * 2),
    "eval_nominal_domain": lambda: lambda: eval_nominal_domain(POOL, Oscillator, push, STATES),
    "eval_randomized_domain": lambda: lambda: eval_randomized_domain(POOL, Oscillator, HEAVY, push, STATES),
}
"""What samples without a seed of its own -> what makes the call."""


def seeds_of(rollouts):
    return [found.rollout_info["plan"]["seed"] for found in rollouts]


@pytest.mark.parametrize("name", CALLS)
def test_the_default_seed_is_the_one_set_last(name):
    """specs/sampling.md 11, 12.3, 13: without one each call draws fresh entropy, and records it."""
    try:
        set_seed(12)
        assert seeds_of(CALLS[name]()()) == [(12, 0, 0), (12, 0, 1)]
    finally:
        set_seed(None)
    call = CALLS[name]()
    set_seed(None)
    first, second = seeds_of(call()), seeds_of(call())
    assert first[0][0] == first[1][0] != second[0][0]
