"""A policy with memory that begins an episode with what it remembers of earlier episodes in the same task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.errors import ShapeError
from metaroll.policies.acting import ActingPolicy
from metaroll.types import Context, PolicyState

__all__ = ["TrialMemoryPolicy", "told_in_place"]

_TOLD = "told"


def told_in_place(rows: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Rows ``(N, D)`` with ``told (N, K)`` as their last K entries, where these are all 0: at the start of an episode.

    What a trial tells beside an observation (last action, reward and ending) is 0 in the first row of an episode by
    itself; in the middle of a trial it is what the episode before ended with.
    """
    if not told.any():
        return rows
    begins = ~rows[:, -told.shape[1] :].any(axis=1)
    rows = rows.copy()
    rows[begins, -told.shape[1] :] = told[begins]
    return rows


class TrialMemoryPolicy(ActingPolicy):
    """Acts as ``policy`` does in the middle of a trial: an episode begins with a memory, and with how the last ended.

    Observations are those of a ``TrialWrapper`` with one episode per trial, whose last entries (last action, reward and
    ending) are 0 when it begins. ``policy`` sees there what the episode before ended with.

    Args:
        policy: A recurrent policy, of which a rollout's context may name the first rows of state
            (``GRUGaussianPolicy``, ``CategoricalGRUPolicy``, or one of these in a ``NormalizedPolicy``).
        num_told: How many entries of an observation these are (K).

    Attributes:
        memory: What it remembers: rows of ``policy``'s state by name, ``{"hidden": (H,)}``, and ``"told" (K,)``; empty
            where it has seen nothing of its task. It travels in the context of a rollout's plan.
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

    def remember(self, state: Mapping[str, np.ndarray], told: np.ndarray) -> None:
        """Begin episodes from here on with a memory.

        Args:
            state: Rows of ``policy``'s state, ``(H,)`` each.
            told: Last action, reward and ending ``(K,)``.
        """
        self.memory = {**{name: np.array(row) for name, row in state.items()}, _TOLD: np.array(told)}

    def plan_context(self) -> dict[str, np.ndarray] | None:
        """The memory; ``None`` where there is none."""
        return {name: row.copy() for name, row in self.memory.items()} or None

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of ``policy``, and how the episode before ended, ``{"told": (N, K)}``."""
        told = np.zeros((len(contexts), self.num_told), dtype=np.float64)
        for row, context in zip(told, contexts, strict=True):
            if not context or _TOLD not in context:
                continue
            if np.shape(context[_TOLD]) != row.shape:
                raise ShapeError(f"context['told'] must have shape {row.shape}, got {np.shape(context[_TOLD])}")
            row[...] = context[_TOLD]
        return {**self.policy.initial_state(contexts, generators, domain_params), _TOLD: told}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of ``policy``."""
        told = state[_TOLD]
        obs = told_in_place(obs, told)
        inner = {name: rows for name, rows in state.items() if name != _TOLD}
        action, following, infos = self.policy.act(obs, inner, noise, deterministic, parameters)
        return action, {**following, _TOLD: np.zeros_like(told)}, infos

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        told = state[_TOLD].to(obs.dtype)
        begins = ~obs[:, -self.num_told :].any(dim=1, keepdim=True)
        last = torch.where(begins, told, obs[:, -self.num_told :])
        obs = torch.cat([obs[:, : -self.num_told], last], dim=1)
        inner = {name: rows for name, rows in state.items() if name != _TOLD}
        action, following, infos = self.policy.act_on_torch(obs, inner, noise, deterministic)
        return action, {**following, _TOLD: torch.zeros_like(state[_TOLD])}, infos

    def with_actions_taken(self, state: PolicyState, actions: np.ndarray) -> PolicyState:
        """As ``policy``."""
        inner = {name: rows for name, rows in state.items() if name != _TOLD}
        return {**self.policy.with_actions_taken(inner, actions), _TOLD: state[_TOLD]}
