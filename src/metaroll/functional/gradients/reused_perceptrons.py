"""Perceptrons side by side, forward and backward by hand in memory that every pass writes to again.

A gradient step of two hidden layers of 256 on 256 rows is some dozen products of matrices, which take the time that the
processor needs for their multiplications: 0.33 ms for 256 x 256 x 256 in float32 on one thread of an AMD EPYC (100
GFLOPS; MKL, oneDNN and OpenBLAS within 5 % of one another). So what can be saved lies between them: new memory for each
result, copies of biases, operations for what nobody asks for, and the books that autograd keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from metaroll.functional.gradients.perceptrons import (
    FEW_INPUTS,
    PERCEPTRON_ACTIVATIONS,
    activation_backward_,
    activation_forward_,
)

__all__ = ["Memory", "ReusedPerceptrons", "can_reuse"]


def can_reuse(parameters: Sequence[Tensor], activation: str) -> bool:
    """Whether ``ReusedPerceptrons`` knows such networks, and is faster: on the CPU, of one type of float."""
    first = parameters[0]
    return activation in PERCEPTRON_ACTIVATIONS and all(
        p.device.type == "cpu" and p.dtype == first.dtype and p.is_floating_point() for p in parameters
    )


class _Network(NamedTuple):
    """Views of one perceptron, layer by layer: parameters, their gradients, and what the layers give."""

    weights: list[Tensor]  # (out, in)
    transposed: list[Tensor]
    biases: list[Tensor]
    weight_grads: list[Tensor]
    bias_grads: list[Tensor]
    hidden: list[Tensor]  # (B, out), without the last
    output: Tensor  # (B, out)
    single: _Single | None


class _Single(NamedTuple):
    """Views of a last layer with a single output, as vectors."""

    weight: Tensor
    weight_grad: Tensor
    output: Tensor


Memory = dict[tuple[str, int, int, int], Tensor]
"""What passes write to, by purpose, a number, and shape."""


@final
class ReusedPerceptrons:
    """K perceptrons of one shape for the same rows, and their gradient.

    What a method returns is overwritten by its next call. A gradient is that of the latest pass, and uses it up.
    Parameters are read where they lie at each call.

    Args:
        weights: Of each layer, ``(K, out, in)``; or ``(out, in)`` all of them, of one perceptron (K is 1).
        biases: Of each layer, ``(K, out)``, or ``(out,)``.
        activation: Of the hidden layers, one of ``PERCEPTRON_ACTIVATIONS``.
        differentiable: Whether gradients will be asked for.
        memory: Where passes write to. Networks that take turns may share it, so that caches of the processor hold more
            of it: a pass of one then uses up those of the others.

    Raises:
        ValueError: ``can_reuse`` says no.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        activation: str,
        *,
        differentiable: bool = True,
        memory: Memory | None = None,
    ) -> None:
        self._parameters, self._depth = [*weights, *biases], len(weights)
        if not can_reuse(self._parameters, activation):
            known = " or ".join(PERCEPTRON_ACTIVATIONS)
            raise ValueError(f"parameters must be on the CPU, of one type of float, and activation {known}")
        self._forward_, self._backward_ = activation_forward_(activation), activation_backward_(activation)
        self._differentiable, self._memory = differentiable, {} if memory is None else memory
        self._places: list[int] = []
        self._networks: list[_Network] = []
        self._rows: Tensor | None = None

    def outputs(self, x: Tensor, first: int | None = None) -> Tensor:
        """Outputs ``(K, B, out)`` for rows ``x (B, in)``; only those of the ``first`` so many, if that is given."""
        self._settle(len(x))
        for net in self._networks[:first]:
            self._pass(net, net.hidden, x)
        self._rows = x if self._differentiable else None
        return self._outputs[:first]

    def parameter_gradients(self, grad: Tensor) -> list[Tensor]:
        """Gradients of the weights, then of the biases, in the order and shapes in which they were given.

        Args:
            grad: Gradient of the outputs, ``(K, B, out)``.

        Raises:
            RuntimeError: There is no pass that it could be the gradient of.
        """
        x = self._taken()
        for net, above in zip(self._networks, grad, strict=True):
            self._pull(net, net.hidden, x, above)
        return self._gradients

    def input_gradient(self, grad: Tensor, columns: slice = slice(None)) -> Tensor:
        """Gradient of ``columns`` of the rows, ``(B, columns)``; see ``parameter_gradients``.

        Where ``grad`` is of fewer networks, it is that of the first ones, and 0 for the others.
        """
        x, found = self._taken(), None
        for net, above in zip(self._networks, grad, strict=False):
            below = self._pull(net, net.hidden, x, above, of_parameters=False)
            weight = net.weights[0][:, columns]
            found = torch.mm(below, weight) if found is None else found.addmm_(below, weight)
        return grad if found is None else found

    def chosen_input_gradient(self, grad: Tensor, chosen: Tensor, columns: slice = slice(None)) -> Tensor:
        """The same, where the output of one network counts in each row: as much work as for one network.

        Args:
            grad: Gradient of the output that counts, ``(B, out)``.
            chosen: Whose that is, integers ``(B,)``.
            columns: Of the rows.
        """
        x, found = self._taken(), None
        for i, net in enumerate(self._networks):
            rows = (chosen == i).nonzero()[:, 0]
            hidden = [
                torch.index_select(h, 0, rows, out=into[: len(rows)])
                for h, into in zip(net.hidden, self._chosen, strict=True)
            ]
            below = self._pull(net, hidden, x, grad.index_select(0, rows), of_parameters=False)
            part = torch.mm(below, net.weights[0][:, columns])
            found = part.new_empty(len(x), part.shape[1]) if found is None else found
            found.index_copy_(0, rows, part)
        return grad if found is None else found

    def outputs_and_gradients(self, x: Tensor, rule: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
        """``outputs`` and ``parameter_gradients`` in one, one network after the other: less memory, so it is faster.

        Args:
            x: Rows.
            rule: Makes of the outputs of one network, ``(B, out)``, their gradient.

        Returns:
            Outputs ``(K, B, out)``, and gradients.
        """
        self._settle(len(x))
        hidden = self._networks[0].hidden
        for net in self._networks:
            self._pass(net, hidden, x)
            self._pull(net, hidden, x, rule(net.output))
        self._rows = None
        return self._outputs, self._gradients

    def _pass(self, net: _Network, hidden: list[Tensor], x: Tensor) -> None:
        rows = x
        for out, weight, bias in zip(hidden, net.transposed, net.biases, strict=False):
            rows = self._forward_(torch.addmm(bias, rows, weight, out=out))
        if net.single is not None:
            torch.addmv(net.biases[-1], rows, net.single.weight, out=net.single.output)
        else:
            torch.addmm(net.biases[-1], rows, net.transposed[-1], out=net.output)

    def _pull(self, net: _Network, hidden: list[Tensor], x: Tensor, grad: Tensor, of_parameters: bool = True) -> Tensor:
        """Gradient of what the first layer gave, before its activation."""
        last, single = self._depth - 1, net.single
        for k in range(last, -1, -1):
            rows, is_vector = hidden[k - 1] if k else x, single is not None and k == last
            if of_parameters:
                if single is not None and k == last:
                    torch.mv(rows.t(), grad[:, 0], out=single.weight_grad)
                else:
                    _weight_grad(grad, rows, net.weight_grads[k], self._turned[k])
                torch.sum(grad, dim=0, out=net.bias_grads[k])
            if k and is_vector:
                grad = self._backward_(net.weights[k].expand_as(rows), rows, rows).mul_(grad)
            elif k:
                grad = torch.mm(grad, net.weights[k], out=self._grads[k - 1][: len(grad)])
                self._backward_(grad, rows, grad)
        return grad

    def _taken(self) -> Tensor:
        rows, self._rows = self._rows, None
        if rows is None:
            raise RuntimeError("a gradient is of the pass before it, once; and networks must be differentiable")
        return rows

    def _settle(self, count: int) -> None:
        """Memory for ``count`` rows, and views of where the parameters are now."""
        places = [count, *(p.data_ptr() for p in self._parameters)]
        if places == self._places:
            return
        stacked = [p.detach() if self._parameters[0].ndim == 3 else p.detach()[None] for p in self._parameters]
        weights, biases = stacked[: self._depth], stacked[self._depth :]
        num, new = len(weights[0]), weights[0].new_empty
        kept = num if self._differentiable else 1
        self._outputs = new(num, count, weights[-1].shape[1])
        hidden = [[self._room("rows", k, count, w.shape[1], w)] for k, w in enumerate(weights[:-1])]
        for rows in hidden:
            rows += [torch.empty_like(rows[0]) for _ in range(kept - 1)]
        self._grads = [self._room("gradient", k % 2, count, w.shape[1], w) for k, w in enumerate(weights[:-1])]
        self._chosen = [self._room("chosen", k, count, w.shape[1], w) for k, w in enumerate(weights[:-1])]
        self._turned = [new(w.shape[2], w.shape[1]) for w in weights]
        self._gradients = [torch.empty_like(p, requires_grad=False) for p in self._parameters]
        grads = [g.view(p.shape) for g, p in zip(self._gradients, stacked, strict=True)]
        is_many = weights[-1].shape[1] > 1
        self._networks = [
            _Network(
                [w[i] for w in weights],
                [w[i].t() for w in weights],
                [b[i] for b in biases],
                [g[i] for g in grads[: self._depth]],
                [g[i] for g in grads[self._depth :]],
                [rows[min(i, kept - 1)] for rows in hidden],
                self._outputs[i],
                None if is_many else _Single(weights[-1][i, 0], grads[self._depth - 1][i, 0], self._outputs[i, :, 0]),
            )
            for i in range(num)
        ]
        self._places = places

    def _room(self, purpose: str, number: int, count: int, width: int, like: Tensor) -> Tensor:
        key = (purpose, number, count, width)
        if key not in self._memory:
            self._memory[key] = like.new_empty(count, width)
        return self._memory[key]


def _weight_grad(grad: Tensor, rows: Tensor, out: Tensor, turned: Tensor) -> None:
    """``grad^T rows``, into ``out``."""
    if rows.shape[1] <= FEW_INPUTS:
        out.copy_(torch.mm(rows.t(), grad, out=turned).t())
    else:
        torch.mm(grad.t(), rows, out=out)
