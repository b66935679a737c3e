"""Steps of equal length on a monotonic clock, and statistics about them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol, final

__all__ = ["Clock", "MonotonicClock", "RateControl", "Timing"]

_SLACK = 1e-9
"""Seconds by which a step may be late without counting as such: the resolution of the clock."""


class Clock(Protocol):
    """A monotonic clock in seconds from an arbitrary start, and a way to sleep."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@final
class MonotonicClock:
    """The monotonic clock of the machine."""

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; it may take a little longer."""
        time.sleep(seconds)


@dataclass
class Timing:
    """Timing of the steps of an episode.

    Attributes:
        steps: Number of steps.
        overruns: Steps that took longer than ``dt`` (the policy, or the device, was too slow).
        longest_overrun: Longest overrun in seconds.
        skipped_ticks: Number of ticks that a long step skipped entirely.
        late: Observations that arrived after their time, but within the timeout.
        lost: Observations that did not arrive, so that the last one was repeated.
        stale: Packets older than one that had arrived before.
        invalid: Packets without a valid observation: NaN, or something else.
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
    """Ticks at ``start + k * dt``: a step that is too long shortens the next one, and delays none.

    Args:
        dt: Seconds between ticks.
        clock: The clock.
    """

    def __init__(self, dt: float, clock: Clock) -> None:
        self._dt, self._clock = dt, clock
        self._start, self._tick = clock.now(), 0

    def start(self) -> None:
        """Set tick 0 to now."""
        self._start, self._tick = self._clock.now(), 0

    @property
    def elapsed(self) -> float:
        """Seconds since tick 0."""
        return self._clock.now() - self._start

    def wait(self) -> tuple[float, int]:
        """Wait for the next tick.

        Returns:
            Seconds since that tick if it has passed already (0 if on time), and the number of further ticks passed.
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
