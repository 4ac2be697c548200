"""Asks a device that is to be named what it is, and of a tracker's servers each that is free."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from tunefleet.core.device import DeviceDescription, DeviceSpec
from tunefleet.devices.health import health_of
from tunefleet.devices.opening import open_device
from tunefleet.errors import InputError, RetryElsewhereError


@dataclass(frozen=True, slots=True)
class Asked:
    """What a device says of itself; how many servers stand behind it, and how many were asked:
    others have the rest."""

    description: DeviceDescription
    servers: int = 1
    asked: int = 1


def ask(spec: DeviceSpec, *, name: str = "", patience_s: float | None = None) -> Asked:
    """`name` is the user's, for a machine that does not tell its own.

    Raises InputError for servers of one key that are not alike, and what `Device.describe` raises.
    """
    servers = free = 1
    if spec.rpc is not None and spec.rpc.tracker:
        health = health_of(spec)
        servers, free = health.servers, max(1, health.free)
    told: list[DeviceDescription] = []
    with ExitStack() as held:
        # All are held until the last is asked: a tracker lends those that are free.
        for _ in range(free):
            device = open_device(spec, 1, name=name, patience_s=patience_s)
            held.callback(device.close)
            try:
                told.append(device.describe())
            except RetryElsewhereError:
                if not told:
                    raise
                break  # somebody else was faster
    kinds = list(dict.fromkeys(str(description.identity) for description in told))
    if len({description.identity for description in told}) > 1:
        raise InputError(
            f"{spec.url} lends servers that are not alike: {'; '.join(kinds)}",
            cure="start the servers of each kind with a key of their own",
        )
    fewest = min(told, key=lambda description: len(description.cores))
    return Asked(fewest, max(servers, len(told)), len(told))
