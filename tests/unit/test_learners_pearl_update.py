"""Losses of PEARL on numbers small enough to work by hand."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from metaroll.functional.gradients.actor_critic import critic_loss, q_target, soft_update, value_loss, value_target
from metaroll.learners.pearl_update import PolicyRegularizers, policy_loss


def test_q_target_scales_the_reward_and_stops_at_terminations():
    """specs/meta.md 4.6 step 4"""
    target = q_target(tensor([[2.0], [2.0]]), tensor([[0.0], [1.0]]), tensor([[10.0], [10.0]]), 0.9, reward_scale=5.0)
    # 5 * 2 + 0.9 * 10 = 19; where it ended: 5 * 2 = 10
    assert target.tolist() == [[19.0], [10.0]]


def test_critic_loss_is_the_sum_of_two_means_without_a_half():
    """specs/meta.md 4.6 step 4"""
    q1, q2, target = tensor([[1.0], [3.0]]), tensor([[2.0], [5.0]]), tensor([[1.0], [1.0]])
    # ((0)^2 + (2)^2) / 2 + ((1)^2 + (4)^2) / 2 = 2 + 8.5
    assert critic_loss(q1, q2, target).item() == 10.5


def test_value_target_is_the_soft_value_without_gradient():
    """specs/meta.md 4.6 step 6"""
    min_q, log_prob = tensor([[3.0]], requires_grad=True), tensor([[-0.5]], requires_grad=True)
    target = value_target(min_q, log_prob)
    assert target.item() == 3.5  # 3 - (-0.5)
    assert not target.requires_grad


def test_value_loss_is_a_mean_square():
    """specs/meta.md 4.6 step 6"""
    assert value_loss(tensor([[1.0], [4.0]]), tensor([[2.0], [2.0]])).item() == 2.5  # (1 + 4) / 2


def test_policy_loss_adds_three_regularizers():
    """specs/meta.md 4.6 step 7"""
    log_prob, min_q = tensor([[1.0], [3.0]]), tensor([[2.0], [0.0]])
    mean, log_std = tensor([[1.0, 2.0], [3.0, 0.0]]), tensor([[-1.0, 1.0], [1.0, -1.0]])
    pre_tanh = tensor([[2.0, 1.0], [0.0, 3.0]])
    weights = PolicyRegularizers(mean=0.1, std=0.01, pre_activation=0.001)
    # mean(-1, 3) = 1; 0.1 * (1 + 4 + 9 + 0) / 4 = 0.35; 0.01 * 1; 0.001 * ((4 + 1) + (0 + 9)) / 2 = 0.007
    assert policy_loss(log_prob, min_q, mean, log_std, pre_tanh, weights).item() == pytest.approx(1.367)


@pytest.mark.parametrize("name", ["mean", "std", "pre_activation"])
def test_every_regularizer_has_a_gradient(name: str):
    """specs/meta.md 8, Q-35"""
    inputs = {key: torch.ones(2, 3, requires_grad=True) for key in ("mean", "log_std", "pre_tanh")}
    weights = PolicyRegularizers(**{"mean": 0.0, "std": 0.0, "pre_activation": 0.0, name: 0.5})
    policy_loss(torch.zeros(2, 1), torch.zeros(2, 1), **inputs, weights=weights).backward()
    changed = {"mean": "mean", "std": "log_std", "pre_activation": "pre_tanh"}[name]
    # d/dx 0.5 mean(x^2) = 0.5 * 2 * 1 / 6; the pre-activation's sum over 3 dimensions is a mean over 2 rows only
    expected = 0.5 * 2 / (2 if name == "pre_activation" else 6)
    assert inputs[changed].grad is not None
    torch.testing.assert_close(inputs[changed].grad, torch.full((2, 3), expected))


def test_soft_update_moves_the_target_by_tau():
    """specs/meta.md 4.6 step 6"""
    target, source = [tensor([1.0, 2.0]), tensor([[4.0]])], [tensor([2.0, 0.0]), tensor([[4.0]])]
    soft_update(target, source, 0.25)
    # 0.75 * 1 + 0.25 * 2 = 1.25; 0.75 * 2 + 0 = 1.5; 4 stays
    assert [t.tolist() for t in target] == [[1.25, 1.5], [[4.0]]]
    assert [s.tolist() for s in source] == [[2.0, 0.0], [[4.0]]]


def test_soft_update_with_tau_one_copies():
    """specs/meta.md 4.6 step 6"""
    target, source = torch.nn.Parameter(tensor([0.1, 0.7])), torch.nn.Parameter(tensor([0.3, -0.2]))
    soft_update([target], [source], 1.0)
    assert torch.equal(target, source)
