"""What learners share that forget their rollouts after every update: their epochs, and the tasks they train in."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from metaroll.data.rollouts import Rollouts
from metaroll.types import EnvUpdate, Runner

__all__ = ["KNOWN_EPOCHS", "OnPolicyLearner", "TrainingTasks", "train_epochs"]


KNOWN_EPOCHS = 10
"""Moments that a given policy has count for so many epochs: so they stay in its own world, and follow in another."""


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

    def collect(self, runner: Runner) -> Rollouts:
        """The rollouts of one epoch."""
        ...

    def update(self, rollouts: Rollouts) -> Mapping[str, float]:
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


class TrainingTasks:
    """Draws environment updates with replacement.

    A list is drawn from with a generator of its own. A sampler is handed this generator if its ``sample`` takes a
    ``generator`` (as a ``DomainRandomizer`` does); else its own state goes into the snapshot if it has ``state_dict``
    and ``load_state_dict``; one that has neither draws other variations after a resume.

    Args:
        source: A list of ``EnvUpdate``, or a sampler with ``sample(n_tasks, with_replacement)``.
        seed: Seed of the generator.
    """

    def __init__(self, source: Any, seed: int) -> None:
        self._source: Any = list(source) if isinstance(source, list | tuple) else source
        if isinstance(self._source, list):
            if not self._source or not all(callable(update) for update in self._source):
                raise ValueError(f"task_sampler must be a sampler, or a list of at least one EnvUpdate, got {source!r}")
        elif not callable(getattr(source, "sample", None)):
            raise TypeError(f"task_sampler must have sample(n_tasks), got {type(source).__name__}")
        self._generator = np.random.default_rng(seed)

    def draw(self, count: int) -> list[EnvUpdate]:
        """``count`` updates."""
        source, generator = self._source, self._generator
        if isinstance(source, list):
            return [source[i] for i in generator.integers(len(source), size=count)]
        if "generator" in inspect.signature(source.sample).parameters:
            return list(source.sample(count, with_replacement=True, generator=generator))
        return list(source.sample(count, with_replacement=True))

    def state_dict(self) -> dict[str, Any]:
        """State of the generator, and of the sampler if it tells one."""
        tell = getattr(self._source, "state_dict", None)
        return {"generator": self._generator.bit_generator.state, "sampler": tell() if callable(tell) else None}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self._generator.bit_generator.state = tree["generator"]
        take = getattr(self._source, "load_state_dict", None)
        if tree["sampler"] is not None and callable(take):
            take(tree["sampler"])
