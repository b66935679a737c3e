"""Perceptrons in memory that is written to again: values and gradients are those that autograd finds."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from metaroll.functional.gradients.perceptrons import perceptrons
from metaroll.functional.gradients.reused_perceptrons import ReusedPerceptrons, can_reuse
from metaroll.seeding import torch_generator

CASES = [(sizes, activation, count) for sizes in ((3, 7, 5, 1), (70, 6, 6, 6, 2), (2, 1), (2, 3), (4, 5, 1)) for
         activation in ("relu", "tanh") for count in (None, 1, 3)]  # fmt: skip


def made(sizes: tuple[int, ...], count: int | None, rows: int = 9) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    draws, stack = torch_generator(0), () if count is None else (count,)
    options = {"generator": draws, "dtype": torch.float64, "requires_grad": True}
    pairs = list(itertools.pairwise(sizes))
    weights = [torch.randn(*stack, b, a, **options) for a, b in pairs]
    biases = [torch.randn(*stack, b, **options) for _, b in pairs]
    return torch.randn(rows, sizes[0], **options), weights, biases


def expected_of(x: Tensor, weights: list[Tensor], biases: list[Tensor], activation: str) -> Tensor:
    found = perceptrons(x, weights, biases, activation)
    return found if found.ndim == 3 else found[None]


@pytest.mark.parametrize(("sizes", "activation", "count"), CASES)
def test_values_and_gradients_are_those_of_autograd(sizes: tuple[int, ...], activation: str, count: int | None) -> None:
    x, weights, biases = made(sizes, count)
    reused = ReusedPerceptrons(weights, biases, activation)
    for seed in (1, 2):  # what the second pass needs was written to by the first
        x = x.detach().flip(0).requires_grad_()
        expected = expected_of(x, weights, biases, activation)
        cotangent = torch.randn(expected.shape, generator=torch_generator(seed), dtype=torch.float64)
        of_x, *of_parameters = torch.autograd.grad(expected, [x, *weights, *biases], cotangent)
        torch.testing.assert_close(reused.outputs(x.detach()), expected.detach())
        torch.testing.assert_close(reused.parameter_gradients(cotangent), of_parameters)
        reused.outputs(x.detach())
        torch.testing.assert_close(reused.input_gradient(cotangent, slice(1, None)), of_x[:, 1:])
        drawn = iter(cotangent)
        values, gradients = reused.outputs_and_gradients(x.detach(), lambda found, drawn=drawn: next(drawn))
        torch.testing.assert_close(values, expected.detach())
        torch.testing.assert_close(gradients, of_parameters)


@pytest.mark.parametrize("sizes", [(3, 7, 5, 1), (3, 5, 2), (3, 1)])
@pytest.mark.parametrize("choices", [[0, 2, 1, 1, 2, 0, 0, 1, 2], [1] * 9])
def test_the_gradient_follows_the_network_that_counts_in_each_row(sizes: tuple[int, ...], choices: list[int]) -> None:
    x, weights, biases = made(sizes, 3)
    chosen, rows = torch.tensor(choices), torch.arange(9)
    cotangent = torch.randn(9, sizes[-1], generator=torch_generator(1), dtype=torch.float64)
    expected = torch.autograd.grad(expected_of(x, weights, biases, "relu")[chosen, rows], x, cotangent)[0]
    reused = ReusedPerceptrons(weights, biases, "relu")
    reused.outputs(x.detach())
    torch.testing.assert_close(reused.chosen_input_gradient(cotangent, chosen), expected)


def test_parameters_count_as_they_are_and_where_they_are() -> None:
    x, weights, biases = made((3, 4, 1), 2)
    reused = ReusedPerceptrons(weights, biases, "relu")
    before = reused.outputs(x.detach()).clone()
    with torch.no_grad():
        weights[0].mul_(2.0)
    assert not torch.equal(reused.outputs(x.detach()), before)
    weights[0].data = weights[0].detach() / 2.0
    assert torch.equal(reused.outputs(x.detach()), before)
    assert torch.equal(reused.outputs(x.detach()[:4]), before[:, :4])  # fewer rows


def test_networks_may_share_memory_where_they_take_turns() -> None:
    memory: dict[tuple[str, int, int, int], Tensor] = {}
    x, weights, biases = made((3, 4, 4, 1), 2)
    one = ReusedPerceptrons(weights, biases, "relu", memory=memory)
    other = ReusedPerceptrons([w.detach() + 1.0 for w in weights], biases, "relu", differentiable=False, memory=memory)
    told = other.outputs(x.detach()).clone()
    assert torch.equal(one.outputs(x.detach(), 1), one.outputs(x.detach())[:1])
    gradient = torch.ones(2, 9, 1, dtype=torch.float64)
    found = [part.clone() for part in one.parameter_gradients(gradient)]
    expected = torch.autograd.grad(expected_of(x, weights, biases, "relu").sum(), [*weights, *biases])
    torch.testing.assert_close(found, list(expected))
    assert torch.equal(other.outputs(x.detach()), told)


def test_a_gradient_without_a_pass_is_refused() -> None:
    x, weights, biases = made((3, 4, 1), 2)
    gradient = torch.ones(2, 9, 1, dtype=torch.float64)
    reused = ReusedPerceptrons(weights, biases, "relu")
    with pytest.raises(RuntimeError, match="pass before it"):
        reused.parameter_gradients(gradient)
    reused.outputs(x.detach())
    reused.input_gradient(gradient)
    with pytest.raises(RuntimeError, match="pass before it"):  # what it is found from was used up
        reused.input_gradient(gradient)
    fixed = ReusedPerceptrons(weights, biases, "relu", differentiable=False)
    fixed.outputs(x.detach())
    with pytest.raises(RuntimeError, match="differentiable"):
        fixed.parameter_gradients(gradient)


def test_other_networks_are_refused() -> None:
    _, weights, biases = made((3, 4, 1), None)
    assert can_reuse([*weights, *biases], "relu") and not can_reuse([*weights, *biases], "elu")
    assert not can_reuse([weights[0], biases[0].float()], "relu")
    assert not can_reuse([weights[0].to("meta")], "relu")
    with pytest.raises(ValueError, match="activation relu or tanh"):
        ReusedPerceptrons(weights, biases, "elu")
