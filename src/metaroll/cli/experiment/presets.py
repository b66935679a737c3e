"""Tuned values per algorithm and environment: plain data, keyed by the names of the options that they set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaroll.errors import unknown_name

__all__ = ["ALGORITHM_NAMES", "example_envs", "get_preset", "preset_names"]

ALGORITHM_NAMES = ("pearl", "ppo", "epopt", "distill", "hill-climbing")
"""Algorithms that ``metaroll train`` knows."""

# What the documented constructor leaves without a default, and the sizes that the original uses in every environment.
_PEARL: dict[str, Any] = {
    "latent_dim": 5,
    "encoder_hidden_sizes": (200, 200, 200),
    "hidden_sizes": (300, 300, 300),
    "init": "oyster",
    "epochs": 500,
    "meta_batch_size": 16,
    "batch_size": 256,
    "num_steps_posterior": 0,
    "update_post_train": 1,
    "kl_lambda": 0.1,
    "discount": 0.99,
    "posterior_sampling": True,
}

_POINT_ROBOT: dict[str, Any] = {
    **_PEARL,
    "num_train_tasks": 80,
    "num_test_tasks": 20,
    "num_initial_steps": 200,
    "num_steps_prior": 200,
    "num_extra_rl_steps_posterior": 200,
    "num_steps_per_epoch": 1000,
    "num_tasks_sample": 5,
    "embedding_batch_size": 64,
    "embedding_mini_batch_size": 64,
    "max_path_length": 20,
    "reward_scale": 100.0,
    # 60 evaluation steps of 20 per episode: one episode under the prior, then two under the posterior, twice.
    "n_exploration_traj": 2,
    "num_prior_episodes": 1,
    "repetitions": 2,
}

# Robots of MuJoCo. 600 evaluation steps of 200 per episode: two under the prior, then one under the posterior.
_ROBOT: dict[str, Any] = {
    **_PEARL,
    "num_initial_steps": 2000,
    "num_steps_prior": 400,
    "num_extra_rl_steps_posterior": 600,
    "num_steps_per_epoch": 4000,
    "num_tasks_sample": 5,
    "embedding_batch_size": 256,
    "embedding_mini_batch_size": 256,
    "max_path_length": 200,
    "reward_scale": 5.0,
    "n_exploration_traj": 2,
    "num_prior_episodes": 2,
    "repetitions": 1,
}

_TWO_DIRECTIONS: dict[str, Any] = {
    **_ROBOT,
    "num_train_tasks": 2,
    "num_test_tasks": 2,
    "meta_batch_size": 4,
    "repetitions": 4,
}

# What the body is like shows in how it moves, so the context holds next observations, too.
_RANDOM_BODIES: dict[str, Any] = {
    **_ROBOT,
    "num_train_tasks": 40,
    "num_test_tasks": 10,
    "meta_batch_size": 10,
    "embedding_batch_size": 100,
    "embedding_mini_batch_size": 100,
    "use_next_obs_in_context": True,
    "repetitions": 2,
}

# Those of Stable-Baselines3 (its defaults); observations and returns are normalized.
_PPO: dict[str, Any] = {"hidden_sizes": (64, 64), "init": "orthogonal", "epochs": 100}

# 15,000 rollouts; in the last two thirds of the epochs the worst tenth alone counts.
_EPOPT: dict[str, Any] = {
    **_PPO,
    "epochs": 150,
    "warm_up_epochs": 50,
    "lr_decay_epochs": 150,
    "batch_size": 250,
    "discount": 0.98,
    "randomize": "default",
}

# A GRU of 64 units.
_DISTILL: dict[str, Any] = {"hidden_sizes": (64,), "init": "orthogonal", "epochs": 50}

# A linear policy.
_CLIMBING: dict[str, Any] = {"hidden_sizes": (), "init": "orthogonal", "epochs": 100}

_BASES = {"pearl": _PEARL, "ppo": _PPO, "epopt": _EPOPT, "distill": _DISTILL, "hill-climbing": _CLIMBING}

_PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    ("hill-climbing", "CartPole-v1"): _CLIMBING,
    # 200,000 steps: 100 epochs of 10 episodes.
    ("ppo", "Pendulum-v1"): {
        **_PPO,
        "steps_per_epoch": 2000,
        "learning_rate": 1e-3,
        "lr_decay_epochs": 100,
        "discount": 0.95,
        "init_std": 0.5,
    },
    # 1 million steps: 500 epochs of two episodes.
    ("ppo", "HalfCheetah-v5"): {**_PPO, "steps_per_epoch": 2000, "batch_size": 80, "epochs": 500},
    ("pearl", "point-robot"): _POINT_ROBOT,
    ("pearl", "sparse-point-robot"): {
        **_POINT_ROBOT,
        "num_steps_prior": 100,
        "num_steps_posterior": 900,
        "num_extra_rl_steps_posterior": 0,
        "num_tasks_sample": 10,
        "embedding_batch_size": 1024,
        "embedding_mini_batch_size": 1024,
        "discount": 0.9,
        "kl_lambda": 1.0,
        # The agent infers its task from the sparse reward and is scored by it; the updates see the distance.
        "context_reward_key": "sparse_reward",
        "return_reward_key": "sparse_reward",
        # 400 evaluation steps: 20 episodes, the first five under the prior.
        "n_exploration_traj": 19,
        "num_prior_episodes": 5,
    },
    ("pearl", "cheetah-vel"): {
        **_ROBOT,
        "num_train_tasks": 100,
        "num_test_tasks": 30,
        "num_steps_per_epoch": 2000,
        "embedding_batch_size": 100,
        "embedding_mini_batch_size": 100,
    },
    ("pearl", "cheetah-dir"): {
        **_TWO_DIRECTIONS,
        "num_steps_per_epoch": 2000,
        "num_steps_prior": 1000,
        "num_extra_rl_steps_posterior": 1000,
    },
    ("pearl", "ant-dir"): _TWO_DIRECTIONS,
    ("pearl", "ant-goal"): {
        **_ROBOT,
        "num_train_tasks": 150,
        "num_test_tasks": 30,
        "meta_batch_size": 10,
        "kl_lambda": 1.0,
    },
    ("pearl", "humanoid-dir"): {**_ROBOT, "num_train_tasks": 100, "num_test_tasks": 30},
    ("pearl", "hopper-rand-params"): _RANDOM_BODIES,
    ("pearl", "walker-rand-params"): _RANDOM_BODIES,
}
"""Effective values of the reference configurations (Rakelly et al. 2019, arXiv:1903.08254, code "oyster")."""


def preset_names(algo: str) -> list[str]:
    """Environments that have a preset for ``algo``."""
    return sorted(env for name, env in _PRESETS if name == algo)


def example_envs(algo: str) -> list[str]:
    """Environments to begin with: those that have a preset, else a simulated system that needs none."""
    return preset_names(algo) or ["qcp-st"]


def get_preset(algo: str, env: str) -> Mapping[str, Any]:
    """Option name -> value for ``algo`` in ``env``; without a preset for ``env`` the values that all presets share."""
    if algo not in ALGORITHM_NAMES:
        raise unknown_name("algorithm", algo, ALGORITHM_NAMES)
    return dict(_PRESETS.get((algo, env), _BASES[algo]))
