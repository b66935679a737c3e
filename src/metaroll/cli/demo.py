"""The demo: PEARL on dense point-robot with small networks, compared with a floor and an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metaroll.cli.experiments import build_evaluator, resolve, split_tasks
from metaroll.functional.scores import normalised_score, normalised_score_interval
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.seeding import mix_seed
from metaroll.training.meta_evaluator import MetaEvaluator

__all__ = ["DEMO_VALUES", "compare_with_references", "demo_config", "final_evaluator"]

DEMO_VALUES: Mapping[str, Any] = {
    "epochs": 20,
    "hidden_sizes": (100, 100, 100),
    "encoder_hidden_sizes": (100, 100),
    "num_train_tasks": 100,
    "num_test_tasks": 60,
    "meta_batch_size": 16,
    "batch_size": 64,
    "embedding_batch_size": 64,
    "embedding_mini_batch_size": 64,
    "num_steps_per_epoch": 500,
    "num_tasks_sample": 10,
    "n_exploration_traj": 5,
    "n_test_rollouts": 1,
    "num_prior_episodes": 1,
    "repetitions": 1,
    "posterior_sampling": True,
}
"""What differs from the preset of point-robot: smaller numbers, the same classes."""

_FINAL_REPETITIONS = 4
_STEP = 0.1  # how far an action of 1 moves the robot


def demo_config(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the demo, with ``overrides`` from the command line."""
    return resolve("pearl", "point-robot", [("the demo", DEMO_VALUES), ("the options", overrides)], command="demo")


def final_evaluator(config: Mapping[str, Any]) -> MetaEvaluator:
    """Evaluator of the finished agent: the same protocol as in training, more repetitions."""
    return build_evaluator(config, split_tasks(config)[1], repetitions=_FINAL_REPETITIONS)


def _towards(target: np.ndarray, obs: np.ndarray) -> np.ndarray:
    return np.clip((target - obs) / _STEP, -1.0, 1.0).astype(np.float32)


def _to_origin(obs: np.ndarray, context: Any) -> np.ndarray:
    return _towards(np.zeros_like(obs), obs)


def _to_goal(obs: np.ndarray, context: Any) -> np.ndarray:
    return _towards(context["goal"], obs)


def _goal_of(task: Any) -> dict[str, np.ndarray]:
    return {"goal": np.asarray(task["goal"], dtype=np.float64)}


def compare_with_references(
    result: Any, evaluator: MetaEvaluator, env_spec: Any, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Summary entries and plot lines of the floor and the oracle on the very cells of ``result``.

    The floor goes to the origin: for goals uniform on a square around it nothing better is possible without adapting.
    The oracle is told the goal and goes there straight. Both act in the cells of the adapted episodes.
    """
    adapted = slice(evaluator.n_exploration_traj, None)

    def per_task(returns: np.ndarray) -> np.ndarray:
        return np.asarray(returns, dtype=np.float64)[:, :, adapted].mean(axis=(1, 2))

    floor = per_task(evaluator.run_reference(ScriptedPolicy(_to_origin, env_spec), None))
    oracle = per_task(evaluator.run_reference(ScriptedPolicy(_to_goal, env_spec), _goal_of))
    after = per_task(result.returns)
    generator = np.random.default_rng(mix_seed("normalised score", seed))
    low, high = normalised_score_interval(after, floor, oracle, generator)
    entries = {
        "return_floor": float(floor.mean()),
        "return_oracle": float(oracle.mean()),
        "normalised_score": normalised_score(after, floor, oracle),
        "normalised_score_ci_low": low,
        "normalised_score_ci_high": high,
    }
    return entries, {
        "floor: go to the origin": entries["return_floor"],
        "oracle: told the goal": entries["return_oracle"],
    }
