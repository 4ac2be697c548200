"""Which device is meant and how it is reached: values that travel to the worker that opens it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from tunefleet.core.identity import DeviceIdentity

_ADDRESS = re.compile(
    r"(?P<scheme>rpc|tracker)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})(?:/(?P<key>[^\s/]+))?/?"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MOST_PORT = 65535

#: The name of this machine's own processor among devices.
LOCAL = "local"


class DeviceKind(StrEnum):
    """What runs the programs, wherever it stands."""

    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class RpcAddress:
    """Where a server of TVM's RPC answers: itself, or the tracker that lends those of `key`."""

    host: str
    port: int
    key: str = ""
    tracker: bool = False

    def __post_init__(self) -> None:
        if not self.host or not 1 <= self.port <= _MOST_PORT:
            raise ValueError(f"{self.host}:{self.port} is no address")
        if self.tracker and not self.key:
            raise ValueError("a tracker lends devices by a key")

    @property
    def url(self) -> str:
        """`rpc://HOST:PORT[/KEY]` or `tracker://HOST:PORT/KEY`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme, key = ("tracker" if self.tracker else "rpc"), f"/{self.key}" if self.key else ""
        return f"{scheme}://{host}:{self.port}{key}"

    @classmethod
    def parse(cls, url: str) -> RpcAddress:
        """The address of a url; raises ValueError with what is wrong."""
        match = _ADDRESS.fullmatch(url)
        if match is None:
            raise ValueError("it is neither rpc://HOST:PORT nor tracker://HOST:PORT/KEY")
        port, key = int(match["port"]), match["key"] or ""
        if not 1 <= port <= _MOST_PORT:
            raise ValueError(f"there is no port {port}")
        tracker = match["scheme"] == "tracker"
        if tracker and not key:
            raise ValueError("a tracker lends devices by a key: tracker://HOST:PORT/KEY")
        return cls(match["host"].strip("[]"), port, key, tracker)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """How a device is opened: what it is, and through which server (None: on this machine).

    `identity` is what the server has to be; without one whatever answers is taken.
    """

    kind: DeviceKind = DeviceKind.CPU
    rpc: RpcAddress | None = None
    identity: DeviceIdentity | None = None

    @property
    def url(self) -> str:
        return self.rpc.url if self.rpc else LOCAL

    def to_json(self) -> dict[str, Any]:
        """As it is registered: what it has to be is in its description."""
        return {"kind": self.kind.value, "rpc": asdict(self.rpc) if self.rpc else None}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeviceSpec:
        rpc = value["rpc"]
        return cls(DeviceKind(value["kind"]), RpcAddress(**rpc) if rpc else None)


THIS_MACHINE = DeviceSpec()


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """What a device says of itself.

    `machine` is the processor's architecture as the kernel names it (`x86_64`, `aarch64`), `cores`
    those that programs may use there, as the kernel numbers them.
    """

    identity: DeviceIdentity
    machine: str
    cores: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.cores:
            raise ValueError("a device without a core runs nothing")

    def to_json(self) -> dict[str, Any]:
        return {
            "identity": self.identity.to_json(),
            "machine": self.machine,
            "cores": list(self.cores),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeviceDescription:
        identity = DeviceIdentity.from_json(value["identity"])
        return cls(identity, str(value["machine"]), tuple(int(c) for c in value["cores"]))


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """One server at a time behind a device that the user has named: what takes one batch. Which of
    a tracker's servers that is may differ from session to session."""

    name: str
    spec: DeviceSpec


@dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """A device that the user has named. `added_at` is seconds since the epoch."""

    name: str
    spec: DeviceSpec
    description: DeviceDescription
    added_at: float

    def __post_init__(self) -> None:
        if not is_device_name(self.name):
            raise ValueError(f"{self.name!r} is no name of a device")

    def slots(self, count: int) -> tuple[DeviceSlot, ...]:
        """For as many servers as stand behind it."""
        spec = replace(self.spec, identity=self.description.identity)
        if count == 1:
            return (DeviceSlot(self.name, spec),)
        # A name of a device has no slash: none is called like a slot of another.
        return tuple(DeviceSlot(f"{self.name}/{number}", spec) for number in range(1, count + 1))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "spec": self.spec.to_json(),
            "description": self.description.to_json(),
            "added_at": self.added_at,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RegisteredDevice:
        return cls(
            str(value["name"]),
            DeviceSpec.from_json(value["spec"]),
            DeviceDescription.from_json(value["description"]),
            float(value["added_at"]),
        )


def is_device_name(text: str) -> bool:
    """Whether a device may be called so: letters, digits, dots, dashes; `local` is taken."""
    return _NAME.fullmatch(text) is not None and text != LOCAL
