"""What measures: compiled programs on a device, its reference kernel, and whether it is fit."""

from tunefleet.devices._base import NO_WEIGHTS, Check, Device, Program, Transfers
from tunefleet.devices.opening import call_limit_s, held_device, open_device

__all__ = [
    "NO_WEIGHTS",
    "Check",
    "Device",
    "Program",
    "Transfers",
    "call_limit_s",
    "held_device",
    "open_device",
]
