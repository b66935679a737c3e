"""Reads a device's observations from packets that may arrive late, too late, or never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np

from metaroll.errors import DeviceError, ShapeError
from metaroll.lab.real.timing import Clock, Timing

__all__ = ["Packet", "PacketReader"]

_MOST_PACKETS = 10_000
"""Maximum number of packets read at a time: a device that sends faster must not delay the step."""


class Packet(NamedTuple):
    """One message from a device.

    Attributes:
        observation: Shape ``(O,)``.
        number: Increases from packet to packet, if the device counts: packets out of order are dropped.
    """

    observation: Any
    number: int | None = None


@final
class PacketReader:
    """Returns the newest observation of a device, or repeats the last one if none arrives.

    Args:
        receive: See ``RealEnv.receive``.
        shape: Shape of observations.
        clock: The clock.
        timeout: Seconds to wait for a late observation.
        max_lost: Lost observations in a row that are bridged.

    Attributes:
        timing: Counts late, lost, stale and invalid packets.
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
        """Discard pending packets, and reset the counters."""
        for _ in range(_MOST_PACKETS):
            if self._receive(0.0) is None:
                break
        self._number, self._lost_in_row, self.timing = None, 0, Timing()

    def first(self, seconds: float) -> np.ndarray:
        """The first observation of an episode, which must arrive within ``seconds``.

        Raises:
            DeviceError: It does not.
        """
        observation = self._waited(seconds)
        if observation is None:
            raise DeviceError(
                f"no observation arrived within {seconds:g} s after reset; is the device on and connected?"
            )
        return observation

    def next(self, last: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        """The observation of a step, whether it repeats ``last``, and whether it was late.

        Raises:
            DeviceError: Too many observations in a row were lost.
        """
        observation, late = self._newest(), False
        if observation is None:
            observation, late = self._waited(self._timeout), True
        if observation is not None:
            self._lost_in_row = 0
            self.timing.late += late
            return observation, False, late
        self._lost_in_row += 1
        self.timing.lost += 1
        if self._lost_in_row > self._max_lost:
            raise DeviceError(
                f"no observation arrived in {self._lost_in_row} steps in a row (max_lost={self._max_lost}, "
                f"timeout={self._timeout:g} s); check the connection, or allow more"
            )
        return last.copy(), True, False

    def _newest(self) -> np.ndarray | None:
        newest = None
        for _ in range(_MOST_PACKETS):
            packet = self._receive(0.0)
            if packet is None:
                break
            observation = self._taken(packet)
            newest = newest if observation is None else observation
        return newest

    def _waited(self, seconds: float) -> np.ndarray | None:
        """The next observation that arrives within ``seconds``."""
        end, left = self._clock.now() + seconds, seconds
        while left >= 0.0:
            packet = self._receive(left)
            observation = None if packet is None else self._taken(packet)
            if observation is not None or packet is None:
                return observation
            left = end - self._clock.now()
        return None

    def _taken(self, packet: Packet) -> np.ndarray | None:
        """The observation of a packet, unless it is outdated or has no valid one."""
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
