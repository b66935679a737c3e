"""Optimizers of torch, the fastest way that they have."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from metaroll.errors import ShapeError

__all__ = ["Adam", "fast_optimizer"]


class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1) in one fused operation, for gradients that are at hand.

    The step is that of ``torch.optim.Adam``, which takes longer to prepare it than small networks take to be stepped.

    Args:
        parameters: Changed in place, on one device.
        lr: Step size.
        betas: Decay of both moments.
        eps: Added to the root of the second moment.
    """

    def __init__(
        self, parameters: Sequence[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.parameters = list(parameters)
        self._numbers = {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps}
        self._moments = [[torch.zeros_like(p, requires_grad=False) for p in self.parameters] for _ in range(2)]
        self._count = torch.zeros((), device=self.parameters[0].device)
        self._counts = [self._count] * len(self.parameters)  # all have taken as many steps

    def set_lr(self, lr: float) -> None:
        """Take steps of this size from now on."""
        self._numbers["lr"] = lr

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step against ``gradients``, one for each parameter; the host waits for nothing."""
        self._count += 1
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage, reportCallIssue]
            self.parameters,
            list(gradients),
            *self._moments,
            [],
            self._counts,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
            **self._numbers,
        )

    def state_dict(self) -> dict[str, Any]:
        """Copies of the moments, and the number of steps."""
        names = ("first", "second")
        tree: dict[str, Any] = {
            name: {str(i): moment.clone() for i, moment in enumerate(moments)}
            for name, moments in zip(names, self._moments, strict=True)
        }
        return {**tree, "steps": float(self._count)}

    @torch.no_grad()
    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken.

        Raises:
            ShapeError: A moment has another shape than its parameter.
        """
        for name, moments in zip(("first", "second"), self._moments, strict=True):
            for i, moment in enumerate(moments):
                saved = torch.as_tensor(tree[name][str(i)])
                if saved.shape != moment.shape:
                    raise ShapeError(f"{name} {i} must have shape {tuple(moment.shape)}, got {tuple(saved.shape)}")
                moment.copy_(saved)
        self._count.fill_(float(tree["steps"]))


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
