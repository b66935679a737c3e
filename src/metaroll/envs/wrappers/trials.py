"""Several episodes of one task as one rollout, as fast adaptation by memory needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.checks import check_whole
from metaroll.envs.wrappers.base import ChainWrapper, Memory, RowStep, check_wrapped, inner_env, spec_of, typed_env
from metaroll.envs.wrappers.domain_rand import DomainRandWrapper
from metaroll.functional.philox import integers32
from metaroll.tasks.plan_table import env_keys
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan

__all__ = ["TrialUpdate", "TrialWrapper"]

_ROLE = 32
"""Of the stream of seeds for episodes (see ``tasks.plan_table``)."""

_ADD = "add it there, or give the tasks with TaskFamily.from_env(make_env, tasks=...)"
_LACKING = {"sample_tasks": _ADD, "set_task": _ADD, "get_task": "add it there, or remember the task that you set"}
"""The hint where the environment inside lacks a method of tasks."""


class TrialWrapper(ChainWrapper):
    """A trial: ``episodes_per_trial`` episodes in a row, without a change of task, that count as one rollout.

    As in RL^2 (Duan et al. 2016, arXiv:1611.02779) the observation is followed by the last action, the last reward, and
    1 where the last step ended an episode, else 0; all are 0 at the start of the trial. Discrete observations and
    actions are one-hot.
    The end of an episode ends the rollout only if it is the last one: otherwise the first observation of the next
    episode takes the place of the last one of this. A recurrent policy so remembers what it has seen in the task.
    Episodes start from their own seeds, which hang on the seed of the trial alone. ``info["episode"]`` is the number
    of the episode that a step belongs to, from 0, ``info["episode_return"]`` the sum of its rewards so far.

    An initial state in a plan is that of the first episode. Put wrappers that draw domain parameters around a trial.

    Args:
        env: Environment with a Box or Discrete space of observations, and one of actions.
        episodes_per_trial: How many, at least 1.
        max_episode_steps: Steps after which an episode is truncated; ``None`` means the limit of ``env``.
        reward_key: Name of the info that is shown as last reward; ``None`` means the reward itself.

    Raises:
        TypeError: ``env`` is not an environment, or has other spaces.
        ValueError: It holds a trial already, or draws domain parameters at every reset.
    """

    reports_applied = False

    def __init__(
        self, env: Any, episodes_per_trial: int, max_episode_steps: int | None = None, reward_key: str | None = None
    ) -> None:
        self.episodes_per_trial = check_whole("episodes_per_trial", episodes_per_trial)
        check_wrapped(env)
        inner = typed_env(env, (TrialWrapper, DomainRandWrapper))
        if inner is not None:
            hint = (
                ": wrap the environment inside it, with as many episodes_per_trial as there shall be in all"
                if isinstance(inner, TrialWrapper)
                else ", which would change the task in a trial: put it outside"
            )
            raise ValueError(f"env of a TrialWrapper must not hold a {type(inner).__name__}{hint}")
        for kind in ("observation", "action"):
            space = getattr(env, f"{kind}_space")
            if not isinstance(space, Box | Discrete):
                raise TypeError(f"TrialWrapper needs a Box or Discrete {kind}_space, got {space}")
        limit = spec_of(env).max_episode_length
        self.max_episode_steps, self.reward_key = max_episode_steps, reward_key
        self.info_names = () if reward_key is None else (reward_key,)
        self._limit = limit if max_episode_steps is None else check_whole("max_episode_steps", max_episode_steps)
        (low, high), (action_low, action_high) = _bounds(env.observation_space), _bounds(env.action_space)
        self._num_actions = len(action_low)
        if isinstance(env.action_space, Box):  # they are seen as the policy chose them, before they are clipped
            action_low, action_high = np.full_like(action_low, -np.inf), np.full_like(action_high, np.inf)
        self._dtype = low.dtype if low.dtype.kind == "f" else np.dtype(np.float32)
        super().__init__(env)
        self.observation_space = Box(
            np.concatenate([low, np.minimum(action_low, 0.0), [-np.inf, 0.0]]).astype(self._dtype),
            np.concatenate([high, np.maximum(action_high, 0.0), [np.inf, 1.0]]).astype(self._dtype),
            dtype=self._dtype.type,  # type: ignore[arg-type]
        )

    def __getattr__(self, name: str) -> Any:
        """Only for an error that names where tasks are."""
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in ("get_task", "set_task", "sample_tasks") and "env" in vars(self):  # not while it is copied
            inner = inner_env(self.env)
            message += (
                f"; call env.unwrapped.{name}"
                if hasattr(inner, name)
                else f", and {type(inner).__name__} inside lacks it: {_LACKING[name]}"
            )
        raise AttributeError(message, name=name, obj=self)

    @property
    def env_spec(self) -> EnvSpec:
        """The spec of the environment inside, with the additional entries and the limit of a trial."""
        inner = spec_of(self.env)
        names = (*(f"last_action_{i}" for i in range(self._num_actions)), "last_reward", "last_done")
        return replace(
            inner,
            observation_space=self.observation_space,
            action_space=self.action_space,
            observation_labels=None if inner.observation_labels is None else (*inner.observation_labels, *names),
            max_episode_length=None if self._limit is None else self._limit * self.episodes_per_trial,
        )

    def inner_update(self, update: EnvUpdate | None) -> EnvUpdate | None:
        """The update for the environment inside, of a ``TrialUpdate`` that makes such trials."""
        if isinstance(update, TrialUpdate) and update.makes(self):
            return self.inner_update(update.update)
        return super().inner_update(update)

    def new_memory(self, num_rows: int) -> Memory:
        """Keys of the seeds; number, steps and return of the episode; last action, reward and ending."""
        return {
            "keys": env_keys(np.random.default_rng().integers(2**31, size=num_rows)),
            "episode": np.zeros(num_rows, dtype=np.int64),
            "steps": np.zeros(num_rows, dtype=np.int64),
            "return": np.zeros(num_rows),
            "action": np.zeros((num_rows, self._num_actions)),
            "reward": np.zeros(num_rows),
            "done": np.zeros(num_rows, dtype=bool),
        }

    def start_rows(
        self, memory: Memory, rows: np.ndarray, env_seeds: np.ndarray | None, plans: Sequence[RolloutPlan] | None = None
    ) -> None:
        """The first episode of a trial; without seeds the next episodes of the stream before."""
        memory["keys"][rows] = (
            env_keys(integers32(memory["keys"][rows], _ROLE, 1)[:, 0] >> 1)
            if env_seeds is None
            else env_keys(env_seeds)
        )
        for name in ("episode", "steps", "return", "action", "reward", "done"):
            memory[name][rows] = 0

    def rows_in(self, actions: np.ndarray, memory: Memory, rows: np.ndarray) -> np.ndarray:
        """Remember the actions; they are not changed."""
        discrete = isinstance(self.env.action_space, Discrete)
        memory["action"][rows] = (
            np.eye(self._num_actions)[actions] if discrete else actions.reshape(len(rows), self._num_actions)
        )
        return actions

    def restarts(self, step: RowStep, memory: Memory, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows whose episode has ended, and is not the last of the trial."""
        memory["steps"][rows] += 1
        memory["return"][rows] += step.rewards
        seen = step.rewards if self.reward_key is None else step.inner[self.reward_key].astype(np.float64)
        # A reward that is not finite is reported as a reward, rather than as an observation.
        memory["reward"][rows] = np.where(np.isfinite(seen), seen, 0.0)
        memory["done"][rows] = self._over(step, memory, rows)
        again = np.flatnonzero(memory["done"][rows] & (memory["episode"][rows] < self.episodes_per_trial - 1))
        number = memory["episode"][rows[again]] + 1
        return again, (integers32(memory["keys"][rows[again]], _ROLE, 1, number)[:, 0] >> 1).astype(np.int64)

    def rows_out(self, step: RowStep, memory: Memory, rows: np.ndarray) -> RowStep:
        """Endings of the last episode alone, and the numbers of all in infos."""
        infos = {"episode": memory["episode"][rows], "episode_return": memory["return"][rows]}
        last = infos["episode"] == self.episodes_per_trial - 1
        over = memory["done"][rows]
        terminated = step.terminated.astype(bool) & last
        truncated = over & last & ~terminated | step.truncated.astype(bool) & last
        next_ones = rows[over & ~last]
        memory["episode"][next_ones] += 1
        memory["steps"][next_ones] = 0
        memory["return"][next_ones] = 0.0
        return RowStep(self.rows_seen(step.observations, memory, rows), step.rewards, terminated, truncated, infos)

    def rows_seen(self, observations: Any, memory: Memory, rows: np.ndarray) -> np.ndarray:
        """``observations (k, ...)`` with the last action, reward and ending: ``(k, obs_dim + A + 2)``."""
        space = self.env.observation_space
        if isinstance(space, Discrete):
            flat = np.eye(int(space.n))[observations - space.start]
        else:
            flat = observations.reshape(len(rows), int(np.prod(observations.shape[1:])))
        last = (memory["action"][rows], memory["reward"][rows, None], memory["done"][rows, None])
        return np.concatenate([flat, *last], axis=1, dtype=self._dtype, casting="unsafe")

    def seen_now(self, observation: Any) -> Any:
        """The present observation, as shown."""
        return self.rows_seen(np.asarray(observation)[None], self._memory, np.zeros(1, dtype=np.int64))[0]

    def _over(self, step: RowStep, memory: Memory, rows: np.ndarray) -> np.ndarray:
        ended = step.terminated.astype(bool) | step.truncated.astype(bool)
        return ended if self._limit is None else ended | (memory["steps"][rows] >= self._limit)


