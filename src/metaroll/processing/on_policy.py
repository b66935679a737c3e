"""On-policy rollouts as arrays: one row per step, rollouts concatenated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import domain_row
from metaroll.data.data_format import map_leaves
from metaroll.data.rollouts import Rollouts
from metaroll.data.space_batches import flatten_batch
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.functional.advantages import gae
from metaroll.functional.returns import reverse_scan
from metaroll.types import EnvSpec

__all__ = [
    "OnPolicyData",
    "collect_on_policy",
    "domain_params_of",
    "domain_rows",
    "info_rewards",
    "inside_rollouts",
    "pad_rollouts",
    "rollout_groups",
    "rows_of_rollouts",
    "running_returns",
    "with_domains",
]


_FIELDS = ("observations", "actions", "rewards", "policy_infos")


@dataclass(frozen=True)
class OnPolicyData:
    """T steps of R rollouts.

    Attributes:
        observations: Flat observations ``(T, obs_dim)``, unnormalized.
        last_observations: The observation after the last step of each rollout, ``(R, obs_dim)``.
        actions: Actions sampled by the policy (``raw_action`` of its infos, if any): ``(T, act_dim)`` for a Box,
            integers ``(T,)`` or ``(T, choices)`` otherwise.
        rewards: float64, ``(T,)``.
        terminated: Bool ``(T,)``; a time limit is no termination.
        bounds: First step of every rollout, then T, ``(R+1,)``.
    """

    observations: np.ndarray
    last_observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    bounds: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def lengths(self) -> np.ndarray:
        """Steps of the rollouts, ``(R,)``."""
        return np.diff(self.bounds)

    @property
    def episode_returns(self) -> np.ndarray:
        """Undiscounted returns of the rollouts, ``(R,)``."""
        return np.add.reduceat(self.rewards, self.bounds[:-1])

    def advantages(
        self,
        values: np.ndarray,
        last_values: np.ndarray,
        rewards: np.ndarray,
        discount: float,
        gae_lambda: float,
        returns_end: np.ndarray | None = None,
    ) -> np.ndarray:
        """Generalized advantages ``(T,)``, see ``functional.advantages.gae``.

        A truncated rollout bootstraps from ``last_values (R,)``, a terminated one from 0, and so does every step of
        ``returns_end (T,)``, where returns end although the rollout continues.
        """
        result = gae(
            np.asarray(rewards, dtype=np.float64),
            values,
            terminated=self.terminated if returns_end is None else self.terminated | returns_end,
            bounds=self.bounds,
            final_values=last_values,
            discount=discount,
            gae_lambda=gae_lambda,
        )
        return np.asarray(result)


def collect_on_policy(rollouts: Sequence[StepSequence], env_spec: EnvSpec) -> OnPolicyData:
    """Arrays of ``rollouts``, which hold the observation after their last step.

    Args:
        rollouts: At least one.
        env_spec: Spaces of their environment.

    Raises:
        DataError: A rollout holds NaN or Inf.
        ShapeError: Rollouts come from another kind of environment than ``env_spec``, or lack their last observation.
        ValueError: There is none.
    """
    if not rollouts:
        raise ValueError("rollouts must hold at least one rollout, got none")
    batch = Rollouts.of(rollouts)
    batch.require_final_observations()
    bounds, count = batch.bounds, int(batch.bounds[-1])
    rows = _flat_observations(batch.column("observations"), count + len(batch), env_spec)
    is_last = np.zeros(len(rows), dtype=bool)
    is_last[bounds[1:] + np.arange(len(batch))] = True
    data = OnPolicyData(
        observations=rows[~is_last],
        last_observations=rows[is_last],
        actions=_actions(batch, count, env_spec).copy(),
        rewards=np.array(batch.rewards, dtype=np.float64).reshape(count),
        terminated=np.array(batch.terminated, dtype=bool),
        bounds=bounds.copy(),
    )
    for name in ("observations", "last_observations", "actions", "rewards"):
        _refuse_non_finite(name, getattr(data, name), data)
    return data


def info_rewards(env_infos: Any, key: str, count: int) -> np.ndarray:
    """The env_info ``key`` of ``count`` steps, used as their reward, ``(count,)``.

    Raises:
        DataError: There is no env_info of this name.
        ShapeError: It is not one number per step.
    """
    if not isinstance(env_infos, Mapping) or key not in env_infos:
        known = ", ".join(sorted(env_infos)) if isinstance(env_infos, Mapping) and env_infos else "none"
        raise DataError(
            f"context_reward_key {key!r} is not among the env_infos of the rollouts (they have: {known}); let the "
            f"environment put it into its info dict, or use context_reward_key=None for the reward itself"
        )
    rewards = np.asarray(env_infos[key])
    if rewards.size != count:
        raise ShapeError(f"env_info {key!r} must be one number per step ({count}), got shape {rewards.shape}")
    return rewards.reshape(count)


def _flat_observations(observations: Any, count: int, env_spec: EnvSpec) -> np.ndarray:
    """Observations ``(count, obs_dim)``."""
    batch = map_leaves(lambda leaf, path: np.asarray(leaf), observations)
    space = env_spec.observation_space
    rows = batch.reshape(count, -1) if isinstance(space, gymnasium.spaces.Box) else flatten_batch(space, batch)
    if rows.shape[1] != env_spec.obs_dim:
        raise ShapeError(
            f"rollouts must have observations of {env_spec.obs_dim} numbers, got {rows.shape[1]}: they come from "
            "another environment"
        )
    return rows


def _actions(rollouts: Rollouts, count: int, env_spec: EnvSpec) -> np.ndarray:
    """Actions sampled by the policy, one row per step."""
    infos = rollouts.whole_column("policy_infos")
    if infos is not None:
        chosen = np.asarray(infos["raw_action"] if "raw_action" in infos else rollouts.column("actions"))
    else:
        pairs = zip(rollouts.each("policy_infos", {}), rollouts.each("actions"), strict=True)
        chosen = np.concatenate([infos.get("raw_action", actions) for infos, actions in pairs])
    if isinstance(env_spec.action_space, gymnasium.spaces.Box):
        chosen = chosen.reshape(count, -1).astype(np.float32, copy=False)
        if chosen.shape[1] != env_spec.act_dim:
            raise ShapeError(f"rollouts must have actions of {env_spec.act_dim} numbers, got {chosen.shape[1]}")
    return chosen


def _refuse_non_finite(name: str, values: np.ndarray, data: OnPolicyData) -> None:
    if values.dtype.kind != "f":
        return
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        number = row if name.startswith("last") else int(np.searchsorted(data.bounds, row, side="right")) - 1
        raise DataError(f"{name} of rollout {number} hold NaN or Inf: {values[row]}")


def domain_rows(rollouts: Sequence[StepSequence], names: Sequence[str]) -> np.ndarray:
    """Domain parameters ``names`` of each rollout, ``(R, len(names))``.

    Read from ``rollout_info["domain_param"]``, else from the task of the plan (that of a ``DomainParamUpdate``).

    Raises:
        DataError: A rollout lacks one of them, or it is not a number.
    """
    infos = Rollouts.of(rollouts).infos
    rows = [domain_row(names, domain_params_of(info), f"rollout {i}") for i, info in enumerate(infos)]
    return np.array(rows, dtype=np.float64).reshape(len(rollouts), len(names))


def domain_params_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Domain parameters of the environment of a rollout, from its ``rollout_info``, if recorded there."""
    plan = info.get("plan") or {}
    task, params = plan.get("task") if isinstance(plan, Mapping) else None, info.get("domain_param")
    return {**(task if isinstance(task, Mapping) else {}), **(params if isinstance(params, Mapping) else {})}


