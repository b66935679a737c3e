"""Random tabular MDPs (Osband et al. 2013, arXiv:1306.0940; RL2, Duan et al. 2016, arXiv:1611.02779, section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from metaroll.checks import check_whole
from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.errors import ShapeError
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = ["RandomMDPEnv"]

_HORIZON = 10


class _TabularMDP(TaskSimulator):
    """S states and A actions; the state is a column of indices."""

    state_dim = 1
    runs_on_torch = True
    noise_dim = 3
    """One number for the next state, two for the normal reward."""

    def __init__(self, env_type: type, num_states: int, num_actions: int, task: Any) -> None:
        self.num_states, self.num_actions = num_states, num_actions
        super().__init__(env_type, EnvSpec(Discrete(num_states), Discrete(num_actions), _HORIZON), task)

    def check_task(self, task: Any) -> dict[str, np.ndarray]:
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

    def constants(self, tasks: Any, xp: Any) -> dict[str, Any]:
        """Mean rewards, and transitions summed up over the next states."""
        cumulative = np.cumsum(np.stack([task["transitions"] for task in tasks]), axis=-1)
        rewards = np.stack([task["rewards"] for task in tasks])
        return {"rewards": xp.asarray(rewards), "cumulative": xp.asarray(cumulative / cumulative[..., -1:])}

    def check_init_state(self, init_state: Any) -> np.ndarray:
        """One state, ``(1,)``."""
        state = super().check_init_state(init_state)
        if not 0 <= state[0] < self.num_states or state[0] != math.floor(state[0]):
            raise ValueError(f"init_state must be a whole number from 0 to {self.num_states - 1}, got {state}")
        return state

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> Any:
        return (xp.asarray(inits[:, 0].astype(np.int64)),)

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """State 0."""
        return (xp.zeros(len(constants["rewards"]), dtype=xp.int64),)

    def observe(self, state: Any, constants: Any, xp: Any) -> Any:
        """The states, ``(N,)``."""
        return xp.asarray(state[0], copy=True)

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Take ``actions (N,)``. Normal rewards are those of Box and Muller 1958."""
        (here,), rows = state, xp.arange(len(actions), device=actions.device)
        normal = xp.sqrt(-2.0 * xp.log(1.0 - noise[1])) * xp.cos((2.0 * math.pi) * noise[2])
        rewards = constants["rewards"][rows, here, actions] + normal
        # The last sum is 1 exactly, and the uniform number below it.
        following = (constants["cumulative"][rows, here, actions] <= noise[0][:, None]).sum(axis=1)
        return NextState((following,), rewards)


class RandomMDPEnv(SettableTask, BatchedEnv):
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

    def __init__(
        self,
        rewards: np.ndarray | None = None,
        transitions: np.ndarray | None = None,
        num_states: int = 10,
        num_actions: int = 5,
        render_mode: str | None = None,
    ) -> None:
        self.num_states = check_whole("num_states", num_states)
        self.num_actions = check_whole("num_actions", num_actions)
        pairs = (self.num_states, self.num_actions)
        task = {
            "rewards": np.ones(pairs) if rewards is None else rewards,
            "transitions": np.full((*pairs, pairs[0]), 1.0 / pairs[0]) if transitions is None else transitions,
        }
        super().__init__(_TabularMDP(type(self), *pairs, task), render_mode)

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