class TrialUpdate(EnvUpdate):
    """Trials in the task of another update: a ``TrialWrapper`` around the environment that it makes.

    Args:
        update: Sets the task, or builds the environment of it.
        episodes_per_trial, max_episode_steps, reward_key: See ``TrialWrapper``.

    Raises:
        TypeError: ``update`` is no ``EnvUpdate``.
        ValueError: ``episodes_per_trial`` or ``max_episode_steps`` is below 1.
    """

    def __init__(
        self,
        update: EnvUpdate,
        episodes_per_trial: int,
        max_episode_steps: int | None = None,
        reward_key: str | None = None,
    ) -> None:
        if not isinstance(update, EnvUpdate):
            raise TypeError(f"update must be an EnvUpdate, got {type(update).__name__}")
        self.update = update
        self.episodes_per_trial = check_whole("episodes_per_trial", episodes_per_trial)
        self.max_episode_steps = (
            None if max_episode_steps is None else check_whole("max_episode_steps", max_episode_steps)
        )
        self.reward_key = reward_key
        self.task, self.builds_env = update.task, update.builds_env

    def __call__(self, old_env: Any = None) -> Any:
        inner = old_env.env if isinstance(old_env, TrialWrapper) else old_env
        made = self.update(inner)
        if made is inner and isinstance(old_env, TrialWrapper) and self.makes(old_env):
            return old_env
        return TrialWrapper(made, *self._limits())

    def makes(self, trial: TrialWrapper) -> bool:
        """Whether its trials are as long as those of ``trial``, and show the same reward."""
        return self._limits() == (trial.episodes_per_trial, trial.max_episode_steps, trial.reward_key)

    def replaces(self, previous: EnvUpdate) -> bool:
        """Where the update inside replaces that of ``previous``, which made trials, too."""
        return isinstance(previous, TrialUpdate) and self.update.replaces(previous.update)

    def __eq__(self, other: object) -> bool:
        if type(other) is not TrialUpdate:
            return NotImplemented
        return self.update == other.update and self._limits() == other._limits()

    def __hash__(self) -> int:
        return hash((TrialUpdate, self.update, self._limits()))

    def __repr__(self) -> str:
        shown = self._limits() if self.reward_key is not None else self._limits()[:2]
        return f"TrialUpdate({self.update!r}, {', '.join(map(repr, shown))})"

    def _limits(self) -> tuple[int, int | None, str | None]:
        return self.episodes_per_trial, self.max_episode_steps, self.reward_key


def _bounds(space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    """Number of entries of a flat Box, or of the one-hot encoding of a Discrete space."""
    if isinstance(space, Discrete):
        return np.zeros(int(space.n), np.float32), np.ones(int(space.n), np.float32)
    assert isinstance(space, Box)
    return space.low.reshape(-1), space.high.reshape(-1)
