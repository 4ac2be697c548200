"""What a tracker of TVM's RPC is asked: which servers it has, and to lend one of them.

In its own words (tvm/rpc/tracker.py), since TVM's client waits for a server without end: a request
that nobody waits for any more would take the next one that is free. The tracker tells no server
apart from others of its key: it lends whichever is free.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

from tunefleet.core.device import RpcAddress

_GREETING = 0x2F271
_REQUEST, _SUMMARY, _SUCCESS = 4, 6, 0
_PRIORITY = 1
_KNOCK_S = 3.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Servers:
    """How many servers of a key a tracker has, how many of them are free, who waits for one."""

    count: int
    free: int
    waiting: int


class NoneFreeError(Exception):
    """A tracker has no server to lend, now."""


def knock(address: RpcAddress) -> socket.socket:
    """A connection to whoever listens there. Raises OSError."""
    return socket.create_connection((address.host, address.port), timeout=_KNOCK_S)


def servers(connection: socket.socket, key: str) -> Servers:
    """Ask a tracker behind a connection. Raises OSError, and ValueError, LookupError or TypeError
    where it is none."""
    summary = _asked(connection, [_SUMMARY])
    own = f"server:{key}"
    count = sum(server["key"] == own for server in summary["server_info"])
    line = summary["queue_info"].get(key, {"free": 0, "pending": 0})
    return Servers(count, int(line["free"]), int(line["pending"]))


def lent(address: RpcAddress, wait_s: float) -> RpcAddress:
    """A server that a tracker lends: its own address, and the key of this loan, which has to be
    used within seconds. Raises NoneFreeError where none was free in `wait_s`, else as `servers`."""
    with knock(address) as connection:
        connection.settimeout(wait_s)
        try:
            host, port, key = _asked(connection, [_REQUEST, address.key, "", _PRIORITY])
        except TimeoutError:
            raise NoneFreeError from None
    return RpcAddress(str(host), int(port), str(key))


def received(connection: socket.socket, size: int) -> bytes:
    """The next bytes of a connection. Raises OSError, and ValueError where it ends before."""
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"it announces {size} bytes")
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ValueError("it ends the connection")
        data += part
    return data


def _asked(connection: socket.socket, question: list[Any]) -> Any:
    connection.sendall(struct.pack("<i", _GREETING))
    (answer,) = struct.unpack("<i", received(connection, 4))
    if answer != _GREETING:
        raise ValueError(f"it says {answer:#x}")
    text = json.dumps(question).encode()
    connection.sendall(struct.pack("<i", len(text)) + text)
    (size,) = struct.unpack("<i", received(connection, 4))
    code, value = json.loads(received(connection, size))
    if code != _SUCCESS:
        raise ValueError(f"it says {code}")
    return value
