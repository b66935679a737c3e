"""PEARL's numbers in checked groups, and the specs of its networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.errors import unknown_name
from metaroll.types import EnvSpec, EnvUpdate, InOutSpec

__all__ = [
    "BatchConfig",
    "CollectionConfig",
    "OptimizationConfig",
    "PEARLConfig",
    "augmented_spec",
    "check_updates",
    "continuous_spec",
    "count_test_tasks",
    "encoder_spec",
    "module_spec",
]


@dataclass(frozen=True)
class OptimizationConfig:
    """Learning rates and the weights of the losses."""

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

    def __post_init__(self) -> None:
        for name in ("policy_lr", "qf_lr", "vf_lr", "context_lr"):
            check_number(name, getattr(self, name), 0.0, above_low=True)
        for name in ("policy_mean_reg_coeff", "policy_std_reg_coeff", "policy_pre_activation_coeff", "kl_lambda"):
            check_number(name, getattr(self, name), 0.0)
        check_number("soft_target_tau", self.soft_target_tau, 0.0, 1.0, above_low=True)
        check_number("discount", self.discount, 0.0, 1.0)
        check_number("reward_scale", self.reward_scale, 0.0, above_low=True)


@dataclass(frozen=True)
class BatchConfig:
    """How much data enters a gradient step."""

    meta_batch_size: int
    num_steps_per_epoch: int
    batch_size: int
    embedding_batch_size: int
    embedding_mini_batch_size: int

    def __post_init__(self) -> None:
        for field in fields(self):
            check_whole(field.name, getattr(self, field.name), 1)
        if self.embedding_batch_size % self.embedding_mini_batch_size:
            raise ValueError(
                f"embedding_batch_size ({self.embedding_batch_size}) must be a multiple of embedding_mini_batch_size "
                f"({self.embedding_mini_batch_size})"
            )

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


@dataclass(frozen=True)
class CollectionConfig:
    """How much data is collected, and how."""

    num_initial_steps: int
    num_tasks_sample: int
    num_steps_prior: int
    num_steps_posterior: int
    num_extra_rl_steps_posterior: int
    max_path_length: int
    update_post_train: int
    replay_buffer_size: int
    context_reward_key: str | None = None

    def __post_init__(self) -> None:
        for name in ("num_initial_steps", "num_tasks_sample", "max_path_length", "update_post_train"):
            check_whole(name, getattr(self, name), 1)
        for name in ("num_steps_prior", "num_steps_posterior", "num_extra_rl_steps_posterior"):
            check_whole(name, getattr(self, name), 0)
        check_whole("replay_buffer_size", self.replay_buffer_size, 1)
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

    def most_transitions(self, num_tasks: int, num_epochs: int) -> int:
        """Most steps that so many epochs collect, in all tasks together."""
        return num_tasks * self._most(self.num_initial_steps) + num_epochs * self.num_tasks_sample * (
            self._most(self.num_steps_prior)
            + self._most(self.num_steps_posterior)
            + self._most(self.num_extra_rl_steps_posterior)
        )

    def most_context(self, num_tasks: int) -> int:
        """Most steps that are context at one time, in all tasks together: a visit forgets those of the one before."""
        visit = self._most(self.num_steps_prior) + self._most(self.num_steps_posterior)
        return num_tasks * max(self._most(self.num_initial_steps), visit)

    def _most(self, num_steps: int) -> int:
        """Steps of the fewest whole rollouts with at least ``num_steps``."""
        return num_steps + self.max_path_length - 1 if num_steps else 0


@dataclass(frozen=True)
class PEARLConfig:
    """All numbers of a PEARL; equal configurations and networks make snapshots interchangeable."""

    optimization: OptimizationConfig
    batches: BatchConfig
    collection: CollectionConfig
    latent_dim: int
    num_train_tasks: int
    use_information_bottleneck: bool
    use_next_obs: bool

    def __post_init__(self) -> None:
        for name, value in (
            ("use_information_bottleneck", self.use_information_bottleneck),
            ("use_next_obs_in_context", self.use_next_obs),
        ):
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False, got {value!r}")

    def describe(self) -> str:
        """All values as one line of text, the same on every machine."""
        return ", ".join(f"{name}={value!r}" for name, value in sorted(_flat(asdict(self)).items()))


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in tree.items():
        out.update(_flat(value) if isinstance(value, Mapping) else {name: value})
    return out


def _unbounded(width: int) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-np.inf, np.inf, shape=(width,), dtype=np.float32)


def _unit(width: int) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-1.0, 1.0, shape=(width,), dtype=np.float32)


def augmented_spec(env_spec: Any, latent_dim: int) -> EnvSpec:
    """Spec with observations ``(obs_dim + latent_dim,)`` and actions ``(act_dim,)``, both flat Boxes on [-1, 1]."""
    spec = EnvSpec.from_env(env_spec)
    check_whole("latent_dim", latent_dim, 1)
    return EnvSpec(_unit(spec.obs_dim + int(latent_dim)), _unit(spec.act_dim), spec.max_episode_length)


def encoder_spec(env_spec: EnvSpec, latent_dim: int, use_next_obs: bool, use_information_bottleneck: bool) -> InOutSpec:
    """Context row -> mean and (untransformed) variance of one factor of the posterior, or z itself."""
    check_whole("latent_dim", latent_dim, 1)
    context_dim = env_spec.obs_dim + env_spec.act_dim + 1 + (env_spec.obs_dim if use_next_obs else 0)
    return InOutSpec(_unbounded(context_dim), _unbounded(latent_dim * (2 if use_information_bottleneck else 1)))


def module_spec(
    env_spec: Any, latent_dim: int, module: str, use_next_obs: bool, use_information_bottleneck: bool
) -> InOutSpec | EnvSpec:
    """Spec of ``'encoder'`` (context row -> posterior factor) or of ``'vf'`` (observation, and latent as action)."""
    if module == "encoder":
        return encoder_spec(EnvSpec.from_env(env_spec), latent_dim, use_next_obs, use_information_bottleneck)
    if module == "vf":
        spec = EnvSpec.from_env(env_spec)
        check_whole("latent_dim", latent_dim, 1)
        return EnvSpec(_unit(spec.obs_dim), _unit(latent_dim), spec.max_episode_length)
    raise unknown_name("module", str(module), ("encoder", "vf"))


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
