"""What acts while networks are trained, and in which units its actions are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np
from torch import Tensor

from metaroll.learners.off_policy.networks import as_one_vector
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.exploration import EpsilonGreedyPolicy, UniformFirstPolicy
from metaroll.policies.scaling import ActionScaling

__all__ = ["BoxExploration", "ChoiceExploration", "EpsilonGreedy", "Exploration", "UniformFirst"]


class Exploration(ABC):
    """What acts while networks are trained.

    Attributes:
        policy: It acts.
    """

    policy: ActingPolicy
    _vector: Tensor | None = None

    @abstractmethod
    def prepare(self, num_env_steps: int) -> None:
        """Set what a schedule says after ``num_env_steps``: it is part of the acting parameters."""

    def vector(self) -> np.ndarray:
        """Flat parameters that act now; on the CPU they are no copy, unless buffers are among them."""
        if any(True for _ in self.policy.buffers()):  # a module may put other tensors in their place
            return self.policy.acting_parameters()
        if self._vector is None:
            self._vector = as_one_vector(self.policy, self.policy.acting_parameter_names())
        return self._vector.cpu().numpy()

    @abstractmethod
    def stored(self, actions: Any) -> Any:
        """Actions of the environment in the units of the policy."""


class EpsilonGreedy(Exploration):
    """Actions at random with a probability that falls linearly, else the best ones.

    Args:
        policy: Acts with that probability at random; of another class, it is left as it is.
        first, last: The probability at first, and in the end.
        num_steps: Environment steps that the fall takes.
    """

    def __init__(self, policy: ActingPolicy, first: float, last: float, num_steps: int) -> None:
        self.policy = policy
        self._first, self._last, self._num_steps = first, last, num_steps

    def prepare(self, num_env_steps: int) -> None:
        """See ``Exploration``."""
        if isinstance(self.policy, EpsilonGreedyPolicy):
            share = min(1.0, num_env_steps / self._num_steps) if self._num_steps else 1.0
            self.policy.set_epsilon(self._first + share * (self._last - self._first))

    def stored(self, actions: Any) -> Any:
        """See ``Exploration``: indices from 0."""
        return actions


class UniformFirst(Exploration, ABC):
    """Uniform at first, then as a policy.

    Args:
        policy: Acts around the policy that is trained, or is that.
        random_steps: Environment steps with actions at random.
    """

    def __init__(self, policy: ActingPolicy, random_steps: int) -> None:
        self._random_steps = random_steps
        self.policy = UniformFirstPolicy(policy) if self._random_steps else policy

    def prepare(self, num_env_steps: int) -> None:
        """See ``Exploration``."""
        if isinstance(self.policy, UniformFirstPolicy):
            self.policy.set_uniform(num_env_steps < self._random_steps)


@final
class BoxExploration(UniformFirst):
    """Where actions are a Box."""

    def __init__(self, policy: ActingPolicy, random_steps: int) -> None:
        super().__init__(policy, random_steps)
        self._scaling = ActionScaling.of_squashed(policy.env_spec.action_space)

    def stored(self, actions: Any) -> Any:
        """See ``Exploration``: in [-1, 1]."""
        rows = np.asarray(actions, dtype=np.float32)
        rows = rows.reshape(len(rows), -1)
        return rows if self._scaling is None else self._scaling.unscaled(rows)


@final
class ChoiceExploration(UniformFirst):
    """Where actions are Discrete."""

    def stored(self, actions: Any) -> Any:
        """See ``Exploration``: indices from 0."""
        return actions
