"""Progress of a run within its epoch: phases with counts, reported a few times a second at most."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PhaseProgress"]

_COUNTED_IN_STEPS = ("warm-up", "sampling")


class PhaseProgress:
    """Tracks the current phase, and adds rollouts to phases that are counted in environment steps.

    Every method returns whether to report the progress: always at beginnings and ends, otherwise after a pause. Other
    calls only read the clock.

    Args:
        clock: Seconds since some moment.
        pause: Least seconds between two pieces of news, but for beginnings and ends.

    Attributes:
        phase: Name of the present phase.
        done: How much of it is done, at most ``total``.
        total: How much there is.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause: float = 0.1) -> None:
        self._clock, self._pause = clock, pause
        self.phase, self.done, self.total = "", 0, 0
        self._announced, self._in_steps = False, True
        self._next = -float("inf")

    def forget(self) -> None:
        """Nothing is announced any more: an epoch begins."""
        self._announced, self.phase = False, ""

    def say(self, phase: str, done: int, total: int) -> bool:
        """Record progress reported by an algorithm, see ``Runner.progress``."""
        if phase == self.phase and self.done <= done < total and self._clock() < self._next:
            self.done, self.total = done, total
            return False
        self._announced = self._in_steps = phase in _COUNTED_IN_STEPS
        return self._set(phase, done, total)

    def expect_rollouts(self, total_steps: int | None, total_rollouts: int) -> bool:
        """Rollouts begin; they count in the announced phase, otherwise in their own.

        The phase is counted in ``total_steps``, or in rollouts if these are ``None``.
        """
        if self._announced:
            return False
        self._in_steps = total_steps is not None
        return self._set("sampling", 0, total_rollouts if total_steps is None else total_steps)

    def add(self, rollouts: int, steps: int) -> bool:
        """Add finished rollouts and their steps."""
        return self._set(self.phase, self.done + (steps if self._in_steps else rollouts), self.total)

    def _set(self, phase: str, done: int, total: int) -> bool:
        begins, ended = phase != self.phase or done < self.done, self.done >= self.total
        self.phase, self.done, self.total = phase, min(done, total), total
        now = self._clock()
        if not begins and now < self._next and (done < total or ended):
            return False
        self._next = now + self._pause
        return True
