"""ContextConditionedPolicy: belief, posterior, acting for the engine, copies."""

import copy
import pickle
from collections import namedtuple
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from metaroll.errors import ShapeError
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.gru import GRUGaussianPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.single.replay import replay
from metaroll.rollouts.single.rollout import rollout
from metaroll.seeding import torch_generator
from metaroll.tasks.updates import NewEnvUpdate
from metaroll.types import EnvSpec, Policy, RolloutPlan

O, A, L, C = 3, 2, 2, 6  # noqa: E741 (the letters of the spec; C = O + A + 1)
BOX = gymnasium.spaces.Box
AUGMENTED = EnvSpec(BOX(-1, 1, (O + L,)), BOX(-1, 1, (A,)))


def _policy(bottleneck: bool = True, next_obs: bool = False, seed: int = 0) -> ContextConditionedPolicy:
    inner = TanhGaussianMLPPolicy(AUGMENTED, (16,), generator=torch_generator(1))
    width = C + (O if next_obs else 0)
    encoder = MLPEncoder(width, L * (2 if bottleneck else 1), (8,), generator=torch_generator(2))
    return ContextConditionedPolicy(L, encoder, inner, bottleneck, next_obs, seed=seed)


def _context(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, C, generator=torch_generator(9))


class _Table(nn.Module):
    """An 'encoder' that returns its input: context rows are mean and raw variance themselves."""

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return context


def _tabular(bottleneck: bool = True) -> ContextConditionedPolicy:
    inner = TanhGaussianMLPPolicy(EnvSpec(BOX(-1, 1, (O + 1,)), BOX(-1, 1, (A,))), (4,), generator=torch_generator(1))
    return ContextConditionedPolicy(1, _Table(), inner, bottleneck, False, seed=0)


def test_posterior_is_the_product_of_the_rows_gaussians():
    """specs/meta.md 4.3, 10: five rows of mean 1, variance 1 (softplus(ln(e - 1))): mean 1, variance 1/5."""
    row = [1.0, float(np.log(np.e - 1))]
    mean, var = _tabular().posterior(np.array([[row] * 5]))
    assert mean.item() == pytest.approx(1.0)
    assert var.item() == pytest.approx(0.2)


def test_without_bottleneck_z_is_the_mean_embedding():
    """specs/meta.md 4.3, Q-34"""
    policy = _tabular(bottleneck=False)
    policy.infer_posterior(np.array([[[1.0], [4.0]]]))
    assert policy.z.item() == policy.z_means.item() == 2.5
    assert policy.z_vars.item() == 0.0
    with pytest.raises(ValueError, match="use_information_bottleneck"):
        policy.compute_kl_div()
    policy.reset_belief(3)
    assert not policy.z.any() and not policy.z_vars.any() and policy.z.shape == (3, 1)


def test_reset_belief_is_the_prior_with_a_drawn_z():
    """specs/meta.md 4.3"""
    policy = _policy()
    policy.infer_posterior(_context(1, 4))
    policy.update_context((np.zeros(O), np.zeros(A), 1.0))
    policy.reset_belief(1000)
    assert not policy.z_means.any() and (policy.z_vars == 1).all() and policy.context is None
    assert policy.z.shape == (1000, L)
    assert abs(policy.z.mean().item()) < 0.1 and abs(policy.z.std().item() - 1) < 0.1


def test_draws_come_from_the_given_generator_or_the_policys_own():
    policy, other = _policy(seed=3), _policy(seed=3)
    policy.sample_from_belief()
    other.sample_from_belief()
    torch.testing.assert_close(policy.z, other.z)
    policy.sample_from_belief(torch_generator(5))
    first = policy.z
    policy.sample_from_belief(torch_generator(5))
    torch.testing.assert_close(policy.z, first)
    expected = torch.randn(1, L, generator=torch_generator(5))  # the prior: mean 0, variance 1
    torch.testing.assert_close(first, expected)


def test_posterior_changes_nothing_and_handles_many_tasks():
    policy = _policy()
    before = policy.z.clone(), policy.z_means.clone()
    mean, var = policy.posterior(_context(5, 7))
    assert mean.shape == var.shape == (5, L) and (var > 0).all()
    torch.testing.assert_close(policy.z, before[0])
    torch.testing.assert_close(policy.z_means, before[1])


