"""Parameters of modules as one flat vector, and flat vectors (or stacks) as views with the parameters' shapes."""

from __future__ import annotations

import math
import threading
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaroll.errors import ShapeError
from metaroll.types import Policy, PolicyInfo

__all__ = [
    "BoundModule",
    "FlatParameters",
    "ParameterFreePolicy",
    "ParameterLayout",
    "as_one_vector",
    "broadcast_over",
    "one_call",
    "part_of",
    "stacked_linear",
    "tensors_of",
]

one_call = threading.RLock()
"""Lock for ``BoundModule``, which changes its module while it runs; several threads may call it."""


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of ``module`` by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of parameters (and buffers) in the order of a flat vector ``(P,)``.

    A stack ``(N, P)`` holds N parameter vectors; its views have a leading axis N, for ``torch.func.vmap`` over
    ``torch.func.functional_call``.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, module: nn.Module, names: Iterable[str] | None = None) -> ParameterLayout:
        """Layout of all parameters of ``module``, or of the named parameters and buffers, in the given order.

        Raises:
            ValueError: A name is neither a parameter nor a buffer of the module.
        """
        parameters = tensors_of(module)
        chosen = tuple(name for name, _ in module.named_parameters()) if names is None else tuple(names)
        unknown = [name for name in chosen if name not in parameters]
        if unknown:
            raise ValueError(f"names must be parameters of {type(module).__name__}, got {unknown}")
        return cls(chosen, tuple(tuple(parameters[name].shape) for name in chosen))

    @property
    def size(self) -> int:
        """Length P of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def torch_views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Name -> view ``shape`` of ``flat (P,)``, or ``(N, *shape)`` of a stack; gradients flow to ``flat``."""
        self._check(tuple(flat.shape))
        leading = flat.shape[:-1]
        parts = flat.split([math.prod(shape) for shape in self.shapes], dim=-1)
        return {
            name: part.reshape((*leading, *shape))
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }

    def numpy_views(self, flat: np.ndarray) -> list[np.ndarray]:
        """Views ``shape`` of ``flat (P,)``, or ``(N, *shape)`` of a stack, in order; they share its memory."""
        self._check(flat.shape)
        views, begin = [], 0
        for shape in self.shapes:
            end = begin + math.prod(shape)
            views.append(flat[..., begin:end].reshape((*flat.shape[:-1], *shape)))
            begin = end
        return views

    def flatten(self, module: nn.Module) -> np.ndarray:
        """Flat float32 copy ``(P,)`` on the CPU of these parameters of ``module``."""
        parameters = tensors_of(module)
        flat = np.empty(self.size, dtype=np.float32)
        for view, name in zip(self.numpy_views(flat), self.names, strict=True):
            view[...] = parameters[name].detach().cpu().numpy()
        return flat

    def assign(self, module: nn.Module, flat: np.ndarray | torch.Tensor) -> None:
        """Write ``flat (P,)`` into these parameters of ``module``, in place (optimizers stay attached).

        Raises:
            ShapeError: ``flat`` has another length.
        """
        values = torch.as_tensor(np.array(flat) if isinstance(flat, np.ndarray) else flat).detach()
        if values.ndim != 1:
            raise ShapeError(f"flat must have shape ({self.size},), got {tuple(values.shape)}")
        parameters = tensors_of(module)
        views = self.torch_views(values)
        with torch.no_grad():
            for name in self.names:
                parameters[name].copy_(views[name])

    def _check(self, shape: tuple[int, ...]) -> None:
        if len(shape) not in (1, 2) or shape[-1] != self.size:
            raise ShapeError(f"parameters must have shape ({self.size},) or (N, {self.size}), got {tuple(shape)}")


