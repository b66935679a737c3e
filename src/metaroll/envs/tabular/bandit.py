"""Bernoulli bandits (as in RL2, Duan et al. 2016, arXiv:1611.02779, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from metaroll.envs.base.batched_env import ArrayStep, BatchedEnv
from metaroll.errors import ShapeError
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = ["BernoulliBanditEnv", "TenArmedBanditEnv"]

_HORIZON = 10


class BernoulliBanditEnv(BatchedEnv):
    """Each action pulls an arm, which pays 1 with a probability of its own, else 0; there is nothing to see.

    It never ends; the family's horizon is 10 pulls, and whoever wants longer games gives another ``max_steps``.

    Args:
        probabilities: Of each arm, ``(k,)``; ``None`` means 0.5 for all.
        num_arms: Number of arms k; ``None`` means as many as ``probabilities``, or the class's own, 5.
        render_mode: Only ``None``.
    """

    state_dim: ClassVar[int] = 0
    noise_dim: ClassVar[int] = 1
    _own_num_arms: ClassVar[int] = 5

    def __init__(
        self,
        probabilities: Sequence[float] | np.ndarray | None = None,
        num_arms: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if num_arms is None:
            num_arms = self._own_num_arms if probabilities is None else len(probabilities)
        if isinstance(num_arms, bool) or not isinstance(num_arms, int | np.integer) or num_arms < 1:
            raise ValueError(f"num_arms must be a whole number of at least 1, got {num_arms!r}")
        self.num_arms = int(num_arms)
        task = {"probabilities": np.full(self.num_arms, 0.5) if probabilities is None else probabilities}
        super().__init__(EnvSpec(Discrete(1), Discrete(self.num_arms), _HORIZON), task, render_mode)

    def sample_tasks(
        self, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"probabilities": (k,)}``, each uniform in [0, 1]."""
        return [{"probabilities": row} for row in as_generator(generator).random((num_tasks, self.num_arms))]

    def checked_task(self, task: Any) -> dict[str, np.ndarray]:
        """The probabilities ``(k,)``."""
        if not isinstance(task, Mapping) or "probabilities" not in task:
            raise ValueError(
                f"task must be a mapping with 'probabilities', one for each of the {self.num_arms} arms, got {task!r}"
            )
        probabilities = np.array(task["probabilities"], dtype=np.float64)
        if probabilities.shape != (self.num_arms,):
            raise ShapeError(f"probabilities must have shape ({self.num_arms},), got {probabilities.shape}")
        if not ((probabilities >= 0) & (probabilities <= 1)).all():
            raise ValueError(f"probabilities must lie in [0, 1], got {probabilities}")
        return {"probabilities": probabilities}

    def draw_state(self, generator: np.random.Generator) -> np.ndarray:
        """Nothing, ``(0,)``."""
        return np.zeros(0)

    def observe(self, state: np.ndarray) -> np.ndarray:
        """Always 0, ``(N,)``."""
        return np.zeros(len(state), dtype=np.int64)

    def advance(
        self, state: np.ndarray, actions: np.ndarray, constants: Mapping[str, np.ndarray], noise: np.ndarray
    ) -> ArrayStep:
        """Pull arms ``actions (N,)``."""
        chance = constants["probabilities"][np.arange(len(actions)), actions]
        return ArrayStep(state, (noise[:, 0] < chance).astype(np.float64))


class TenArmedBanditEnv(BernoulliBanditEnv):
    """A Bernoulli bandit with ten arms."""

    _own_num_arms: ClassVar[int] = 10