@pytest.mark.parametrize("bottleneck", [True, False])
def test_posterior_of_lists_is_that_of_each_list_and_one_forward_encodes_all(bottleneck, monkeypatch):
    policy = _policy(bottleneck)
    rows = [_context(n) for n in (4, 1, 9)]
    expected = [policy.posterior(row[None]) for row in rows]
    calls, forward = [], policy.context_encoder.forward
    monkeypatch.setattr(policy.context_encoder, "forward", lambda x: (calls.append(tuple(x.shape)), forward(x))[1])
    means, variances = policy.posterior_of_lists([*rows[:2], np.zeros((0, C)), rows[2]])
    assert calls == [(1, 14, C)]
    for k, (mean, var) in zip((0, 1, 3), expected, strict=True):
        torch.testing.assert_close(means[k], mean[0])
        torch.testing.assert_close(variances[k], var[0])
    assert not means[2].any() and (variances[2] == float(bottleneck)).all()


def test_lists_pass_an_encoder_that_is_not_known_to_encode_rows_one_by_one():
    policy = ContextConditionedPolicy(L, _Table(), _policy().policy, True, False, seed=0)
    rows = [torch.randn(n, 2 * L, generator=torch_generator(n)) for n in (4, 2)]
    means, variances = policy.posterior_of_lists(rows)
    for k, row in enumerate(rows):
        mean, var = policy.posterior(row[None])
        assert torch.equal(means[k], mean[0]) and torch.equal(variances[k], var[0])


def test_kl_is_summed_and_differentiable():
    """specs/meta.md 4.3: four tasks whose posterior is the prior have KL 0; at mean 1 each entry adds 1/2."""
    policy = _policy()
    policy.reset_belief(4)
    assert policy.compute_kl_div().item() == 0.0
    policy.z_means = torch.ones(4, L)
    assert policy.compute_kl_div().item() == pytest.approx(0.5 * 4 * L)
    policy.infer_posterior(_context(4, 5))
    policy.compute_kl_div().backward()
    assert all(p.grad is not None for p in policy.context_encoder.parameters())


def test_forward_keeps_gradients_apart():
    """specs/meta.md 4.3: z has gradient to the encoder, the action's log-probability has none."""
    policy = _policy()
    obs = torch.randn(2, 4, O, generator=torch_generator(4))
    (action, mean, log_std, log_prob, pre_tanh), task_z = policy(obs, _context(2, 5), torch_generator(6))
    assert action.shape == mean.shape == log_std.shape == pre_tanh.shape == (8, A)
    assert log_prob.shape == (8, 1) and task_z.shape == (8, L)
    assert torch.equal(task_z[:4], task_z[:1].expand(4, L)) and not torch.equal(task_z[0], task_z[4])
    (log_prob.sum() + mean.square().sum()).backward(retain_graph=True)
    assert all(p.grad is None for p in policy.context_encoder.parameters())
    assert all(p.grad is not None for p in policy.policy.parameters())
    task_z.sum().backward()
    assert all(p.grad is not None for p in policy.context_encoder.parameters())
    again, _ = policy(obs, _context(2, 5), torch_generator(6))
    torch.testing.assert_close(again.action, action)


def test_update_context_appends_rows():
    """specs/meta.md 4.3: context (1, n, C) with columns obs, action, reward(, next_obs)."""
    policy = _policy()
    policy.update_context((np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0]), 6.0, np.zeros(O)))
    TimeStep = namedtuple("TimeStep", "env_spec observation action reward next_observation terminal")
    policy.update_context(TimeStep(None, np.ones(O), np.zeros(A), -1.0, np.full(O, 7.0), False))
    expected = [[[1, 2, 3, 4, 5, 6], [1, 1, 1, 0, 0, -1]]]
    np.testing.assert_array_equal(policy.context.numpy(), expected)
    policy.infer_posterior(policy.context)
    with_next = _policy(next_obs=True)
    with_next.update_context(TimeStep(None, np.ones(O), np.zeros(A), -1.0, np.full(O, 7.0), False))
    np.testing.assert_array_equal(with_next.context.numpy(), [[[1, 1, 1, 0, 0, -1, 7, 7, 7]]])
    with_next.infer_posterior(with_next.context)
    with pytest.raises(ValueError, match="next_obs"):
        with_next.update_context((np.ones(O), np.zeros(A), 1.0))


