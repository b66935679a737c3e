"""Bodies of policies: from features (and a hidden state) to outputs, in NumPy rows, on torch, and as a pure function.

A body does not own modules: it uses those of the policy, by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import nn

from metaroll.errors import ShapeError
from metaroll.functional.linear import are_small, block_rows, matmul_columns, matmul_rows
from metaroll.policies.networks import MLP
from metaroll.policies.parameters import part_of, stacked_linear
from metaroll.types import Context, PolicyState

__all__ = ["Body", "Perceptron", "Recurrent"]

Affine = tuple[np.ndarray, np.ndarray]
"""Transposed weight and bias of one layer, laid out to broadcast over blocks of rows."""

Activation = Callable[[np.ndarray], np.ndarray]


class Body(ABC):
    """From features to outputs, of ``num_parts`` equal parts.

    Attributes:
        num_parts: Parts of the outputs of ``rows``; with several they come first, ``(num_parts, N, ...)``.
        by_columns: Whether ``rows`` takes columns ``(F, N)`` instead of blocks of rows.
        recurrent: Whether outputs depend on earlier features, through the state rows.
    """

    num_parts: int
    by_columns: bool = False
    recurrent: ClassVar[bool] = False

    def first_state(self, contexts: Sequence[Context | None]) -> PolicyState:
        """Initial state rows of N rollouts, given their contexts; empty by default."""
        return {}

    @abstractmethod
    def lay_out(self, policy: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        """The parameters of the body in the layout for ``rows``: views, which follow in-place changes.

        Args:
            policy: The policy with the modules.
            arrays: Parameters by their names in it, with a leading axis N if there are N sets; those of other modules
                are ignored.
        """

    @abstractmethod
    def rows(self, laid_out: Any, x: np.ndarray, state: PolicyState, num_rows: int) -> tuple[np.ndarray, PolicyState]:
        """Outputs ``(N, width)`` in new memory and the next state, for blocks of rows ``x (B, R, F)``, or columns."""

    def tensor_rows(
        self, policy: Any, features: torch.Tensor, state: Mapping[str, Any]
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """``rows`` for tensors: outputs ``(N, width)`` and the next state, for ``features (N, F)``."""
        return self.outputs(policy, features), dict(state)

    @abstractmethod
    def outputs(self, policy: Any, features: torch.Tensor) -> torch.Tensor:
        """Outputs ``(..., width)``; a recurrent body takes complete rollouts ``(N, T, F)``, from a zero state."""

    def steps(
        self, policy: Any, features: torch.Tensor, hidden: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Outputs ``(..., width)``; a recurrent body takes sequences ``(..., T, F)``.

        Args:
            policy: The policy with the modules.
            features: Features ``(..., F)``.
            hidden: Previous hidden states ``(..., H)``; ``None``: zeros.

        Returns:
            Outputs, and the last hidden states ``(..., H)`` of a recurrent body.
        """
        return self.outputs(policy, features), None

    @abstractmethod
    def pure_outputs(self, policy: Any, parameters: Mapping[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        """``outputs`` as a function of ``parameters`` by name, for one policy or stacks; rollouts ``(..., T, F)``."""


@final
@dataclass(frozen=True)
class Perceptron(Body):
    """Features through ``net``, an ``MLP``."""

    num_parts: int = 1
    by_columns: bool = False

    @classmethod
    def of(cls, widths: Sequence[int], encoder: Any) -> Perceptron:
        """A body for ``widths`` of input, hidden layers and output; by columns if it is small."""
        return cls(by_columns=encoder is None and are_small(widths))

    def lay_out(self, policy: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        net = policy.net
        output = None if net.output_nonlinearity == "identity" else _ACTIVATIONS[net.output_nonlinearity]
        layers = _layers(_arrays_of(arrays, "net"), self.num_parts, self.by_columns)
        return layers, _ACTIVATIONS[net.hidden_nonlinearity], output

    def rows(self, laid_out: Any, x: np.ndarray, state: PolicyState, num_rows: int) -> tuple[np.ndarray, PolicyState]:
        layers, hidden, output = laid_out
        x = _mlp_rows(x, layers, hidden)
        if output is not None:
            x = output(x)
        if self.num_parts > 1:
            return _cut(x, self.num_parts, num_rows), state
        return (x if self.by_columns else x.reshape(-1, x.shape[-1])[:num_rows]), state

    def outputs(self, policy: Any, features: torch.Tensor) -> torch.Tensor:
        return policy.net(features)

    def pure_outputs(self, policy: Any, parameters: Mapping[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        return policy.net.outputs(part_of(parameters, "net"), features)


@final
@dataclass(frozen=True)
class Recurrent(Body):
    """A recurrent ``cell`` over features, followed by an output module; the state is ``{"hidden": (N, H)}``.

    Attributes:
        hidden_size: Width H of the hidden state.
        last: Name of the output module on the hidden state: a linear layer, or an ``MLP``.
        sees_features: Whether that module also gets the features.
    """

    hidden_size: int
    last: str = "head"
    sees_features: bool = False
    num_parts: int = 1
    recurrent = True

    def first_state(self, contexts: Sequence[Context | None]) -> PolicyState:
        """``{"hidden": (N, H)}``: ``hidden (H,)`` of a rollout's context, if it has one, else zeros."""
        rows = np.zeros((len(contexts), self.hidden_size), dtype=np.float32)
        for row, context in zip(rows, contexts, strict=True):
            if not context or "hidden" not in context:
                continue
            if np.shape(context["hidden"]) != row.shape:
                raise ShapeError(f"context['hidden'] must have shape {row.shape}, got {np.shape(context['hidden'])}")
            row[...] = context["hidden"]
        return {"hidden": rows}

    def lay_out(self, policy: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        input_map = _lay_out(arrays["cell.input_map.weight"], arrays["cell.input_map.bias"], 3)
        hidden_map = _lay_out(arrays["cell.hidden_map.weight"], arrays["cell.hidden_map.bias"], 3)
        layers = _layers(_arrays_of(arrays, self.last), self.num_parts, False)
        hidden = "identity" if len(layers) == 1 else getattr(policy, self.last).hidden_nonlinearity
        return (input_map, hidden_map), layers, _ACTIVATIONS[hidden]

    def rows(self, laid_out: Any, x: np.ndarray, state: PolicyState, num_rows: int) -> tuple[np.ndarray, PolicyState]:
        maps, layers, activation = laid_out
        h = _next_memories(x, state["hidden"], *maps)
        seen = np.concatenate([h, x], axis=-1) if self.sees_features else h
        outputs = _cut(_mlp_rows(seen, layers, activation), self.num_parts, num_rows)
        return outputs, {**state, "hidden": h.reshape(-1, self.hidden_size)[:num_rows]}

    def tensor_rows(
        self, policy: Any, features: torch.Tensor, state: Mapping[str, Any]
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        hidden = policy.cell(features, state["hidden"])
        return self._through(policy, hidden, features), {**state, "hidden": hidden}

    def steps(
        self, policy: Any, features: torch.Tensor, hidden: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        memories = policy.cell.steps(features, hidden)
        return self._through(policy, memories, features), memories[..., -1, :]

    def outputs(self, policy: Any, features: torch.Tensor) -> torch.Tensor:
        return self._through(policy, policy.cell.sequence(features), features)

    def pure_outputs(self, policy: Any, parameters: Mapping[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        memories = policy.cell.memories(part_of(parameters, "cell"), features)
        last, of_last = getattr(policy, self.last), part_of(parameters, self.last)
        seen = self._seen(memories, features)
        if isinstance(last, MLP):
            return last.outputs(of_last, seen)
        return stacked_linear(seen, of_last["weight"], of_last["bias"])

    def _seen(self, memories: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return torch.cat([memories, features], dim=-1) if self.sees_features else memories

    def _through(self, policy: Any, memories: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        last: nn.Module = getattr(policy, self.last)
        return last(self._seen(memories, features))


# -- in NumPy ----------------------------------------------------------------------------------------------------------


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    # With tanh, since exp(-x) overflows.
    x *= np.float32(0.5)
    np.tanh(x, out=x)
    x += np.float32(1.0)
    x *= np.float32(0.5)
    return x


_ACTIVATIONS: dict[str, Activation] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0, out=x),
    "elu": _elu,
    "sigmoid": _sigmoid,
    "identity": lambda x: x,
}
"""Activations of contiguous arrays; all but elu work in place."""


def _lay_out(weight: np.ndarray, bias: np.ndarray, parts: int = 1) -> Affine:
    """Views of a layer for ``matmul_rows`` on blocks ``(B, R, in)``.

    ``weight (out, in)`` or stacked ``(N, out, in)``; ``bias (out,)`` or ``(N, out)``. With several ``parts`` the output
    is split into equal parts along the first axis, ``(parts, B, R, out / parts)``, so that each part is contiguous.
    """
    *stack, num_out, num_in = weight.shape
    if parts > 1:
        weight = weight.reshape(*stack, parts, num_out // parts, num_in)
        bias = bias.reshape(*stack, parts, 1, num_out // parts)
        if stack:
            return weight.transpose(1, 0, 3, 2), bias.swapaxes(0, 1)
        return weight[:, None].swapaxes(-1, -2), bias[:, None]
    return weight.swapaxes(-1, -2), (bias[:, None] if stack else bias)


def _lay_out_columns(weight: np.ndarray, bias: np.ndarray) -> Affine:
    """Views of a layer for ``matmul_columns``; arguments as for ``_lay_out``."""
    if weight.ndim == 3:
        return weight.transpose(1, 2, 0), bias.T
    return weight[:, :, None], bias[:, None]


def _arrays_of(arrays: Mapping[str, np.ndarray], module: str) -> list[np.ndarray]:
    """The parameters of a module, in order."""
    return [array for name, array in arrays.items() if name.startswith(f"{module}.")]


def _layers(arrays: Sequence[np.ndarray], last_parts: int, by_columns: bool) -> list[Affine]:
    """Layers from ``[weight, bias, weight, bias, ...]``, the last one split into parts."""
    pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
    if by_columns:
        return [_lay_out_columns(weight, bias) for weight, bias in pairs]
    return [*(_lay_out(weight, bias) for weight, bias in pairs[:-1]), _lay_out(*pairs[-1], last_parts)]


def _mlp_rows(x: np.ndarray, layers: Sequence[Affine], activation: Activation) -> np.ndarray:
    """Rows ``(B, R, in)`` through an MLP, or columns ``(in, N)``; ``activation`` between the layers.

    The result of columns is also rows ``(N, out)``, in column-major memory.
    """
    last, by_columns = len(layers) - 1, x.ndim == 2
    product = matmul_columns if by_columns else matmul_rows
    for k, (weight, bias) in enumerate(layers):
        x = product(x, weight)
        x += bias
        if k < last:
            x = activation(x)
    return x.T if by_columns else x


def _cut(x: np.ndarray, num_parts: int, num_rows: int) -> np.ndarray:
    """Rows ``(N, out)`` of blocks ``(B, R, out)``, for each part, without the padding of the last block."""
    if num_parts == 1:
        return x.reshape(-1, x.shape[-1])[:num_rows]
    return x.reshape(num_parts, -1, x.shape[-1])[:, :num_rows]


def _next_memories(x: np.ndarray, hidden: np.ndarray, input_map: Affine, hidden_map: Affine) -> np.ndarray:
    """Next hidden states in blocks of rows ``(B, R, H)``, from ``x (B, R, F)`` and ``hidden (N, H)``."""
    hidden = np.ascontiguousarray(hidden, dtype=np.float32)
    h = hidden[:, None] if x.shape[1] == 1 else block_rows(hidden)
    # Gates come first, (3, B, R, H), so that each is contiguous.
    from_x, from_h = matmul_rows(x, input_map[0]), matmul_rows(h, hidden_map[0])
    from_x += input_map[1]
    from_h += hidden_map[1]
    from_x[:2] += from_h[:2]
    # r, z = sigmoid(W x + U h), n = tanh(W x + r U h), h <- (1 - z) n + z h (as torch.nn.GRU)
    reset, update = _sigmoid(from_x[:2])
    new = np.tanh(from_x[2] + reset * from_h[2])
    return new + update * (h - new)
