"""Steps of equal length on a clock that never goes back, and what is reported of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol, final

__all__ = ["Clock", "MonotonicClock", "RateControl", "Timing"]

_SLACK = 1e-9
"""Seconds by which a step may be late before that counts: the resolution of the clock."""


class Clock(Protocol):
    """Seconds from any start, which only increase, and a way to let them pass."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@final
class MonotonicClock:
    """The clock of the machine that nobody sets."""

    def now(self) -> float:
        """Seconds since any start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; it may take a little longer."""
        time.sleep(seconds)


@dataclass
class Timing:
    """How steps of an episode came in time.

    Attributes:
        steps: How many there were.
        overruns: Steps that took longer than ``dt`` (the policy, or the device, was too slow).
        longest_overrun: By how many seconds, at most.
        skipped_ticks: Times of steps that had passed altogether when a step was done.
        late: Observations that came after their time, but within the timeout.
        lost: Observations that did not come, so that the last one was shown again.
        stale: Packets that were older than one that had come before.
        invalid: Packets that held no observation: NaN, or something else.
    """

    steps: int = 0
    overruns: int = 0
    longest_overrun: float = 0.0
    skipped_ticks: int = 0
    late: int = 0
    lost: int = 0
    stale: int = 0
    invalid: int = 0

    def count_step(self, overrun: float, skipped: int) -> None:
        """Count a step that was ``overrun`` seconds too long."""
        self.steps += 1
        self.overruns += overrun > 0
        self.longest_overrun = max(self.longest_overrun, overrun)
        self.skipped_ticks += skipped

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.overruns} overruns (at most {1e3 * self.longest_overrun:.3g} ms, "
            f"{self.skipped_ticks} ticks skipped), {self.late} late and {self.lost} lost observations, "
            f"{self.stale} stale and {self.invalid} invalid packets"
        )


@final
class RateControl:
    """Ticks at ``start + k * dt``: a step that is too long shortens the next one, and shifts none.

    Args:
        dt: Seconds between ticks.
        clock: What time it is.
    """

    def __init__(self, dt: float, clock: Clock) -> None:
        self._dt, self._clock = dt, clock
        self._start, self._tick = clock.now(), 0

    def start(self) -> None:
        """Tick number 0 is now."""
        self._start, self._tick = self._clock.now(), 0

    @property
    def elapsed(self) -> float:
        """Seconds since tick 0."""
        return self._clock.now() - self._start

    def wait(self) -> tuple[float, int]:
        """Wait for the next tick.

        Returns:
            By how many seconds it has passed already (0 in time), and how many further ticks have passed with it.
        """
        self._tick += 1
        late = self.elapsed - self._tick * self._dt
        if late > _SLACK:
            skipped = int((late + _SLACK) / self._dt)
            self._tick += skipped
            return late, skipped
        while (left := self._tick * self._dt - self.elapsed) > _SLACK:
            self._clock.sleep(left)
        return 0.0, 0
