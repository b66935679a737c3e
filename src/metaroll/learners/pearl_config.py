"""PEARL's numbers, checked, and checks of its other arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["PEARLConfig", "check_updates", "continuous_spec", "count_test_tasks", "flat_box"]


@dataclass(frozen=True)
class PEARLConfig:
    """All numbers of a PEARL; equal configurations and networks make snapshots interchangeable."""

    # Learning rates and the weights of the losses.
    policy_lr: float
    qf_lr: float
    vf_lr: float
    context_lr: float
    policy_mean_reg_coeff: float
    policy_std_reg_coeff: float
    policy_pre_activation_coeff: float
    soft_target_tau: float
    kl_lambda: float
    discount: float
    reward_scale: float
    # How much data enters a gradient step.
    meta_batch_size: int
    num_steps_per_epoch: int
    batch_size: int
    embedding_batch_size: int
    embedding_mini_batch_size: int
    # How much data is collected, and how.
    num_initial_steps: int
    num_tasks_sample: int
    num_steps_prior: int
    num_steps_posterior: int
    num_extra_rl_steps_posterior: int
    max_path_length: int
    update_post_train: int
    replay_buffer_size: int
    context_reward_key: str | None
    # What is learned.
    latent_dim: int
    num_train_tasks: int
    use_information_bottleneck: bool
    use_next_obs: bool

    def __post_init__(self) -> None:
        rates = ("policy_lr", "qf_lr", "vf_lr", "context_lr", "reward_scale")
        weights = ("policy_mean_reg_coeff", "policy_std_reg_coeff", "policy_pre_activation_coeff", "kl_lambda")
        may_be_zero = ("num_steps_prior", "num_steps_posterior", "num_extra_rl_steps_posterior")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                check_whole(field.name, value, 0 if field.name in may_be_zero else 1)
            elif field.type == "float":
                most = math.inf if field.name in rates + weights else 1.0
                check_number(field.name, value, 0.0, most, above_low=field.name not in (*weights, "discount"))
            elif field.type == "bool" and not isinstance(value, bool):
                name = "use_next_obs_in_context" if field.name == "use_next_obs" else field.name
                raise TypeError(f"{name} must be True or False, got {value!r}")
        if self.embedding_batch_size % self.embedding_mini_batch_size:
            raise ValueError(
                f"embedding_batch_size ({self.embedding_batch_size}) must be a multiple of embedding_mini_batch_size "
                f"({self.embedding_mini_batch_size})"
            )
        if self.num_steps_prior + self.num_steps_posterior == 0:
            raise ValueError(
                "num_steps_prior + num_steps_posterior must be positive, got 0 + 0: the context of a visited task "
                "would stay empty; collect at least one episode per visit under the prior or the posterior"
            )
        if self.replay_buffer_size < self.max_path_length:
            raise ValueError(
                f"replay_buffer_size must hold one rollout of max_path_length={self.max_path_length} steps, "
                f"got {self.replay_buffer_size}"
            )
        if self.context_reward_key is not None and not isinstance(self.context_reward_key, str):
            raise TypeError(f"context_reward_key must be the name of an env_info, got {self.context_reward_key!r}")

    @property
    def num_context_slices(self) -> int:
        """Updates per gradient step: 1, or more for a recurrent encoder that reads its context in slices."""
        return self.embedding_batch_size // self.embedding_mini_batch_size

    def check_encoder(self, recurrent: bool) -> None:
        """Slices make sense only for an encoder that remembers the ones before."""
        if not recurrent and self.num_context_slices != 1:
            raise ValueError(
                f"embedding_mini_batch_size ({self.embedding_mini_batch_size}) must equal embedding_batch_size "
                f"({self.embedding_batch_size}) for an encoder that is not recurrent; set both to the same value"
            )

    def most_transitions(self, num_epochs: int) -> int:
        """Maximum number of steps that so many epochs collect, in all tasks together."""
        visit = (self.num_steps_prior, self.num_steps_posterior, self.num_extra_rl_steps_posterior)
        return self.num_train_tasks * self._most(self.num_initial_steps) + num_epochs * self.num_tasks_sample * sum(
            map(self._most, visit)
        )

    def most_context(self) -> int:
        """Maximum number of steps in all contexts at one time: a visit forgets those of the one before."""
        visit = self._most(self.num_steps_prior) + self._most(self.num_steps_posterior)
        return self.num_train_tasks * max(self._most(self.num_initial_steps), visit)

    def _most(self, num_steps: int) -> int:
        """Steps of the fewest whole rollouts with at least ``num_steps``."""
        return num_steps + self.max_path_length - 1 if num_steps else 0


def flat_box(width: int, bound: float = 1.0) -> gymnasium.spaces.Box:
    """Box of ``width`` numbers on [-bound, bound]."""
    return gymnasium.spaces.Box(-bound, bound, shape=(width,), dtype=np.float32)


def count_test_tasks(num_test_tasks: int | None, sampler: Any) -> int:
    """Number of test tasks; ``None`` means as many as the sampler has."""
    count = getattr(sampler, "n_tasks", None) if num_test_tasks is None else num_test_tasks
    if count is None:
        raise ValueError(
            f"num_test_tasks must be given, since test_env_sampler ({type(sampler).__name__}) does not say how many "
            f"tasks it has (its n_tasks is None)"
        )
    return check_whole("num_test_tasks", count, 1)


def check_updates(env: Sequence[EnvUpdate], num_train_tasks: int) -> list[EnvUpdate]:
    """The updates as a list, one per train task."""
    updates = list(env) if isinstance(env, Sequence) else []
    if not updates or not all(callable(update) for update in updates):
        raise TypeError(
            f"env must be a list of EnvUpdates, one per train task (as task samplers give), got {type(env).__name__}"
        )
    if len(updates) != num_train_tasks:
        raise ValueError(
            f"env must hold one EnvUpdate per train task, got {len(updates)} with num_train_tasks={num_train_tasks}"
        )
    return updates


def continuous_spec(source: Any) -> EnvSpec:
    """Spec itself, or that of the environment that an update builds (left to be collected: it may be a pool's own)."""
    spec = source if isinstance(source, EnvSpec) else EnvSpec.from_env(source())
    if not isinstance(spec.action_space, gymnasium.spaces.Box):
        raise ValueError(f"PEARL needs continuous actions (a Box), got {spec.action_space}")
    return spec