def with_domains(data: OnPolicyData, rows: np.ndarray) -> OnPolicyData:
    """``data`` with observations to which the domain parameters ``rows (R, D)`` of their rollouts are appended."""
    return replace(
        data,
        observations=np.concatenate([data.observations, np.repeat(rows, data.lengths, axis=0)], axis=1),
        last_observations=np.concatenate([data.last_observations, rows], axis=1),
    )


def rollout_groups(order: Sequence[int], bounds: np.ndarray, steps: int) -> Iterator[list[int]]:
    """The rollouts ``order`` in groups of at most ``steps`` steps, or of one rollout; ``bounds (R + 1,)`` of all."""
    group: list[int] = []
    size = 0
    for i in order:
        length = int(bounds[i + 1] - bounds[i])
        if group and size + length > steps:
            yield group
            group, size = [], 0
        group.append(int(i))
        size += length
    yield group


def pad_rollouts(rows: np.ndarray, bounds: np.ndarray, which: Sequence[int] | np.ndarray) -> np.ndarray:
    """Rollouts ``which`` of ``rows (T, ...)`` side by side, ``(len(which), longest, ...)``; zero-padded."""
    inside = inside_rollouts(bounds, which)
    padded = np.zeros((*inside.shape, *rows.shape[1:]), dtype=rows.dtype)
    padded[inside] = rows[rows_of_rollouts(bounds, which)]
    return padded


def inside_rollouts(bounds: np.ndarray, which: Sequence[int] | np.ndarray) -> np.ndarray:
    """The mask of steps, rather than padding, in the result of ``pad_rollouts``, ``(len(which), longest)``."""
    lengths = np.diff(bounds)[np.asarray(which)]
    return np.arange(int(lengths.max())) < lengths[:, None]


def rows_of_rollouts(bounds: np.ndarray, which: Sequence[int] | np.ndarray) -> np.ndarray:
    """Numbers of all steps of rollouts ``which``, one rollout after the other."""
    chosen = np.asarray(which)
    inside = inside_rollouts(bounds, chosen)
    return (bounds[chosen][:, None] + np.arange(inside.shape[1]))[inside]


def running_returns(rewards: np.ndarray, bounds: np.ndarray, discount: float) -> np.ndarray:
    """``G_t = r_t + discount * G_{t-1}`` within each rollout, ``(T,)``: their spread scales rewards."""
    begins = np.zeros(len(rewards), dtype=bool)
    begins[bounds[:-1]] = True
    return reverse_scan(rewards[::-1], discount, begins[::-1])[::-1]  # backwards in time: a scan from the other end
