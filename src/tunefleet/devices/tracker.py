"""What a tracker of TVM's RPC is asked: which servers it has, and to lend one of them.

In its own words (tvm/rpc/tracker.py), since TVM's client waits for a server without end: a request
that nobody waits for any more would take the next one that is free. The tracker tells no server
apart from others of its key: it lends whichever is free.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from tunefleet.core.device import RpcAddress

_GREETING = 0x2F271
_REQUEST, _SUMMARY, _SUCCESS = 4, 6, 0
_PRIORITY = 1
_KNOCK_S = 3.0
_MOST_BYTES = 1 << 20
_LEAST_S = 1e-3
#: Each would have a worker here.
_MOST_SERVERS = 1024


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
    """Ask a tracker behind a connection. Raises OSError, and ValueError where it is none."""
    own = f"server:{key}"
    match _asked(connection, [_SUMMARY]):
        case {"server_info": [*listed], "queue_info": dict(queues)}:
            count = sum(isinstance(each, dict) and each.get("key") == own for each in listed)
            match queues.get(key, {"free": 0, "pending": 0}):
                case {"free": free, "pending": pending}:
                    return Servers(_count(count), _count(free), _count(pending))
    raise ValueError("it does not list its servers")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_SERVERS:
        raise ValueError(f"it counts {str(value)[:20]} servers")
    return value


def lent(address: RpcAddress, wait_s: float) -> RpcAddress:
    """A server that a tracker lends: its own address, and the key of this loan, which has to be
    used within seconds. Raises NoneFreeError where none was free in `wait_s`, else as `servers`."""
    with knock(address) as connection:
        connection.settimeout(wait_s)
        try:
            answer = _asked(connection, [_REQUEST, address.key, "", _PRIORITY])
        except TimeoutError:
            raise NoneFreeError from None
    match answer:
        case [str(host), int(port), str(key)]:
            return RpcAddress(host, port, key)
    raise ValueError("it lends something that is no server")


def received(connection: socket.socket, size: int) -> bytes:
    """The next bytes of a connection, all of them within its timeout. Raises OSError, and
    ValueError where it ends before."""
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"it announces {size} bytes")
    limit_s = connection.gettimeout()
    ends = None if limit_s is None else time.monotonic() + limit_s
    data = bytearray()
    try:
        while len(data) < size:
            if ends is not None:
                # One that sends a byte now and then would have the time of each.
                connection.settimeout(max(ends - time.monotonic(), _LEAST_S))
            part = connection.recv(size - len(data))
            if not part:
                raise ValueError("it ends the connection")
            data += part
    finally:
        connection.settimeout(limit_s)
    return bytes(data)


def _asked(connection: socket.socket, question: list[Any]) -> Any:
    connection.sendall(struct.pack("<i", _GREETING))
    (answer,) = struct.unpack("<i", received(connection, 4))
    if answer != _GREETING:
        raise ValueError(f"it says {answer:#x}")
    text = json.dumps(question).encode()
    connection.sendall(struct.pack("<i", len(text)) + text)
    (size,) = struct.unpack("<i", received(connection, 4))
    try:
        said = json.loads(received(connection, size))
    except RecursionError:
        raise ValueError("it says what is nested without end") from None
    match said:
        case [int(code), value] if code == _SUCCESS:
            return value
        case [int(code), *_]:
            raise ValueError(f"it says {code}")
    raise ValueError("it says what no tracker does")
