"""Parallel MLPs with hand-written forward and backward passes, in reused memory.

A network is ``outputs = net(x)``, then ``net.pull(grad)``: from the gradient of a loss w.r.t. the outputs to the one
w.r.t. the parameters (or the inputs). Automatic differentiation computes the same numbers, with more products, new
memory for each result, and bookkeeping.

A gradient step of two hidden layers of 256 on 256 rows is some dozen matrix products, which take the time of their
multiplications: 0.33 ms for 256 x 256 x 256 in float32 on one thread of an AMD EPYC (100 GFLOPS; MKL, oneDNN and
OpenBLAS within 5 % of one another). The savings lie between them. One MLP after the other is faster than batched
products: the data of one of two networks of that size fit into a cache, those of both do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, final

from metaroll.functional.gradients.backends import TORCH, Array, Backend, Empty, Layer

__all__ = ["Memory", "Perceptrons"]


class Memory:
    """Buffers of the passes, by purpose, number, width and type; they grow to the largest number of rows so far."""

    def __init__(self) -> None:
        self.latest: Perceptrons | None = None
        """The networks of the latest pass, which has overwritten the activations of other networks."""
        self._rows: dict[tuple[str, int, int, Any], Array] = {}

    def rows(
        self, purpose: str, numbers: Iterable[int], count: int, like: Array, widths: Sequence[int], empty: Empty
    ) -> list[Array]:
        """``(count, width)`` for each number and width, of the type of ``like``."""
        arrays = []
        for number, width in zip(numbers, widths, strict=True):
            key = (purpose, number, width, like.dtype)
            if key not in self._rows or len(self._rows[key]) < count:
                self._rows[key] = empty(like, (count, width))
            arrays.append(self._rows[key][:count])
        return arrays


class _Network(NamedTuple):
    """One MLP: its layers and their output buffers."""

    layers: list[Layer]
    hidden: list[Array]  # (B, out) of each layer, without the last
    output: Array  # (B, out)


class _Room(NamedTuple):
    """Buffers of passes over a given number of rows."""

    networks: list[_Network]
    outputs: Array  # (K, B, out)
    grads: list[Array]  # gradients of the hidden layers' outputs, (B, out)
    chosen: list[Array]  # outputs of the hidden layers, for a subset of the rows


_MOST_COUNTS = 8
"""Number of different row counts for which views are kept."""


@final
class Perceptrons:
    """K MLPs of the same shape on the same rows, and their gradients.

    The result of a method is overwritten by its next call. ``pull`` applies to the latest pass, whose rows must be
    unchanged, and works once. Parameters are read in place at each call.

    Args:
        weights: Weight of each layer, ``(K, out, in)`` or, for one MLP (K is 1), ``(out, in)``; with NumPy ``in`` comes
            before ``out``.
        biases: Bias of each layer, ``(K, out)`` or ``(out,)``.
        activation: Activation of the hidden layers, one of ``backend.activations``.
        backend: Backend of these arrays.
        differentiable: Whether gradients will be needed.
        gradients: Output arrays for the gradients of weights, then of biases; ``None``: new arrays.
        memory: Buffers. Networks that take turns may share them for better use of the processor's caches: a pass of
            one then invalidates those of the others.

    Raises:
        ValueError: The backend does not have the activation.
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
        self._activation, self._backend = activation, backend
        self._differentiable, self._memory = differentiable, Memory() if memory is None else memory
        if gradients is None:
            gradients = [backend.empty(p, tuple(p.shape)) for p in self._parameters] if differentiable else []
        self._gradients = list(gradients)
        self._widths = list(map(backend.width, weights))
        self._kinds = list(map(backend.layer, self._widths))
        self._own = Memory()
        self._outputs: Array = None  # until the number of rows is known
        self._moves = backend.place is not None
        self._count, self._places = -1, self._places_now()
        self._layers: list[list[Layer]] = []
        self._known: dict[int, _Room] = {}
        self._room = _Room([], self._outputs, [], [])
        self._rows: Array | None = None
        self._passed = 0

    def __call__(self, x: Array, first: int | None = None) -> Array:
        """Outputs ``(K, B, out)`` for rows ``x (B, in)``; ``first``: only those of this number of first networks."""
        if self._moves or len(x) != self._count:
            self._settle(len(x))
        for net in self._room.networks[:first]:
            self._pass(net, net.hidden, x)
        self._rows, self._memory.latest = x if self._differentiable else None, self
        outputs = self._room.outputs[:first]
        self._passed = len(outputs)
        return outputs

    def pull(self, grad: Array) -> list[Array]:
        """Gradients of the weights, then of the biases, in the order and shapes of the parameters.

        Args:
            grad: Gradient w.r.t. the outputs, ``(K, B, out)``.

        Raises:
            RuntimeError: There was no pass of all networks before.
        """
        x = self._taken(len(self._room.networks))
        for net, above in zip(self._room.networks, grad, strict=True):
            self._pull(net, net.hidden, x, above)
        return self._gradients

    def pull_rows(self, grad: Array, columns: slice = slice(None)) -> Array:
        """Gradient w.r.t. ``columns`` of the rows, ``(B, columns)``; see ``pull``.

        With ``grad`` of fewer networks, it applies to the first ones, and is 0 for the others.
        """
        x, total = self._taken(len(grad)), None
        for net, above in zip(self._room.networks, grad, strict=False):
            below = self._pull(net, net.hidden, x, above, of_parameters=False)
            total = net.layers[0].pull_rows(below, columns, total)
        return total

    def pull_rows_of(self, chosen: Array, grad: Array, columns: slice = slice(None)) -> Array:
        """``pull_rows`` where the loss of each row depends on one network only; as much work as for one network.

        Args:
            chosen: Index of that network, integers ``(B,)``.
            grad: Gradient w.r.t. its output, ``(B, out)``.
            columns: Columns of the rows.
        """
        backend, x, total = self._backend, self._taken(len(self._room.networks)), None
        for i, net in enumerate(self._room.networks):
            rows = backend.where(chosen, i)
            hidden = [backend.rows_of(h, rows, into) for h, into in zip(net.hidden, self._room.chosen, strict=True)]
            below = self._pull(net, hidden, x, backend.rows_of(grad, rows, None), of_parameters=False)
            part = net.layers[0].pull_rows(below, columns, None)
            total = backend.empty(part, (len(x), part.shape[1])) if total is None else total
            backend.put_rows(total, rows, part)
        return total

    def pass_and_pull(self, x: Array, rule: Callable[[Array], Array]) -> tuple[Array, list[Array]]:
        """Outputs and ``pull`` combined, one network after the other: faster, since it touches less memory.

        Args:
            x: Rows.
            rule: Maps the outputs of one network, ``(B, out)``, to their gradient.

        Returns:
            Outputs ``(K, B, out)``, and gradients.
        """
        if self._moves or len(x) != self._count:
            self._settle(len(x))
        hidden = self._room.networks[0].hidden
        for net in self._room.networks:
            self._pass(net, hidden, x)
            self._pull(net, hidden, x, rule(net.output))
        self._rows, self._memory.latest = None, self
        return self._room.outputs, self._gradients

    def _pass(self, net: _Network, hidden: list[Array], x: Array) -> None:
        """``a_k = f(W_k a_{k-1} + b_k)`` from ``a_0 = x``; the last layer has no activation."""
        activate = self._backend.activations[self._activation].apply
        for layer, out in zip(net.layers, hidden, strict=False):
            x = activate(layer.affine(x, out))
        net.layers[-1].affine(x, net.output)

    def _pull(self, net: _Network, hidden: list[Array], x: Array, grad: Array, of_parameters: bool = True) -> Array:
        """Backpropagation; returns the gradient w.r.t. the pre-activations of the first layer, ``(B, out)``."""
        grads, activation = self._room.grads, self._backend.activations[self._activation]
        for k in range(self._depth - 1, -1, -1):
            layer, below = net.layers[k], hidden[k - 1] if k else x
            if of_parameters:
                layer.pull(grad, below)  # dL/dW_k = d_k^T a_{k-1}, dL/db_k = sum_B d_k
            if k:  # d_{k-1} = f'(z_{k-1}) (d_k W_k), (B, in)
                grad = layer.pull_below(grad, below, activation, grads[k - 1])
        return grad

    def _taken(self, count: int) -> Array:
        """The rows of the latest pass, which must include the first ``count`` networks."""
        rows, self._rows = self._rows, None
        if rows is None or self._memory.latest is not self or count > self._passed:
            raise RuntimeError(
                "pull needs a forward pass before it, works once per pass, and for no more networks than the pass; "
                "networks must be differentiable, and no network that shares their memory may have run since"
            )
        return rows

    def _settle(self, count: int) -> None:
        """Update layers to the current addresses of the parameters, and buffers to ``count`` rows."""
        places = self._places_now()
        if places != self._places or not self._layers:
            self._places, self._layers, self._known = places, self._layers_now(), {}
        elif count == self._count:
            return
        self._count = count
        if count not in self._known:
            if len(self._known) == _MOST_COUNTS:
                self._known.clear()
            self._known[count] = self._room_for(count)
        self._room = self._known[count]

    def _room_for(self, count: int) -> _Room:
        like, empty, num = self._parameters[0], self._backend.empty, len(self._layers)
        *widths, num_out = self._widths
        kept, hidden = num if self._differentiable else 1, len(widths)
        rows = [self._memory.rows("rows", range(hidden), count, like, widths, empty)]
        # The other networks keep their activations until the backward pass, so they cannot share memory.
        begins = range(self._depth, kept * self._depth, self._depth)
        rows += [self._own.rows("rows", range(i, i + hidden), count, like, widths, empty) for i in begins]
        if self._outputs is None or self._outputs.shape[1] < count:
            self._outputs = empty(like, (num, count, num_out))
        outputs = self._outputs[:, :count]
        return _Room(
            [_Network(layers, rows[min(i, kept - 1)], outputs[i]) for i, layers in enumerate(self._layers)],
            outputs,
            self._memory.rows("gradient", [k % 2 for k in range(hidden)], count, like, widths, empty),
            self._memory.rows("chosen", range(hidden), count, like, widths, empty),
        )

    def _layers_now(self) -> list[list[Layer]]:
        """The layers of each network."""
        arrays = [*map(self._backend.plain, self._parameters), *self._gradients]
        networks = [arrays] if self._parameters[0].ndim == 2 else list(zip(*arrays, strict=True))
        # Weights, biases, their gradients where there are some: every depth-th array belongs to one layer.
        return [[kind(*network[k :: self._depth]) for k, kind in enumerate(self._kinds)] for network in networks]

    def _places_now(self) -> list[int]:
        place = self._backend.place
        return [] if place is None else list(map(place, self._parameters))
