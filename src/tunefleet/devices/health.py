"""Whether a device answers, how fast, and whether somebody else has it: asked without a compiler,
in the words of TVM's RPC servers and trackers."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunefleet.core.device import DeviceSpec, RpcAddress
from tunefleet.core.printing import quoted
from tunefleet.devices import tracker
from tunefleet.devices.tracker import knock, received
from tunefleet.errors import RetryElsewhereError
from tunefleet.hardware.gpu import gpus

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
        if spec.gpu is not None and spec.gpu >= len(gpus()):
            return Health(DeviceState.UNREACHABLE, None, f"this machine has no GPU {spec.url}")
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
        except (OSError, ValueError) as error:
            detail = f"what answers is no server of TVM's RPC: {cause_of(error)}"
            return Health(DeviceState.UNREACHABLE, ping_ms, detail)


def healths_of(specs: Sequence[DeviceSpec]) -> list[Health]:
    """Ask devices at the same time: those that do not answer take seconds."""
    with ThreadPoolExecutor(max(1, len(specs))) as asked:
        return list(asked.map(health_of, specs))


def check_any_there(specs: Sequence[DeviceSpec]) -> list[Health]:
    """The health of devices that take each other's work. Raises RetryElsewhereError where none of
    them can be reached; one that is away may come back."""
    healths = healths_of(specs)
    if all(health.state is DeviceState.UNREACHABLE for health in healths):
        _raise_first_away(specs, healths)
    return healths


def check_all_there(specs: Sequence[DeviceSpec]) -> None:
    """Raises RetryElsewhereError for the first of these devices that cannot be reached."""
    _raise_first_away(specs, healths_of(specs))


def _raise_first_away(specs: Sequence[DeviceSpec], healths: Sequence[Health]) -> None:
    for spec, health in zip(specs, healths, strict=True):
        if spec.rpc is None and health.state is DeviceState.UNREACHABLE:
            raise RetryElsewhereError(health.detail, cure="tunefleet devices")
        if spec.rpc is not None and health.state is DeviceState.UNREACHABLE:
            raise unreachable(spec.rpc, health.detail, without_server=health.servers == 0)


def unreachable(
    address: RpcAddress, cause: str, *, without_server: bool = False
) -> RetryElsewhereError:
    """What is told of a server or tracker that does not answer, or of a tracker that does and is
    `without_server` of its key."""
    if without_server:
        place = f"--tracker {address.host}:{address.port} --key {quoted(address.key)}"
        return RetryElsewhereError(
            f"{address.url} lends nothing: {cause}",
            cure=f"start one: python -m tvm.exec.rpc_server {place}",
        )
    command = "rpc_tracker" if address.tracker else "rpc_server"
    start = f"python -m tvm.exec.{command} --host 0.0.0.0 --port {address.port}"
    return RetryElsewhereError(f"{address.url} is not there: {cause}", cure=f"start it: {start}")


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
