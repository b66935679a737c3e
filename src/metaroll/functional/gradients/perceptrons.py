"""Perceptrons side by side, with their gradient by hand: fewer and faster products of matrices than autograd takes.

On the CPU one perceptron after the other is faster than batches of products: what belongs to one of two hidden layers
of 256 fits into a cache, what belongs to two does not. Layers with few inputs, or with a single output, are products
of other shapes than autograd takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["PERCEPTRON_ACTIVATIONS", "perceptrons"]

_Activation = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]

_relu_backward = torch.ops.aten.threshold_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input

_ACTIVATIONS: dict[str, _Activation] = {
    "relu": (torch.relu_, lambda grad, given, into: _relu_backward(grad, given, 0.0, grad_input=into)),
    "tanh": (torch.tanh_, lambda grad, given, into: _tanh_backward(grad, given, grad_input=into)),
}
"""In place; and from the gradient of what it gave, and that itself, the gradient of what it was given, into a place."""

PERCEPTRON_ACTIVATIONS = tuple(_ACTIVATIONS)
"""Activations of hidden layers that ``perceptrons`` knows."""

FEW_INPUTS = 64
"""Up to so many inputs, the gradient of a weight is faster as the transpose of its transpose."""


def activation_forward_(activation: str) -> Callable[[Tensor], Tensor]:
    """What one of ``PERCEPTRON_ACTIVATIONS`` does, in place."""
    return _ACTIVATIONS[activation][0]


def activation_backward_(activation: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """``(gradient of what it gave, what it gave, into)``: the gradient of what it was given, written into the last."""
    return _ACTIVATIONS[activation][1]


def perceptrons(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str = "relu") -> Tensor:
    """Outputs ``(K, B, out)`` of K perceptrons for the same rows ``x (B, in)``; differentiable once, in all arguments.

    Args:
        x: Rows.
        weights: Of each layer, ``(K, out, in)``; or ``(out, in)`` all of them, of one perceptron: ``(B, out)``.
        biases: Of each layer, ``(K, out)``, or ``(out,)``.
        activation: Of the hidden layers, one of ``PERCEPTRON_ACTIVATIONS``.
    """
    result = _Perceptrons.apply(activation, x, *weights, *biases)
    return result  # pyright: ignore[reportReturnType] - apply has no annotation


class _Perceptrons(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, activation: str, x: Tensor, *parameters: Tensor) -> Tensor:
        depth, single = len(parameters) // 2, parameters[0].ndim == 2
        layers = [p[None] if single else p for p in parameters]
        apply, _ = _ACTIVATIONS[activation]
        inputs, outputs = [x], []
        for weights in zip(*layers, strict=True):
            rows = x
            for k in range(depth):
                rows = _layer(rows, weights[k], weights[depth + k])
                if k < depth - 1:
                    inputs.append(apply(rows))
            outputs.append(rows)
        ctx.save_for_backward(*inputs, *layers[:depth])
        ctx.activation, ctx.single, ctx.depth = activation, single, depth
        return outputs[0] if single else torch.stack(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        saved, depth = ctx.saved_tensors, ctx.depth
        x, hidden, weights = saved[0], saved[1:-depth], saved[-depth:]
        needs_x, needs_parameters = ctx.needs_input_grad[1], any(ctx.needs_input_grad[2:])
        _, backward = _ACTIVATIONS[ctx.activation]
        grad_x = None
        found = [torch.empty_like(w) for w in weights] + [w.new_empty(w.shape[:2]) for w in weights]
        for i, grad in enumerate(grads[0][None] if ctx.single else grads[0]):
            inputs = (x, *hidden[i * (depth - 1) : (i + 1) * (depth - 1)])
            for k in reversed(range(depth)):
                if needs_parameters:
                    _weight_grad(grad, inputs[k], found[k][i])
                    torch.sum(grad, dim=0, out=found[depth + k][i])
                if k:
                    grad = _input_grad(grad, weights[k][i])
                    backward(grad, inputs[k], grad)
                elif needs_x:
                    mine = _input_grad(grad, weights[0][i])
                    grad_x = mine if grad_x is None else grad_x + mine
        if not needs_parameters:
            return None, grad_x, *([None] * (2 * depth))
        return None, grad_x, *(part[0] if ctx.single else part for part in found)


def _layer(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if len(weight) == 1:
        return torch.mv(rows, weight[0])[:, None] + bias
    return F.linear(rows, weight, bias)


def _weight_grad(grad: Tensor, rows: Tensor, out: Tensor) -> None:
    """``grad^T rows``, into ``out``."""
    if grad.shape[1] == 1:
        torch.mv(rows.t(), grad[:, 0], out=out[0])
    elif rows.shape[1] <= FEW_INPUTS:
        out.copy_(torch.mm(rows.t(), grad).t())
    else:
        torch.mm(grad.t(), rows, out=out)


def _input_grad(grad: Tensor, weight: Tensor) -> Tensor:
    return grad * weight if len(weight) == 1 else torch.mm(grad, weight)
