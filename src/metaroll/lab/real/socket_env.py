"""A device that communicates in JSON over a socket: one small datagram per observation and action."""

from __future__ import annotations

import json
import socket
from typing import Any, final

import numpy as np

from metaroll.data.doors.json_files import parse_json
from metaroll.lab.real.packets import Packet
from metaroll.lab.real.real_env import RealEnv
from metaroll.types import EnvSpec

__all__ = ["SocketEnv"]

_LARGEST = 65536
_STOPS = 3


@final
class SocketEnv(RealEnv):
    """A device behind a connected datagram socket, such as UDP.

    Messages:

    - to it: ``{"reset": episode}`` before an episode, and ``{"action": [...], "episode": episode}`` in every step;
    - from it: ``{"observation": [...], "number": n, "episode": episode}``, with increasing numbers; packets of other
      episodes are ignored.

    The stop action is sent several times, since datagrams may be lost.

    Args:
        connection: The socket; closed with the environment.
        env_spec: See ``RealEnv``.
        dt: See ``RealEnv``.
        **options: See ``RealEnv``.
    """

    def __init__(self, connection: socket.socket, env_spec: EnvSpec, dt: float, **options: Any) -> None:
        super().__init__(env_spec, dt, **options)
        if connection.type != socket.SOCK_DGRAM:
            raise ValueError(f"connection must be a datagram socket (SOCK_DGRAM), got {connection.type!r}")
        self._connection, self._episode = connection, 0

    def prepare(self) -> None:
        """Notify the device that an episode begins."""
        self._episode += 1
        self._send_message({"reset": self._episode})

    def send(self, action: np.ndarray) -> None:
        """Send an action ``(A,)``."""
        self._send_message({"action": action.tolist(), "episode": self._episode})

    def stop(self) -> None:
        """Send the stop action several times."""
        for _ in range(_STOPS):
            self.send(self.stop_action)

    def receive(self, timeout: float) -> Packet | None:
        """The next packet of this episode."""
        end = self._clock.now() + timeout
        while True:
            self._connection.settimeout(max(0.0, end - self._clock.now()))
            try:
                data = self._connection.recv(_LARGEST)
            except (TimeoutError, BlockingIOError):
                return None
            packet, episode = _parsed(data)
            if episode in (None, self._episode):
                return packet

    def disconnect(self) -> None:
        """Close the socket."""
        self._connection.close()

    def _send_message(self, message: dict[str, Any]) -> None:
        self._connection.settimeout(self.dt)  # an unresponsive device must not block us
        self._connection.send(json.dumps(message).encode())


def _parsed(data: bytes) -> tuple[Packet, int | None]:
    """The packet in a datagram, and its episode; a packet without observation if it is damaged."""
    try:
        message = parse_json(data)
        number, episode = message.get("number"), message.get("episode")
        return Packet(message["observation"], number if isinstance(number, int) else None), episode
    except (ValueError, KeyError, AttributeError):
        return Packet(None), None
