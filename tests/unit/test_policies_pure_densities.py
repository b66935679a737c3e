"""Densities as pure functions of parameters: as the modules', of stacks, under torch.func, and from two threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.policies.exploration import OrnsteinUhlenbeckPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import NormalizedPolicy, widened_spec
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

Box, Discrete, MultiDiscrete = (getattr(gymnasium.spaces, name) for name in ("Box", "Discrete", "MultiDiscrete"))
SEEN = Box(-9, 9, (3,))
CONTINUOUS, DISCRETE = EnvSpec(SEEN, Box(-2, 3, (2,)), 10), EnvSpec(SEEN, Discrete(4), 10)
SEVERAL = EnvSpec(SEEN, MultiDiscrete([2, 3]), 10)


def normalized():
    policy = NormalizedPolicy(GaussianMLPPolicy(CONTINUOUS, (8,), generator=torch_generator(0)))
    policy.set_observation_moments(np.array([1.0, -2.0, 0.5]), np.array([0.5, 2.0, 1.0]))
    return policy


MAKERS = {
    "gaussian": lambda: GaussianMLPPolicy(CONTINUOUS, (8, 8), init_std=0.5, generator=torch_generator(0)),
    "squashed": lambda: TanhGaussianMLPPolicy(CONTINUOUS, (8,), generator=torch_generator(0)),
    "categorical": lambda: CategoricalMLPPolicy(DISCRETE, (8,), generator=torch_generator(0)),
    "several": lambda: CategoricalMLPPolicy(SEVERAL, (8,), generator=torch_generator(0)),
    "gru": lambda: GRUGaussianPolicy(CONTINUOUS, 6, generator=torch_generator(0)),
    "categorical gru": lambda: CategoricalGRUPolicy(DISCRETE, 6, generator=torch_generator(0)),
    "normalized": normalized,
}


@pytest.fixture(params=MAKERS)
def policy(request):
    return MAKERS[request.param]()


def batch(policy, *leading):
    """Observations and actions ``(*leading, 4 rollouts, 5 steps)``."""
    drawn, space = np.random.default_rng(1), policy.env_spec.action_space
    rows = (*leading, 4, 5)
    obs = torch.tensor(drawn.normal(size=(*rows, 3)), dtype=torch.float32)
    if isinstance(space, Box):
        return obs, torch.tensor(drawn.uniform(-0.9, 0.9, size=(*rows, 2)), dtype=torch.float32)
    sizes = [4] if isinstance(space, Discrete) else list(space.nvec)
    actions = torch.tensor(drawn.integers(0, sizes, size=(*rows, len(sizes))))
    return obs, actions[..., 0] if isinstance(space, Discrete) else actions


def flat_of(policy):
    return torch.from_numpy(policy.acting_parameters())


def log_prob(policy, flat, obs, actions):
    return policy.action_distribution(policy.parameter_layout().torch_views(flat), obs).log_prob(actions)


def stack_of(policy, count=3):
    drawn = torch_generator(3)
    return torch.stack(
        [flat_of(policy) + 0.1 * torch.randn(flat_of(policy).shape, generator=drawn) for _ in range(count)]
    )


def test_they_are_those_of_the_module(policy):
    obs, actions = batch(policy)
    inner, seen = policy, obs
    if isinstance(policy, NormalizedPolicy):
        inner, seen = policy.policy, torch.from_numpy(policy.normalized(obs.numpy()))
    with torch.no_grad():
        wanted = inner.log_prob(seen, actions)
        found = log_prob(policy, flat_of(policy), obs, actions)
    assert policy.has_distributions
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    if inner.has_densities:
        acts = policy.action_distribution(dict(policy.named_parameters()), obs)
        torch.testing.assert_close(acts.entropy(), inner.evaluate_actions(seen, actions)[1], atol=1e-5, rtol=1e-5)


def test_of_a_stack_each_task_has_its_own(policy):
    obs, actions = batch(policy, 3)
    stack, layout = stack_of(policy), policy.parameter_layout()
    acts = policy.action_distribution(layout.torch_views(stack), obs)
    found = acts.log_prob(actions)
    each = torch.stack([log_prob(policy, *task) for task in zip(stack, obs, actions, strict=True)])
    torch.testing.assert_close(found, each, atol=1e-5, rtol=1e-4)
    mapped = torch.func.vmap(lambda *task: log_prob(policy, *task))(stack, obs, actions)
    torch.testing.assert_close(mapped, each, atol=1e-5, rtol=1e-4)
    slopes = torch.func.vmap(torch.func.grad(lambda *task: log_prob(policy, *task).sum()))(stack, obs, actions)
    leaf = stack.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(log_prob(policy, leaf, obs, actions).sum(), leaf)
    torch.testing.assert_close(slopes, wanted, atol=1e-4, rtol=1e-3)
    other = policy.action_distribution(layout.torch_views(stack.flip(0)), obs)
    assert not acts.kl(acts).any()
    assert (acts.kl(other)[0] > 0).all()
    torch.testing.assert_close(acts.kl(other)[1], torch.zeros(4, 5))


def test_divergences_are_those_of_torch():
    policy = MAKERS["several"]()
    obs, _ = batch(policy)
    views = [policy.parameter_layout().torch_views(flat) for flat in stack_of(policy, 2)]
    first, second = (policy.action_distribution(each, obs) for each in views)
    parts = [
        torch.distributions.kl_divergence(*(torch.distributions.Categorical(logits=logits) for logits in pair))
        for pair in zip(first.log_probs.split((2, 3), -1), second.log_probs.split((2, 3), -1), strict=True)
    ]
    torch.testing.assert_close(first.kl(second), sum(parts), atol=1e-6, rtol=1e-5)


def test_two_threads_share_a_policy(policy):
    """With ``functional_call`` about half of such results are those of the other thread."""
    before = flat_of(policy)
    obs, actions = batch(policy)
    stack = stack_of(policy, 2)
    wanted = [log_prob(policy, flat, obs, actions) for flat in stack]

    def compute(number: int) -> bool:
        return torch.equal(log_prob(policy, stack[number % 2], obs, actions), wanted[number % 2])

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(compute, range(200)))
    assert torch.equal(flat_of(policy), before)


def test_statistics_of_observations_count():
    policy = MAKERS["normalized"]()
    obs, actions = batch(policy)
    moved = policy.parameter_layout().torch_views(flat_of(policy) + 0)
    moved["obs_mean"] = moved["obs_mean"] + 1.0
    first = policy.action_distribution(policy.parameter_layout().torch_views(flat_of(policy)), obs)
    assert not torch.equal(policy.action_distribution(moved, obs).log_prob(actions), first.log_prob(actions))


@pytest.mark.parametrize(("spec", "kind"), [(CONTINUOUS, GRUGaussianPolicy), (DISCRETE, CategoricalGRUPolicy)])
def test_of_a_policy_that_sees_its_last_action(spec, kind):
    policy = LastActionPolicy(kind(widened_spec(spec, spec.act_dim), 6, generator=torch_generator(0)), spec)
    obs, actions = batch(policy, 3)

    def density(flat, obs, actions):
        acts = policy.action_distribution(policy.parameter_layout().torch_views(flat), obs, actions)
        return acts.log_prob(actions)

    one = density(flat_of(policy), obs[0], actions[0])
    torch.testing.assert_close(one, policy.evaluate_actions(obs[0], actions[0])[0], atol=1e-5, rtol=1e-5)
    stack = stack_of(policy)
    each = torch.stack([density(*task) for task in zip(stack, obs, actions, strict=True)])
    torch.testing.assert_close(density(stack, obs, actions), each, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.func.vmap(density)(stack, obs, actions), each, atol=1e-5, rtol=1e-4)
    moved = actions[0].flip(0)  # what was done before counts, what is done at the step and after it does not
    first, second = (
        policy.action_distribution(dict(policy.named_parameters()), obs[0], torch.cat([taken[:, :3], moved[:, 3:]], 1))
        for taken in (actions[0], moved)
    )
    found = first.kl(second)
    assert (found[:, 1:4] > 0).any(dim=0).all() and not found[:, 0].any()
    later = policy.action_distribution(
        dict(policy.named_parameters()), obs[0], torch.cat([actions[0][:, :4], moved[:, 4:]], 1)
    )
    now = policy.action_distribution(dict(policy.named_parameters()), obs[0], actions[0])
    assert not now.kl(later).detach().numpy().any()
    assert not policy.has_distributions  # of observations alone
    with pytest.raises(TypeError, match="needs taken"):
        policy.action_distribution(dict(policy.named_parameters()), obs)


def test_a_policy_without_densities_says_so():
    policy = OrnsteinUhlenbeckPolicy(MAKERS["gaussian"]())
    assert not policy.has_distributions
    with pytest.raises(TypeError, match="OrnsteinUhlenbeckPolicy has no densities"):
        policy.action_distribution({}, torch.zeros(1, 3))
