"""Optimizers of torch, the fastest way that they have."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable

import torch

__all__ = ["fast_optimizer"]


def fast_optimizer(
    optimizer_class: Callable[..., torch.optim.Optimizer], parameters: Iterable[torch.nn.Parameter], lr: float
) -> torch.optim.Optimizer:
    """``optimizer_class(parameters, lr=lr)``, fused or multi-tensor where that is offered: the update is the same."""
    chosen = list(parameters)
    known = _arguments(optimizer_class)
    for option in ("fused", "foreach"):
        if option in known:
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # not on this device or for this dtype
                return optimizer_class(chosen, lr=lr, **{option: True})
    return optimizer_class(chosen, lr=lr)


def _arguments(function: Callable[..., object]) -> Iterable[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
