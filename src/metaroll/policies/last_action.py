"""A policy with its last action as additional input, from which a recurrent policy can infer the dynamics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import array_api_compat.torch as torch_namespace
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from metaroll.checks import check_instance
from metaroll.functional.distributions import ActionDistribution
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.parameters import part_of
from metaroll.policies.scaling import ActionScaling
from metaroll.types import Context, EnvSpec, PolicyState

__all__ = ["LastActionPolicy"]

_STATE = "last_action"


class LastActionPolicy(ActingPolicy):
    """Acts like ``policy`` on ``(obs, last action)``; zeros at the start of an episode.

    The entries of a last action of a Box are within [-1, 1]: clipped, or in the units of a ``policy`` that itself acts
    within the bounds of the space. An action of a Discrete space is one-hot.

    Args:
        policy: Policy on ``policies.normalized.widened_spec(env_spec, act_dim)``, for actions of a Box or a Discrete
            space.
        env_spec: Spec of the environment.
    """

    own_parameters = ()

    def __init__(self, policy: ActingPolicy, env_spec: Any) -> None:
        spec = EnvSpec.from_env(env_spec)
        if not isinstance(spec.action_space, Box | Discrete):
            raise TypeError(f"{type(self).__name__} needs a Box or Discrete action space, got {spec.action_space}")
        check_instance("policy", policy, ActingPolicy, "a policy of metaroll")
        self._discrete = isinstance(spec.action_space, Discrete)
        super().__init__(spec, policy.info)
        if policy.obs_dim != self.obs_dim + self.act_dim:
            raise ValueError(
                f"policy must be built for rows of {self.obs_dim + self.act_dim} numbers (observation, last action), "
                f"got {policy.obs_dim}"
            )
        self.policy = policy
        self.acts_in_bounds = policy.acts_in_bounds
        self._scaling = ActionScaling.of_squashed(spec.action_space) if policy.acts_in_bounds else None

    def with_last_actions(self, obs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        """Inputs of ``policy`` along complete rollouts, ``(..., T, obs_dim + act_dim)``.

        Args:
            obs: Observations ``(..., T, obs_dim)``.
            taken: The action of each step ``(..., T, act_dim)``, integers ``(..., T)`` of a Discrete space.
        """
        seen = self._seen(taken, torch_namespace).to(obs.dtype)
        return torch.cat([obs, torch.cat([torch.zeros_like(seen[..., :1, :]), seen[..., :-1, :]], dim=-2)], dim=-1)

    def forward(self, obs: torch.Tensor, taken: torch.Tensor) -> Any:
        """``policy`` along complete rollouts ``obs (N, T, obs_dim)``; see ``with_last_actions``."""
        return self.policy(self.with_last_actions(obs, taken))

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-densities and entropies ``(N, T)`` along complete rollouts in which ``action`` was taken."""
        return self.policy.evaluate_actions(self.with_last_actions(obs, action), action)

    @property
    def has_densities(self) -> bool:
        """See ``policy``."""
        return self.policy.has_densities

    def action_distribution(
        self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor, taken: torch.Tensor | None = None
    ) -> ActionDistribution:
        """``policy.action_distribution`` along complete rollouts ``obs (..., T, obs_dim)``.

        Args:
            parameters: See ``ActingPolicy``.
            obs: Observations of complete rollouts ``(..., T, obs_dim)``, ``(M, ..., T, obs_dim)`` with stacks.
            taken: The action of each step, as for ``with_last_actions``; the distribution at a step depends only on
                earlier actions.

        Raises:
            TypeError: ``taken`` is missing.
        """
        if taken is None:
            raise TypeError(
                f"{type(self).__name__} needs taken, the actions of complete rollouts (..., T, act_dim), besides obs: "
                "its actions depend on the last one"
            )
        return self.policy.action_distribution(part_of(parameters, "policy"), self.with_last_actions(obs, taken))

    @property
    def has_distributions(self) -> bool:
        """Always false: observations alone do not suffice; ``action_distribution`` also needs the actions taken."""
        return False

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of ``policy``, and no last action yet: ``{"last_action": zeros (N, act_dim)}``."""
        zeros = np.zeros((len(contexts), self.act_dim), dtype=np.float32)
        return {**self.policy.initial_state(contexts, generators, domain_params), _STATE: zeros}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        rows = np.concatenate([np.asarray(obs, dtype=np.float32), state[_STATE]], axis=1)
        action, next_state, infos = self.policy.act(rows, state, noise, deterministic, parameters)
        return action, {**next_state, _STATE: self._last(action)}, infos

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        rows = torch.cat([obs.to(torch.float32), state[_STATE]], dim=1)
        action, following, infos = self.policy.act_on_torch(rows, state, noise, deterministic)
        return action, {**following, _STATE: self._seen(action, torch_namespace).to(torch.float32)}, infos

    def with_actions_taken(self, state: PolicyState, actions: np.ndarray) -> PolicyState:
        """Set the last actions to ``actions (N, act_dim)`` (integers ``(N,)`` for a Discrete space)."""
        return {**self.policy.with_actions_taken(state, actions), _STATE: self._last(actions)}

    def _last(self, actions: np.ndarray) -> np.ndarray:
        """Rows of state ``(N, act_dim)`` after ``actions``."""
        return self._seen(np.asarray(actions), np).astype(np.float32)

    def _seen(self, actions: Any, xp: Any) -> Any:
        """Environment actions as inputs of the policy, ``(..., act_dim)``."""
        if self._discrete:
            return actions[..., None] == xp.arange(self.act_dim, device=actions.device)
        return (actions if self._scaling is None else self._scaling.unscaled(actions, xp)).clip(-1.0, 1.0)
