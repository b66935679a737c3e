"""A policy without noise: what DDPG and TD3 learn, with exploration around it (``policies.exploration``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from metaroll.policies.acting import ActingPolicy
from metaroll.policies.bodies import Perceptron
from metaroll.policies.heads import DeterministicHead
from metaroll.policies.networks import MLP
from metaroll.types import EnvSpec

__all__ = ["DeterministicMLPPolicy"]


class DeterministicMLPPolicy(ActingPolicy):
    """``tanh(MLP(obs))``, brought from [-1, 1] to the bounds of the action space.

    An entry without one of its bounds stays in [-1, 1], clipped to the other. There are no infos.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (256, 256),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        head = DeterministicHead.of(spec, type(self).__name__)
        super().__init__(spec, encoder=encoder, body=Perceptron(), head=head)
        self.net = MLP(
            self.feature_dim,
            head.width,
            hidden_sizes,
            hidden_nonlinearity,
            "tanh",
            init=init,
            generator=generator,
        )
        self.action_bounds = None if head.scaling is None else head.scaling.bounds

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Actions ``(..., act_dim)`` in the policy's own units, [-1, 1], for ``obs (..., obs_dim)``."""
        return self.net(self.features(obs))
