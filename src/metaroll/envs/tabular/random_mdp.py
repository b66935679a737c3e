"""Random tabular MDPs (Osband et al. 2013, arXiv:1306.0940; RL2, Duan et al. 2016, arXiv:1611.02779, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from metaroll.envs.base.batched_env import ArrayStep, BatchedEnv
from metaroll.errors import ShapeError
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = ["RandomMDPEnv"]

_HORIZON = 10


class RandomMDPEnv(BatchedEnv):
    """A Markov decision process with random tables: 10 states, 5 actions, normal rewards.

    The reward of an action in a state is normal with the mean of the table and variance 1. Episodes start in state 0
    and never end; the family's horizon is 10 steps. ``reset(options={"init_state": (s,)})`` chooses another state.

    Args:
        rewards: Mean rewards ``(S, A)``; ``None`` means 1 everywhere.
        transitions: Probabilities of the next state ``(S, A, S)``; ``None`` means all are equally likely.
        num_states: Number of states S.
        num_actions: Number of actions A.
        render_mode: Only ``None``.
    """

    state_dim: ClassVar[int] = 1
    state_dtype: ClassVar[type] = np.int64
    noise_dim: ClassVar[int] = 2

    def __init__(
        self,
        rewards: np.ndarray | None = None,
        transitions: np.ndarray | None = None,
        num_states: int = 10,
        num_actions: int = 5,
        render_mode: str | None = None,
    ) -> None:
        for name, value in (("num_states", num_states), ("num_actions", num_actions)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        self.num_states, self.num_actions = int(num_states), int(num_actions)
        pairs = (self.num_states, self.num_actions)
        task = {
            "rewards": np.ones(pairs) if rewards is None else rewards,
            "transitions": np.full((*pairs, pairs[0]), 1.0 / pairs[0]) if transitions is None else transitions,
        }
        super().__init__(EnvSpec(Discrete(pairs[0]), Discrete(pairs[1]), _HORIZON), task, render_mode)

    def sample_tasks(
        self, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"rewards": (S, A), "transitions": (S, A, S)}``: means N(1, 1), rows Dirichlet(1, ..., 1)."""
        generator = as_generator(generator)
        pairs = (self.num_states, self.num_actions)
        return [
            {
                "rewards": generator.normal(1.0, 1.0, size=pairs),
                "transitions": generator.dirichlet(np.ones(self.num_states), size=pairs),
            }
            for _ in range(num_tasks)
        ]

    def checked_task(self, task: Any) -> dict[str, np.ndarray]:
        """Tables of mean rewards ``(S, A)`` and of transitions ``(S, A, S)``."""
        pairs = (self.num_states, self.num_actions)
        shapes = {"rewards": pairs, "transitions": (*pairs, self.num_states)}
        if not isinstance(task, Mapping) or any(name not in task for name in shapes):
            raise ValueError(
                f"task must be a mapping with 'rewards' of shape {shapes['rewards']} and 'transitions' of shape "
                f"{shapes['transitions']}, got {task!r}"
            )
        tables = {name: np.array(task[name], dtype=np.float64) for name in shapes}
        for name, table in tables.items():
            if table.shape != shapes[name]:
                raise ShapeError(f"task[{name!r}] must have shape {shapes[name]}, got {table.shape}")
            if not np.isfinite(table).all():
                raise ValueError(f"task[{name!r}] must be finite, got {table}")
        sums = tables["transitions"].sum(axis=-1)
        if (tables["transitions"] < 0).any() or np.abs(sums - 1.0).max() > 1e-6:
            raise ValueError(
                "task['transitions'] must hold probabilities, at least 0, that sum to 1 over the next state, got a "
                f"least entry of {tables['transitions'].min():g} and sums from {sums.min():g} to {sums.max():g}"
            )
        return tables

    def constants_of(self, task: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mean rewards, and transitions summed up over the next states."""
        cumulative = np.cumsum(task["transitions"], axis=-1)
        return {"rewards": task["rewards"], "cumulative": cumulative / cumulative[..., -1:]}

    def draw_state(self, generator: np.random.Generator) -> np.ndarray:
        """State 0."""
        return np.zeros(1, dtype=np.int64)

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        """A uniform number for the next state and a normal one for the reward, ``(num_steps, 2)``."""
        return np.stack([generator.random(num_steps), generator.standard_normal(num_steps)], axis=1)

    def checked_state(self, init_state: Any) -> np.ndarray:
        """One state, ``(1,)``."""
        state = super().checked_state(init_state)
        if not 0 <= state[0] < self.num_states or state[0] != np.asarray(init_state).reshape(-1)[0]:
            raise ValueError(
                f"init_state must be a whole number from 0 to {self.num_states - 1}, got {np.asarray(init_state)}"
            )
        return state

    def observe(self, state: np.ndarray) -> np.ndarray:
        """The states, ``(N,)``."""
        return state[:, 0].copy()

    def advance(
        self, state: np.ndarray, actions: np.ndarray, constants: Mapping[str, np.ndarray], noise: np.ndarray
    ) -> ArrayStep:
        """Take ``actions (N,)``."""
        rows, here = np.arange(len(actions)), state[:, 0]
        reward = constants["rewards"][rows, here, actions] + noise[:, 1]
        # The last sum is 1 exactly, and the uniform number below it.
        following = (constants["cumulative"][rows, here, actions] <= noise[:, :1]).sum(axis=1)
        return ArrayStep(following[:, None], reward)
