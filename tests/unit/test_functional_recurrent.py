"""Memories along segments: by hand, against torch's own unit and its gradient, and where episodes begin."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, tensor

from metaroll.functional.gradients.recurrent import gru_memories
from metaroll.policies.gru import GRUCell
from metaroll.seeding import torch_generator


def test_two_steps_by_hand() -> None:
    """One unit, U = (0, 0, 1), c = 0, x = (0, 0, 1) at each step: r = z = 1/2."""
    from_x = tensor([[[0.0, 0.0, 1.0]]]).expand(2, 1, 3)
    weight, bias = tensor([[0.0], [0.0], [1.0]]), torch.zeros(3)
    found = gru_memories(from_x, torch.ones(2, 1, 1), torch.zeros(1, 1), weight, bias)
    first = 0.5 * torch.tanh(tensor(1.0))
    second = 0.5 * torch.tanh(1.0 + 0.5 * first) + 0.5 * first
    torch.testing.assert_close(found[:, 0, 0], torch.stack([first, second]))
    begun = gru_memories(from_x, tensor([[[1.0]], [[0.0]]]), torch.zeros(1, 1), weight, bias)
    torch.testing.assert_close(begun[:, 0, 0], torch.stack([first, first]))


def drawn() -> tuple[Tensor, ...]:
    """5 steps, 3 segments, 2 units, in double precision; episodes begin here and there."""
    generator = torch_generator(0)
    shapes = ((5, 3, 6), (3, 2), (6, 2), (6,))
    parts = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    from_x, hidden, weight, bias = (part.requires_grad_() for part in parts)
    keep = (torch.rand(5, 3, 1, generator=generator) > 0.3).to(torch.float64)
    assert 0 < keep.sum() < 15
    return from_x, keep, hidden, weight, bias


def test_gradients_are_those_of_differences() -> None:
    assert torch.autograd.gradcheck(gru_memories, drawn())


def test_it_is_the_unit_of_torch() -> None:
    cell = GRUCell(4, 6, init="xavier_uniform", generator=torch_generator(1))
    x = torch.randn(7, 3, 4, generator=torch_generator(2))
    with torch.no_grad():
        cell.hidden_map.bias.normal_(generator=torch_generator(3))
    expected = cell.sequence(x.transpose(0, 1)).transpose(0, 1)
    found = cell.segments(x, torch.ones(7, 3, 1))
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, generator=torch_generator(4))
    grads = [torch.autograd.grad((part * weights).sum(), list(cell.parameters())) for part in (found, expected)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("begins", [0, 3, 6])
def test_a_segment_goes_on_as_an_episode_of_its_own(begins: int) -> None:
    """What lies before the beginning of an episode changes nothing behind it, and the other segment goes on."""
    cell = GRUCell(4, 6, init="xavier_uniform", generator=torch_generator(1))
    x = torch.randn(7, 2, 4, generator=torch_generator(2))
    keep = torch.ones(7, 2, 1)
    keep[begins, 0] = 0.0
    found = cell.segments(x, keep, torch.randn(2, 6, generator=torch_generator(3)))
    alone = cell.sequence(x[begins:, :1].transpose(0, 1))[0]
    torch.testing.assert_close(found[begins:, 0], alone)
    whole = cell.steps(x[:, 1], torch.randn(2, 6, generator=torch_generator(3))[1])
    torch.testing.assert_close(found[:, 1], whole)
