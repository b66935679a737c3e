"""Backends of ``Perceptrons``: matrix products, sums and activations of NumPy, and of torch on the CPU.

Neither is always faster: on one thread of an AMD EPYC, the relu of 256 x 256 numbers takes 25 us in NumPy and 6 in
torch, the tanh 24 us in NumPy and 167 in torch. They also round differently: an eighth of the entries of a product of
256 x 256 matrices are equal. A learner keeps the backend that it was written for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch

__all__ = ["NUMPY", "TORCH", "Activation", "Backend", "Layer"]

Array = Any
"""An array of the backend."""
Empty = Callable[[Array, tuple[int, ...]], Array]


class Activation(NamedTuple):
    """An activation whose derivative is a function of its output; both work in place.

    Attributes:
        apply: ``a = f(z)``, written into ``z``, which is returned.
        pull: ``(grad, a, out)``: ``f'(z) grad`` from ``a``, written into ``out``, which is returned; ``a`` may be
            overwritten.
    """

    apply: Callable[[Array], Array]
    pull: Callable[[Array, Array, Array], Array]


class Layer(ABC):
    """An affine map ``z = W x + b`` of rows ``x (B, in)``, and its gradient."""

    @abstractmethod
    def affine(self, x: Array, out: Array) -> Array:
        """``z``, written into ``out (B, out)``, which is returned."""

    @abstractmethod
    def pull(self, grad: Array, x: Array) -> None:
        """Write ``dL/dW = grad^T x`` and ``dL/db = sum_B grad``, from the gradient ``(B, out)`` of ``z``."""

    @abstractmethod
    def pull_below(self, grad: Array, hidden: Array, activation: Activation, out: Array) -> Array:
        """``f'(z') (grad W)``, the gradient w.r.t. the pre-activations ``z'`` of the layer below, ``(B, in)``.

        Args:
            grad: Gradient w.r.t. ``z``, ``(B, out)``.
            hidden: ``a = f(z')``, the output of the layer below, ``(B, in)``; may be overwritten.
            activation: f.
            out: Buffer of at least B rows, which may be written to.
        """

    @abstractmethod
    def pull_rows(self, grad: Array, columns: slice, total: Array | None) -> Array:
        """``grad W`` for ``columns`` of the rows, added to ``total`` if given."""


@dataclass(frozen=True)
class Backend:
    """Operations on the arrays of one library.

    Attributes:
        name: Name of the library; copies and pickles of a backend are the backend of that name.
        activations: Activations by name.
        layer: The class of layers with a number of outputs. A layer is made from weight, bias, and the output arrays of
            their gradients, if it has any.
        width: Number of outputs of a weight, or of each weight in a stack.
        empty: New memory of the type of an array, of a shape.
        plain: The same array, detached from autograd.
        place: Memory address of an array; ``None``: arrays never move.
        rows_of: ``(array, rows, out)``: these rows of an array, written into the beginning of ``out`` or, if that is
            ``None``, into new memory.
        put_rows: ``(array, rows, values)``: writes values into these rows of an array.
        where: Indices of the rows of ``(array, value)`` that are equal to the value.
    """

    name: str
    activations: Mapping[str, Activation]
    layer: Callable[[int], Callable[..., Layer]]
    width: Callable[[Array], int]
    empty: Empty
    plain: Callable[[Array], Array]
    place: Callable[[Array], int] | None
    rows_of: Callable[[Array, Array, Array | None], Array]
    put_rows: Callable[[Array, Array, Array], None]
    where: Callable[[Array, int], Array]

    def __reduce__(self) -> Any:
        return _backend_of, (self.name,)


def _backend_of(name: str) -> Backend:
    return {"torch": TORCH, "numpy": NUMPY}[name]


# -- torch -------------------------------------------------------------------------------------------------------------

FEW_INPUTS = 64
"""Up to this number of inputs, the gradient of a weight is faster to compute as a transpose."""

_relu_backward = torch.ops.aten.threshold_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


@final
class _TorchLayer(Layer):
    """Layer with a weight ``(out, in)``."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor,
        weight_grad: torch.Tensor | None = None,
        bias_grad: torch.Tensor | None = None,
    ) -> None:
        self._weight, self._transposed, self._bias = weight, weight.t(), bias
        self._weight_grad, self._bias_grad = weight_grad, bias_grad
        self._turned = weight.new_empty(weight.shape[::-1]) if weight.shape[1] <= FEW_INPUTS else None

    def affine(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self._bias, x, self._transposed, out=out)

    def pull(self, grad: torch.Tensor, x: torch.Tensor) -> None:
        if self._weight_grad is None or self._bias_grad is None:
            raise RuntimeError("the layer was made without memory for its gradient")
        if self._turned is None:
            torch.mm(grad.t(), x, out=self._weight_grad)
        else:
            self._weight_grad.copy_(torch.mm(x.t(), grad, out=self._turned).t())
        torch.sum(grad, dim=0, out=self._bias_grad)

    def pull_below(
        self, grad: torch.Tensor, hidden: torch.Tensor, activation: Activation, out: torch.Tensor
    ) -> torch.Tensor:
        below = torch.mm(grad, self._weight, out=out[: len(grad)])
        return activation.pull(below, hidden, below)

    def pull_rows(self, grad: torch.Tensor, columns: slice, total: torch.Tensor | None) -> torch.Tensor:
        weight = self._weight[:, columns]
        return torch.mm(grad, weight) if total is None else total.addmm_(grad, weight)


