"""A policy without noise: what DDPG and TD3 learn, with exploration around it (``policies.exploration``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from metaroll.policies.acting import NUMPY_ACTIVATIONS, ActingPolicy, check_box, mlp_rows
from metaroll.policies.networks import MLP
from metaroll.policies.scaling import ActionScaling
from metaroll.types import EnvSpec, PolicyInfo, PolicyState

__all__ = ["DeterministicMLPPolicy"]


class DeterministicMLPPolicy(ActingPolicy):
    """``tanh(MLP(obs))``, brought from [-1, 1] to the bounds of the action space.

    An entry without one of its bounds stays in [-1, 1], clipped to the other.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    acts_in_bounds = True

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
        check_box(spec, type(self).__name__)
        super().__init__(spec, PolicyInfo(0, parameter_blocks=True, draws=False, runs_on_torch=True), encoder)
        self.net = MLP(
            self.feature_dim,
            spec.act_dim,
            hidden_sizes,
            hidden_nonlinearity,
            "tanh",
            init=init,
            generator=generator,
        )
        self._scaling = ActionScaling.of_squashed(spec.action_space)
        self.action_bounds = None if self._scaling is None else self._scaling.bounds

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Actions ``(..., act_dim)`` in the policy's own units, [-1, 1], for ``obs (..., obs_dim)``."""
        return self.net(self.features(obs))

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        return self._layers(arrays), NUMPY_ACTIVATIONS[self.net.hidden_nonlinearity]

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; there are no infos."""
        layers, hidden = self._weights(parameters)
        x = mlp_rows(self._rows(obs, parameters), layers, hidden)
        action = np.tanh(x, out=x).reshape(-1, self.act_dim)[: len(obs)]
        return action.copy() if self._scaling is None else self._scaling.scaled(action), state, {}

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``."""
        action = self(obs.to(torch.float32))
        return action if self._scaling is None else self._scaling.scaled_on_torch(action), dict(state), {}
