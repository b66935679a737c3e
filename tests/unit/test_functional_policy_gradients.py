"""Gradients by hand: numbers worked on paper, and torch's automatic differentiation as reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from metaroll.functional.mlp_gradients import FlatAdam, clip_norm, count_weights, layer_views, mlp_backward, mlp_forward
from metaroll.functional.policy_gradients import (
    categorical_log_prob,
    categorical_log_prob_gradient,
    clipped_surrogate,
    clipped_value_loss,
    gaussian_log_prob_and_deviation,
    log_softmax,
    standardize,
)
from metaroll.learners.ppo_trainer import surrogate_loss, value_loss


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaf(array):
    return torch.from_numpy(np.array(array)).requires_grad_(True)


def test_surrogate_by_hand():
    """Ratios 1, 2 and 1/2, clipped to [0.8, 1.2]; advantages 1, 1 and -1."""
    ratio = np.array([1.0, 2.0, 0.5], dtype=np.float32)
    result = clipped_surrogate(np.log(ratio), np.zeros(3, np.float32), np.array([1, 1, -1], np.float32), 0.2)
    # min(1, 1) + min(2, 1.2) + min(-0.5, -0.8) = 1.4
    assert result.loss == pytest.approx(-1.4 / 3)
    # Only the first row still moves: the second and the third have gone too far in the wanted direction.
    assert result.d_log_prob == pytest.approx([-1 / 3, 0.0, 0.0])
    assert result.clip_fraction == pytest.approx(2 / 3)
    assert result.kl == pytest.approx(((1 - np.log(2)) + (-0.5 + np.log(2))) / 3)


def test_surrogate_lets_a_clipped_ratio_come_back():
    """A ratio of 2 with a negative advantage, or of 1/2 with a positive one, is outside but has to return."""
    ratio = np.array([2.0, 0.5], dtype=np.float32)
    result = clipped_surrogate(np.log(ratio), np.zeros(2, np.float32), np.array([-1, 1], np.float32), 0.2)
    assert result.loss == pytest.approx((2.0 - 0.5) / 2)
    assert result.d_log_prob == pytest.approx([1.0, -0.25])


def test_surrogate_equals_autograd():
    log_prob, old, advantages = normal(0, 200) * 0.3, normal(1, 200) * 0.3, normal(2, 200)
    result = clipped_surrogate(log_prob, old, advantages, 0.2)
    variable = leaf(log_prob)
    loss = surrogate_loss(variable, torch.from_numpy(old), torch.from_numpy(advantages), 0.2)
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), abs=1e-6)
    np.testing.assert_allclose(result.d_log_prob, variable.grad, atol=1e-7)


def test_value_loss_by_hand():
    """Old value 0, range 1, target 3: a value of 2 counts as 1, so the loss is 4 and does not move."""
    values, targets, old = (np.array(v, np.float32) for v in ([2.0, 0.5], [3.0, 3.0], [0.0, 0.0]))
    loss, gradient = clipped_value_loss(values, targets, old, 1.0)
    assert loss == pytest.approx((4.0 + 6.25) / 2)
    assert gradient == pytest.approx([0.0, -2.5])
    loss, gradient = clipped_value_loss(values, targets, old)
    assert loss == pytest.approx((1.0 + 6.25) / 2)
    assert gradient == pytest.approx([-1.0, -2.5])


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss_equals_autograd(clip):
    values, targets, old = normal(0, 100), normal(1, 100), normal(2, 100) * 0.5
    loss, gradient = clipped_value_loss(values, targets, old, clip)
    variable = leaf(values)
    expected = value_loss(variable, torch.from_numpy(targets), torch.from_numpy(old), clip)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, variable.grad, atol=1e-6)


def test_gaussian_log_density_and_its_gradients():
    actions, mean, log_std = normal(0, 20, 3), normal(1, 20, 3), normal(2, 3) * 0.3
    log_prob, z = gaussian_log_prob_and_deviation(actions, mean, log_std)
    mean_t, log_std_t = leaf(mean), leaf(log_std)
    expected = torch.distributions.Normal(mean_t, log_std_t.exp()).log_prob(torch.from_numpy(actions)).sum(-1)
    np.testing.assert_allclose(log_prob, expected.detach(), rtol=1e-5)
    expected.sum().backward()
    np.testing.assert_allclose(z / np.exp(log_std), mean_t.grad, atol=1e-5)
    np.testing.assert_allclose((z**2 - 1).sum(axis=0), log_std_t.grad, rtol=1e-4, atol=1e-4)


def test_categorical_gradients_equal_autograd():
    logits, actions = normal(0, 50, 4) * 2, np.arange(50) % 4
    d_log_prob, d_entropy = normal(1, 50), normal(2, 50)
    log_probs = log_softmax(logits)
    log_prob, entropy = categorical_log_prob(log_probs, actions)
    gradient = categorical_log_prob_gradient(log_probs, actions, entropy, d_log_prob, d_entropy)
    variable = leaf(logits)
    reference = torch.distributions.Categorical(logits=variable)
    expected = reference.log_prob(torch.from_numpy(actions))
    np.testing.assert_allclose(log_prob, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(entropy, reference.entropy().detach(), atol=1e-5)
    (expected @ torch.from_numpy(d_log_prob) + reference.entropy() @ torch.from_numpy(d_entropy)).backward()
    np.testing.assert_allclose(gradient, variable.grad, atol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("sizes", [(3, 2), (5, 8, 2), (4, 16, 16, 1)])
def test_mlp_gradient_equals_autograd(sizes, activation):
    flat = normal(0, count_weights(sizes)) * 0.5
    x, d_output = normal(1, 30, sizes[0]), normal(2, 30, sizes[-1])
    layers, gradient = layer_views(flat, sizes), np.full_like(flat, np.nan)
    outputs = mlp_forward(x, layers, activation)
    mlp_backward(d_output, outputs, layers, layer_views(gradient, sizes), activation)

    variable = leaf(flat)
    value, begin = torch.from_numpy(x), 0
    for k, (a, b) in enumerate(itertools.pairwise(sizes)):
        weight, bias = variable[begin : begin + a * b].reshape(a, b), variable[begin + a * b : begin + (a + 1) * b]
        value, begin = value @ weight + bias, begin + (a + 1) * b
        if k < len(sizes) - 2:
            value = torch.tanh(value) if activation == "tanh" else torch.relu(value)
    np.testing.assert_allclose(outputs[-1], value.detach(), atol=1e-5)
    (value * torch.from_numpy(d_output)).sum().backward()
    np.testing.assert_allclose(gradient, variable.grad, atol=1e-5, rtol=1e-5)


def test_adam_takes_the_steps_of_torch():
    parameters = normal(0, 40)
    variable = leaf(parameters)
    reference = torch.optim.Adam([variable], lr=0.01, eps=1e-5)
    adam = FlatAdam(parameters, eps=1e-5)
    for k in range(20):
        gradient = normal(k + 1, 40)
        variable.grad = torch.from_numpy(gradient.copy())
        reference.step()
        adam.step(gradient, 0.01)
    np.testing.assert_allclose(parameters, variable.detach(), atol=1e-6)


def test_adam_goes_on_from_its_state():
    straight, stopped = normal(0, 10), normal(0, 10)
    one, two = FlatAdam(straight), FlatAdam(stopped)
    for k in range(3):
        one.step(normal(k, 10), 0.1)
        two.step(normal(k, 10), 0.1)
        state = two.state_dict()
        two = FlatAdam(stopped)
        two.load_state_dict(state)
    assert np.array_equal(straight, stopped)
    with pytest.raises(ValueError, match="10 entries"):
        FlatAdam(np.zeros(4, np.float32)).load_state_dict(state)


def test_the_norm_is_clipped_as_torch_does():
    gradient = np.array([3.0, 4.0], dtype=np.float32)
    assert clip_norm(gradient, None) == pytest.approx(5.0)
    assert clip_norm(gradient, 1.0) == pytest.approx(5.0)
    assert gradient == pytest.approx([0.6, 0.8], rel=1e-5)
    assert clip_norm(gradient, 2.0) == pytest.approx(1.0)
    assert gradient == pytest.approx([0.6, 0.8], rel=1e-5)


def test_advantages_are_standardized_with_the_samples_deviation():
    assert standardize(np.array([1.0, 3.0], np.float32)) == pytest.approx([-1 / 2**0.5, 1 / 2**0.5])
    assert standardize(np.array([7.0], np.float32)).tolist() == [7.0]
