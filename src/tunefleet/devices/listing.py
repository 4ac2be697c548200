"""Every device of a home: this machine's processor and GPUs, and those that its user has named."""

from __future__ import annotations

from dataclasses import dataclass

from tunefleet.core.device import LOCAL, THIS_MACHINE, DeviceDescription, DeviceSpec
from tunefleet.devices.registry import DeviceRegistry
from tunefleet.hardware.gpu import gpu_devices
from tunefleet.hardware.processor import describe_machine


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device under its name; that of this machine's processor is `LOCAL`."""

    name: str
    spec: DeviceSpec
    description: DeviceDescription


def listed_devices(registry: DeviceRegistry) -> list[ListedDevice]:
    """This machine's first. Raises InputError for a registry that is damaged."""
    local = ListedDevice(LOCAL, THIS_MACHINE, describe_machine())
    others = [*gpu_devices(), *registry.all()]
    return [local, *(ListedDevice(each.name, each.spec, each.description) for each in others)]
