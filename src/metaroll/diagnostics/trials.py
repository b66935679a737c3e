"""Short rollouts with random actions, in which environments and their tasks are looked at."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.compare import trees_equal
from metaroll.envs.base.step_results import explained
from metaroll.seeding import isolated_rng

__all__ = ["Trial", "close_env", "flat_rows", "play", "random_actions", "trial_in_worker"]


@dataclass
class Trial:
    """What came of one rollout; comparable bit for bit."""

    observations: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False

    def same_as(self, other: Trial) -> bool:
        """Whether the other one showed and gave the same at every step."""
        return self._shown() == other._shown() and trees_equal(self.observations, other.observations)

    def first_difference(self, other: Trial) -> str:
        """Where the two part."""
        for step, (left, right) in enumerate(zip(self.observations, other.observations, strict=False)):
            if not trees_equal(left, right):
                return "at the reset" if step == 0 else f"after step {step}"
            if step < min(len(self.rewards), len(other.rewards)) and self.rewards[step] != other.rewards[step]:
                return f"in the reward of step {step + 1}"
        return f"after step {min(len(self.rewards), len(other.rewards))}"

    def _shown(self) -> tuple[bytes, bool, bool]:
        return np.array(self.rewards).tobytes(), self.terminated, self.truncated


def random_actions(space: gymnasium.Space, num_steps: int, seed: int) -> list[Any]:
    """Actions from anywhere in the space."""
    own = copy.deepcopy(space)  # its generator is not to be moved
    own.seed(seed)
    return [own.sample() for _ in range(num_steps)]


def play(env: Any, seed: int, actions: Sequence[Any], between: Callable[[Any], Any] | None = None) -> Trial:
    """Reset ``env`` with ``seed``, then act until it ends, or no action is left.

    Args:
        env: Any environment of the Gymnasium API.
        seed: Of the reset.
        actions: What to do.
        between: Called with the environment after the reset; returns the one to step.
    """
    trial = Trial()
    result = env.reset(seed=seed)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"reset(seed=...) must return (observation, info), got {type(result).__name__}")
    trial.observations.append(copy.deepcopy(result[0]))
    if between is not None:
        env = between(env)
    for action in actions:
        result = env.step(copy.deepcopy(action))
        if not isinstance(result, tuple) or len(result) != 5:
            what = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
            raise TypeError(f"step must return (observation, reward, terminated, truncated, info), got {what}")
        observation, reward, terminated, truncated, _ = result
        trial.observations.append(copy.deepcopy(observation))
        trial.actions.append(action)
        try:
            trial.rewards.append(float(reward))
            trial.terminated, trial.truncated = bool(terminated), bool(truncated)
        except (TypeError, ValueError) as error:
            raise explained(error, result, env.observation_space) from error
        if terminated or truncated:
            break
    return trial


def trial_in_worker(namespace: Any, update: Callable[..., Any], seed: int, actions: Sequence[Any]) -> Trial:
    """A rollout in another process."""
    with isolated_rng(seed):
        env = update(None)
        try:
            return play(env, seed, actions)
        finally:
            close_env(env)


def close_env(env: Any) -> None:
    """Close it, if it can be closed."""
    if hasattr(env, "close"):
        env.close()


def flat_rows(space: gymnasium.Space, elements: list[Any]) -> np.ndarray | None:
    """Elements of a space as rows of numbers ``(N, D)``; ``None`` for spaces without a fixed number of them."""
    if not space.is_np_flattenable:
        return None
    rows = [np.asarray(gymnasium.spaces.flatten(space, element), dtype=np.float64).reshape(-1) for element in elements]
    return np.stack(rows) if rows else np.zeros((0, gymnasium.spaces.flatdim(space)))
