"""Gradients by hand: numbers worked on paper, and torch's automatic differentiation as reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metaroll.errors import SnapshotError
from metaroll.functional.gradients.optimizers import Adam, clip_norm, clipped
from metaroll.functional.gradients.surrogates import ratio_objective
from metaroll.functional.policy_gradients import (
    categorical_log_prob,
    categorical_log_prob_gradient,
    clipped_surrogate,
    clipped_value_loss,
    gaussian_rows,
    log_softmax,
    standardize,
)
from metaroll.seeding import torch_generator


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaf(array):
    return torch.from_numpy(np.array(array)).requires_grad_(True)


KINDS = [np.asarray, torch.from_numpy]


@pytest.mark.parametrize("made", KINDS)
def test_surrogate_by_hand(made):
    """Ratios 1, 2 and 1/2, clipped to [0.8, 1.2]; advantages 1, 1 and -1."""
    ratio, old = np.array([1.0, 2.0, 0.5], np.float32), np.zeros(3, np.float32)
    result = clipped_surrogate(made(np.log(ratio)), made(old), made(np.array([1, 1, -1], np.float32)), 0.2)
    # min(1, 1) + min(2, 1.2) + min(-0.5, -0.8) = 1.4
    assert float(result.objective) == pytest.approx(1.4)
    # Only the first row still moves: the second and the third have gone too far in the wanted direction.
    assert result.d_log_prob.tolist() == pytest.approx([-1 / 3, 0.0, 0.0])
    assert int(result.num_clipped) == 2
    assert float(result.kl) == pytest.approx((1 - np.log(2)) + (-0.5 + np.log(2)))


@pytest.mark.parametrize("made", KINDS)
def test_surrogate_lets_a_clipped_ratio_come_back(made):
    """A ratio of 2 with a negative advantage, or of 1/2 with a positive one, is outside but has to return."""
    ratio, old = np.array([2.0, 0.5], np.float32), np.zeros(2, np.float32)
    result = clipped_surrogate(made(np.log(ratio)), made(old), made(np.array([-1, 1], np.float32)), 0.2)
    assert float(result.objective) == pytest.approx(-2.0 + 0.5)
    assert result.d_log_prob.tolist() == pytest.approx([1.0, -0.25])


@pytest.mark.parametrize(("made", "dtype", "tolerance"), [
    (np.asarray, np.float32, 1e-7), (torch.from_numpy, np.float32, 1e-7), (torch.from_numpy, np.float64, 1e-12),
    (np.asarray, np.float64, 1e-12),
])  # fmt: skip
def test_surrogate_equals_autograd(made, dtype, tolerance):
    log_prob, old, advantages = ((normal(k, 200) * 0.3).astype(dtype) for k in range(3))
    result = clipped_surrogate(made(log_prob), made(old), made(advantages), 0.2)
    variable = leaf(log_prob)
    loss = -ratio_objective(variable, torch.from_numpy(old), torch.from_numpy(advantages), 0.2).mean()
    loss.backward()
    assert -float(result.objective) / 200 == pytest.approx(loss.item(), abs=1e-6)
    np.testing.assert_allclose(result.d_log_prob, variable.grad, atol=tolerance)
    assert result.d_log_prob.dtype == made(old).dtype


@pytest.mark.parametrize("made", KINDS)
def test_value_loss_by_hand(made):
    """Old value 0, range 1, target 3: a value of 2 counts as 1, so the loss is 4 and does not move."""
    values, targets, old = (made(np.array(v, np.float32)) for v in ([2.0, 0.5], [3.0, 3.0], [0.0, 0.0]))
    squares, gradient = clipped_value_loss(values, targets, old, 1.0)
    assert float(squares) == pytest.approx(4.0 + 6.25)
    assert gradient.tolist() == pytest.approx([0.0, -2.5])
    squares, gradient = clipped_value_loss(values, targets, old)
    assert float(squares) == pytest.approx(1.0 + 6.25)
    assert gradient.tolist() == pytest.approx([-1.0, -2.5])


@pytest.mark.parametrize("made", KINDS)
@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss_equals_autograd(clip, made):
    values, targets, old = normal(0, 100), normal(1, 100), normal(2, 100) * 0.5
    squares, gradient = clipped_value_loss(made(values), made(targets), made(old), clip)
    variable, target, before = leaf(values), torch.from_numpy(targets), torch.from_numpy(old)
    expected = (variable - target).square()
    if clip is not None:
        clipped_values = before + (variable - before).clamp(-clip, clip)
        expected = torch.maximum(expected, (clipped_values - target).square())
    expected.mean().backward()
    assert float(squares) / 100 == pytest.approx(expected.mean().item(), rel=1e-5)
    np.testing.assert_allclose(gradient, variable.grad, atol=1e-6)


def test_gaussian_log_density_and_its_gradients():
    actions, mean, log_std = normal(0, 20, 3), normal(1, 20, 3), normal(2, 3) * 0.3
    log_prob, z, inverse_std, entropy = gaussian_rows(actions, mean, log_std)
    mean_t, log_std_t = leaf(mean), leaf(log_std)
    expected = torch.distributions.Normal(mean_t, log_std_t.exp()).log_prob(torch.from_numpy(actions)).sum(-1)
    np.testing.assert_allclose(log_prob, expected.detach(), rtol=1e-5)
    expected.sum().backward()
    np.testing.assert_allclose(z * inverse_std, mean_t.grad, atol=1e-5)
    reference = torch.distributions.Normal(mean_t, log_std_t.exp()).entropy().sum(-1).mean()
    assert entropy == pytest.approx(reference.item(), rel=1e-6)
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


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_adam_takes_the_steps_of_torch(made):
    values = [normal(0, 40), normal(1, 3, 2)]
    own, variables = [made(value) for value in values], [leaf(value) for value in values]
    reference, adam = torch.optim.Adam(variables, lr=0.01, eps=1e-5), Adam(own, 0.01, eps=1e-5)
    for k in range(20):
        gradients = [normal(k + 1, *value.shape) for value in values]
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.grad = torch.tensor(gradient)
        reference.step()
        adam.step([made(gradient) for gradient in gradients])
    for parameters, variable in zip(own, variables, strict=True):
        np.testing.assert_allclose(parameters, variable.detach(), atol=1e-6)


def test_adam_takes_gradients_as_they_lie():
    """Autograd gives the gradient of a weight that was turned as a view that is turned, too."""
    start, gradient = (
        torch.randn(3, 4, generator=torch_generator(0)),
        torch.randn(4, 3, generator=torch_generator(1)).t(),
    )
    steps = []
    for given in (gradient, gradient.contiguous()):
        parameter = start.clone()
        Adam([parameter], 0.1).step([given])
        steps.append(parameter)
    assert not gradient.is_contiguous() and torch.equal(*steps)
    expected = start - 0.1 * gradient.sign()
    torch.testing.assert_close(steps[0], expected, rtol=0, atol=1e-5)


def test_adam_goes_on_from_its_state():
    straight, stopped = normal(0, 10), normal(0, 10)
    one, two = Adam([straight], 0.1), Adam([stopped], 0.1)
    for k in range(3):
        one.step([normal(k, 10)])
        two.step([normal(k, 10)])
        state = two.state_dict()
        two = Adam([stopped], 0.1)
        two.load_state_dict(state)
    assert np.array_equal(straight, stopped)
    with pytest.raises(SnapshotError, match=r"first\.0: .*must have shape \(4,\), got \(10,\)"):
        Adam([np.zeros(4, np.float32)], 0.1).load_state_dict(state)


def test_the_norm_is_clipped_as_torch_does():
    gradient = np.array([3.0, 4.0], dtype=np.float32)
    assert clip_norm(gradient, None) == pytest.approx(5.0)
    assert clip_norm(gradient, 1.0) == pytest.approx(5.0)
    assert gradient == pytest.approx([0.6, 0.8], rel=1e-5)
    assert clip_norm(gradient, 2.0) == pytest.approx(1.0)
    assert gradient == pytest.approx([0.6, 0.8], rel=1e-5)
    parts = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    assert [part.item() for part in clipped(parts, 1.0)] == pytest.approx([0.6, 0.8], rel=1e-5)
    assert [part.item() for part in clipped(parts, 9.0)] == [part.item() for part in clipped(parts, None)] == [3.0, 4.0]


def test_advantages_are_standardized_with_the_samples_deviation():
    assert standardize(np.array([1.0, 3.0], np.float32)) == pytest.approx([-1 / 2**0.5, 1 / 2**0.5])
    assert standardize(np.array([7.0], np.float32)).tolist() == [7.0]
