"""Recurrent policies: a GRU cell made of linear operations, so that parameters can be stacked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from metaroll.checks import check_whole
from metaroll.errors import ShapeError
from metaroll.functional.gradients.recurrent import gru_memories
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.bodies import Recurrent
from metaroll.policies.gaussian import LAST_GAIN
from metaroll.policies.heads import LOG_STD_MAX, LOG_STD_MIN, CategoricalHead, GaussianHead, SquashedHead
from metaroll.policies.networks import MLP, empty_linear, initialize_linear
from metaroll.policies.parameters import stacked_linear
from metaroll.seeding import as_torch_generator
from metaroll.types import EnvSpec

__all__ = [
    "CategoricalGRUOutput",
    "CategoricalGRUPolicy",
    "GRUCell",
    "GRUCritic",
    "GRUGaussianPolicy",
    "GRUOutput",
    "RecurrentCritic",
    "TanhGaussianGRUPolicy",
]


class GRUOutput(NamedTuple):
    """``mean (..., T, act_dim)``, ``log_std (..., T, act_dim)`` and the last ``hidden (..., H)``."""

    mean: torch.Tensor
    log_std: torch.Tensor
    hidden: torch.Tensor


class CategoricalGRUOutput(NamedTuple):
    """``log_probs (..., T, num_actions)`` and the last ``hidden (..., H)``."""

    log_probs: torch.Tensor
    hidden: torch.Tensor


class GRUCell(nn.Module):
    """Gated recurrent unit (Cho et al. 2014, arXiv:1406.1078) from linear operations.

    ``r, z = sigmoid(W x + b + U h + c)``, ``n = tanh(W x + b + r (U h + c))``, ``h' = (1 - z) n + z h``; gates are
    stacked in the order r, z, n, as in ``torch.nn.GRUCell`` (for which ``torch.func.vmap`` has no rule).

    Args:
        input_size: Width of the input.
        hidden_size: Width H of the hidden state.
        init: See ``initialize_linear``.
        generator: Source of the initial weights.
    """

    def __init__(self, input_size: int, hidden_size: int, *, init: str, generator: torch.Generator) -> None:
        super().__init__()
        self.input_map = empty_linear(input_size, 3 * hidden_size)
        self.hidden_map = empty_linear(hidden_size, 3 * hidden_size)
        generator = as_torch_generator(generator)
        initialize_linear(self.input_map, generator, init, heads=3)
        initialize_linear(self.hidden_map, generator, init, heads=3)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Next hidden state ``(..., H)`` for ``x (..., input_size)`` and ``hidden (..., H)``."""
        return _gated(self.input_map(x), self.hidden_map(hidden), hidden)

    def memories(self, parameters: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """``steps`` from a zero hidden state as a pure function of ``parameters``, of one cell or stacks of M.

        Args:
            parameters: By name, as in ``named_parameters``.
            x: Sequences ``(..., T, input_size)``, ``(M, ..., T, input_size)`` with stacks.
        """
        from_x = stacked_linear(x, parameters["input_map.weight"], parameters["input_map.bias"])
        weight, bias = parameters["hidden_map.weight"], parameters["hidden_map.bias"]
        memory = x.new_zeros(*x.shape[:-2], weight.shape[-1])
        memories = []
        for now in from_x.unbind(-2):
            memory = _gated(now, stacked_linear(memory, weight, bias), memory)
            memories.append(memory)
        return torch.stack(memories, dim=-2)

    def steps(self, x: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states ``(..., T, H)`` along sequences ``x (..., T, input_size)``, from ``hidden`` (``None``: 0)."""
        memory = x.new_zeros(*x.shape[:-2], self.hidden_map.in_features) if hidden is None else hidden
        memories = []
        for t in range(x.shape[-2]):
            memory = self(x[..., t, :], memory)
            memories.append(memory)
        return torch.stack(memories, dim=-2)

    def sequence(self, x: torch.Tensor) -> torch.Tensor:
        """Hidden states ``(N, T, H)`` along sequences ``x (N, T, input_size)``, from a zero hidden state.

        With torch's fused kernel, many times faster than step by step; for ``torch.func.vmap`` use ``forward``.
        """
        maps = (self.input_map, self.hidden_map)
        weights = [*(m.weight for m in maps), *(m.bias for m in maps)]
        hidden = x.new_zeros(1, len(x), self.hidden_map.in_features)
        return torch.gru(x, hidden, weights, True, 1, 0.0, False, False, True)[0]

    def segments(self, x: torch.Tensor, keep: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states ``(T, N, H)`` along segments ``x (T, N, input_size)`` (``gru_memories``).

        Args:
            x: Inputs.
            keep: 0 where an episode begins, else 1, ``(T, N, 1)``.
            hidden: Previous hidden states, ``(N, H)``; ``None``: zeros.
        """
        before = x.new_zeros(x.shape[1], self.hidden_map.in_features) if hidden is None else hidden
        return gru_memories(self.input_map(x), keep, before, self.hidden_map.weight, self.hidden_map.bias)


class RecurrentCritic(nn.Module, ABC):
    """A recurrent critic, called with complete rollouts: ``critic(inputs (N, T, D)) -> (N, T, 1)``."""

    @abstractmethod
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Values ``(N, T, 1)`` along rollouts ``inputs (N, T, D)``, from a zero hidden state."""


class GRUCritic(RecurrentCritic):
    """A value function that is linear in the hidden state of a GRU, for learners that train on complete rollouts.

    Args:
        input_size: Width D of its inputs.
        hidden_size: Width H of the hidden state.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int = 64,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_whole("input_size", input_size)
        self.hidden_size = check_whole("hidden_size", hidden_size)
        generator = as_torch_generator(generator)
        self.cell = GRUCell(self.input_size, self.hidden_size, init=init, generator=generator)
        self.head = empty_linear(self.hidden_size, 1)
        initialize_linear(self.head, generator, init, last=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Values ``(N, T, 1)`` along rollouts ``inputs (N, T, D)``, from a zero hidden state.

        Raises:
            ShapeError: ``inputs`` have another shape.
        """
        if inputs.ndim != 3 or inputs.shape[-1] != self.input_size:
            raise ShapeError(f"inputs must have shape (N, T, {self.input_size}), got {tuple(inputs.shape)}")
        return self.head(self.cell.sequence(inputs))


def _gated(from_x: torch.Tensor, from_h: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Next hidden state ``(..., H)``, from both maps ``(..., 3 H)`` and the current one."""
    x_r, x_z, x_n = from_x.chunk(3, dim=-1)
    h_r, h_z, h_n = from_h.chunk(3, dim=-1)
    reset, update = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    new = torch.tanh(x_n + reset * h_n)
    return new + update * (hidden - new)


class _RecurrentGaussian:
    """A Gaussian along sequences, for recurrent policies with a Gaussian head, squashed or not."""

    def forward(self: Any, obs: torch.Tensor, hidden: torch.Tensor | None = None) -> GRUOutput:
        """Run over sequences ``obs (..., T, obs_dim)`` from ``hidden (..., H)`` (``None``: zeros).

        The result is the Gaussian before squashing.
        """
        outputs, last = self._body.steps(self, self.features(obs), hidden)
        mean, log_std = self._head.moments(*self._for_head(outputs))
        return GRUOutput(mean, log_std, last)


class GRUGaussianPolicy(_RecurrentGaussian, ActingPolicy):
    """Diagonal Gaussian with a mean that is linear in a GRU's hidden state; the state is ``{"hidden": (N, H)}``.

    Infos are ``mean`` and ``log_std``.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_size: Width H of the hidden state.
        learn_std: Whether ``log_std`` is trained.
        init_std: Initial standard deviation.
        min_std: Lower bound of the standard deviation.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_size: int = 64,
        learn_std: bool = True,
        init_std: float = 1.0,
        min_std: float = 1e-6,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = GaussianHead.of(spec, type(self).__name__, init_std, min_std)
        size = check_whole("hidden_size", hidden_size)
        super().__init__(spec, body=Recurrent(size), head=head)
        self.hidden_size = size
        self.cell, self.head = _networks(self.feature_dim, size, head.width, init, generator)
        self.log_std = nn.Parameter(torch.full((head.width,), math.log(init_std)), requires_grad=learn_std)

    @property
    def min_log_std(self: Any) -> float:
        """Lower bound of ``log_std``."""
        return self._head.min_log_std


class TanhGaussianGRUPolicy(_RecurrentGaussian, ActingPolicy):
    """``tanh`` of a diagonal Gaussian, with mean and deviation by an MLP on a GRU's hidden state and the observation.

    It acts within the bounds of the action space, with the infos of a ``TanhGaussianMLPPolicy``. The hidden state is
    updated with an observation before the MLP gets both, concatenated. The state is ``{"hidden": (N, H)}``.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_size: Width H of the hidden state.
        hidden_sizes: Widths of the hidden layers of the MLP.
        hidden_nonlinearity: Their activation, see ``MLP``.
        init: See ``initialize_linear``.
        log_std_bounds: Bounds that ``log_std`` is clamped to.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_size: int = 64,
        hidden_sizes: Sequence[int] = (64,),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        log_std_bounds: tuple[float, float] = (LOG_STD_MIN, LOG_STD_MAX),
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = SquashedHead.of(spec, type(self).__name__, log_std_bounds)
        size = check_whole("hidden_size", hidden_size)
        body = Recurrent(hidden_size=size, last="net", sees_features=True, num_parts=head.num_parts)
        super().__init__(spec, body=body, head=head)
        self.hidden_size = size
        generator = as_torch_generator(generator)
        self.cell = GRUCell(self.feature_dim, size, init=init, generator=generator)
        self.net = MLP(
            size + self.feature_dim,
            head.width,
            hidden_sizes,
            hidden_nonlinearity,
            init=init,
            output_heads=head.num_parts,
            last_bound=1e-3,
            generator=generator,
        )
        self.action_bounds = None if head.scaling is None else head.scaling.bounds

    @property
    def log_std_bounds(self: Any) -> tuple[float, float]:
        """Bounds that ``log_std`` is clamped to."""
        return self._head.log_std_bounds


class CategoricalGRUPolicy(ActingPolicy):
    """Categorical policy with logits that are linear in a GRU's hidden state; the state is ``{"hidden": (N, H)}``.

    Actions, infos, noise and several choices (MultiDiscrete) are those of ``CategoricalMLPPolicy``.

    Args:
        env_spec: Spaces; actions are Discrete or MultiDiscrete.
        hidden_size: Width H of the hidden state.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_size: int = 64,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = CategoricalHead.of(spec, type(self).__name__, "GRUGaussianPolicy")
        size = check_whole("hidden_size", hidden_size)
        super().__init__(spec, body=Recurrent(size), head=head)
        self.hidden_size = size
        self.cell, self.head = _networks(self.feature_dim, size, head.width, init, generator)

    def forward(self: Any, obs: torch.Tensor, hidden: torch.Tensor | None = None) -> CategoricalGRUOutput:
        """Run over sequences ``obs (..., T, obs_dim)`` from ``hidden (..., H)`` (``None``: zeros)."""
        outputs, last = self._body.steps(self, self.features(obs), hidden)
        return CategoricalGRUOutput(self._head.log_probs(outputs), last)


def _networks(
    num_in: int, hidden_size: int, num_out: int, init: str, generator: torch.Generator | None
) -> tuple[GRUCell, nn.Linear]:
    """The cell, and the linear map from its hidden state to the outputs."""
    generator = as_torch_generator(generator)
    cell = GRUCell(num_in, hidden_size, init=init, generator=generator)
    head = empty_linear(hidden_size, num_out)
    initialize_linear(head, generator, init, last=True, last_gain=LAST_GAIN)
    return cell, head
