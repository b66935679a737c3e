"""A policy with normalized observations, and actions scaled to the action space of its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import array_api_compat.torch as torch_namespace
import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.checks import check_number, domain_row
from metaroll.functional.distributions import ActionDistribution
from metaroll.functional.running_moments import Moments, no_moments
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.parameters import broadcast_over, part_of
from metaroll.policies.scaling import ActionScaling
from metaroll.types import Context, EnvSpec, PolicyState

__all__ = ["NormalizedPolicy", "widened_spec"]

_TINY = 1e-8


def widened_spec(env_spec: EnvSpec, num_more: int) -> EnvSpec:
    """``env_spec`` with flat observations with ``num_more`` further entries, for a policy with additional inputs."""
    width = env_spec.obs_dim + num_more
    space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)
    return EnvSpec(space, env_spec.action_space, env_spec.max_episode_length)


class NormalizedPolicy(ActingPolicy):
    """Acts like ``policy`` on ``clip((obs - mean) / std, -c, c)``, with actions scaled to the action space.

    Mean and standard deviation are parameters without gradient: workers and snapshots receive them with the others, and
    evaluations do not update them. A learner sets them (``set_observation_moments``).

    Entries of actions with two bounds are mapped from [-1, 1] to these, and all entries are clipped to their bounds; in
    infos, ``raw_action`` is the action of ``policy``, which densities refer to. Actions without bounds, and choices,
    are unchanged.

    A privileged policy observes ``domain_params`` in addition to each observation; ``obs`` above then is both,
    concatenated. The engine reads them when a rollout starts, from the environment, or else from the plan.

    Args:
        policy: Any policy of metaroll.
        normalize_observations: Whether to normalize observations.
        scale_actions: Whether to scale and clip actions.
        clip_observations: The bound c.
        domain_params: Names of the domain parameters that a privileged policy observes. ``policy`` then is built for
            ``widened_spec(env_spec, len(domain_params))``.
        env_spec: Spec of the environment; needed with ``domain_params`` only.
    """

    def __init__(
        self,
        policy: ActingPolicy,
        normalize_observations: bool = True,
        scale_actions: bool = True,
        clip_observations: float = 10.0,
        *,
        domain_params: Sequence[str] = (),
        env_spec: Any = None,
    ) -> None:
        if not isinstance(policy, ActingPolicy):
            raise TypeError(f"policy must be a policy of metaroll, got {type(policy).__name__}")
        if domain_params and env_spec is None:
            raise ValueError(
                "env_spec is missing: a policy that observes domain_params is built for wider observations"
            )
        spec = EnvSpec.from_env(policy.env_spec if env_spec is None else env_spec)
        takes_domain_params = bool(domain_params) or policy.info.takes_domain_params
        super().__init__(spec, replace(policy.info, takes_domain_params=takes_domain_params))
        self.domain_params = tuple(domain_params)
        self.input_dim = self.obs_dim + len(self.domain_params)
        """Width of the inputs of ``policy``: an observation, and the domain parameters."""
        if policy.obs_dim != self.input_dim:
            raise ValueError(
                f"policy must be built for rows of {self.input_dim} numbers (observation, domain_params), got "
                f"{policy.obs_dim}: see widened_spec"
            )
        self.policy = policy
        self.normalize_observations, self.scale_actions = bool(normalize_observations), bool(scale_actions)
        self.clip_observations = check_number("clip_observations", clip_observations, 0.0, above_low=True)
        self.own_parameters = ("obs_mean", "obs_scale") if self.normalize_observations else ()
        if self.normalize_observations:
            self.obs_mean = nn.Parameter(torch.zeros(self.input_dim), requires_grad=False)
            self.obs_scale = nn.Parameter(torch.ones(self.input_dim), requires_grad=False)
        scales = scale_actions and not policy.acts_in_bounds
        self._scaling = ActionScaling.of(policy.env_spec.action_space) if scales else None
        self.action_bounds = None if self._scaling is None else self._scaling.bounds

    def set_observation_moments(self, mean: np.ndarray, std: np.ndarray) -> None:
        """Set ``mean`` and ``std (input_dim,)`` of the normalization; entries that never varied are only centered."""
        with torch.no_grad():
            self.obs_mean.copy_(torch.from_numpy(np.asarray(mean, dtype=np.float32)))
            scale = np.where(std > _TINY, 1.0 / np.maximum(std, _TINY), 1.0)
            self.obs_scale.copy_(torch.from_numpy(scale.astype(np.float32)))

    def observation_moments(self, num_rows: int) -> Moments:
        """The moments of the normalization, with the weight of ``num_rows`` rows; of no rows if they were never set."""
        if not self.normalize_observations:
            return no_moments(self.input_dim)
        mean, scale = (part.detach().cpu().numpy().astype(np.float64) for part in (self.obs_mean, self.obs_scale))
        if not mean.any() and (scale == 1.0).all():
            return no_moments(self.input_dim)
        return Moments(num_rows, mean, num_rows / np.square(scale))

    def normalized(self, obs: np.ndarray) -> np.ndarray:
        """Normalized rows ``(..., input_dim)`` for ``policy``, float32, in new memory."""
        if not self.normalize_observations:
            return np.array(obs, dtype=np.float32)
        mean, scale = self.obs_mean.detach().cpu().numpy(), self.obs_scale.detach().cpu().numpy()
        return _normalize(obs, mean, scale, self.clip_observations)

    def forward(self, obs: torch.Tensor, *more: Any) -> Any:
        """``policy`` on normalized rows ``(..., input_dim)``."""
        if self.normalize_observations:
            clip = self.clip_observations
            obs = ((obs - self.obs_mean) * self.obs_scale).clamp(-clip, clip)
        return self.policy(obs, *more)

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> ActionDistribution:
        """The distribution of ``policy`` on normalized ``obs (..., input_dim)``, of actions before scaling."""
        if self.normalize_observations:
            mean, scale = (broadcast_over(parameters[name], obs) for name in ("obs_mean", "obs_scale"))
            obs = ((obs - mean) * scale).clamp(-self.clip_observations, self.clip_observations)
        return self.policy.action_distribution(part_of(parameters, "policy"), obs)

    @property
    def has_distributions(self) -> bool:
        """See ``policy``."""
        return self.policy.has_distributions

    def unscaled(self, actions: np.ndarray) -> np.ndarray:
        """Flat environment actions ``(..., act_dim)`` in the units of ``policy``, float32."""
        return np.asarray(actions, dtype=np.float32) if self._scaling is None else self._scaling.unscaled(actions)

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of ``policy``, and the domain parameters of a privileged one: ``{"domain": (N, D)}``.

        Args:
            contexts: See ``types.Policy``.
            generators: See ``types.Policy``.
            domain_params: Domain parameters of each rollout, if known.

        Raises:
            DataError: A domain parameter that ``policy`` observes is unknown.
        """
        state = self.policy.initial_state(contexts, generators, domain_params)
        if not self.domain_params:
            return state
        params = [None] * len(contexts) if domain_params is None else domain_params
        rows = [domain_row(self.domain_params, each, "the rollout's environment") for each in params]
        return {**state, "domain": np.array(rows, dtype=np.float32)}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``, and ``raw_action`` where actions are scaled."""
        obs, inner = self._seen(obs, state, parameters)
        action, state, infos = self.policy.act(obs, state, noise, deterministic, inner)
        if self._scaling is None:
            return action, state, infos
        return self._scaling.scaled(action), state, {**infos, "raw_action": action}

    def _seen(
        self, obs: np.ndarray, state: PolicyState, parameters: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Inputs of ``policy``: rows, and its parameters."""
        moments, inner = self._split(parameters, len(obs))
        if self.domain_params:
            obs = np.concatenate([np.asarray(obs, dtype=np.float32), state["domain"]], axis=1)
        if moments:
            mean, scale = moments
            obs = _normalize(obs, mean, scale, self.clip_observations)
        return obs, inner

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        obs = obs.to(torch.float32)
        if self.domain_params:
            obs = torch.cat([obs, state["domain"]], dim=1)
        if self.normalize_observations:
            clip = self.clip_observations
            obs = ((obs - self.obs_mean) * self.obs_scale).clamp(-clip, clip)
        action, following, infos = self.policy.act_on_torch(obs, state, noise, deterministic)
        if self._scaling is None:
            return action, following, infos
        return self._scaling.scaled(action, torch_namespace), following, {**infos, "raw_action": action}

    def with_actions_taken(self, state: PolicyState, actions: np.ndarray) -> PolicyState:
        """See ``policy``, in its units; ``actions (N, act_dim)``."""
        return self.policy.with_actions_taken(state, actions if self._scaling is None else self.unscaled(actions))


def _normalize(obs: np.ndarray, mean: np.ndarray, scale: np.ndarray, clip: float) -> np.ndarray:
    # Elementwise, so that a row's bits do not depend on the other rows.
    rows = np.subtract(obs, mean, dtype=np.float32, casting="same_kind")
    rows *= scale
    np.maximum(rows, np.float32(-clip), out=rows)
    np.minimum(rows, np.float32(clip), out=rows)
    return rows
