"""Whether a device answers, how fast, and whether somebody else has it: asked without a compiler,
in the words of TVM's RPC servers and trackers."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunefleet.core.device import DeviceSpec, RpcAddress
from tunefleet.devices import tracker
from tunefleet.devices.tracker import knock, received

#: The first word of a conversation with a server (tvm/rpc/base.py).
_SERVER = 0xFF271
_ANSWER_S = 2.0


class DeviceState(StrEnum):
    """What a device does now. A server that takes connections and answers none is busy with another
    session, or hangs: nobody can tell from outside."""

    FREE = "free"
    BUSY = "busy"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Health:
    """`ping_ms` is the time of one connection, None where there was none. `servers` and `free`
    count those of a tracker, `waiting` who waits for one there."""

    state: DeviceState
    ping_ms: float | None
    detail: str = ""
    servers: int = 1
    free: int = 0
    waiting: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "ping_ms": self.ping_ms,
            "detail": self.detail,
            "servers": self.servers,
            "free": self.free,
            "waiting": self.waiting,
        }


def health_of(spec: DeviceSpec) -> Health:
    """Ask a device; takes some five seconds at most."""
    if spec.rpc is None:
        return Health(DeviceState.FREE, 0.0, free=1)
    started = time.perf_counter()
    try:
        connection = knock(spec.rpc)
    except OSError as error:
        return Health(DeviceState.UNREACHABLE, None, cause_of(error))
    ping_ms = (time.perf_counter() - started) * 1e3
    with connection:
        connection.settimeout(_ANSWER_S)
        ask = _ask_tracker if spec.rpc.tracker else _ask_server
        try:
            return ask(connection, spec.rpc, ping_ms)
        except TimeoutError:
            detail = "connections are taken and not answered: another session, or it hangs"
            return Health(DeviceState.BUSY, ping_ms, detail)
        except (OSError, ValueError, LookupError, TypeError) as error:
            detail = f"what answers is no server of TVM's RPC: {cause_of(error)}"
            return Health(DeviceState.UNREACHABLE, ping_ms, detail)


def servers_of(spec: DeviceSpec) -> int:
    """How many devices stand behind an address: as many as a tracker has servers of its key; one
    where it does not answer, which whoever uses it is told."""
    if spec.rpc is None or not spec.rpc.tracker:
        return 1
    return max(1, health_of(spec).servers)


def cause_of(error: Exception) -> str:
    """The reason of a failed connection in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, socket.gaierror):
        return "no such host"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def _ask_server(connection: socket.socket, address: RpcAddress, ping_ms: float) -> Health:
    """Begin a session and end it: only a server that is free answers."""
    key = f"client:{address.key}".encode()
    connection.sendall(struct.pack("<ii", _SERVER, len(key)) + key)
    (answer,) = struct.unpack("<i", received(connection, 4))
    if answer == _SERVER:
        received(connection, *struct.unpack("<i", received(connection, 4)))
        return Health(DeviceState.FREE, ping_ms, free=1)
    if answer == _SERVER + 2:
        return Health(DeviceState.UNREACHABLE, ping_ms, "the server has another key")
    raise ValueError(f"it says {answer:#x}")


def _ask_tracker(connection: socket.socket, address: RpcAddress, ping_ms: float) -> Health:
    found = tracker.servers(connection, address.key)
    if not found.count:
        detail = f"the tracker has no server of the key {address.key}"
        return Health(DeviceState.UNREACHABLE, ping_ms, detail, 0, 0, found.waiting)
    state = DeviceState.FREE if found.free else DeviceState.BUSY
    return Health(state, ping_ms, "", found.count, found.free, found.waiting)