@final
class _TorchColumn(Layer):
    """Layer with a weight ``(1, in)``: matrix-vector products, which are faster."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor,
        weight_grad: torch.Tensor | None = None,
        bias_grad: torch.Tensor | None = None,
    ) -> None:
        self._weight, self._vector, self._bias = weight, weight[0], bias
        self._vector_grad = None if weight_grad is None else weight_grad[0]
        self._bias_grad = bias_grad
        self._out = self._out_vector = weight  # the latest output buffer and its view, reused for many passes

    def affine(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if out is not self._out:
            self._out, self._out_vector = out, out[:, 0]
        torch.addmv(self._bias, x, self._vector, out=self._out_vector)
        return out

    def pull(self, grad: torch.Tensor, x: torch.Tensor) -> None:
        if self._vector_grad is None or self._bias_grad is None:
            raise RuntimeError("the layer was made without memory for its gradient")
        torch.mv(x.t(), grad[:, 0], out=self._vector_grad)
        torch.sum(grad, dim=0, out=self._bias_grad)

    def pull_below(
        self, grad: torch.Tensor, hidden: torch.Tensor, activation: Activation, out: torch.Tensor
    ) -> torch.Tensor:
        return activation.pull(self._weight.expand_as(hidden), hidden, hidden).mul_(grad)

    def pull_rows(self, grad: torch.Tensor, columns: slice, total: torch.Tensor | None) -> torch.Tensor:
        weight = self._weight[:, columns]
        return torch.mm(grad, weight) if total is None else total.addmm_(grad, weight)


def _torch_rows(array: torch.Tensor, rows: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    return torch.index_select(array, 0, rows, out=None if out is None else out[: len(rows)])


TORCH = Backend(
    name="torch",
    activations={
        "relu": Activation(torch.relu_, lambda grad, a, out: _relu_backward(grad, a, 0.0, grad_input=out)),
        "tanh": Activation(torch.tanh_, lambda grad, a, out: _tanh_backward(grad, a, grad_input=out)),
    },
    layer=lambda width: _TorchColumn if width == 1 else _TorchLayer,
    width=lambda weight: weight.shape[-2],
    empty=torch.Tensor.new_empty,
    plain=torch.Tensor.detach,
    place=torch.Tensor.data_ptr,
    rows_of=_torch_rows,
    put_rows=lambda array, rows, values: array.index_copy_(0, rows, values),
    where=lambda array, value: (array == value).nonzero()[:, 0],
)
"""Torch on the CPU: weights are ``(out, in)``, as in ``nn.Linear``."""


# -- NumPy -------------------------------------------------------------------------------------------------------------


@final
class _NumpyLayer(Layer):
    """Layer with a weight ``(in, out)``."""

    def __init__(
        self,
        weight: np.ndarray,
        bias: np.ndarray,
        weight_grad: np.ndarray | None = None,
        bias_grad: np.ndarray | None = None,
    ) -> None:
        self._weight, self._transposed, self._bias = weight, weight.T, bias
        self._weight_grad, self._bias_grad = weight_grad, bias_grad
        self._ones = np.ones(0, dtype=weight.dtype)

    def affine(self, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.matmul(x, self._weight, out=out)
        out += self._bias
        return out

    def pull(self, grad: np.ndarray, x: np.ndarray) -> None:
        if self._weight_grad is None or self._bias_grad is None:
            raise RuntimeError("the layer was made without memory for its gradient")
        if len(self._ones) != len(grad):
            self._ones = np.ones(len(grad), dtype=self._weight.dtype)
        np.matmul(x.T, grad, out=self._weight_grad)
        np.matmul(self._ones, grad, out=self._bias_grad)  # a product is faster than a sum over rows

    def pull_below(self, grad: np.ndarray, hidden: np.ndarray, activation: Activation, out: np.ndarray) -> np.ndarray:
        below = np.matmul(grad, self._transposed, out=out[: len(grad)])
        return activation.pull(below, hidden, below)

    def pull_rows(self, grad: np.ndarray, columns: slice, total: np.ndarray | None) -> np.ndarray:
        below = np.matmul(grad, self._weight[columns].T)
        return below if total is None else np.add(total, below, out=total)


def _numpy_tanh_pull(grad: np.ndarray, a: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.multiply(a, a, out=a)
    np.subtract(1.0, a, out=a)
    return np.multiply(grad, a, out=out)


def _numpy_rows(array: np.ndarray, rows: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    if out is None:
        return array[rows]
    return np.take(array, rows, axis=0, out=out[: len(rows)], mode="clip")  # other modes buffer the output


NUMPY = Backend(
    name="numpy",
    activations={
        "relu": Activation(lambda z: np.maximum(z, 0, out=z), lambda grad, a, out: np.multiply(grad, a > 0, out=out)),
        "tanh": Activation(lambda z: np.tanh(z, out=z), _numpy_tanh_pull),
    },
    layer=lambda width: _NumpyLayer,
    width=lambda weight: weight.shape[-1],
    empty=lambda like, shape: np.empty(shape, like.dtype),
    plain=lambda array: array,
    place=None,
    rows_of=_numpy_rows,
    put_rows=np.ndarray.__setitem__,
    where=lambda array, value: np.flatnonzero(array == value),
)
"""NumPy: weights are ``(in, out)``."""
