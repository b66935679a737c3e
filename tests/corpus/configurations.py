"""A configuration for each algorithm in which every option is written out, few of them at their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from corpus.archives import write_json
from corpus.runs import write_teacher
from metaroll.config import Option
from metaroll.configs.table import run_options
from metaroll.training.algorithms.registry import ALGORITHM_NAMES
from metaroll.training.session import experiments

_ENVS = {
    "pearl": "point-robot",
    "rl2": "point-robot",
    "maml": "point-navigation",
    "promp": "point-navigation",
    "dice": "point-navigation",
    "ppo": "qcp-st",
    "epopt": "qcp-st",
    "distill": "qcp-st",
    "dqn": "CartPole-v1",
    "discrete-sac": "CartPole-v1",
    "td3": "point-goal",
}
_ELSEWHERE = "pend"

_VALUES: Mapping[str, Any] = {
    "seed": 3,
    "task_seed": 5,
    "hidden_sizes": [12, 10],
    "encoder_hidden_sizes": [9],
    "size": None,  # it would decide about others
    "ray_address": None,  # for a cluster
    "transport": "serial",
    "num_workers": 1,
    "snapshot_mode": "gap_and_last",
    "device": "cpu",
    "torch_threads": 2,
    "wandb": None,
    "tensorboard": False,  # a package that may be missing
    "keep_best": "train/return",
    "stop_at": 1e9,
    "stop_metric": "train/return",
    "budget": "90m",
    "memory_limit": 2**40,
    "gradients": "autograd",
    "context_reward_key": None,  # of the environment's infos
    "return_reward_key": None,
    "max_grad_norm": 0.7,
    "target_kl": 0.05,
    "value_clip_range": 0.3,
    "entropy_coeff": 0.01,
    "domain_params": ["pole_mass"],
    "randomize": "default",
    "randomize_param": [],
    "num_test_tasks": 4,
    "posterior_sampling": False,
    "num_prior_episodes": 1,
    "adaptation_rounds": 2,
    "episodes_per_round": 3,
    "num_adaptation_episodes": 6,
    "adapt": ["policy.log_std", "policy.head"],
    "lr_decay_epochs": 40,
    "tasks_per_epoch": 2,
    "gradient_steps": 18,
    "update_to_data": 0.9,
    "num_envs": 2,
    "sigma_factor": 1.1,
    "best_frac": 0.4,
    "weight_decay": 0.01,
    "inner": None,
    "deterministic_exploration": False,
    "max_eval_steps": 40,
    "max_steps": 30,
    "target_entropy": -0.5,
    "temperature": None,
    "priority_exponent": 0.6,
    "hindsight_ratio": 0.0,  # for environments with goals
    "separable": True,
    "lower": -3.0,
    "upper": 3.0,
    "target": 1e9,
    "start_std": 0.2,
    "restarts": "none",  # not with several starts
    "reevaluated": 1,
    "max_repetitions": 2.0,
    "stop_std": 0.01,
    "population": 8,
    "sigma_learning_rate": 0.1,
    "elitism": True,
    "teacher": "teacher",
    "policy_pre_activation_coeff": 0.1,
    "kl_lambda": 0.2,
}
"""Where the rule below would give something that is not accepted, or does nothing."""

_FOR: Mapping[str, Mapping[str, Any]] = {
    "pearl": {
        "use_information_bottleneck": True,
        "posterior_sampling": True,
        "num_prior_episodes": 2,
        "adaptation_rounds": None,
        "episodes_per_round": None,
        "adapt_from": "all",
    },
    "cmaes": {"max_restarts": 9},
    "rsac": {"segment_length": 8, "batch_size": 64},
    "rl2": {"bootstrap_truncated": False, "num_train_tasks": 9},
    # Options of the other outer steps are refused beside this one.
    "maml": {"outer": "trpo", "learning_rate": 0.001, "gradient_steps": 1, "max_grad_norm": None},
    **{name: {"randomize": "none", "randomize_param": ["length=0.3:0.7"]} for name in ("dqn", "discrete-sac")},
    "td3": {"randomize": "none", "hindsight_ratio": 0.5},
}
"""The same for one algorithm."""


def _another(option: Option, value: Any) -> Any:
    """A value that is not the default, by a rule."""
    if option.choices:
        return next((choice for choice in option.choices if choice not in (value, None)), value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 0.9 * value
    return list(value) if isinstance(value, tuple) else value


def configuration(algo: str) -> dict[str, Any]:
    """Every option of an algorithm, by name."""
    env = _ENVS.get(algo, _ELSEWHERE)
    usual = experiments.resolve(algo, env)
    values: dict[str, Any] = {}
    for option in run_options(algo):
        name, value = option.name, usual[option.section][option.name]
        values[name] = {**_VALUES, **_FOR.get(algo, {})}.get(name, _another(option, value))
    return values


def write_configurations() -> None:
    """For each algorithm a file for ``metaroll train --config`` with every option, and the teacher that one names."""
    write_teacher(_ENVS["distill"])
    found: dict[str, Any] = {}
    for algo in ALGORITHM_NAMES:
        env, values = _ENVS.get(algo, _ELSEWHERE), configuration(algo)
        experiments.build(experiments.resolve(algo, env, [(algo, values)])).runner.close()  # it is accepted
        Path(f"{algo}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        found[algo] = {"env": env, "values": values}
    write_json(Path("expected.json"), found)


PARTS: Mapping[str, tuple[str, Callable[[], None]]] = {"configurations": ("configurations", write_configurations)}
