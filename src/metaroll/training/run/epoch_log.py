"""Collects the numbers of an epoch: for ``metrics.jsonl``, and for the callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaroll.training.evaluation.evaluation_result import EvaluationResult
from metaroll.training.evaluation.policy_evaluator import PolicyEvaluation
from metaroll.training.store.metrics_log import MetricsLog, scalar

__all__ = ["EpochLog"]


class EpochLog:
    """Numbers of the present epoch, by name (``<phase>/<metric>``; ``train`` goes without saying).

    Attributes:
        epoch: The present epoch.
        numbers: Its numbers so far.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.numbers: dict[str, float] = {}

    def start(self, epoch: int) -> None:
        """Forget the last epoch's numbers."""
        self.epoch, self.numbers = epoch, {}

    def add(self, log: MetricsLog, env_steps: int, metrics: Mapping[str, Any]) -> None:
        """Numbers of training, or of the phase that a name begins with."""
        for name, value in metrics.items():
            phase, _, metric = name.rpartition("/")
            log.append(self.epoch, env_steps, phase or "train", {metric: value})
            self.numbers[name] = scalar(name, value)

    def add_evaluation(self, log: MetricsLog, env_steps: int, result: EvaluationResult | PolicyEvaluation) -> None:
        """Summary of an evaluation, and the returns in each task."""
        average = f"{result.prefix}/Average/"
        pooled = {name.removeprefix(average): v for name, v in result.metrics.items() if name.startswith(average)}
        values = {**result.summary(), **pooled, "env_steps_of_evaluation": result.env_steps}
        log.append(self.epoch, env_steps, result.prefix, values)
        for name, numbers in result.per_task():
            log.append(self.epoch, env_steps, result.prefix, numbers, name)
        self.numbers.update({f"{result.prefix}/{name}": scalar(name, value) for name, value in values.items()})
