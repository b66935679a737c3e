"""The epochs of a learner that forgets its rollouts after every update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from metaroll.data.step_sequence import StepSequence
from metaroll.types import Runner

__all__ = ["OnPolicyLearner", "train_epochs"]


class OnPolicyLearner(Protocol):
    """What ``train_epochs`` asks of a learner."""

    @property
    def evaluate_every(self) -> int:
        """Evaluate after every so many epochs; 0 means never."""
        ...

    @property
    def test_env_sampler(self) -> Any:
        """Task sampler of the evaluations; ``None`` means the environment as it is."""
        ...

    def collect(self, runner: Runner) -> list[StepSequence]:
        """The rollouts of one epoch."""
        ...

    def update(self, rollouts: Sequence[StepSequence]) -> Mapping[str, float]:
        """Learn from them; numbers for the log, ``return`` among them."""
        ...


def train_epochs(learner: OnPolicyLearner, runner: Runner) -> float | None:
    """Collect, update and evaluate, for each epoch of ``runner``.

    Returns:
        Average return of the last evaluation; of the last training rollouts where there was none.
    """
    average_return: float | None = None
    evaluated = False
    for epoch in runner.step_epochs():
        metrics = learner.update(learner.collect(runner))
        runner.log(metrics)
        if learner.evaluate_every and (epoch + 1) % learner.evaluate_every == 0:
            average_return, evaluated = runner.evaluate(learner, learner.test_env_sampler), True
        elif not evaluated:
            average_return = metrics["return"]
    return average_return