def test_get_action_is_deterministic_when_asked():
    """specs/meta.md Q-38, 4.3"""
    policy = _policy()
    mean, info = policy.get_action(np.ones(O), deterministic=True)
    again, _ = policy.get_action(np.ones(O), deterministic=True)
    sampled, _ = policy.get_action(np.ones(O))
    np.testing.assert_array_equal(mean, again)
    np.testing.assert_array_equal(mean, info["mean"])
    assert not np.array_equal(mean, sampled)
    policy.reset_belief(2)
    with pytest.raises(ValueError, match="one task"):
        policy.get_action(np.ones(O))


def test_initial_state_takes_z_or_a_belief_or_the_prior():
    policy = _policy()
    assert isinstance(policy, Policy)
    fixed = {"z": np.array([0.5, -0.5])}
    belief = {"z_mean": np.array([3.0, -3.0]), "z_var": np.array([0.0, 4.0])}
    state = policy.initial_state([fixed, belief, None], [np.random.default_rng(k) for k in range(3)])
    eps = [np.random.default_rng(k).standard_normal(L, dtype=np.float32) for k in range(3)]
    np.testing.assert_array_equal(state["z"][0], [0.5, -0.5])
    np.testing.assert_array_equal(state["z"][1], np.float32([3.0, -3.0 + 2.0 * eps[1][1]]))
    np.testing.assert_array_equal(state["z"][2], eps[2])
    assert state["z"].dtype == np.float32
    without = _policy(bottleneck=False)
    np.testing.assert_array_equal(without.initial_state([None], [np.random.default_rng(0)])["z"], [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"goal": np.zeros(2)}, "'z_mean' and 'z_var'"),
        ({"z_mean": np.zeros(2)}, "'z_var'"),
        ({"z": np.zeros(3)}, r"shape \(2,\)"),
        ({"z_mean": np.zeros(2), "z_var": np.full(2, -1.0)}, "negative"),
    ],
)
def test_wrong_contexts_are_named(context: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        _policy().initial_state([context], [np.random.default_rng(0)])


def test_plan_context_carries_the_belief():
    policy = _policy()
    assert policy.plan_context() is None
    policy.infer_posterior(_context(1, 6))
    context = policy.plan_context()
    assert context is not None
    np.testing.assert_array_equal(context["z_mean"], policy.z_means.detach().numpy()[0])
    np.testing.assert_array_equal(context["z_var"], policy.z_vars.detach().numpy()[0])
    policy.reset_belief(2)
    with pytest.raises(ValueError, match="one task"):
        policy.plan_context()


def test_reset_belief_forgets_what_was_inferred_before():
    """specs/meta.md Q-30"""
    policy = _policy()
    policy.infer_posterior(_context(1, 6) + 3.0)
    policy.update_context((np.ones(O), np.ones(A), 1.0))
    policy.reset_belief()
    assert policy.plan_context() is None and policy.context is None
    policy.infer_posterior(_context(6))
    mean, var = policy.posterior(_context(6))
    assert torch.equal(policy.z_means, mean) and torch.equal(policy.z_vars, var)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p)), lambda p: cloudpickle.loads(cloudpickle.dumps(p))],
)
def test_copies_keep_a_belief_that_has_a_gradient(duplicate: Any):
    policy = _policy()
    policy.infer_posterior(_context(3, 6))
    assert policy.z.requires_grad
    twin = duplicate(policy)
    torch.testing.assert_close(twin.z, policy.z.detach())
    policy.sample_from_belief()
    twin.sample_from_belief()
    torch.testing.assert_close(twin.z, policy.z.detach())
    assert twin.policy is not policy.policy


def test_state_dict_restores_belief_and_generator_for_another_number_of_tasks():
    policy, other = _policy(seed=1), _policy(seed=2)
    policy.infer_posterior(_context(4, 6))
    other.load_state_dict(policy.state_dict())
    torch.testing.assert_close(other.z_means, policy.z_means.detach())
    policy.sample_from_belief()
    other.sample_from_belief()
    torch.testing.assert_close(other.z, policy.z.detach())


