"""Wrappers that change actions on their way to the environment.

``info["act_applied"]`` is the command that reached what is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.checks import check_whole, plain_number
from metaroll.envs.wrappers.base import ChainWrapper, Memory, box_of
from metaroll.envs.wrappers.own_params import OwnParamsWrapper
from metaroll.types import RolloutPlan

__all__ = ["ActDelayWrapper", "ActNormWrapper", "DownsamplingWrapper"]

_LONGEST_DELAY = 10_000
_DELAY = "act_delay"


class ActNormWrapper(ChainWrapper):
    """Actions in [-1, 1] instead of the environment's own bounds, those that it has when it is wrapped.

    Args:
        env: Environment with a bounded Box of actions.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = box_of(env, "action", self)
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ValueError(f"ActNormWrapper needs finite bounds of actions, got {space}")
        self.action_space = Box(-1.0, 1.0, space.shape, space.dtype.type)  # type: ignore[arg-type]
        self._dtype = space.dtype
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._middle, self._half = 0.5 * (low + high), 0.5 * (high - low)

    def rows_in(self, actions: np.ndarray, memory: Memory, rows: np.ndarray) -> np.ndarray:
        """Actions as the environment counts them."""
        return (self._middle + self._half * actions).astype(self._dtype)


class ActDelayWrapper(OwnParamsWrapper):
    """An action takes effect ``act_delay`` steps later; until the first one does, the action is zero.

    Adds the domain parameter ``act_delay``, a whole number of steps, which holds from the next reset on.

    Args:
        env: Environment with a Box of actions.
        delay: Number of steps.
        round_delay: Take the nearest whole number of what is set, for those who draw real numbers (an inference over
            the delay), instead of refusing it.
    """

    def __init__(self, env: Any, delay: int = 0, *, round_delay: bool = False) -> None:
        space = box_of(env, "action", self)
        self._zero = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high).astype(space.dtype)
        self.round_delay = bool(round_delay)
        super().__init__(env, {_DELAY: delay})

    def checked_param(self, name: str, value: Any) -> int:
        """A number of steps."""
        if self.round_delay and not isinstance(value, bool):
            value = round(plain_number(_DELAY, value))
        return checked_delay(value)

    def new_memory(self, num_rows: int) -> Memory:
        """The last actions in a ring ``(N, L, ...)``, that of step t at ``t % L``; the delays; the steps."""
        ring = np.tile(self._zero, (num_rows, 1, *[1] * self._zero.ndim))
        return {"ring": ring, "delays": np.zeros(num_rows, np.int64), "steps": np.zeros(num_rows, np.int64)}

    def write_params(self, memory: Memory, rows: np.ndarray, params: Sequence[Mapping[str, Any]]) -> None:
        """Zeros are on their way."""
        memory["delays"][rows] = delays = [own[_DELAY] for own in params]
        memory["steps"][rows] = 0
        self._lengthen(memory, int(np.max(delays, initial=0)) + 1)
        memory["ring"][rows] = self._zero

    def rows_in(self, actions: np.ndarray, memory: Memory, rows: np.ndarray) -> np.ndarray:
        """The actions of ``act_delay`` steps ago."""
        ring, steps = memory["ring"], memory["steps"][rows]
        ring[rows, steps % ring.shape[1]] = actions
        memory["steps"][rows] += 1
        # Entries from before the first step are still zeros, since every delay is shorter than the ring.
        return ring[rows, (steps - memory["delays"][rows]) % ring.shape[1]]

    def row_own(self, memory: Memory, row: int) -> dict[str, int]:
        """The delay."""
        return {_DELAY: int(memory["delays"][row])}

    def row_kinds(self, memory: Memory, rows: np.ndarray) -> list[int]:
        """The delays."""
        return memory["delays"][rows].tolist()

    def resume_rows(self, memory: Memory, rows: np.ndarray, saved: Memory) -> None:
        """Continue with the pending actions; the rings of both sides get the length of the longer one."""
        saved = dict(saved)
        self._lengthen(memory, saved["ring"].shape[1])
        self._lengthen(saved, memory["ring"].shape[1])
        super().resume_rows(memory, rows, saved)

    def _lengthen(self, memory: Memory, length: int) -> None:
        """Room for at least ``length`` steps; pending actions are kept."""
        old, every = memory["ring"], np.arange(len(memory["steps"]))
        if length <= old.shape[1]:
            return
        memory["ring"] = ring = np.tile(self._zero, (len(every), length, *[1] * self._zero.ndim))
        for back in range(1, old.shape[1] + 1):
            then = memory["steps"] - back
            ring[every, then % length] = old[every, then % old.shape[1]]


class DownsamplingWrapper(ChainWrapper):
    """Every action is held for ``factor`` steps; those that come in between have no effect.

    Args:
        env: Environment with a Box or Discrete space of actions.
        factor: Number of steps, at least 1.
    """

    def __init__(self, env: Any, factor: int) -> None:
        super().__init__(env)
        self.factor = check_whole("factor", factor)
        if not isinstance(env.action_space, Box | Discrete):
            raise TypeError(f"DownsamplingWrapper needs a Box or Discrete action space, got {env.action_space}")

    def new_memory(self, num_rows: int) -> Memory:
        """The actions that are held, and the steps."""
        space = self.env.action_space
        held = np.zeros((num_rows, *(space.shape or ())), dtype=space.dtype)
        return {"held": held, "steps": np.zeros(num_rows, dtype=np.int64)}

    def start_rows(
        self, memory: Memory, rows: np.ndarray, env_seeds: np.ndarray | None, plans: Sequence[RolloutPlan] | None = None
    ) -> None:
        """The first action takes effect."""
        memory["steps"][rows] = 0

    def rows_in(self, actions: np.ndarray, memory: Memory, rows: np.ndarray) -> np.ndarray:
        """The actions that are held."""
        renewed = memory["steps"][rows] % self.factor == 0
        memory["held"][rows[renewed]] = actions[renewed]
        memory["steps"][rows] += 1
        return memory["held"][rows]


def checked_delay(delay: Any) -> int:
    """A number of steps from 0 to 10000."""
    if isinstance(delay, bool):
        raise TypeError(f"act_delay must be a number of steps, got {delay!r}")
    steps = plain_number("act_delay", delay)
    if not steps.is_integer():
        raise ValueError(f"act_delay must be a whole number of steps, got {delay!r}; draw it with roundint=True")
    if not 0 <= steps <= _LONGEST_DELAY:
        raise ValueError(f"act_delay must be from 0 to {_LONGEST_DELAY} steps, got {delay!r}")
    return int(steps)
