"""Perceptrons with hand-written derivatives, beside the same by functions of torch and numbers worked by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from metaroll.functional.gradients.tanh_mlp import tanh_mlp

SIZES = {"one layer": (3, 2), "two layers": (3, 5, 2), "three layers": (3, 5, 4, 2), "wide output": (2, 3, 6)}


def network(sizes, stack=(), rows=(2, 3), dtype=torch.float64):
    """Inputs, weights and biases that require a gradient."""
    drawn = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*stack, *shape, generator=drawn, dtype=dtype).requires_grad_()

    pairs = list(itertools.pairwise(sizes))
    return draw(*rows, sizes[0]), [draw(b, a) for a, b in pairs], [draw(b) for _, b in pairs]


def plain(x, weights, biases):
    """The same by torch's own functions, for one network."""
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = torch.nn.functional.linear(x, weight, bias)
        x = torch.tanh(x) if k < len(weights) - 1 else x
    return x


def flat(function, count):
    """``function`` of weights and biases as separate arguments behind the first."""
    return lambda x, *rest: function(x, rest[:count], rest[count:])


def test_a_network_by_hand():
    """``z = 0.5 x + 0.1``, ``y = 2 tanh(z) - 1`` at x = 1: ``dy/dx = 2 (1 - tanh(0.6)^2) 0.5``."""
    x = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    weights = [torch.tensor([[value]], dtype=torch.float64, requires_grad=True) for value in (0.5, 2.0)]
    biases = [torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (0.1, -1.0)]
    found = tanh_mlp(x, weights, biases)
    value, slope = math.tanh(0.6), 1.0 - math.tanh(0.6) ** 2
    assert found.item() == pytest.approx(2.0 * value - 1.0, abs=1e-12)
    first = torch.autograd.grad(found.sum(), [x, *weights, *biases], create_graph=True)
    assert [each.item() for each in first] == pytest.approx([slope, 2 * slope, value, 2 * slope, 1.0], abs=1e-12)
    (second,) = torch.autograd.grad(first[0].sum(), x)
    assert second.item() == pytest.approx(-2.0 * value * slope * 2.0 * 0.25, abs=1e-12)


@pytest.mark.parametrize("name", SIZES)
def test_derivatives_of_three_orders_are_those_of_torch(name):
    """Of a loss that bends, by all arguments: values, gradients, Hessian-vector products, and derivatives of these."""
    x, weights, biases = network(SIZES[name])
    arguments, count = [x, *weights, *biases], len(weights)
    drawn = torch.Generator().manual_seed(1)
    along = [[torch.randn(each.shape, generator=drawn, dtype=each.dtype) for each in arguments] for _ in range(2)]

    def derivatives(function):
        own = [each.detach().clone().requires_grad_() for each in arguments]
        found = [flat(function, count)(*own)]
        loss = found[0].exp().sum() + found[0].prod()
        for directions in along:
            slopes = torch.autograd.grad(loss, own, create_graph=True)
            found += slopes
            loss = sum((slope * v).sum() for slope, v in zip(slopes, directions, strict=True))
        return [*found, *torch.autograd.grad(loss, own)]

    for found, wanted in zip(derivatives(tanh_mlp), derivatives(plain), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("stack", [(), (2,)])
def test_derivatives_are_limits_of_differences(stack):
    x, weights, biases = network((2, 3, 2, 2), stack, rows=(2,))
    function, arguments = flat(tanh_mlp, 3), (x, *weights, *biases)
    fixed = x.detach()

    def gradients(*given):
        own = [each.view_as(each) for each in given]
        return torch.autograd.grad(function(fixed, *own).square().sum(), own, create_graph=True)

    with torch.random.fork_rng():  # gradgradcheck draws from torch's generator
        assert torch.autograd.gradcheck(function, arguments)
        assert torch.autograd.gradgradcheck(function, arguments)
        assert torch.autograd.gradgradcheck(lambda *rest: function(fixed, *rest), arguments[1:])
        assert torch.autograd.gradgradcheck(gradients, arguments[1:])


def test_a_stack_is_its_networks_one_by_one():
    x, weights, biases = network(SIZES["three layers"], (4,))
    found = tanh_mlp(x, weights, biases)
    each = [plain(x[m], [w[m] for w in weights], [b[m] for b in biases]) for m in range(4)]
    torch.testing.assert_close(found, torch.stack(each), atol=1e-12, rtol=1e-12)
    slopes = torch.autograd.grad(found.square().sum(), [x, *weights, *biases])
    wanted = torch.autograd.grad(torch.stack(each).square().sum(), [x, *weights, *biases])
    for slope, other in zip(slopes, wanted, strict=True):
        torch.testing.assert_close(slope, other, atol=1e-10, rtol=1e-10)


def test_some_gradients_are_not_asked_for():
    """Only one weight moves, and only its gradient is differentiated again."""
    x, weights, biases = network(SIZES["three layers"])
    x, weights, biases = x.detach(), [w.detach() for w in weights], [b.detach() for b in biases]
    weights[1].requires_grad_()

    def second(function):
        (slope,) = torch.autograd.grad(function(x, weights, biases).exp().sum(), weights[1], create_graph=True)
        return torch.autograd.grad(slope.square().sum(), weights[1])[0]

    torch.testing.assert_close(second(tanh_mlp), second(plain), atol=1e-9, rtol=1e-9)


def test_single_precision_is_close_for_any_input():
    x = torch.linspace(-20.0, 20.0, 10_001)[:, None]
    one, nothing = [torch.ones(1, 1), torch.ones(1, 1)], [torch.zeros(1), torch.zeros(1)]
    torch.testing.assert_close(tanh_mlp(x, one, nothing), torch.tanh(x.double()).float(), atol=2.5e-7, rtol=0.0)


def test_values_do_not_depend_on_whether_a_gradient_is_wanted():
    """Probability ratios are exactly 1 where nothing has changed."""
    x, weights, biases = network(SIZES["three layers"], dtype=torch.float32)
    with torch.no_grad():
        before = tanh_mlp(x, weights, biases)
    assert torch.equal(tanh_mlp(x, weights, biases), before)


def test_torch_func_may_transform_it():
    x, weights, biases = network(SIZES["two layers"], (3,))
    arguments = [each.detach() for each in (x, *weights, *biases)]
    slopes = torch.func.vmap(torch.func.grad(lambda *one: flat(tanh_mlp, 2)(*one).square().sum(), argnums=1))
    (wanted,) = torch.autograd.grad(tanh_mlp(x, weights, biases).square().sum(), weights[0])
    torch.testing.assert_close(slopes(*arguments), wanted, atol=1e-10, rtol=1e-10)


def test_three_derivatives_wait_for_no_device():
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        x, weights, biases = network(SIZES["three layers"], (2,))
        own = [mode.from_tensor(each.detach()).requires_grad_() for each in (x, *weights, *biases)]
        value = flat(tanh_mlp, 3)(*own).square().sum()
        for _ in range(3):
            slopes = torch.autograd.grad(value, own, create_graph=True)
            assert [slope.shape for slope in slopes] == [each.shape for each in own]
            value = sum(slope.square().sum() for slope in slopes)
