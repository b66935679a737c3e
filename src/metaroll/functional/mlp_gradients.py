"""Multi-layer perceptrons with hand-written gradients in NumPy, and Adam on their weights as one flat vector.

For the small networks of control tasks and minibatches of some dozen rows, automatic differentiation spends most of its
time on bookkeeping: these few matrix products are several times faster. Rows are float32 ``(B, width)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "HIDDEN_ACTIVATIONS",
    "FlatAdam",
    "Layer",
    "clip_norm",
    "count_weights",
    "layer_views",
    "mlp_backward",
    "mlp_forward",
]

Layer = tuple[np.ndarray, np.ndarray]
"""Weight ``(in, out)`` (transposed, against torch's) and bias ``(out,)``."""

HIDDEN_ACTIVATIONS = ("tanh", "relu")
"""Activations of hidden layers whose derivative follows from their output; the output layer has none."""


def count_weights(sizes: Sequence[int]) -> int:
    """Numbers in all layers of a perceptron of widths ``sizes`` (input, hidden ones, output)."""
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


def layer_views(flat: np.ndarray, sizes: Sequence[int]) -> list[Layer]:
    """Views of ``flat (count_weights(sizes),)`` as the layers of a perceptron."""
    layers, begin = [], 0
    for a, b in itertools.pairwise(sizes):
        middle, end = begin + a * b, begin + (a + 1) * b
        layers.append((flat[begin:middle].reshape(a, b), flat[middle:end]))
        begin = end
    return layers


def mlp_forward(x: np.ndarray, layers: Sequence[Layer], activation: str) -> list[np.ndarray]:
    """Input, outputs of the hidden layers, and output ``(B, out)`` of a perceptron, for ``mlp_backward``."""
    outputs = [x]
    last = len(layers) - 1
    for k, (weight, bias) in enumerate(layers):
        x = np.matmul(x, weight)
        x += bias
        if k < last:
            if activation == "tanh":
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0, out=x)
        outputs.append(x)
    return outputs


def mlp_backward(
    d_output: np.ndarray,
    outputs: Sequence[np.ndarray],
    layers: Sequence[Layer],
    gradients: Sequence[Layer],
    activation: str,
) -> None:
    """Write the gradient of a scalar loss with respect to all weights into ``gradients``.

    Args:
        d_output: Gradient of the loss with respect to the output, ``(B, out)``.
        outputs: From ``mlp_forward``.
        layers: Weights that were used there.
        gradients: Where to write, in the shapes of ``layers``.
        activation: That of ``mlp_forward``.
    """
    d = d_output
    ones = np.ones(len(d), dtype=d.dtype)
    for k in range(len(layers) - 1, -1, -1):
        d_weight, d_bias = gradients[k]
        np.matmul(outputs[k].T, d, out=d_weight)
        np.matmul(ones, d, out=d_bias)
        if k:
            hidden = outputs[k]
            d = np.matmul(d, layers[k][0].T)
            if activation == "tanh":
                slope = np.multiply(hidden, hidden)
                np.subtract(1.0, slope, out=slope, dtype=slope.dtype)
                d *= slope
            else:
                d *= hidden > 0


def clip_norm(gradient: np.ndarray, max_norm: float | None) -> float:
    """Scale ``gradient (P,)`` in place so that its norm is at most ``max_norm`` (``None``: leave it); the norm before.

    As ``torch.nn.utils.clip_grad_norm_``: the factor is ``max_norm / (norm + 1e-6)``, at most 1.
    """
    norm = math.sqrt(float(np.dot(gradient, gradient)))
    if max_norm is not None and norm + 1e-6 > max_norm:
        gradient *= np.float32(max_norm / (norm + 1e-6))
    return norm


class FlatAdam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1) on a flat vector, in place and without allocation.

    Args:
        parameters: Vector ``(P,)`` that ``step`` changes in place.
        eps: Added to the root of the second moment, after its bias correction (as torch does).
        betas: Decay of the two moments.
    """

    def __init__(self, parameters: np.ndarray, eps: float = 1e-8, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self._parameters = parameters
        self._eps, self._betas = eps, betas
        self._first = np.zeros_like(parameters)
        self._second = np.zeros_like(parameters)
        self._scratch = np.empty_like(parameters)
        self._num_steps = 0

    def step(self, gradient: np.ndarray, learning_rate: float) -> None:
        """One step against ``gradient (P,)``, which is used up (changed in place)."""
        beta1, beta2 = self._betas
        self._num_steps += 1
        first, second, scratch = self._first, self._second, self._scratch
        correction1, correction2 = 1.0 - beta1**self._num_steps, 1.0 - beta2**self._num_steps
        np.multiply(gradient, gradient, out=scratch)
        scratch *= np.float32(1.0 - beta2)
        second *= np.float32(beta2)
        second += scratch
        gradient *= np.float32(1.0 - beta1)
        first *= np.float32(beta1)
        first += gradient
        # lr / c1 * m / (sqrt(v / c2) + eps), with the factor sqrt(c2) of the root moved out.
        np.sqrt(second, out=scratch)
        scratch += np.float32(self._eps * math.sqrt(correction2))
        np.divide(first, scratch, out=scratch)
        scratch *= np.float32(learning_rate * math.sqrt(correction2) / correction1)
        self._parameters -= scratch

    def state_dict(self) -> dict[str, Any]:
        """Moments and number of steps."""
        return {"first": self._first.copy(), "second": self._second.copy(), "num_steps": self._num_steps}

    def load_state_dict(self, tree: Any) -> None:
        """Restore ``state_dict``, bitwise identical.

        Raises:
            ValueError: The saved moments are of another number of parameters.
        """
        first, second = (np.asarray(tree[name], dtype=self._first.dtype) for name in ("first", "second"))
        if first.shape != self._first.shape or second.shape != self._second.shape:
            raise ValueError(f"the saved moments have {first.size} entries, there are {self._first.size} parameters")
        self._first[:], self._second[:], self._num_steps = first, second, int(tree["num_steps"])
