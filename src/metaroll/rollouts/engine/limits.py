"""When rollouts are over: at the environment's own ending, or at the limit of their plan."""

from __future__ import annotations

import numpy as np

from metaroll.types import RolloutPlan, SlotStep

__all__ = ["Limits"]

_NEVER = np.iinfo(np.int64).max


class Limits:
    """Lengths of the rollouts in all slots so far, and the most that each may have."""

    def __init__(self, num_slots: int) -> None:
        self._ticks = 0
        self._begun = np.zeros(num_slots, dtype=np.int64)
        """Lock-steps before the rollout of each slot: a rollout takes part in all of them until it is over."""
        self._limits = np.full(num_slots, _NEVER)
        self._stop_on_done = np.ones(num_slots, dtype=bool)
        self._endless = False
        """Whether some plan so far had no end of its own."""
        self._until_limit = 0
        """No rollout reaches its limit before so many lock-steps."""

    def start(self, slot: int, plan: RolloutPlan, default: int | None) -> None:
        """``plan`` starts in ``slot``; ``default`` is the environment's own limit."""
        limit = default if plan.max_steps is None else plan.max_steps
        self._begun[slot] = self._ticks
        self._limits[slot] = _NEVER if limit is None or limit == float("inf") else int(limit)
        self._until_limit = min(self._until_limit, int(self._limits[slot]))
        self._stop_on_done[slot] = plan.stop_on_done
        self._endless |= not plan.stop_on_done and self._limits[slot] == _NEVER

    @property
    def lengths(self) -> np.ndarray:
        """Steps of the rollouts that run, ``(E,)``; of no meaning in free slots."""
        return self._ticks - self._begun

    def has_endless(self, active: np.ndarray) -> bool:
        """Whether a rollout in ``active (E,)`` has neither a limit nor stops at an ending."""
        return self._endless and bool((active & ~self._stop_on_done & (self._limits == _NEVER)).any())

    def after(self, step: SlotStep, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count one lock-step of the slots in ``active``; what is truncated and what is over, both bool ``(E,)``."""
        self._ticks += 1
        self._until_limit -= 1
        if self._until_limit > 0:  # the usual case: no rollout can have reached its limit
            return step.truncated, (step.terminated | step.truncated) & self._stop_on_done
        lengths = self.lengths
        at_limit = active & (lengths >= self._limits)
        truncated = step.truncated | (at_limit & ~step.terminated)
        left = (self._limits - lengths)[active & ~at_limit]
        self._until_limit = int(left.min()) if left.size else 0
        return truncated, (step.terminated | truncated) & self._stop_on_done | at_limit
