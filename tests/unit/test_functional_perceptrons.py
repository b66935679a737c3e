"""Perceptrons by hand, with torch's products and NumPy's: values and gradients are those that autograd finds."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaroll.functional.gradients.backends import NUMPY, TORCH, Backend
from metaroll.functional.gradients.perceptrons import Memory, Perceptrons
from metaroll.seeding import torch_generator

SIZES = [(3, 7, 5, 1), (70, 6, 6, 6, 2), (2, 1), (2, 3), (4, 5, 1), (3, 1, 4, 2)]
BACKENDS = [TORCH, NUMPY]


class Case:
    """Weights of ``count`` networks (``None``: of one, without an axis for it), for a backend and for autograd.

    All is in double precision.
    """

    def __init__(self, backend: Backend, sizes: tuple[int, ...], count: int | None, activation: str = "relu") -> None:
        draws, stack = torch_generator(0), () if count is None else (count,)
        options: dict[str, Any] = {"generator": draws, "dtype": torch.float64, "requires_grad": True}
        pairs = list(itertools.pairwise(sizes))
        self.weights = [torch.randn(*stack, b, a, **options) for a, b in pairs]
        self.biases = [torch.randn(*stack, b, **options) for _, b in pairs]
        self.x = torch.randn(9, sizes[0], **options)
        self.backend, self.activation, self.count = backend, activation, count

    def net(self, **options: Any) -> Perceptrons:
        weights, biases = map(self.given, (self.weights, self.biases))
        return Perceptrons(weights, biases, self.activation, self.backend, **options)

    def given(self, parameters: list[Tensor]) -> list[Any]:
        if self.backend is TORCH:
            return list(parameters)
        matrix = 2 if self.count is None else 3  # axes of a weight, which NumPy takes as (in, out)
        arrays = [p.detach().numpy() for p in parameters]
        return [np.ascontiguousarray(a.swapaxes(-1, -2)) if a.ndim == matrix else a for a in arrays]

    def outputs(self, x: Tensor) -> Tensor:
        """``(K, B, out)``, by torch's layers."""
        networks = [(self.weights, self.biases)]
        if self.count is not None:
            networks = [([w[k] for w in self.weights], [b[k] for b in self.biases]) for k in range(self.count)]
        results = []
        for weights, biases in networks:
            rows = x
            for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                rows = F.linear(rows, weight, bias)
                if k < len(weights) - 1:
                    rows = torch.relu(rows) if self.activation == "relu" else torch.tanh(rows)
            results.append(rows)
        return torch.stack(results)

    def array(self, tensor: Tensor) -> Any:
        tensor = tensor.detach()
        return tensor if self.backend is TORCH else tensor.numpy()

    def same(self, array: Any, expected: Tensor) -> None:
        torch.testing.assert_close(torch.as_tensor(array), expected.detach(), rtol=1e-10, atol=1e-10)

    def same_parameters(self, arrays: Any, expected: Any) -> None:
        """Gradients of weights, which NumPy has as ``(in, out)``, then of biases."""
        for i, (array, other) in enumerate(zip(arrays, expected, strict=True)):
            turned = i < len(self.weights) and self.backend is NUMPY
            self.same(array.swapaxes(-1, -2) if turned else array, other)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [None, 1, 3])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_gradients_are_those_of_autograd(
    sizes: tuple[int, ...], activation: str, count: int | None, backend: Backend
) -> None:
    case = Case(backend, sizes, count, activation)
    net, x = case.net(), case.x
    for seed in (1, 2):  # what the second pass needs was written to by the first
        x = x.detach().flip(0).requires_grad_()
        expected = case.outputs(x)
        cotangent = torch.randn(expected.shape, generator=torch_generator(seed), dtype=torch.float64)
        of_x, *of_parameters = torch.autograd.grad(expected, [x, *case.weights, *case.biases], cotangent)
        rows, grad = case.array(x), case.array(cotangent)
        case.same(net(rows), expected)
        case.same_parameters(net.pull(grad), of_parameters)
        net(rows)
        case.same(net.pull_rows(grad, slice(1, None)), of_x[:, 1:])
        drawn = iter(grad)
        values, gradients = net.pass_and_pull(rows, lambda outputs, drawn=drawn: next(drawn))
        case.same(values, expected)
        case.same_parameters(gradients, of_parameters)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [(3, 7, 5, 1), (3, 5, 2), (3, 1)])
