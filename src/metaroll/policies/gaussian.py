"""Feed-forward policies: Gaussian, tanh-squashed Gaussian, and categorical for Discrete and MultiDiscrete actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from metaroll.policies.acting import ActingPolicy
from metaroll.policies.bodies import Perceptron
from metaroll.policies.heads import LOG_STD_MAX, LOG_STD_MIN, CategoricalHead, GaussianHead, SquashedHead
from metaroll.policies.networks import MLP, check_widths
from metaroll.seeding import as_torch_generator
from metaroll.types import EnvSpec

__all__ = [
    "LAST_GAIN",
    "CategoricalMLPPolicy",
    "GaussianMLPPolicy",
    "GaussianSample",
    "TanhGaussianMLPPolicy",
    "TanhGaussianSample",
    "draw_normal",
]

LAST_GAIN = 0.01
"""Gain of the output layer with orthogonal weights: the first actions hardly depend on the observation."""


class GaussianSample(NamedTuple):
    """A reparameterized sample with all quantities for losses, differentiable.

    ``action``, ``mean``, ``log_std``, ``pre_tanh`` have shape ``(..., act_dim)``, ``log_prob`` ``(..., 1)``. ``mean``
    and ``log_std`` are those of the Gaussian before squashing; without squashing ``pre_tanh`` is the action.
    """

    action: torch.Tensor
    mean: torch.Tensor
    log_std: torch.Tensor
    log_prob: torch.Tensor
    pre_tanh: torch.Tensor


TanhGaussianSample = GaussianSample
"""The result of ``TanhGaussianMLPPolicy``."""


def draw_normal(like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Standard normal numbers of the shape of ``like``, drawn on the generator's device (``None``: fresh entropy)."""
    generator = as_torch_generator(generator)
    drawn = torch.randn(like.shape, generator=generator, device=generator.device, dtype=like.dtype)
    return drawn.to(like.device)


class _Sampling:
    """Draws from a Gaussian, for policies whose head is one, squashed or not."""

    def distribution(self: Any, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and (clamped) log standard deviation, both ``(..., act_dim)``; before tanh for a squashed Gaussian.

        Not a hook: overriding it changes ``forward`` only, not actions and densities. A policy that acts differently
        has its own body or head, or overrides ``act``.
        """
        return self._head.moments(*self._for_head(self.net(self.features(obs))))

    def forward(
        self: Any, obs: torch.Tensor, noise: torch.Tensor | None = None, generator: torch.Generator | None = None
    ) -> GaussianSample:
        """Sample an action for ``obs (..., obs_dim)``: ``mean + std * noise``, perhaps squashed.

        Args:
            obs: Observations.
            noise: Standard normal numbers ``(..., act_dim)``; ``None``: from ``generator``.
            generator: ``None`` means fresh entropy.

        Returns:
            The sample; ``log_prob`` is the density of the action in the bounds of the space.
        """
        # u = mu(s) + sigma(s) n, a = u or tanh(u) scaled to the bounds, (..., act_dim); ln pi(a | s), (..., 1)
        mean, log_std = self.distribution(obs)
        noise = draw_normal(mean, generator) if noise is None else noise
        normal = mean + log_std.exp() * noise
        action, log_prob = self._head.drawn(normal, mean, log_std)
        return GaussianSample(action, mean, log_std, log_prob[..., None], normal)


class GaussianMLPPolicy(_Sampling, ActingPolicy):
    """Diagonal Gaussian with the mean from an MLP and a state-independent parameter vector ``log_std``.

    Infos are ``mean`` and ``log_std``.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        output_nonlinearity: See ``MLP``.
        learn_std: Whether ``log_std`` is trained.
        init_std: Initial standard deviation.
        min_std: Lower bound of the standard deviation, applied wherever it is used (also after adaptation).
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (64, 64),
        hidden_nonlinearity: str | Callable[..., Any] | None = "tanh",
        output_nonlinearity: str | Callable[..., Any] | None = None,
        learn_std: bool = True,
        init_std: float = 1.0,
        min_std: float = 1e-6,
        *,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = GaussianHead.of(spec, type(self).__name__, init_std, min_std)
        hidden_sizes = check_widths("hidden_sizes", hidden_sizes)
        body = Perceptron.of((spec.obs_dim, *hidden_sizes, head.width), encoder)
        super().__init__(spec, encoder=encoder, body=body, head=head)
        self.net = MLP(
            self.feature_dim,
            head.width,
            hidden_sizes,
            hidden_nonlinearity,
            output_nonlinearity,
            init=init,
            last_gain=LAST_GAIN,
            generator=generator,
        )
        self.log_std = nn.Parameter(torch.full((head.width,), math.log(init_std)), requires_grad=learn_std)

    @property
    def min_log_std(self: Any) -> float:
        """Lower bound of ``log_std``."""
        return self._head.min_log_std


class TanhGaussianMLPPolicy(_Sampling, ActingPolicy):
    """``tanh`` of a diagonal Gaussian whose mean and log standard deviation are both outputs of one MLP.

    Actions are within the bounds of the action space: [-1, 1] is mapped to them. An entry without one of its bounds
    stays in [-1, 1], clipped to the other. Infos are ``mean``, the deterministic action, and ``log_std`` before tanh.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``; with ``"oyster"`` the last layer lies within 1e-3.
        log_std_bounds: Bounds that ``log_std`` is clamped to.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (300, 300, 300),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        log_std_bounds: tuple[float, float] = (LOG_STD_MIN, LOG_STD_MAX),
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = SquashedHead.of(spec, type(self).__name__, log_std_bounds)
        super().__init__(spec, encoder=encoder, body=Perceptron(head.num_parts), head=head)
        self.net = MLP(
            self.feature_dim,
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


class CategoricalMLPPolicy(ActingPolicy):
    """Categorical policy for a Discrete space, with probabilities ``softmax(MLP(obs))``.

    In a MultiDiscrete space the choices are independent, each with its own part of the network's output. Noise is one
    uniform number per row and choice, mapped to the choice by the inverse distribution function. Actions are indices 0
    to n - 1; the ``start`` of the space is added on the environment's side. The info is ``prob (N, num_actions)``; the
    deterministic action is the likeliest one.

    Args:
        env_spec: Spaces; actions are Discrete or MultiDiscrete.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (32, 32),
        hidden_nonlinearity: str | Callable[..., Any] | None = "tanh",
        *,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = CategoricalHead.of(spec, type(self).__name__, "GaussianMLPPolicy")
        hidden_sizes = check_widths("hidden_sizes", hidden_sizes)
        body = Perceptron.of((spec.obs_dim, *hidden_sizes, head.width), encoder)
        super().__init__(spec, encoder=encoder, body=body, head=head)
        self.net = MLP(
            self.feature_dim,
            head.width,
            hidden_sizes,
            hidden_nonlinearity,
            init=init,
            last_gain=LAST_GAIN,
            generator=generator,
        )

    def forward(self: Any, obs: torch.Tensor) -> torch.Tensor:
        """Log-probabilities ``(..., num_actions)``; concatenated for several choices."""
        return self._head.log_probs(self.net(self.features(obs)))
