"""Bernoulli bandits (as in RL2, Duan et al. 2016, arXiv:1611.02779, section 3.1)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from metaroll.checks import check_whole
from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.errors import ShapeError
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = ["BernoulliBanditEnv", "TenArmedBanditEnv"]

_HORIZON = 10


class _Bandit(TaskSimulator):
    """``num_arms`` arms; there is no state."""

    noise_dim = 1
    runs_on_torch = True

    def __init__(self, env_type: type, num_arms: int, task: Any) -> None:
        self.num_arms = num_arms
        super().__init__(env_type, EnvSpec(Discrete(1), Discrete(num_arms), _HORIZON), task)

    def check_task(self, task: Any) -> dict[str, np.ndarray]:
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

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> Any:
        return ()

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        return ()

    def observe(self, state: Any, constants: Any, xp: Any) -> Any:
        """Always 0, ``(N,)``."""
        chances = constants["probabilities"]
        return xp.zeros(len(chances), dtype=xp.int64, device=chances.device)

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Pull arms ``actions (N,)``."""
        chance = constants["probabilities"][xp.arange(len(actions), device=actions.device), actions]
        return NextState(state, xp.asarray(noise[0] < chance, dtype=xp.float64))


class _BanditEnv(SettableTask, BatchedEnv, ABC):
    """Each action pulls an arm, which pays 1 with its own probability, else 0; there is nothing to observe.

    It never terminates. An episode of the family is a single pull; used alone, it is truncated after 10, unless the
    caller sets another ``max_steps``.

    Args:
        probabilities: Probability of each arm, ``(k,)``; ``None`` means 0.5 for all.
        num_arms: Number of arms k; ``None`` means as many as ``probabilities``, or the class's own.
        render_mode: Only ``None``.
    """

    own_num_arms: ClassVar[int]

    def __init__(
        self,
        probabilities: Sequence[float] | np.ndarray | None = None,
        num_arms: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if num_arms is None:
            num_arms = self.own_num_arms if probabilities is None else len(probabilities)
        self.num_arms = check_whole("num_arms", num_arms)
        task = {"probabilities": np.full(self.num_arms, 0.5) if probabilities is None else probabilities}
        super().__init__(_Bandit(type(self), self.num_arms, task), render_mode)

    def sample_tasks(
        self, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"probabilities": (k,)}``, each uniform in [0, 1]."""
        return [{"probabilities": row} for row in as_generator(generator).random((num_tasks, self.num_arms))]


class BernoulliBanditEnv(_BanditEnv):
    """A Bernoulli bandit, by default with five arms: each pays 1 with its own probability, else 0.

    There is nothing to observe. It never terminates. An episode of the family is a single pull; used alone, it is
    truncated after 10, unless the caller sets another ``max_steps``.

    Args:
        probabilities: Probability of each arm, ``(k,)``; ``None`` means 0.5 for all.
        num_arms: Number of arms k; ``None`` means as many as ``probabilities``, or 5.
        render_mode: Only ``None``.
    """

    own_num_arms: ClassVar[int] = 5


class TenArmedBanditEnv(_BanditEnv):
    """A Bernoulli bandit with ten arms (see ``BernoulliBanditEnv``)."""

    own_num_arms: ClassVar[int] = 10
