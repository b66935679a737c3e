"""Whether a cluster answers, asked within seconds: connecting to one that does not takes Ray minutes.

Ray's own ways cannot be asked instead, not even in a process that is killed after 20 s (Ray 2.60): ``ray.init`` and
``ray health-check`` wait longer than that for a closed port, a silent one and a web server alike, ``ray.init`` takes 21
s to refuse a wrong token, and neither shows that a cluster wants none.
"""

from __future__ import annotations

import os
import socket
import struct

from metaroll.errors import ClusterError
from metaroll.rollouts.configs import check_address

__all__ = ["check_answer"]

_ANSWER_S = 3.0
"""Seconds that a cluster may take to answer."""

_CURE = "check host and port (`ray start --head` prints them), that Ray runs there, and that no firewall is between"

# An HTTP/2 conversation (RFC 9113), as gRPC has it: frames of a length of 3 bytes, type, flags, stream and payload.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 0x1, 0x4
_STATUS_200 = 0x88
"""The first header of every answer of a gRPC server, in HPACK's code."""
_UNAUTHENTICATED = b"\x0bgrpc-status\x0216"
"""The header of a server that wanted a token, in HPACK's code."""
_LONGEST = 126
"""Bytes of a text whose length HPACK writes in one byte."""


def check_answer(address: str, token: str | None = None) -> bool | None:
    """Error unless a server like Ray's answers at ``HOST:PORT``.

    Args:
        address: Where to ask.
        token: The token to show.

    Returns:
        Whether it wants a token (or another one) from those who call it; ``None`` if that cannot be determined (with
        TLS).

    Raises:
        ClusterError: Nothing, or something else, answers there.
    """
    check_address(address)
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return None  # the question would have to be encrypted
            connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0) + _question(address, token))
            headers = _answer(connection)
    except UnicodeError as error:  # an empty or overlong part of the name
        raise ClusterError(f"the Ray cluster at {address} cannot be found ({error}): {_CURE}") from error
    except OSError as error:
        reason = f"nothing within {_ANSWER_S:g} s" if isinstance(error, TimeoutError) else error.strerror or error
        raise ClusterError(f"the Ray cluster at {address} does not answer ({reason}): {_CURE}") from error
    if headers is None:
        raise ClusterError(f"what answers at {address} is not a Ray cluster: {_CURE}")
    return _UNAUTHENTICATED in headers


def _question(address: str, token: str | None) -> bytes:
    """An empty call of a service that every Ray cluster has."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/ray.rpc.NodeInfoGcsService/CheckAlive",
        ":authority": address[-_LONGEST:],
        "content-type": "application/grpc",
        "te": "trailers",
    }
    if token is not None:
        headers["authorization"] = f"Bearer {token}"[:_LONGEST]
    block = b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in headers.items()
    )
    return _frame(_HEADERS, _END_HEADERS, 1, block) + _frame(_DATA, _END_STREAM, 1, bytes(5))


def _answer(connection: socket.socket) -> bytes | None:
    """The headers that come back; ``None`` if they are not those of a gRPC server."""
    while (head := _read(connection, 9)) is not None:
        size = int.from_bytes(head[:3], "big")
        if head[3] > 9 or size > 1 << 16:
            return None  # no frame at all
        payload = _read(connection, size)
        if head[3] == _HEADERS:
            return payload if payload is not None and payload[:1] == bytes((_STATUS_200,)) else None
    return None


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _read(connection: socket.socket, size: int) -> bytes | None:
    """Exactly ``size`` bytes, ``None`` where the other side has closed."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data
