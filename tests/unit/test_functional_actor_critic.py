"""Targets and losses of actor-critics: numbers worked by hand, and plain loops beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import tensor

from metaroll.functional.gradients.actor_critic import (
    bootstrapped,
    critics_loss,
    critics_loss_gradient,
    q_target,
    smoothed_actions,
    soft_policy_loss,
    soft_update,
    soft_values,
    temperature_gradient,
    temperature_loss,
)
from metaroll.functional.gradients.optimizers import fast_optimizer


def test_targets_count_the_successor_by_its_discount() -> None:
    # 2 * 3 + 0.9 * 10 = 15; 2 * 3 + 0 = 6 where it ended; 2 * 1 + 0.81 * 10 = 10.1 after two rewards
    target = bootstrapped(tensor([3.0, 3.0, 1.0]), tensor([0.9, 0.0, 0.81]), tensor([10.0, 10.0, 10.0]), 2.0)
    torch.testing.assert_close(target, tensor([15.0, 6.0, 10.1]))
    told = q_target(tensor([3.0, 3.0]), tensor([0.0, 1.0]), tensor([10.0, 10.0]), 0.9, 2.0)
    torch.testing.assert_close(told, target[:2])


def test_the_loss_of_critics_is_the_sum_of_theirs() -> None:
    values, target = tensor([[1.0, 3.0], [2.0, 5.0]]), tensor([1.0, 1.0])
    # ((0 + 4) / 2 + (1 + 16) / 2) / 2 = 5.25; with weights 1 and 1/2: ((0 + 2) / 2 + (1 + 8) / 2) / 2 = 2.75
    assert critics_loss(values, target).item() == 5.25
    assert critics_loss(values, target, tensor([1.0, 0.5])).item() == 2.75


def test_the_gradient_of_the_loss_of_critics_is_their_error() -> None:
    values, target = tensor([[1.0, 3.0], [2.0, 5.0]], requires_grad=True), tensor([1.0, 1.0])
    for weights, expected in ((None, [[0.0, 1.0], [0.5, 2.0]]), (tensor([1.0, 0.5]), [[0.0, 0.5], [0.5, 1.0]])):
        found = critics_loss_gradient(values.detach(), target, weights)
        torch.testing.assert_close(found, tensor(expected))
        torch.testing.assert_close(found, torch.autograd.grad(critics_loss(values, target, weights), values)[0])


def test_smoothed_actions_are_clipped_twice() -> None:
    actions, noise = tensor([[0.0, 0.9, -0.9]]), tensor([[1.0, 10.0, -1.0]])
    # 0 + 0.2; 0.9 + clip(2, 0.5) = 1.4 -> 1; -0.9 - 0.2 = -1.1 -> -1
    torch.testing.assert_close(smoothed_actions(actions, noise, 0.2, 0.5), tensor([[0.2, 1.0, -1.0]]))


def test_entropy_counts_in_values_and_in_the_policy() -> None:
    min_q, log_prob = tensor([3.0, 1.0]), tensor([-0.5, 2.0])
    torch.testing.assert_close(soft_values(min_q, log_prob, 0.2), tensor([3.1, 0.6]))
    assert soft_policy_loss(log_prob, min_q, 0.2).item() == pytest.approx(-(3.1 + 0.6) / 2)


def test_the_temperature_falls_while_the_entropy_is_high() -> None:
    log_alpha = tensor([math.log(0.5)], requires_grad=True)
    loss = temperature_loss(log_alpha, tensor([-3.0, -1.0]), -1.0)
    # -ln(0.5) * ((-3 - 1) + (-1 - 1)) / 2 = 0.6931 * -3; its gradient is 3: the entropy, 2 on average, is over -1
    assert loss.item() == pytest.approx(3 * math.log(0.5))
    loss.backward()
    assert log_alpha.grad is not None and log_alpha.grad.item() == pytest.approx(3.0)
    assert temperature_gradient(tensor([-3.0, -1.0]), -1.0).item() == pytest.approx(3.0)


def test_against_plain_loops() -> None:
    draw = np.random.default_rng(0)
    rewards, discounts, values = (draw.normal(size=7) for _ in range(3))
    predicted, weights = draw.normal(size=(2, 7)), draw.random(7)
    target = [3.0 * r + d * v for r, d, v in zip(rewards, discounts, values, strict=True)]
    np.testing.assert_allclose(
        bootstrapped(*map(torch.from_numpy, (rewards, discounts, values)), 3.0).numpy(), target, rtol=1e-12
    )
    loss = sum(sum(w * (q - y) ** 2 for w, q, y in zip(weights, row, target, strict=True)) / 14 for row in predicted)
    found = critics_loss(torch.from_numpy(predicted), tensor(target, dtype=torch.float64), torch.from_numpy(weights))
    assert found.item() == pytest.approx(loss, rel=1e-12)


def test_soft_update_moves_the_target_alone() -> None:
    target, source = [tensor([1.0, 2.0])], [tensor([2.0, 0.0])]
    soft_update(target, source, 0.25)
    assert target[0].tolist() == [1.25, 1.5] and source[0].tolist() == [2.0, 0.0]


def test_fast_optimizers_take_the_same_step() -> None:
    parameters = [torch.nn.Parameter(tensor([1.0, -2.0])) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = tensor([0.5, 1.0])
    fast_optimizer(torch.optim.Adam, parameters[:1], 0.1).step()
    torch.optim.Adam([parameters[1]], 0.1).step()
    torch.testing.assert_close(parameters[0], parameters[1])
    assert fast_optimizer(torch.optim.SGD, parameters, 0.1).defaults["lr"] == 0.1
