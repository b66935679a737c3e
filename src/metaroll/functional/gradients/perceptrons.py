"""Perceptrons side by side, forward and backward by hand, in memory that every pass writes to again.

A network is ``outputs = net(x)``, then ``net.pull(grad)``: from the gradient of a loss by the outputs, that by its
parameters (or by its rows). Automatic differentiation finds the same numbers, with more products, new memory for each
result, and books to keep.

A gradient step of two hidden layers of 256 on 256 rows is some dozen products of matrices, which take the time that the
processor needs for their multiplications: 0.33 ms for 256 x 256 x 256 in float32 on one thread of an AMD EPYC (100
GFLOPS; MKL, oneDNN and OpenBLAS within 5 % of one another). What can be saved lies between them. One perceptron after
the other is faster than batches of products: what belongs to one of two networks of that size fits into a cache, what
belongs to two does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

from metaroll.functional.gradients.backends import TORCH, Array, Backend, Layer

__all__ = ["Memory", "Perceptrons"]

Memory = dict[tuple[str, int, int], Any]
"""What passes write to, by purpose, a number, and width; as many rows as were ever needed."""


class _Network(NamedTuple):
    """One perceptron: its layers, and where they write to."""

    layers: list[Layer]
    hidden: list[Array]  # (B, out) of each layer, without the last
    output: Array  # (B, out)


@final
class Perceptrons:
    """K perceptrons of one shape for the same rows, and their gradient.

    What a method returns is overwritten by its next call. A gradient is that of the latest pass, and uses it up.
    Parameters are read where they lie at each call.

    Args:
        weights: Of each layer, ``(K, out, in)`` or, of one perceptron (K is 1), ``(out, in)``; with NumPy ``in`` is
            first.
        biases: Of each layer, ``(K, out)`` or ``(out,)``.
        activation: Of the hidden layers, one of ``backend.activations``.
        backend: Whose arrays these are.
        differentiable: Whether gradients will be asked for.
        gradients: Where those of weights, then of biases are written to; ``None``: to memory of their own.
        memory: Where passes write to. Networks that take turns may share it, so that caches of the processor hold more
            of it: a pass of one then uses up those of the others.

    Raises:
        ValueError: The backend has no such activation.
    """

    def __init__(
        self,
        weights: Sequence[Array],
        biases: Sequence[Array],
        activation: str,
        backend: Backend = TORCH,
        *,
        differentiable: bool = True,
        gradients: Sequence[Array] | None = None,
        memory: Memory | None = None,
    ) -> None:
        if activation not in backend.activations:
            raise ValueError(f"activation must be {' or '.join(backend.activations)}, got {activation!r}")
        self._parameters, self._depth = [*weights, *biases], len(weights)
        self._activation, self._backend = backend.activations[activation], backend
        self._differentiable, self._memory = differentiable, {} if memory is None else memory
        if gradients is None:
            gradients = [backend.empty(tuple(p.shape), p) for p in self._parameters] if differentiable else []
        self._gradients = list(gradients)
        self._places: list[int] = []
        self._networks: list[_Network] = []
        self._rows: Array | None = None

    def __call__(self, x: Array, first: int | None = None) -> Array:
        """Outputs ``(K, B, out)`` for rows ``x (B, in)``; only those of the ``first`` so many, if that is given."""
        self._settle(len(x))
        for net in self._networks[:first]:
            self._pass(net, net.hidden, x)
        self._rows = x if self._differentiable else None
        return self._outputs[:first]

    def pull(self, grad: Array) -> list[Array]:
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

    def pull_rows(self, grad: Array, columns: slice = slice(None)) -> Array:
        """Gradient of ``columns`` of the rows, ``(B, columns)``; see ``pull``.

        Where ``grad`` is of fewer networks, it is that of the first ones, and 0 for the others.
        """
        x, total = self._taken(), None
        for net, above in zip(self._networks, grad, strict=False):
            below = self._pull(net, net.hidden, x, above, of_parameters=False)
            total = net.layers[0].pull_rows(below, columns, total)
        return total

    def pull_rows_of(self, chosen: Array, grad: Array, columns: slice = slice(None)) -> Array:
        """The same, where the output of one network counts in each row: as much work as for one network.

        Args:
            chosen: Which network counts, integers ``(B,)``.
            grad: Gradient of its output, ``(B, out)``.
            columns: Of the rows.
        """
        backend, x, total = self._backend, self._taken(), None
        for i, net in enumerate(self._networks):
            rows = backend.where(chosen, i)
            hidden = [backend.rows_of(h, rows, into) for h, into in zip(net.hidden, self._chosen, strict=True)]
            below = self._pull(net, hidden, x, grad[rows], of_parameters=False)
            part = net.layers[0].pull_rows(below, columns, None)
            total = backend.empty((len(x), part.shape[1]), part) if total is None else total
            backend.put_rows(total, rows, part)
        return total

    def pass_and_pull(self, x: Array, rule: Callable[[Array], Array]) -> tuple[Array, list[Array]]:
        """Outputs and ``pull`` in one, one network after the other: less memory is touched, so it is faster.

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

    def _pass(self, net: _Network, hidden: list[Array], x: Array) -> None:
        """``a_k = f(W_k a_{k-1} + b_k)`` from ``a_0 = x``; the last layer has no activation."""
        activate = self._activation.apply
        for layer, out in zip(net.layers, hidden, strict=False):
            x = activate(layer.affine(x, out))
        net.layers[-1].affine(x, net.output)

    def _pull(self, net: _Network, hidden: list[Array], x: Array, grad: Array, of_parameters: bool = True) -> Array:
        """Gradient of what the first layer gave, before its activation, ``(B, out)``."""
        for k in range(self._depth - 1, -1, -1):
            layer, below = net.layers[k], hidden[k - 1] if k else x
            if of_parameters:
                layer.pull(grad, below)
            if k:
                grad = layer.pull_below(grad, below, self._activation, self._grads[k - 1])
        return grad

    def _taken(self) -> Array:
        rows, self._rows = self._rows, None
        if rows is None:
            raise RuntimeError("a gradient is of the pass before it, once; and networks must be differentiable")
        return rows

    def _settle(self, count: int) -> None:
        """Memory for ``count`` rows, and layers where the parameters are now."""
        backend = self._backend
        places = [count, *map(backend.place, self._parameters)]
        if places == self._places:
            return
        single = self._parameters[0].ndim == 2
        stacks = [[p] if single else list(p) for p in map(backend.plain, self._parameters)]
        grads = [[g] if single else list(g) for g in self._gradients] or [[None] * len(s) for s in stacks]
        depth, num = self._depth, len(stacks[0])
        widths = [backend.widths(stack[0])[1] for stack in stacks[:depth]]
        kept = num if self._differentiable else 1
        self._outputs = backend.empty((num, count, widths[-1]), stacks[0][0])
        hidden = [[self._room("rows", k, count, width)] for k, width in enumerate(widths[:-1])]
        for rooms in hidden:
            rooms += [backend.empty(tuple(rooms[0].shape), rooms[0]) for _ in range(kept - 1)]
        self._grads = [self._room("gradient", k % 2, count, width) for k, width in enumerate(widths[:-1])]
        self._chosen = [self._room("chosen", k, count, width) for k, width in enumerate(widths[:-1])]
        self._networks = [
            _Network(
                [
                    backend.layer(stacks[k][i], stacks[depth + k][i], grads[k][i], grads[depth + k][i])
                    for k in range(depth)
                ],
                [rooms[min(i, kept - 1)] for rooms in hidden],
                self._outputs[i],
            )
            for i in range(num)
        ]
        self._places = places

    def _room(self, purpose: str, number: int, count: int, width: int) -> Array:
        key = (purpose, number, width)
        if key not in self._memory or len(self._memory[key]) < count:
            self._memory[key] = self._backend.empty((count, width), self._parameters[0])
        return self._memory[key][:count]
