"""What every learner offers: ``RLAlgorithm``, and ``MetaRLAlgorithm`` for those that adapt to a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaroll.types import Runner

__all__ = ["MetaRLAlgorithm", "RLAlgorithm"]


class RLAlgorithm(ABC):
    """Turns rollouts into a better policy.

    A runner reads these attributes where an algorithm has them: ``policy`` (what acts), ``max_path_length`` (steps per
    rollout), ``discount``, ``exploration_policy`` (acts during training instead of ``policy``).
    """

    @abstractmethod
    def train(self, runner: Runner) -> float | None:
        """Train for the epochs of ``runner``; the last average return (``None`` where there is none).

        Args:
            runner: Gives epochs, rollouts, evaluation and logging: ``for epoch in runner.step_epochs(): ...
                runner.obtain_samples(runner.step_itr, ...)``. Its counters belong to it; nobody assigns them.
        """


class MetaRLAlgorithm(RLAlgorithm):
    """An ``RLAlgorithm`` whose policy is adapted to a task from a few rollouts in it.

    Attributes:
        adapts_again: Whether ``adapt_policy`` takes policies that it returned as well as exploration policies: an
            evaluator that adapts after every episode then need not ask for a new exploration policy each time. All
            that counts for the result still are the given trajectories.
    """

    adapts_again: bool = False

    @abstractmethod
    def get_exploration_policy(self) -> Any:
        """A policy to collect rollouts with, before adaptation to one task.

        Every call gives a policy of its own: use each in one task only. Nothing that is done with it changes the
        policy in training.
        """

    @abstractmethod
    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        """The policy adapted to the task that the trajectories come from.

        Args:
            exploration_policy: A policy from ``get_exploration_policy()`` which made the trajectories. The caller gives
                it up: it must not be used after this call.
            exploration_trajectories: Trajectories of one task (``TrajectoryBatch``, ``StepSequence``, or a sequence of
                either).
        """
