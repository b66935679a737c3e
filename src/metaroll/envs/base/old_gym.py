"""Environments of the old Gym API (ProMP's, rllab's) as Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import takes_arguments
from metaroll.seeding import GlobalStream, derive_seed

__all__ = ["OldGymEnv", "OldGymMaker", "as_gymnasium"]


def as_gymnasium(env: Any) -> Any:
    """``env``, or an ``OldGymEnv`` around it if its ``reset`` takes no seed; other objects are returned unchanged."""
    is_instance = not isinstance(env, type) and hasattr(env, "reset") and hasattr(env, "step")
    if not is_instance or isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        return env
    return env if takes_arguments(env.reset, seed=0) else OldGymEnv(env)


@dataclass(frozen=True)
class OldGymMaker:
    """Makes the environments of ``make``, which have the old API, as ``OldGymEnv``."""

    make: Callable[[], Any]

    def __call__(self) -> OldGymEnv:
        return OldGymEnv(self.make())


class OldGymEnv(gymnasium.Env):
    """``reset() -> obs`` and ``step(action) -> (obs, reward, done, info)`` behind Gymnasium's API.

    ``done`` counts as terminated, unless ``info["TimeLimit.truncated"]`` is set. Such environments often draw
    from the global generators, which are seeded for each episode while the environment runs, and given back after every
    call; ``env.seed`` is called as well, if there is such a method.

    Args:
        env: The environment; with ``sample_tasks``, ``set_task`` and ``get_task`` if it has tasks.

    Raises:
        TypeError: It does not declare its spaces.
    """

    def __init__(self, env: Any) -> None:
        self._old = env
        self.observation_space = _space(env, "observation_space")
        self.action_space = _space(env, "action_space")
        self._stream = GlobalStream(0)

    @property
    def name(self) -> str:
        """The class of the environment."""
        return type(self._old).__name__

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else int(seed)
        self._stream = GlobalStream(derive_seed("old gym", drawn))
        if hasattr(self._old, "seed"):
            self._old.seed(drawn % 2**31)
        with self._stream.active():
            return self._observation(self._old.reset()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step."""
        with self._stream.active():
            result = self._old.step(action)
        if not isinstance(result, tuple) or len(result) != 4:
            raise TypeError(f"step() of {self.name} must return (obs, reward, done, info), got {result!r}")
        observation, reward, done, info = result
        info = dict(info or {})
        cut = bool(info.get("TimeLimit.truncated", False))
        done = bool(np.asarray(done).reshape(()))
        return self._observation(observation), float(np.asarray(reward).reshape(())), done and not cut, cut, info

    def sample_tasks(self, num_tasks: int) -> list[Any]:
        """Tasks of the environment."""
        return list(self._method("sample_tasks")(num_tasks))

    def set_task(self, task: Any) -> None:
        """Set a task."""
        self._method("set_task")(task)

    def get_task(self) -> Any:
        """The task that is set."""
        return self._method("get_task")()

    def render(self) -> Any:
        """The picture that the environment draws."""
        return self._method("render")()

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        if hasattr(self._old, "close"):
            self._old.close()

    def _method(self, name: str) -> Any:
        method = getattr(self._old, name, None)
        if not callable(method):
            raise TypeError(f"env must have {name}(), which {self.name} lacks")
        return method

    def _observation(self, observation: Any) -> np.ndarray:
        return np.array(observation, dtype=self.observation_space.dtype)


def _space(env: Any, name: str) -> gymnasium.Space:
    """A space of the old Gym, or of another library, as one of Gymnasium."""
    space = getattr(env, name, None)
    if isinstance(space, gymnasium.Space):
        return space
    if hasattr(space, "low") and hasattr(space, "high"):
        low, high = (np.asarray(getattr(space, bound)) for bound in ("low", "high"))
        dtype = np.dtype(getattr(space, "dtype", None) or np.float32)
        return gymnasium.spaces.Box(low.astype(dtype), high.astype(dtype), low.shape, dtype.type)
    choices = getattr(space, "n", None)
    if choices is not None:
        return gymnasium.spaces.Discrete(int(choices))
    raise TypeError(f"env must have {name}, a Box or Discrete space, got {space!r} of {type(env).__name__}")
