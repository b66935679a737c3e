"""Multi-layer perceptrons with hand-written gradients in NumPy.

For the small networks of control tasks and minibatches of some dozen rows, automatic differentiation spends most of its
time on bookkeeping: these few matrix products are several times faster. Rows are float32 ``(B, width)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

__all__ = ["HIDDEN_ACTIVATIONS", "Layer", "count_weights", "layer_views", "mlp_backward", "mlp_forward"]

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