@pytest.mark.parametrize("choices", [[0, 2, 1, 1, 2, 0, 0, 1, 2], [1] * 9])
def test_the_gradient_follows_the_network_that_counts_in_each_row(
    sizes: tuple[int, ...], choices: list[int], backend: Backend
) -> None:
    case = Case(backend, sizes, 3)
    chosen, rows = torch.tensor(choices), torch.arange(9)
    cotangent = torch.randn(9, sizes[-1], generator=torch_generator(1), dtype=torch.float64)
    expected = torch.autograd.grad(case.outputs(case.x)[chosen, rows], case.x, cotangent)[0]
    net = case.net()
    net(case.array(case.x))
    case.same(net.pull_rows_of(case.array(chosen), case.array(cotangent)), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_go_where_they_are_wanted(backend: Backend) -> None:
    case = Case(backend, (3, 4, 2), None, "tanh")
    places = [backend.empty(p, tuple(p.shape)) for p in case.given([*case.weights, *case.biases])]
    net = case.net(gradients=places)
    net(case.array(case.x))
    gradients = net.pull(case.array(torch.ones(1, 9, 2, dtype=torch.float64)))
    assert all(gradient is place for gradient, place in zip(gradients, places, strict=True))
    case.same_parameters(places, torch.autograd.grad(case.outputs(case.x).sum(), [*case.weights, *case.biases]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_of_rows_may_change(backend: Backend) -> None:
    case = Case(backend, (3, 4, 2), None)
    net = case.net()
    for count in (5, 9, 1, 5, 2, 3, 4, 6, 7, 8, 9, 5):  # more than views are kept for
        x = case.x[:count]
        expected = case.outputs(x)
        case.same(net(case.array(x)), expected)
        parameters = [*case.weights, *case.biases]
        case.same_parameters(net.pull(case.array(expected)), torch.autograd.grad(expected, parameters, expected))


def test_parameters_count_as_they_are_and_where_they_are() -> None:
    case = Case(TORCH, (3, 4, 1), 2)
    net, x = case.net(), case.x.detach()
    before = net(x).clone()
    with torch.no_grad():
        case.weights[0].mul_(2.0)
    assert not torch.equal(net(x), before)
    case.weights[0].data = case.weights[0].detach() / 2.0
    assert torch.equal(net(x), before)
    other = copy.deepcopy((net, case.weights, case.biases))
    other[1][0].data.zero_()
    assert torch.equal(net(x), before) and not torch.equal(other[0](x), before)


def test_networks_may_share_memory_where_they_take_turns() -> None:
    memory = Memory()
    case, more = Case(TORCH, (3, 4, 4, 1), 2), Case(TORCH, (3, 4, 4, 1), 2)
    with torch.no_grad():
        for weight in more.weights:
            weight.add_(1.0)
    one, other, x = case.net(memory=memory), more.net(differentiable=False, memory=memory), case.x.detach()
    values = other(x).clone()
    assert torch.equal(one(x, 1), one(x)[:1])
    gradients = [part.clone() for part in one.pull(torch.ones(2, 9, 1, dtype=torch.float64))]
    case.same_parameters(gradients, torch.autograd.grad(case.outputs(case.x).sum(), [*case.weights, *case.biases]))
    assert torch.equal(other(x), values)


def test_a_gradient_without_a_pass_is_refused() -> None:
    case = Case(TORCH, (3, 4, 1), 2)
    gradient, x = torch.ones(2, 9, 1, dtype=torch.float64), case.x.detach()
    net = case.net()
    with pytest.raises(RuntimeError, match="pass before it"):
        net.pull(gradient)
    net(x)
    net.pull_rows(gradient)
    with pytest.raises(RuntimeError, match="pass before it"):  # what it comes from was used up
        net.pull_rows(gradient)
    net(x, 1)
    with pytest.raises(RuntimeError, match="no more networks"):  # the second one has seen other rows
        net.pull(gradient)
    memory = Memory()
    one, other = case.net(memory=memory), case.net(memory=memory)
    one(x)
    other(x + 1.0)
    with pytest.raises(RuntimeError, match="shares their memory"):
        one.pull_rows(gradient)
    fixed = case.net(differentiable=False)
    fixed(x)
    with pytest.raises(RuntimeError, match="differentiable"):
        fixed.pull(gradient)


def test_other_activations_are_refused() -> None:
    with pytest.raises(ValueError, match="activation must be relu or tanh, got 'elu'"):
        Case(TORCH, (3, 4, 1), None, "elu").net()
