"""Adam on one flat vector, in place and without allocation: for small networks the calls cost more than the sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["FlatAdam", "clip_norm"]


def clip_norm(gradient: np.ndarray, max_norm: float | None) -> float:
    """Scale ``gradient (P,)`` in place so that its norm is at most ``max_norm`` (``None``: leave it); the norm before.

    As ``torch.nn.utils.clip_grad_norm_``: the factor is ``max_norm / (norm + 1e-6)``, at most 1.
    """
    norm = math.sqrt(float(np.dot(gradient, gradient)))
    if max_norm is not None and norm + 1e-6 > max_norm:
        gradient *= np.float32(max_norm / (norm + 1e-6))
    return norm


class FlatAdam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1) on a flat vector.

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
        """Restore ``state_dict``, bit for bit.

        Raises:
            ValueError: The saved moments are of another number of parameters.
        """
        first, second = (np.asarray(tree[name], dtype=self._first.dtype) for name in ("first", "second"))
        if first.shape != self._first.shape or second.shape != self._second.shape:
            raise ValueError(f"the saved moments have {first.size} entries, there are {self._first.size} parameters")
        self._first[:], self._second[:], self._num_steps = first, second, int(tree["num_steps"])
