"""In-place Adam for given gradients, and the fastest variants of torch's own optimizers."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np
import torch

from metaroll.state import Stateful, parts

__all__ = ["Adam", "clip_norm", "clipped", "fast_optimizer"]


@final
class Adam(Stateful):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1), in place, for given gradients.

    Tensors use one fused operation: the step of ``torch.optim.Adam``, without its overhead, which exceeds the step
    itself for small networks. NumPy arrays need no new memory.

    Attributes:
        first, second: Moments of the gradients, one per parameter.

    Args:
        parameters: Tensors on one device, or arrays; changed in place.
        lr: Learning rate.
        betas: Decay rates of the moments.
        eps: Added to the root of the second moment, after its bias correction.

    Raises:
        ValueError: There are no parameters.
    """

    state_parts = parts("first", "second", "steps")

    def __init__(
        self, parameters: Sequence[Any], lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.parameters = list(parameters)
        if not self.parameters:
            raise ValueError("parameters must hold at least one tensor or array, got none")
        self._lr, self._betas, self._eps = lr, betas, eps
        self._of_arrays = isinstance(self.parameters[0], np.ndarray)
        zeros = np.zeros_like if self._of_arrays else _zeros_like
        self.first: list[Any] = [zeros(p) for p in self.parameters]
        self.second: list[Any] = [zeros(p) for p in self.parameters]
        self._count: Any = 0.0 if self._of_arrays else torch.zeros((), device=self.parameters[0].device)
        self._scratch = [np.empty_like(p) for p in self.parameters] if self._of_arrays else []

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        self._lr = lr

    def step(self, gradients: Sequence[Any]) -> None:
        """One step down ``gradients``, one per parameter, which may be overwritten; it does not wait for the device."""
        self._count += 1
        if self._of_arrays:
            self._update_arrays(gradients)
        else:
            self._update_tensors(gradients)

    @torch.no_grad()
    def _update_tensors(self, gradients: Sequence[torch.Tensor]) -> None:
        pairs = zip(self.parameters, gradients, strict=True)
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage, reportCallIssue]
            self.parameters,
            # The operation ignores strides: a gradient must have the memory layout of its parameter.
            [g if g.stride() == p.stride() else torch.empty_like(p, requires_grad=False).copy_(g) for p, g in pairs],
            self.first,
            self.second,
            [],
            [self._count] * len(self.parameters),  # one step count for all
            lr=self._lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            eps=self._eps,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )

    def _update_arrays(self, gradients: Sequence[np.ndarray]) -> None:
        beta1, beta2 = self._betas
        correction1, correction2 = 1.0 - beta1**self._count, 1.0 - beta2**self._count
        parts = zip(self.parameters, gradients, self.first, self.second, self._scratch, strict=True)
        for parameter, gradient, first, second, scratch in parts:
            # v <- beta2 v + (1 - beta2) g^2
            np.multiply(gradient, gradient, out=scratch)
            scratch *= 1.0 - beta2
            second *= beta2
            second += scratch
            # m <- beta1 m + (1 - beta1) g
            gradient *= 1.0 - beta1
            first *= beta1
            first += gradient
            # theta <- theta - lr (m / c1) / (sqrt(v / c2) + eps), with sqrt(c2) factored out: two passes less.
            np.sqrt(second, out=scratch)
            scratch += self._eps * math.sqrt(correction2)
            np.divide(first, scratch, out=scratch)
            scratch *= self._lr * math.sqrt(correction2) / correction1
            parameter -= scratch

    @property
    def steps(self) -> float:
        """Number of steps."""
        return float(self._count)

    @steps.setter
    def steps(self, value: float) -> None:
        self._count = float(value) if self._of_arrays else self._count.fill_(float(value))


def _zeros_like(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter, requires_grad=False)


def clipped(gradients: Sequence[torch.Tensor], max_norm: float | None) -> list[torch.Tensor]:
    """``gradients`` clipped to a global norm of ``max_norm``, without synchronization with the device.

    As ``torch.nn.utils.clip_grad_norm_``: the factor is ``max_norm / (norm + 1e-6)``, at most 1.
    """
    if max_norm is None:
        return list(gradients)
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    return [gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0) for gradient in gradients]


def clip_norm(gradient: np.ndarray, max_norm: float | None) -> float:
    """``clipped`` for one array ``(P,)``, in place; returns its norm before clipping."""
    norm = math.sqrt(float(np.dot(gradient, gradient)))
    if max_norm is not None and norm + 1e-6 > max_norm:
        gradient *= max_norm / (norm + 1e-6)
    return norm


def fast_optimizer(
    optimizer_class: Callable[..., torch.optim.Optimizer], parameters: Iterable[torch.nn.Parameter], lr: float
) -> torch.optim.Optimizer:
    """``optimizer_class(parameters, lr=lr)``, fused or multi-tensor where available: the update is the same."""
    chosen = list(parameters)
    arguments = _arguments(optimizer_class)
    for option in ("fused", "foreach"):
        if option in arguments:
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # not on this device or for this dtype
                return optimizer_class(chosen, lr=lr, **{option: True})
    return optimizer_class(chosen, lr=lr)


def _arguments(function: Callable[..., object]) -> Iterable[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
