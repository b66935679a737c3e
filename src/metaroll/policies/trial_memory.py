"""A recurrent policy whose episodes start with the hidden state from earlier episodes in the same task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.errors import ShapeError
from metaroll.policies.acting import ActingPolicy
from metaroll.types import Context, PolicyState

__all__ = ["TrialMemoryPolicy", "with_last_step"]

_LAST_STEP = "told"  # its name in states and contexts


def with_last_step(rows: np.ndarray, last_step: np.ndarray) -> np.ndarray:
    """Rows ``(N, D)`` with ``last_step (N, K)`` as last K entries where these are all 0: at the start of an episode.

    These entries of a trial's observation (last action, reward and end of episode) are 0 in the first row of a single
    episode; in the middle of a trial they are those of the previous episode's last step.
    """
    if not last_step.any():
        return rows
    begins = ~rows[:, -last_step.shape[1] :].any(axis=1)
    rows = rows.copy()
    rows[begins, -last_step.shape[1] :] = last_step[begins]
    return rows


class TrialMemoryPolicy(ActingPolicy):
    """Acts like ``policy`` in the middle of a trial: episodes start with a hidden state and the last step before.

    Observations are those of a ``TrialWrapper`` with one episode per trial, whose last entries (last action, reward and
    end of episode) are 0 at the start. There, ``policy`` gets those of the previous episode's last step.

    Args:
        policy: A recurrent policy whose initial state may be given in a rollout's context (``GRUGaussianPolicy``,
            ``CategoricalGRUPolicy``, or one of these in a ``NormalizedPolicy``).
        num_told: Number of these entries (K).

    Attributes:
        memory: Rows of ``policy``'s state by name, ``{"hidden": (H,)}``, and the last step, ``"told" (K,)``; empty
            before any episode in its task. It is part of the context of a rollout's plan.
    """

    own_parameters = ()

    def __init__(self, policy: ActingPolicy, num_told: int) -> None:
        if not isinstance(policy, ActingPolicy) or not policy.info.recurrent:
            raise TypeError(f"policy must be a recurrent policy of metaroll, got {type(policy).__name__}")
        super().__init__(policy.env_spec, policy.info)
        self.num_told = check_whole("num_told", num_told)
        if self.num_told > self.obs_dim:
            raise ValueError(f"num_told must be at most the width of an observation, {self.obs_dim}, got {num_told}")
        self.policy = policy
        self.memory: dict[str, np.ndarray] = {}

    def remember(self, state: Mapping[str, np.ndarray], last_step: np.ndarray) -> None:
        """Set the memory that episodes start with.

        Args:
            state: Rows of ``policy``'s state, ``(H,)`` each.
            last_step: Last action, reward and end of episode ``(K,)``.
        """
        self.memory = {**{name: np.array(row) for name, row in state.items()}, _LAST_STEP: np.array(last_step)}

    def plan_context(self) -> dict[str, np.ndarray] | None:
        """The memory; ``None`` if it is empty."""
        return {name: row.copy() for name, row in self.memory.items()} or None

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of ``policy``, and the last step of the previous episode, ``{"told": (N, K)}``."""
        last_steps = np.zeros((len(contexts), self.num_told), dtype=np.float64)
        for row, context in zip(last_steps, contexts, strict=True):
            if not context or _LAST_STEP not in context:
                continue
            if np.shape(context[_LAST_STEP]) != row.shape:
                raise ShapeError(f"context['told'] must have shape {row.shape}, got {np.shape(context[_LAST_STEP])}")
            row[...] = context[_LAST_STEP]
        return {**self.policy.initial_state(contexts, generators, domain_params), _LAST_STEP: last_steps}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        last_step = state[_LAST_STEP]
        obs = with_last_step(obs, last_step)
        inner = {name: rows for name, rows in state.items() if name != _LAST_STEP}
        action, following, infos = self.policy.act(obs, inner, noise, deterministic, parameters)
        return action, {**following, _LAST_STEP: np.zeros_like(last_step)}, infos

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        last_step = state[_LAST_STEP].to(obs.dtype)
        begins = ~obs[:, -self.num_told :].any(dim=1, keepdim=True)
        last = torch.where(begins, last_step, obs[:, -self.num_told :])
        obs = torch.cat([obs[:, : -self.num_told], last], dim=1)
        inner = {name: rows for name, rows in state.items() if name != _LAST_STEP}
        action, following, infos = self.policy.act_on_torch(obs, inner, noise, deterministic)
        return action, {**following, _LAST_STEP: torch.zeros_like(state[_LAST_STEP])}, infos

    def with_actions_taken(self, state: PolicyState, actions: np.ndarray) -> PolicyState:
        """See ``policy``."""
        inner = {name: rows for name, rows in state.items() if name != _LAST_STEP}
        return {**self.policy.with_actions_taken(inner, actions), _LAST_STEP: state[_LAST_STEP]}
