"""Meta-gradients against finite differences of an enumerated decision process, where expectations are exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from meta_cases import THETA, distribution, exact_samples, finite_difference, probabilities, true_return

from metaroll.functional.distributions import gaussian_kl_per_row
from metaroll.functional.gradients.meta_gradients import (
    AdamState,
    adam_step,
    adapt,
    clipped_by_norm,
    conjugate_gradient,
    inner_objective,
    log_prob_of,
    mean_cosine,
    mean_kl,
)
from metaroll.functional.gradients.surrogates import magic_box, ratio_objective

ALPHA = 0.4


def objective(kind, theta, samples):
    return inner_objective(kind, log_prob_of(distribution(theta, samples.observations), samples), samples)


def second(function, at=THETA):
    return torch.func.jacrev(torch.func.grad(function))(at)


def hessian(kind, samples):
    return second(lambda theta: objective(kind, theta, samples))


def one_step(kind, order=2, horizon=2):
    """The gradient of the true return after one exact inner step, by the chain rule of ``adapt``."""
    theta = THETA.clone().requires_grad_()
    sizes = torch.full((2,), ALPHA, dtype=torch.float64)
    passed = adapt(theta, [exact_samples(THETA, horizon=horizon)], distribution, sizes, kind=kind, order=order)
    (gradient,) = torch.autograd.grad(true_return(passed.parameters[-1], horizon), theta)
    return gradient, passed


def truly_adapted(theta, horizon=2):
    return theta + ALPHA * torch.func.grad(lambda t: true_return(t, horizon))(theta)


def test_the_estimator_has_value_and_derivatives_of_the_true_return():
    samples = exact_samples(THETA)
    assert objective("magic-box", THETA, samples).item() == pytest.approx(true_return(THETA).item(), abs=1e-12)
    first = torch.func.grad(lambda theta: objective("magic-box", theta, samples))(THETA)
    torch.testing.assert_close(first, torch.func.grad(true_return)(THETA), atol=1e-12, rtol=0)
    torch.testing.assert_close(first, finite_difference(true_return, THETA), atol=1e-8, rtol=0)
    torch.testing.assert_close(hessian("magic-box", samples), second(true_return), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["magic-box", "ratio", "log-likelihood"])
def test_padding_does_not_enter(kind):
    plain, padded = exact_samples(THETA), exact_samples(THETA, padding=3)
    assert objective(kind, THETA, padded).item() == pytest.approx(objective(kind, THETA, plain).item(), abs=1e-14)
    torch.testing.assert_close(hessian(kind, padded), hessian(kind, plain), atol=1e-14, rtol=0)
    moved = distribution(THETA + 0.3, padded.observations)
    assert mean_kl(moved, padded).item() == pytest.approx(
        mean_kl(distribution(THETA + 0.3, plain.observations), plain).item(), abs=1e-14
    )


@pytest.mark.parametrize("kind", ["ratio", "log-likelihood"])
def test_all_inner_objectives_have_the_true_gradient(kind):
    found = torch.func.grad(lambda theta: objective(kind, theta, exact_samples(THETA)))(THETA)
    torch.testing.assert_close(found, torch.func.grad(true_return)(THETA), atol=1e-12, rtol=0)


def test_low_variance_curvature_leaves_out_the_terms_across_steps():
    """Rothfuss et al. 2019, theorem 1: ``H_1 + H_2`` of the ratio, and the rest is ``H_12 + H_12^T``."""
    samples, wanted = exact_samples(THETA), torch.zeros(2, 2, dtype=torch.float64)
    weights = probabilities(THETA)
    for path in range(16):
        for t in range(2):

            def log_prob(theta, path=path, t=t):
                return distribution(theta, samples.observations[path, t]).log_prob(samples.actions[path, t])

            slope, curve = torch.func.grad(log_prob)(THETA), second(log_prob)
            wanted += weights[path] * samples.advantages[path, t] * (torch.outer(slope, slope) + curve)
    found, true = hessian("ratio", samples), second(true_return)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    assert (found - true).abs().max() > 0.01
    # A single step has nothing across steps.
    torch.testing.assert_close(
        hessian("ratio", exact_samples(THETA, horizon=1)),
        second(lambda theta: true_return(theta, 1)),
        atol=1e-12,
        rtol=0,
    )


def test_the_estimator_s_meta_gradient_is_that_of_the_true_meta_objective():
    found, passed = one_step("magic-box")
    torch.testing.assert_close(passed.parameters[-1].detach(), truly_adapted(THETA), atol=1e-12, rtol=0)
    wanted = finite_difference(lambda theta: true_return(truly_adapted(theta)), THETA)
    torch.testing.assert_close(found, wanted, atol=1e-8, rtol=0)


def test_the_ratio_s_meta_gradient_is_exact_where_there_is_one_step():
    found, _ = one_step("ratio", horizon=1)
    wanted = finite_difference(lambda theta: true_return(truly_adapted(theta, 1), 1), THETA)
    torch.testing.assert_close(found, wanted, atol=1e-8, rtol=0)
    second_order = found - torch.func.grad(lambda t: true_return(t, 1))(truly_adapted(THETA, 1))
    assert second_order.abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["magic-box", "ratio"])
def test_first_order_leaves_out_the_second_derivative(kind):
    found, passed = one_step(kind, order=1)
    at = passed.parameters[-1].detach()
    torch.testing.assert_close(found, torch.func.grad(true_return)(at), atol=1e-14, rtol=0)
    curvature = hessian(kind, exact_samples(THETA))
    whole = found + ALPHA * curvature @ found
    torch.testing.assert_close(one_step(kind)[0], whole, atol=1e-12, rtol=0)
    assert (whole - found).abs().max() > 1e-3


def test_steps_of_size_zero_leave_parameters_alone():
    theta = THETA.clone().requires_grad_()
    sizes = torch.tensor([ALPHA, 0.0], dtype=torch.float64)
    passed = adapt(theta, [exact_samples(THETA)] * 2, distribution, sizes)
    assert len(passed.parameters) == 3
    assert passed.parameters[-1][1] == theta[1]
    assert passed.parameters[-1][0] != theta[0]


def test_adapting_alone_goes_where_the_differentiable_steps_go():
    samples, sizes = [exact_samples(THETA)] * 3, torch.full((2,), ALPHA, dtype=torch.float64)
    ends = [
        adapt(THETA.clone().requires_grad_(), samples, distribution, sizes, order=order).parameters[-1].detach()
        for order in (0, 1, 2)
    ]
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def test_clipping_by_hand():
    log_ratio, advantages = torch.log(torch.tensor([1.5, 1.5, 0.5, 0.5])), torch.tensor([1.0, -1.0, 1.0, -1.0])
    found = ratio_objective(log_ratio, torch.zeros(4), advantages, 0.2)
    torch.testing.assert_close(found, torch.tensor([1.2, -1.5, 0.5, -0.8]))
    torch.testing.assert_close(
        ratio_objective(log_ratio, torch.zeros(4), advantages), torch.tensor([1.5, -1.5, 0.5, -0.5])
    )
    x = torch.tensor(2.0, requires_grad=True)
    assert magic_box(3 * x).item() == 1.0
    assert torch.autograd.grad(magic_box(3 * x), x)[0].item() == pytest.approx(3.0)


def test_conjugate_gradients_solve_a_linear_system():
    drawn = np.random.default_rng(0).normal(size=(6, 6))
    matrix, target = torch.tensor(drawn @ drawn.T + np.eye(6)), torch.tensor(drawn[0])
    found = conjugate_gradient(lambda v: matrix @ v, target, 10)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, target), atol=1e-9, rtol=0)
    assert not conjugate_gradient(lambda v: matrix @ v, torch.zeros(6, dtype=torch.float64)).any()


def test_adam_is_that_of_torch():
    drawn = torch.Generator().manual_seed(0)
    weights = torch.randn(5, generator=drawn, dtype=torch.float64)
    theirs = weights.clone().requires_grad_()
    zeros = torch.zeros_like(weights)
    optimizer, state = torch.optim.Adam([theirs], lr=0.01), AdamState(zeros, zeros, weights.new_zeros(()))
    for _ in range(4):
        gradient = torch.randn(5, generator=drawn, dtype=torch.float64)
        theirs.grad = gradient.clone()
        optimizer.step()
        weights, state = adam_step(weights, gradient, state, 0.01)
    torch.testing.assert_close(weights, theirs.detach(), atol=1e-12, rtol=0)
    limited, norm = clipped_by_norm(torch.tensor([3.0, 4.0]), 1.0)
    assert norm.item() == 5.0
    torch.testing.assert_close(limited, torch.tensor([0.6, 0.8]), atol=1e-6, rtol=0)


def test_cosines_and_divergences_by_hand():
    assert mean_cosine(torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])).item() == pytest.approx(-1 / 3)
    assert torch.isnan(mean_cosine(torch.ones(1, 2)))
    mean, log_std = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)
    found = gaussian_kl_per_row(mean, log_std, torch.zeros(1, 2), torch.full((1, 2), np.log(2.0)))
    normals = [torch.distributions.Normal(m, 1.0) for m in (1.0, 0.0)]
    wanted = sum(torch.distributions.kl_divergence(n, torch.distributions.Normal(0.0, 2.0)).item() for n in normals)
    assert found.item() == pytest.approx(wanted)
