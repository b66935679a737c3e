"""Perceptrons side by side, forward and backward by hand in memory that every pass writes to again.

A gradient step of two hidden layers of 256 on 256 rows is some dozen products of matrices, which take the time that the
processor needs for their multiplications: 0.33 ms for 256 x 256 x 256 in float32 on one thread of an AMD EPYC (100
GFLOPS; MKL, oneDNN and OpenBLAS within 5 % of one another). So what can be saved lies between them: new memory for each
result, copies of biases, operations for what nobody asks for, and the books that autograd keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from metaroll.functional.gradients.perceptrons import (
    FEW_INPUTS,
    PERCEPTRON_ACTIVATIONS,
    activation_backward_,
    activation_forward_,
)

__all__ = ["ReusedPerceptrons", "can_reuse"]


def can_reuse(parameters: Sequence[Tensor], activation: str) -> bool:
    """Whether ``ReusedPerceptrons`` knows such networks, and is faster: on the CPU, of one type of float."""
    first = parameters[0]
    return activation in PERCEPTRON_ACTIVATIONS and all(
        p.device.type == "cpu" and p.dtype == first.dtype and p.is_floating_point() for p in parameters
    )


class _Network(NamedTuple):
    """Views of one perceptron, layer by layer: parameters, their gradients, and what the layers gave."""

    weights: list[Tensor]  # (out, in)
    transposed: list[Tensor]
    biases: list[Tensor]
    weight_grads: list[Tensor]
    bias_grads: list[Tensor]
    hidden: list[Tensor]  # (B, out), without the last
    output: Tensor


@final
class ReusedPerceptrons:
    """K perceptrons of one shape for the same rows, and their gradient.

    What a method returns is overwritten by its next call. A gradient is that of the latest pass. Parameters are read
    where they lie at each call.

    Args:
        weights: Of each layer, ``(K, out, in)``; or ``(out, in)`` all of them, of one perceptron (K is 1).
        biases: Of each layer, ``(K, out)``, or ``(out,)``.
        activation: Of the hidden layers, one of ``PERCEPTRON_ACTIVATIONS``.
        differentiable: Whether gradients will be asked for; else memory of a layer serves all K.

    Raises:
        ValueError: ``can_reuse`` says no.
    """

    def __init__(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str, *, differentiable: bool = True
    ) -> None:
        self._parameters, self._depth = [*weights, *biases], len(weights)
        if not can_reuse(self._parameters, activation):
            known = " or ".join(PERCEPTRON_ACTIVATIONS)
            raise ValueError(f"parameters must be on the CPU, of one type of float, and activation {known}")
        self._forward_, self._backward_ = activation_forward_(activation), activation_backward_(activation)
        self._differentiable = differentiable
        self._places: list[int] = []
        self._networks: list[_Network] = []
        self._rows: Tensor | None = None

    def outputs(self, x: Tensor, first: int | None = None) -> Tensor:
        """Outputs ``(K, B, out)`` for rows ``x (B, in)``; only those of the ``first`` so many, if that is given."""
        self._settle(len(x))
        self._rows = x = x.detach()
        for net in self._networks[:first]:
            rows = x
            for out, weight, bias in zip(net.hidden, net.transposed, net.biases, strict=False):
                rows = self._forward_(torch.mm(rows, weight, out=out).add_(bias))
            _last_layer(rows, net.transposed[-1], net.biases[-1], net.output)
        return self._outputs[:first]

    def parameter_gradients(self, grad: Tensor) -> list[Tensor]:
        """Gradients of the weights, then of the biases, in the order and shapes in which they were given.

        Args:
            grad: Gradient of the outputs of the first N rows, ``(K, N, out)``; that of all others is 0.
        """
        seen = self._seen(len(grad[0]))
        for i, net in enumerate(self._networks):
            below = grad[i]
            for k in reversed(range(self._depth)):
                rows = seen[i][k]
                _weight_grad(below, rows, net.weight_grads[k], self._turned[k])
                torch.sum(below, dim=0, out=net.bias_grads[k])
                if k:
                    below = self._backward_(self._row_grad(below, net, k), rows)
        return self._gradients

    def input_gradient(self, grad: Tensor, columns: slice = slice(None)) -> Tensor:
        """Gradient of ``columns`` of the first N rows, ``(N, columns)``; see ``parameter_gradients``.

        Where ``grad`` is of fewer networks, it is that of the first ones, and 0 for the others.
        """
        seen, found = self._seen(len(grad[0])), None
        for i, net in enumerate(self._networks[: len(grad)]):
            below = grad[i]
            for k in range(self._depth - 1, 0, -1):
                below = self._backward_(self._row_grad(below, net, k), seen[i][k])
            weight = net.weights[0][:, columns]
            found = torch.mm(below, weight) if found is None else found.addmm_(below, weight)
        return found if found is not None else grad

    def _seen(self, count: int) -> list[list[Tensor]]:
        """What each layer of each network was given, ``count`` rows of it."""
        if self._rows is None or not self._differentiable:
            raise RuntimeError("there is no gradient without a pass before it, or where differentiable is False")
        return [[rows[:count] for rows in (self._rows, *net.hidden)] for net in self._networks]

    def _row_grad(self, grad: Tensor, net: _Network, k: int) -> Tensor:
        out, weight = self._grads[k - 1][: len(grad)], net.weights[k]
        return torch.mul(grad, weight, out=out) if len(weight) == 1 else torch.mm(grad, weight, out=out)

    def _settle(self, count: int) -> None:
        """Memory for ``count`` rows, and views of where the parameters are now."""
        places = [count, *(p.data_ptr() for p in self._parameters)]
        if places == self._places:
            return
        stacked = [p.detach() if self._parameters[0].ndim == 3 else p.detach()[None] for p in self._parameters]
        weights, kept = stacked[: self._depth], self._differentiable
        num, new = len(weights[0]), weights[0].new_empty
        self._outputs = new(num, count, weights[-1].shape[1])
        hidden = [new(num if kept else 1, count, w.shape[1]) for w in weights[:-1]]
        self._grads = [new(count, w.shape[1]) for w in weights[:-1]]
        self._turned = [new(w.shape[2], w.shape[1]) for w in weights]
        self._gradients = [torch.empty_like(p, requires_grad=False) for p in self._parameters]
        grads = [g.view(p.shape) for g, p in zip(self._gradients, stacked, strict=True)]
        self._networks = [
            _Network(
                [w[i] for w in weights],
                [w[i].t() for w in weights],
                [b[i] for b in stacked[self._depth :]],
                [g[i] for g in grads[: self._depth]],
                [g[i] for g in grads[self._depth :]],
                [h[i if kept else 0] for h in hidden],
                self._outputs[i],
            )
            for i in range(num)
        ]
        self._places = places


def _last_layer(rows: Tensor, transposed: Tensor, bias: Tensor, out: Tensor) -> None:
    if out.shape[1] == 1:
        torch.addmv(bias, rows, transposed[:, 0], out=out[:, 0])
    else:
        torch.addmm(bias, rows, transposed, out=out)


def _weight_grad(grad: Tensor, rows: Tensor, out: Tensor, turned: Tensor) -> None:
    """``grad^T rows``, into ``out``."""
    if grad.shape[1] == 1:
        torch.mv(rows.t(), grad[:, 0], out=out[0])
    elif rows.shape[1] <= FEW_INPUTS:
        out.copy_(torch.mm(rows.t(), grad, out=turned).t())
    else:
        torch.mm(grad.t(), rows, out=out)
