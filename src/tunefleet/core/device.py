"""Devices and their addresses: values that are sent to the worker which opens the device."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from tunefleet.core.gpu import CUDA, Gpu
from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.target import CudaTarget, Target

_ADDRESS = re.compile(
    r"(?P<scheme>rpc|tracker)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})(?:/(?P<key>[^\s/]+))?/?"
)
_GPU = re.compile(rf"{CUDA}:[0-9]{{1,3}}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MOST_PORT = 65535

#: The device name of this machine's own processor.
LOCAL = "local"
#: What fleets call it as a resource.
PROCESSOR = "device"


class DeviceKind(StrEnum):
    """The kind of processor that runs the programs."""

    CPU = "cpu"
    CUDA = CUDA


@dataclass(frozen=True, slots=True)
class RpcAddress:
    """Address of a TVM RPC server, or of a tracker that provides the servers of `key`."""

    host: str
    port: int
    key: str = ""
    tracker: bool = False

    def __post_init__(self) -> None:
        if not self.host or not 1 <= self.port <= _MOST_PORT:
            raise ValueError(f"{self.host}:{self.port} is not a valid address")
        if self.tracker and not self.key:
            raise ValueError("the address of a tracker needs a key")

    @property
    def url(self) -> str:
        """`rpc://HOST:PORT[/KEY]` or `tracker://HOST:PORT/KEY`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme, key = ("tracker" if self.tracker else "rpc"), f"/{self.key}" if self.key else ""
        return f"{scheme}://{host}:{self.port}{key}"

    @classmethod
    def parse(cls, url: str) -> RpcAddress:
        """Parse a URL; raises ValueError with the reason."""
        match = _ADDRESS.fullmatch(url)
        if match is None:
            raise ValueError("expected rpc://HOST:PORT or tracker://HOST:PORT/KEY")
        port, key = int(match["port"]), match["key"] or ""
        if not 1 <= port <= _MOST_PORT:
            raise ValueError(f"{port} is not a valid port")
        tracker = match["scheme"] == "tracker"
        if tracker and not key:
            raise ValueError("the address of a tracker needs a key: tracker://HOST:PORT/KEY")
        return cls(match["host"].strip("[]"), port, key, tracker)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """How to open a device: its kind, its server (None: this machine), and the number of the GPU
    there.

    `identity` is the identity that the server must have; None accepts any server.
    """

    kind: DeviceKind = DeviceKind.CPU
    rpc: RpcAddress | None = None
    identity: DeviceIdentity | None = None
    number: int = 0

    @property
    def is_here(self) -> bool:
        """Whether this machine has the device."""
        return self.rpc is None

    @property
    def gpu(self) -> int | None:
        """The number of the GPU; None for a processor."""
        return self.number if self.kind is DeviceKind.CUDA else None

    @classmethod
    def parse(cls, url: str) -> DeviceSpec:
        """The device at a URL, `rpc://HOST:PORT` or `tracker://HOST:PORT/KEY`: the server's
        processor, or with `#cuda:0` behind it a GPU of it. Raises ValueError with the reason."""
        address, separator, gpu = url.partition("#")
        if not separator:
            return cls(rpc=RpcAddress.parse(url))
        if not is_gpu_name(gpu):
            raise ValueError(f"'{gpu}' is no GPU: write {CUDA}:0")
        number = int(gpu.removeprefix(f"{CUDA}:"))
        return cls(DeviceKind.CUDA, RpcAddress.parse(address), number=number)

    @property
    def url(self) -> str:
        gpu = "" if self.gpu is None else f"{CUDA}:{self.gpu}"
        if self.rpc is None:
            return gpu or LOCAL
        return f"{self.rpc.url}#{gpu}" if gpu else self.rpc.url

    def to_json(self) -> dict[str, Any]:
        """The registered form, without `identity`: the description holds that."""
        number = {} if self.gpu is None else {"number": self.number}
        return {"kind": self.kind.value, "rpc": asdict(self.rpc) if self.rpc else None, **number}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeviceSpec:
        rpc, number = value["rpc"], int(value.get("number", 0))
        return cls(DeviceKind(value["kind"]), RpcAddress(**rpc) if rpc else None, None, number)


THIS_MACHINE = DeviceSpec()


def here_for(target: Target) -> DeviceSpec:
    """The device of this machine that runs code for a target: its processor, or its first GPU."""
    return DeviceSpec(DeviceKind.CUDA) if isinstance(target, CudaTarget) else THIS_MACHINE


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """What a device reports about itself.

    `machine` is the kernel's name of the processor architecture (`x86_64`, `aarch64`), `cores` are
    the kernel's numbers of the cores that programs may use. Of a GPU, both are those of its host.
    """

    identity: DeviceIdentity
    machine: str
    cores: tuple[int, ...]
    gpu: Gpu | None = None

    def __post_init__(self) -> None:
        if not self.cores:
            raise ValueError("a device has at least one core")

    def to_json(self) -> dict[str, Any]:
        return {
            "identity": self.identity.to_json(),
            "machine": self.machine,
            "cores": list(self.cores),
            **({} if self.gpu is None else {"gpu": self.gpu.to_json()}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeviceDescription:
        identity = DeviceIdentity.from_json(value["identity"])
        gpu = Gpu.from_json(value["gpu"]) if "gpu" in value else None
        return cls(identity, str(value["machine"]), tuple(int(c) for c in value["cores"]), gpu)


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """One server of a registered device; it measures one batch at a time. A tracker may provide
    another of its servers in each session."""

    name: str
    spec: DeviceSpec


@dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """A device under a name that the user chose. `added_at` is seconds since the epoch."""

    name: str
    spec: DeviceSpec
    description: DeviceDescription
    added_at: float

    def __post_init__(self) -> None:
        if not (is_device_name(self.name) or is_gpu_name(self.name)):
            raise ValueError(f"{self.name!r} is not a valid device name")

    def slots(self, count: int) -> tuple[DeviceSlot, ...]:
        """One slot for each of `count` servers."""
        spec = replace(self.spec, identity=self.description.identity)
        if count == 1:
            return (DeviceSlot(self.name, spec),)
        # Device names contain no slash, so no device has the name of another device's slot.
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
    """Whether a text is a valid device name: letters, digits, dots, dashes; not `local`."""
    return _NAME.fullmatch(text) is not None and text != LOCAL


def is_gpu_name(text: str) -> bool:
    """Whether a text names a GPU of this machine: `cuda:0`."""
    return _GPU.fullmatch(text) is not None


def gpu_of_this_machine(gpu: Gpu, host: DeviceDescription) -> RegisteredDevice:
    """A GPU as a device that nobody has to register. `host` is this machine's description."""
    spec = DeviceSpec(DeviceKind.CUDA, identity=gpu.identity, number=gpu.number)
    description = DeviceDescription(gpu.identity, host.machine, host.cores, gpu)
    return RegisteredDevice(gpu.address, spec, description, 0.0)
