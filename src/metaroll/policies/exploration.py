"""Noise that has a memory, around a policy that acts without any."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.checks import check_number
from metaroll.policies.acting import ActingPolicy, check_box
from metaroll.policies.parameters import ParameterLayout
from metaroll.types import Context, PolicyState

__all__ = ["OrnsteinUhlenbeckPolicy"]

_STATE = "ornstein_uhlenbeck"


class OrnsteinUhlenbeckPolicy(ActingPolicy):
    """The mean action of ``policy`` plus an Ornstein-Uhlenbeck process, clipped to the bounds of the action space.

    As in DDPG (Lillicrap et al. 2016, arXiv:1509.02971, section 7), the process ``x`` of each entry starts at 0 and
    goes on with every step of the rollout: ``x <- x + theta (mean - x) dt + sigma sqrt(dt) n``, ``n`` being standard
    normal. Rollouts that act deterministically get no noise.

    Args:
        policy: Any policy of metaroll for a Box of actions; its parameters are those of this policy.
        sigma: Scale of the noise, in units of the action.
        theta: How fast it returns to ``mean``, per unit of time.
        mean: Where it returns to.
        dt: Length of a step in units of time.

    Raises:
        TypeError: ``policy`` is none of metaroll, or its actions are no Box.
    """

    acts_in_bounds = True

    def __init__(
        self, policy: ActingPolicy, sigma: float = 0.3, theta: float = 0.15, mean: float = 0.0, dt: float = 1e-2
    ) -> None:
        if not isinstance(policy, ActingPolicy):
            raise TypeError(f"policy must be a policy of metaroll, got {type(policy).__name__}")
        check_box(policy.env_spec, type(self).__name__)
        act_dim = policy.act_dim
        super().__init__(policy.env_spec, replace(policy.info, noise_dim=act_dim, noise_kind="normal"))
        self.policy = policy
        self.sigma, self.theta = check_number("sigma", sigma, 0.0), check_number("theta", theta, 0.0)
        self.mean, self.dt = check_number("mean", mean, -math.inf), check_number("dt", dt, 0.0, above_low=True)

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of ``policy``, and the processes at 0: ``{"ornstein_uhlenbeck": zeros (N, act_dim)}``."""
        nothing = np.zeros((len(contexts), self.act_dim), dtype=np.float32)
        return {**self.policy.initial_state(contexts, generators, domain_params), _STATE: nothing}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        nothing = np.zeros((len(obs), self.policy.noise_dim), dtype=np.float32)
        action, next_state, infos = self.policy.act(obs, state, nothing, True, parameters)
        pull, kick = np.float32(self.theta * self.dt), np.float32(self.sigma * np.sqrt(self.dt))
        drawn = np.asarray(noise, dtype=np.float32)
        process = state[_STATE] + pull * (np.float32(self.mean) - state[_STATE]) + kick * drawn
        added = np.where(np.reshape(deterministic, (-1, 1)), np.float32(0.0), process)
        space = self.env_spec.action_space
        if isinstance(space, Box):
            action = np.clip(action + added, space.low.reshape(-1), space.high.reshape(-1))
        return action, {**next_state, _STATE: process}, infos

    def acting_parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters of ``policy`` within this module."""
        return tuple(f"policy.{name}" for name in self.policy.acting_parameter_names())

    def parameter_layout(self) -> ParameterLayout:
        """Layout of ``acting_parameter_names``."""
        if self._layout is None:
            self._layout = ParameterLayout.of(self, self.acting_parameter_names())
        return self._layout

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        return arrays
