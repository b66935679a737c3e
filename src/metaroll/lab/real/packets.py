"""Observations as a device sends them: in packets that come late, come too late, or do not come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np

from metaroll.errors import DeviceError, ShapeError
from metaroll.lab.real.timing import Clock, Timing

__all__ = ["Packet", "PacketReader"]

_MOST_PACKETS = 10_000
"""Packets that are read at a time: a device that sends faster than they are read must not hold up the step."""


class Packet(NamedTuple):
    """What a device sends.

    Attributes:
        observation: Shape ``(O,)``.
        number: Grows from packet to packet, where the device counts: one that comes after a later one is left out.
    """

    observation: Any
    number: int | None = None


@final
class PacketReader:
    """The newest observation of a device, or the last one again where none comes.

    Args:
        receive: See ``RealEnv.receive``.
        shape: Of observations.
        clock: What time it is.
        timeout: Seconds to wait for a late observation.
        max_lost: Lost observations in a row that are bridged.

    Attributes:
        timing: Counts what is late, lost, stale and invalid.
    """

    def __init__(
        self,
        receive: Callable[[float], Packet | None],
        shape: tuple[int, ...],
        clock: Clock,
        timeout: float,
        max_lost: int,
    ) -> None:
        self._receive, self._shape, self._clock = receive, shape, clock
        self._timeout, self._max_lost = timeout, max_lost
        self._number: int | None = None
        self._lost_in_row = 0
        self.timing = Timing()

    def clear(self) -> None:
        """Take what is there away, and count from 0."""
        for _ in range(_MOST_PACKETS):
            if self._receive(0.0) is None:
                break
        self._number, self._lost_in_row, self.timing = None, 0, Timing()

    def first(self, seconds: float) -> np.ndarray:
        """The first observation of an episode, which must come within ``seconds``.

        Raises:
            DeviceError: It does not.
        """
        found = self._waited(seconds)
        if found is None:
            raise DeviceError(f"no observation came within {seconds:g} s after reset; is the device on, and connected?")
        return found

    def next(self, last: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        """The observation of a step, whether it is ``last`` again, and whether it was late.

        Raises:
            DeviceError: Too many have been lost in a row.
        """
        found, late = self._newest(), False
        if found is None:
            found, late = self._waited(self._timeout), True
        if found is not None:
            self._lost_in_row = 0
            self.timing.late += late
            return found, False, late
        self._lost_in_row += 1
        self.timing.lost += 1
        if self._lost_in_row > self._max_lost:
            raise DeviceError(
                f"no observation came in {self._lost_in_row} steps in a row (max_lost={self._max_lost}, "
                f"timeout={self._timeout:g} s); check the connection, or allow for more"
            )
        return last.copy(), True, False

    def _newest(self) -> np.ndarray | None:
        newest = None
        for _ in range(_MOST_PACKETS):
            packet = self._receive(0.0)
            if packet is None:
                break
            found = self._taken(packet)
            newest = newest if found is None else found
        return newest

    def _waited(self, seconds: float) -> np.ndarray | None:
        """The next observation that comes within ``seconds``."""
        end, left = self._clock.now() + seconds, seconds
        while left >= 0.0:
            packet = self._receive(left)
            found = None if packet is None else self._taken(packet)
            if found is not None or packet is None:
                return found
            left = end - self._clock.now()
        return None

    def _taken(self, packet: Packet) -> np.ndarray | None:
        """The observation of a packet, unless it is an old one, or holds none."""
        try:
            observation = np.array(packet.observation, dtype=np.float64)
        except (TypeError, ValueError):
            observation = np.array(np.nan)
        if observation.ndim and observation.shape != self._shape:
            raise ShapeError(f"observations of the device must have shape {self._shape}, got {observation.shape}")
        if not np.isfinite(observation).all():
            self.timing.invalid += 1
            return None
        if packet.number is not None:
            if self._number is not None and packet.number <= self._number:
                self.timing.stale += 1
                return None
            self._number = packet.number
        return observation