@final
class BoundModule:
    """A module to call with other parameters and buffers; its own ones are restored after each call.

    The given tensors may change in place later; calls use their current values.

    Args:
        module: The module, not copied.
        tensors: Replacements by name; others are the module's. A flat vector holds integers as floats.
    """

    def __init__(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        self._module = module
        self._converted: list[tuple[Tensor, Tensor]] = []
        given: dict[int, Tensor] = {}
        with one_call:
            for name, own in tensors_of(module).items():
                if name in tensors:
                    given[id(own)] = self._as(own, tensors[name])
            # Tensors that are shared by parts have one name, and several places.
            kept: list[dict[str, Any]] = [d for part in module.modules() for d in (part._parameters, part._buffers)]
            self._places = [(d, name, given[id(own)]) for d in kept for name, own in d.items() if id(own) in given]

    def _as(self, own: Tensor, value: Tensor) -> Tensor:
        if own.is_floating_point() or value.dtype == own.dtype:
            return value
        converted = value.to(own.dtype)
        self._converted.append((converted, value.detach()))
        return converted

    def __call__(self, rows: Tensor) -> Any:
        """Outputs of the module for ``rows``."""
        with one_call:
            for value, source in self._converted:
                value.copy_(source)
            own = [kept[name] for kept, name, _ in self._places]
            try:
                for kept, name, value in self._places:
                    kept[name] = value
                return self._module(rows)
            finally:
                for (kept, name, _), value in zip(self._places, own, strict=True):
                    kept[name] = value


def part_of(parameters: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The parameters of a part: those with names that start with ``prefix.``, which is removed."""
    begin = f"{prefix}."
    return {name.removeprefix(begin): value for name, value in parameters.items() if name.startswith(begin)}


def stacked_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """``x (..., in)`` through a layer ``weight (out, in)``; ``x (M, ..., in)`` through M of them, ``(M, out, in)``."""
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    rows = x.reshape(len(weight), -1, x.shape[-1])
    return torch.baddbmm(bias[:, None], rows, weight.transpose(1, 2)).reshape(*x.shape[:-1], weight.shape[1])


def broadcast_over(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Parameters ``(D,)``, or stacks ``(M, D)``, with axes of length 1: they broadcast over ``rows (M, ..., D)``."""
    return values.reshape(*values.shape[:-1], *([1] * (rows.ndim - values.ndim)), values.shape[-1])


@torch.no_grad()
def as_one_vector(module: nn.Module, names: Sequence[str] | None = None) -> Tensor:
    """Turn the parameters of ``module`` into views of one vector ``(P,)``, which is returned.

    Existing optimizers stay valid: the parameters remain the same objects.

    Args:
        module: All its parameters must have the same dtype and device.
        names: Names of the parameters, in this order; ``None`` means all.
    """
    layout = ParameterLayout.of(module, names)
    parameters = dict(module.named_parameters())
    vector = torch.cat([parameters[name].detach().reshape(-1) for name in layout.names])
    begin = 0
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        end = begin + math.prod(shape)
        parameters[name].data = vector[begin:end].view(shape)
        begin = end
    return vector


class FlatParameters:
    """Mixin for torch modules: all parameters as one flat vector, including buffers that a policy acts with."""

    def get_param_values(self: Any) -> np.ndarray:
        """All parameters of the module, float32 ``(P,)``, a copy on the CPU."""
        return ParameterLayout.of(self, self._flat_names()).flatten(self)

    def set_param_values(self: Any, flat: np.ndarray | torch.Tensor) -> None:
        """Write ``flat (P,)`` into the parameters, in place.

        Raises:
            ShapeError: ``flat`` has the wrong length.
        """
        ParameterLayout.of(self, self._flat_names()).assign(self, flat)

    def _flat_names(self: Any) -> list[str]:
        return [name for name, _ in self.named_parameters()]


class ParameterFreePolicy(Policy, ABC):
    """A policy without parameters, noise and draws, with independent rows."""

    @property
    def info(self) -> PolicyInfo:
        """Without noise and draws."""
        return PolicyInfo(draws=False)

    def acting_parameters(self) -> np.ndarray:
        """None: ``(0,)``."""
        return np.zeros(0, dtype=np.float32)
