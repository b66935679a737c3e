"""Atoms and quantiles: numbers worked by hand, a literal loop, and autograd of the formula beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, tensor

from metaroll.errors import ShapeError
from metaroll.functional.gradients.quantiles import quantile_huber_loss, smallest_atoms
from metaroll.seeding import torch_generator


def test_the_largest_atoms_of_all_critics_are_left_out() -> None:
    atoms = tensor([[[3.0, 1.0], [0.0, 9.0]], [[2.0, 8.0], [7.0, -1.0]]])  # two critics, two steps, two atoms
    assert smallest_atoms(atoms, 1).tolist() == [[1.0, 2.0, 3.0], [-1.0, 0.0, 7.0]]
    assert smallest_atoms(atoms, 0).tolist() == [[1.0, 2.0, 3.0, 8.0], [-1.0, 0.0, 7.0, 9.0]]
    assert smallest_atoms(atoms, 3).tolist() == [[1.0], [-1.0]]
    for dropped in (4, -1):
        with pytest.raises(ValueError, match=r"dropped must lie in \[0, 3\] for 4 atoms"):
            smallest_atoms(atoms, dropped)


def test_the_quantile_loss_by_hand() -> None:
    # One critic, one step: atoms 0 and 1 at tau 1/4 and 3/4, targets 0.5 and 3.
    # theta = 0: u = 0.5, 3: 1/4 (0.125 + 2.5) = 0.65625; theta = 1: u = -0.5, 2: 1/4 0.125 + 3/4 1.5 = 1.15625
    loss, grad = quantile_huber_loss(tensor([[[0.0, 1.0]]]), tensor([[3.0, 0.5]]))
    assert loss.item() == pytest.approx((0.65625 + 1.15625) / 4)
    # Clipped u: 1/4 (0.5 + 1) = 0.375; 1/4 (-0.5) + 3/4 = 0.625
    assert grad.flatten().tolist() == pytest.approx([-0.375 / 4, -0.625 / 4])


def literal(atoms: Tensor, target: Tensor, weights: Tensor) -> float:
    """The formula, number by number."""
    total = 0.0
    for critic in atoms.tolist():
        for thetas, ys, weight in zip(critic, target.tolist(), weights.tolist(), strict=True):
            for m, theta in enumerate(thetas):
                tau = (2 * (m + 1) - 1) / (2 * len(thetas))
                for y in ys:
                    u = y - theta
                    huber = u * u / 2 if abs(u) <= 1 else abs(u) - 0.5
                    total += weight * abs(tau - (u < 0)) * huber / (len(ys) * len(thetas) * len(target))
    return total


def of_pairs(atoms: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The formula with all pairs, for autograd."""
    u = target[None, :, None, :] - atoms[..., None]
    tau = (torch.arange(atoms.shape[2], dtype=atoms.dtype)[:, None] + 0.5) / atoms.shape[2]
    huber = torch.where(u.abs() <= 1, u.square() / 2, u.abs() - 0.5)
    losses = ((tau - (u.detach() < 0).to(u.dtype)).abs() * huber).mean(dim=(-1, -2))
    return (losses * weights).mean(dim=-1).sum()


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_the_quantile_loss_against_a_loop_and_autograd(scale: float) -> None:
    draw = np.random.default_rng(0)
    atoms, target, weights = (torch.from_numpy(draw.normal(size=s)) for s in ((3, 4, 5), (4, 13), (4,)))
    atoms, target, weights = (atoms * scale + 7).requires_grad_(), target * scale + 7, weights.abs()
    atoms.data[0, :, 0] = target[:, 3]  # equal numbers, and a target that is there twice
    atoms.data[1, :, 1] = target[:, 5] + 1.0
    target[:, 0] = target[:, 1]
    loss, grad = quantile_huber_loss(atoms.detach(), target, weights)
    assert loss.item() == pytest.approx(literal(atoms, target, weights), rel=1e-10)
    (expected,) = torch.autograd.grad(of_pairs(atoms, target, weights), atoms)
    torch.testing.assert_close(grad, expected, rtol=1e-10, atol=1e-12)
    ones = torch.ones_like(weights)
    torch.testing.assert_close(
        quantile_huber_loss(atoms.detach(), target), quantile_huber_loss(atoms.detach(), target, ones)
    )


def test_the_quantile_loss_is_precise_far_from_zero() -> None:
    draw = torch_generator(0)
    atoms, target = (torch.randn(shape, generator=draw) + 5000.0 for shape in ((2, 8, 25), (8, 46)))
    grad = quantile_huber_loss(atoms, target).grad_atoms
    exact = atoms.double().requires_grad_()
    (told,) = torch.autograd.grad(of_pairs(exact, target.double(), torch.ones(8).double()), exact)
    torch.testing.assert_close(grad.double(), told, rtol=1e-3, atol=1e-6 * float(told.abs().max()))


def test_quantiles_are_what_the_loss_finds() -> None:
    """Atoms that go down the loss end at the quantiles of the targets, here of 1000 draws that lie far apart."""
    target = 100.0 * torch.randn(1, 1000, generator=torch_generator(1))
    atoms = torch.zeros(1, 1, 4)
    for _ in range(300):
        atoms -= 400.0 * quantile_huber_loss(atoms, target).grad_atoms
    expected = torch.quantile(target[0], tensor([0.125, 0.375, 0.625, 0.875]))
    torch.testing.assert_close(atoms[0, 0], expected, rtol=0, atol=2.0)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"atoms must have shape \(K, B, M\) and target \(B, T\)"):
        quantile_huber_loss(torch.zeros(2, 3, 4), torch.zeros(5, 4))
