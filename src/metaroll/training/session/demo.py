"""The demo: PEARL on dense point-robot with small networks, compared with a floor and an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.point.point_robot import go_to
from metaroll.option_names import GIVEN
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.seeding import derive_seed
from metaroll.training.algorithms.registry import size_values
from metaroll.training.evaluation.evaluation_metrics import interval_of_normalized_score, normalized_score
from metaroll.training.evaluation.evaluation_result import EvaluationResult
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.session.experiments import build_evaluator, resolve, split_tasks
from metaroll.types import EnvSpec

__all__ = ["DEMO_ENV", "DEMO_VALUES", "compare_with_references", "demo_config", "final_evaluator", "floor_and_oracle"]

DEMO_ENV = "point-robot"
"""The environment that it learns in."""
DEMO_VALUES: Mapping[str, Any] = {**size_values("pearl", DEMO_ENV, "small"), "num_test_tasks": 60}
"""Differences from the preset of point-robot: smaller numbers, matching learning rates, more held-out tasks."""

_FINAL_REPETITIONS = 4


def demo_config(overrides: Mapping[str, Any], env: str | EnvSource = DEMO_ENV) -> dict[str, Any]:
    """The configuration of the demo in its environment, with ``overrides`` from the command line."""
    layers = [("the demo", DEMO_VALUES), (GIVEN, overrides)]
    return resolve("pearl", env, layers, command="demo", size="small")


def final_evaluator(config: Mapping[str, Any], env: EnvSource) -> MetaEvaluator:
    """Evaluator of the finished agent: the same protocol as in training, with more repetitions."""
    return build_evaluator(config, env, split_tasks(config, env)[1], repetitions=_FINAL_REPETITIONS)


def _to_origin(obs: np.ndarray, context: Mapping[str, np.ndarray]) -> np.ndarray:
    return go_to(np.zeros_like(obs), obs)


def _to_goal(obs: np.ndarray, context: Mapping[str, np.ndarray]) -> np.ndarray:
    return go_to(context["goal"], obs)


def _goal_of(task: Any) -> dict[str, np.ndarray]:
    return {"goal": np.asarray(task["goal"], dtype=np.float64)}


def floor_and_oracle(
    result: EvaluationResult, evaluator: MetaEvaluator, env_spec: EnvSpec
) -> tuple[np.ndarray, np.ndarray]:
    """Returns ``(M,)`` of the floor and of the oracle in each task, on the adapted episodes of ``result``.

    The floor goes to the origin: the best that is possible without adapting, for goals uniform on a square around it.
    The oracle has access to the goal and goes straight to it.
    """
    floor = evaluator.run_reference(ScriptedPolicy(_to_origin, env_spec))
    oracle = evaluator.run_reference(ScriptedPolicy(_to_goal, env_spec), _goal_of)
    adapted = slice(result.num_exploration, None)
    return floor[:, :, adapted].mean(axis=(1, 2)), oracle[:, :, adapted].mean(axis=(1, 2))


def compare_with_references(
    result: EvaluationResult, floor: np.ndarray, oracle: np.ndarray, seed: int
) -> dict[str, float]:
    """Summary entries of the floor and the oracle (from ``floor_and_oracle``), and of the score between them."""
    after = result.after_per_task
    low, high = interval_of_normalized_score(after, floor, oracle, seed=derive_seed("normalized score", seed))
    return {
        "return_floor": float(floor.mean()),
        "return_oracle": float(oracle.mean()),
        "normalized_score": normalized_score(after, floor, oracle),
        "normalized_score_ci_low": low,
        "normalized_score_ci_high": high,
    }
