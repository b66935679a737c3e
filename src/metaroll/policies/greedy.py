"""A policy that takes the action of the highest value: what learners of action values act by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.policies.acting import NUMPY_ACTIVATIONS, ActingPolicy, mlp_rows
from metaroll.policies.networks import MLP
from metaroll.types import EnvSpec, PolicyInfo, PolicyState

__all__ = ["GreedyQPolicy", "check_discrete"]


def check_discrete(env_spec: EnvSpec, policy: str) -> int:
    """Number of actions.

    Raises:
        TypeError: Actions are not Discrete.
    """
    space = env_spec.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise TypeError(f"{policy} needs a Discrete action space, got {space}")
    return int(space.n)


class GreedyQPolicy(ActingPolicy):
    """Values of all actions by an MLP, and the action of the highest one.

    Args:
        env_spec: Spaces; actions are Discrete.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        dueling: The network gives the value of the observation and the advantages of the actions, whose mean is taken
            off (Wang et al. 2016, arXiv:1511.06581, equation 9; both are outputs of one network).
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
        dueling: bool = False,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        num_actions = check_discrete(spec, type(self).__name__)
        super().__init__(
            spec, PolicyInfo(0, "uniform", parameter_blocks=True, draws=False, runs_on_torch=True), encoder
        )
        self.num_actions, self.dueling = num_actions, bool(dueling)
        self.net = MLP(
            self.feature_dim,
            self.num_actions + self.dueling,
            hidden_sizes,
            hidden_nonlinearity,
            init=init,
            generator=generator,
        )

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Values of all actions, ``(..., num_actions)``, for ``obs (..., obs_dim)``."""
        return self.values_of(self.net(self.features(obs)))

    def values_of(self, outputs: torch.Tensor) -> torch.Tensor:
        """Values ``(..., num_actions)`` from what the network puts out."""
        if not self.dueling:
            return outputs
        advantages = outputs[..., 1:]
        return outputs[..., :1] + advantages - advantages.mean(dim=-1, keepdim=True)

    def pull_values(self, grad: torch.Tensor) -> torch.Tensor:
        """Gradient of what the network puts out, from that ``(..., num_actions)`` of ``values_of``."""
        if not self.dueling:
            return grad
        total = grad.sum(dim=-1, keepdim=True)
        return torch.cat((total, grad - total / self.num_actions), dim=-1)

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
        outputs = x.reshape(-1, self.num_actions + self.dueling)[: len(obs)]
        return outputs[:, int(self.dueling) :].argmax(axis=1), state, {}

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``."""
        return self(obs.to(torch.float32)).argmax(dim=-1), dict(state), {}