def test_acting_parameters_are_the_inner_policys():
    policy = _policy()
    np.testing.assert_array_equal(policy.acting_parameters(), policy.policy.acting_parameters())
    named = dict(policy.named_parameters())
    flat = np.concatenate([named[name].detach().numpy().ravel() for name in policy.acting_parameter_names()])
    np.testing.assert_array_equal(flat, policy.acting_parameters())
    assert len(policy.get_param_values()) > len(flat)


def test_a_recurrent_inner_policy_keeps_its_memory_in_the_state():
    policy = ContextConditionedPolicy(L, MLPEncoder(C, 2 * L, (8,)), GRUGaussianPolicy(AUGMENTED, 5), True, False)
    state = policy.initial_state([None] * 3, [np.random.default_rng(0)] * 3)
    first, later, _ = policy.act(np.ones((3, O)), state, np.zeros((3, A)), True)
    second, _, _ = policy.act(np.ones((3, O)), later, np.zeros((3, A)), True)
    assert first.shape == (3, A) and not np.array_equal(first, second)
    np.testing.assert_array_equal(later["z"], state["z"])


def test_wrong_widths_are_named():
    inner = TanhGaussianMLPPolicy(AUGMENTED, (4,), generator=torch_generator(0))
    with pytest.raises(ValueError, match=r"context_encoder.*got 3"):
        ContextConditionedPolicy(L, MLPEncoder(C, 3, (4,)), inner, True, False)
    with pytest.raises(ShapeError, match=r"\(X, N, 6\)"):
        _policy().infer_posterior(torch.zeros(1, 4, C + 1))
    with pytest.raises(ShapeError, match="at least 1"):
        _policy().infer_posterior(torch.zeros(1, 0, C))
    with pytest.raises(ShapeError, match="obs must"):
        _policy()(torch.zeros(2, 4, O), torch.zeros(3, 4, C))
    with pytest.raises(ShapeError, match="obs must"):
        _policy().act(np.zeros((2, 5)), {"z": np.zeros((2, L))}, np.zeros((2, A)))


# -- whose belief counts -----------------------------------------------------------------------------------------------


class _Still(gymnasium.Env):
    """Always the same observation, so that actions differ by z and noise alone."""

    observation_space = BOX(-1, 1, (O,))
    action_space = BOX(-1, 1, (A,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(O, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.ones(O, np.float32), 0.0, False, False, {}


def _adapted() -> ContextConditionedPolicy:
    policy = _policy()
    policy.infer_posterior(_context(1, 6))
    return policy


def test_an_adapted_policy_acts_by_its_belief_without_a_context():
    policy = _adapted()
    belief = policy.plan_context()
    plan = RolloutPlan(seed=(0, 0, 0), max_steps=3)
    with RolloutEngine(_Still, policy) as engine:
        own, told, prior = engine.run([plan, plan.with_(context=belief), plan.with_(context={})])
    np.testing.assert_array_equal(own.actions, told.actions)
    assert not np.array_equal(own.actions, prior.actions)
    alone = rollout(_Still(), policy, max_steps=3, seed=0)
    np.testing.assert_array_equal(alone.actions, own.actions)
    np.testing.assert_array_equal(rollout(_Still(), policy, max_steps=3, seed=0, context={}).actions, prior.actions)


def test_a_replay_knows_the_belief_of_then():
    policy = _adapted()
    plan = RolloutPlan(seed=(0, 0, 0), max_steps=3)
    with RolloutEngine(_Still, policy) as engine:
        (made,) = engine.run([plan])
        policy.infer_posterior(2.0 * _context(1, 9))
        (later,) = engine.run([plan])
    assert not np.array_equal(made.actions, later.actions)
    np.testing.assert_array_equal(replay(made, _Still, policy).actions, made.actions)
    before = _policy()
    with RolloutEngine(_Still, before) as engine:
        (unknowing,) = engine.run([plan])
    np.testing.assert_array_equal(replay(unknowing, _Still, policy).actions, unknowing.actions)
    for given in ({"context": {}}, {"env_update": NewEnvUpdate(_Still)}):
        (name,) = given
        with pytest.raises(ValueError, match=f"{name} is for a StepSequence"):
            replay(plan, _Still, policy, **given)
