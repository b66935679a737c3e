"""The numbers of an evaluation that a run writes: ``summary.json`` and ``evaluation.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaroll.envs.lookup.source import EnvSource
from metaroll.tasks.leak_guard import SplitReport
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.session.experiments import tested_on_training
from metaroll.training.store.run_folder import package_versions

__all__ = ["evaluation_values", "success_values", "summary_of"]

_LEFT_OUT = ("return_before_interval", "interval_method", "env_steps", "task_names")
_FINISH_FIRST = 3
"""Number of episodes that count by Meta-World's rule."""


def evaluation_values(
    result: EvaluationResult | PolicyEvaluation, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The numbers of an evaluation that tables and summaries show; with ``config`` also those of its algorithm."""
    values = {name: value for name, value in result.to_dict().items() if name not in _LEFT_OUT}
    if isinstance(result, EvaluationResult):
        del values["returns"]  # they are included per task
    elif config is not None:
        values |= get_algorithm(config["algo"]).summary_values(result.returns, config["algorithm"])
    return values


def success_values(result: EvaluationResult, first: int = _FINISH_FIRST) -> dict[str, Any]:
    """The success rate by the biased rule beside ours, with at least ``first`` test episodes."""
    if result.success_steps is None or result.returns.shape[2] - result.num_exploration < first:
        return {}
    rate = result.success_rate or 0.0
    # Which episodes of equal length finish first is arbitrary, so any of them are a fair sample of all.
    biased = rate if result.equal_lengths else result.first_finished_success_rate(first)
    return {
        "first_finished_success_rate": biased,
        "first_finished_bias": biased - rate,
        "first_finished_episodes": first,
    }


def summary_of(
    config: Mapping[str, Any], env: EnvSource, result: Any, split: SplitReport | None, **more: Any
) -> dict[str, Any]:
    """The content of ``summary.json`` and ``evaluation.json`` for an evaluation, and ``more``."""
    head = {"algo": config["algo"], "env": config["env"], "seed": config["run"]["seed"]}
    kind = "training" if tested_on_training(env) else "held-out"
    tasks: dict[str, Any] = {"tested_on": kind} if any(task is not None for task in result.tasks) else {}
    tasks |= {} if split is None else {"task_split": split.to_dict()}
    return {
        **head,
        **evaluation_values(result, config),
        **more,
        **tasks,
        "versions": package_versions(),
    }
