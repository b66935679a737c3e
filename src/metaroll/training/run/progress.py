"""How far a run is within its epoch: phases with counts, told to listeners a few times a second at most."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PhaseProgress"]

_COUNTED_IN_STEPS = ("warm-up", "sampling")


class PhaseProgress:
    """Knows the present phase, and adds what rollouts bring to phases that are counted in environment steps.

    A call that comes too soon after the last that was told costs a look at the clock; beginnings and ends are always
    told.

    Args:
        tell: Called as ``tell(phase, done, total)``.
        clock: Seconds since some moment.
        pause: Least seconds between two calls of ``tell``, but for beginnings and ends.
    """

    def __init__(
        self, tell: Callable[[str, int, int], None], clock: Callable[[], float] = time.monotonic, pause: float = 0.1
    ) -> None:
        self._tell, self._clock, self._pause = tell, clock, pause
        self._phase, self._done, self._total = "", 0, 0
        self._announced = False
        self._next = -float("inf")

    def say(self, phase: str, done: int, total: int) -> None:
        """What an algorithm says of its work, see ``Runner.progress``."""
        self._announced = phase in _COUNTED_IN_STEPS
        self._set(phase, done, total)

    def forget(self) -> None:
        """Nothing is announced any more: an epoch begins or ends."""
        self._announced, self._phase = False, ""

    def of_rollouts(self, total_steps: int | None, total_rollouts: int) -> Callable[[int, int], None]:
        """What an engine calls with the numbers of new rollouts and steps.

        They count in the phase that was announced, else in one of their own: in ``total_steps``, or in rollouts where
        these are ``None``.
        """
        if not self._announced:
            self._set("sampling", 0, total_rollouts if total_steps is None else total_steps)
        in_steps = self._announced or total_steps is not None

        def add(rollouts: int, steps: int) -> None:
            self._set(self._phase, self._done + (steps if in_steps else rollouts), self._total)

        return add

    def _set(self, phase: str, done: int, total: int) -> None:
        begins, ended = phase != self._phase or done < self._done, self._done >= self._total
        self._phase, self._done, self._total = phase, min(done, total), total
        now = self._clock()
        if begins or now >= self._next or (done >= total and not ended):
            self._next = now + self._pause
            self._tell(phase, self._done, total)
