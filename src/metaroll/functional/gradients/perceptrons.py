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

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, final

from metaroll.functional.gradients.backends import TORCH, Array, Backend, Empty, Layer

__all__ = ["Memory", "Perceptrons"]


class Memory:
    """What passes write to, by purpose, a number, width and type; as many rows as were ever needed."""

    def __init__(self) -> None:
        self.latest: Perceptrons | None = None
        """Whose pass was the latest, and has overwritten what the others need for their gradients."""
        self._rows: dict[tuple[str, int, int, Any], Array] = {}

    def rows(
        self, purpose: str, numbers: Iterable[int], count: int, like: Array, widths: Sequence[int], empty: Empty
    ) -> list[Array]:
        """``(count, width)`` for each number and width, of the type of ``like``."""
        found = []
        for number, width in zip(numbers, widths, strict=True):
            key = (purpose, number, width, like.dtype)
            if key not in self._rows or len(self._rows[key]) < count:
                self._rows[key] = empty(like, (count, width))
            found.append(self._rows[key][:count])
        return found


class _Network(NamedTuple):
    """One perceptron: its layers, and where they write to."""

    layers: list[Layer]
    hidden: list[Array]  # (B, out) of each layer, without the last
    output: Array  # (B, out)


class _Room(NamedTuple):
    """What passes over a number of rows write to."""

    networks: list[_Network]
    outputs: Array  # (K, B, out)
    grads: list[Array]  # of what each hidden layer gave, (B, out)
    chosen: list[Array]  # what each hidden layer gave in some of the rows


_MOST_COUNTS = 8
"""Numbers of rows for which views are kept."""


@final
class Perceptrons:
    """K perceptrons of one shape for the same rows, and their gradient.

    What a method returns is overwritten by its next call. A gradient is that of the latest pass, whose rows must be as
    they were, and uses it up. Parameters are read where they lie at each call.

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
        self._activation, self._backend = activation, backend
        self._differentiable, self._memory = differentiable, Memory() if memory is None else memory
        if gradients is None:
            gradients = [backend.empty(p, tuple(p.shape)) for p in self._parameters] if differentiable else []
        self._gradients = list(gradients)
        self._widths = list(map(backend.width, weights))
        self._kinds = list(map(backend.layer, self._widths))
        self._own = Memory()
        self._outputs: Array = None  # until a number of rows is known
        self._moves = backend.place is not None
        self._count, self._places = -1, self._places_now()
        self._layers: list[list[Layer]] = []
        self._known: dict[int, _Room] = {}
        self._room = _Room([], self._outputs, [], [])
        self._rows: Array | None = None
        self._passed = 0

    def __call__(self, x: Array, first: int | None = None) -> Array:
        """Outputs ``(K, B, out)`` for rows ``x (B, in)``; only those of the ``first`` so many, if that is given."""
        if self._moves or len(x) != self._count:
            self._settle(len(x))
        for net in self._room.networks[:first]:
            self._pass(net, net.hidden, x)
        self._rows, self._memory.latest = x if self._differentiable else None, self
        outputs = self._room.outputs[:first]
        self._passed = len(outputs)
        return outputs

    def pull(self, grad: Array) -> list[Array]:
        """Gradients of the weights, then of the biases, in the order and shapes in which they were given.

        Args:
            grad: Gradient of the outputs, ``(K, B, out)``.

        Raises:
            RuntimeError: There is no pass of all networks that it could be the gradient of.
        """
        x = self._taken(len(self._room.networks))
        for net, above in zip(self._room.networks, grad, strict=True):
            self._pull(net, net.hidden, x, above)
        return self._gradients

    def pull_rows(self, grad: Array, columns: slice = slice(None)) -> Array:
        """Gradient of ``columns`` of the rows, ``(B, columns)``; see ``pull``.

        Where ``grad`` is of fewer networks, it is that of the first ones, and 0 for the others.
        """
        x, total = self._taken(len(grad)), None
        for net, above in zip(self._room.networks, grad, strict=False):
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
        """Outputs and ``pull`` in one, one network after the other: less memory is touched, so it is faster.

        Args:
            x: Rows.
            rule: Makes of the outputs of one network, ``(B, out)``, their gradient.

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
        """Gradient of what the first layer gave, before its activation, ``(B, out)``."""
        grads, activation = self._room.grads, self._backend.activations[self._activation]
        for k in range(self._depth - 1, -1, -1):
            layer, below = net.layers[k], hidden[k - 1] if k else x
            if of_parameters:
                layer.pull(grad, below)
            if k:
                grad = layer.pull_below(grad, below, activation, grads[k - 1])
        return grad

    def _taken(self, count: int) -> Array:
        """The rows of the latest pass, which was one of the first ``count`` networks at least."""
        rows, self._rows = self._rows, None
        if rows is None or self._memory.latest is not self or count > self._passed:
            raise RuntimeError(
                "a gradient is that of the pass before it, once, of no more networks than it was of; networks must be "
                "differentiable, and no other one that shares their memory may have been asked since"
            )
        return rows

    def _settle(self, count: int) -> None:
        """Layers where the parameters are now, and memory for ``count`` rows."""
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
        # The others keep theirs until their gradient is asked for, so they share no memory.
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
