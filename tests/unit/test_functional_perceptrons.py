"""Perceptrons side by side: values and gradients are those that autograd finds, layer by layer."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaroll.functional.gradients.perceptrons import perceptrons
from metaroll.seeding import torch_generator

CASES = [(sizes, activation, count) for sizes in ((3, 7, 5, 1), (70, 6, 2), (2, 1), (4, 5, 1)) for activation in
         ("relu", "tanh") for count in (None, 1, 3)]  # fmt: skip


def made(sizes: tuple[int, ...], count: int | None) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    draws, stack = torch_generator(0), () if count is None else (count,)
    numbers = [
        [torch.randn(*stack, *shape, generator=draws, dtype=torch.float64, requires_grad=True) for shape in shapes]
        for shapes in (
            [(b, a) for a, b in itertools.pairwise(sizes)],
            [(b,) for b in sizes[1:]],
        )
    ]
    x = torch.randn(9, sizes[0], generator=draws, dtype=torch.float64, requires_grad=True)
    return x, numbers[0], numbers[1]


def slow(x: Tensor, weights: list[Tensor], biases: list[Tensor], activation: str) -> Tensor:
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = F.linear(x, weight, bias)
        if k < len(weights) - 1:
            x = torch.relu(x) if activation == "relu" else torch.tanh(x)
    return x


@pytest.mark.parametrize(("sizes", "activation", "count"), CASES)
def test_values_and_gradients_are_those_of_autograd(sizes: tuple[int, ...], activation: str, count: int | None) -> None:
    x, weights, biases = made(sizes, count)
    found = perceptrons(x, weights, biases, activation)
    if count is None:
        expected = slow(x, weights, biases, activation)
    else:
        each = [slow(x, [w[k] for w in weights], [b[k] for b in biases], activation) for k in range(count)]
        expected = torch.stack(each)
    torch.testing.assert_close(found, expected)
    arguments = [x, *weights, *biases]
    cotangent = torch.randn(expected.shape, generator=torch_generator(1), dtype=torch.float64)
    for one, other in zip(*(torch.autograd.grad(y, arguments, cotangent) for y in (found, expected)), strict=True):
        torch.testing.assert_close(one, other)


def test_only_what_is_asked_for_has_a_gradient() -> None:
    x, weights, biases = made((3, 4, 1), 2)
    fixed = [[p.detach() for p in part] for part in (weights, biases)]
    perceptrons(x, *fixed).sum().backward()
    assert x.grad is not None and all(p.grad is None for p in (*weights, *biases))
    perceptrons(x.detach(), weights, biases).sum().backward()
    assert all(p.grad is not None for p in (*weights, *biases))
