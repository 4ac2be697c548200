"""From a description that travels to the device it names, once per process."""

from __future__ import annotations

from tunefleet.core.device import DeviceSpec
from tunefleet.devices._base import Device

#: What one call on a device may take beside its programs: connecting, moving data, a fresh session.
_BESIDE_S = 120.0

_held: dict[tuple[DeviceSpec, int | None], Device] = {}


def open_device(
    spec: DeviceSpec,
    threads: int | None = None,
    *,
    name: str = "",
    patience_s: float | None = None,
    away_s: float | None = None,
) -> Device:
    """A new device for programs of `threads` threads; None for what this process is set to.

    `name` is the user's, for a machine that does not tell its own; `patience_s` how long a server
    is waited for, `away_s` for how much of that one which takes no connection. Nothing is connected
    before the first call. Raises ValueError for a server without a number of threads.
    """
    if spec.rpc is None and spec.gpu is not None:
        from tunefleet.devices.cuda import LocalCuda

        return LocalCuda(spec.gpu, threads)
    if spec.rpc is None:
        from tunefleet.devices.cpu import LocalCpu

        return LocalCpu(threads)
    if threads is None:
        raise ValueError("a server is told how many threads kernels have")
    from tunefleet.devices.rpc import PATIENCE_S, RpcDevice

    patience_s = PATIENCE_S if patience_s is None else patience_s
    return RpcDevice(
        spec.rpc,
        threads,
        name=name,
        patience_s=patience_s,
        away_s=patience_s if away_s is None else away_s,
        identity=spec.identity,
        gpu=spec.gpu,
    )


def held_device(
    spec: DeviceSpec, threads: int | None = None, away_s: float | None = None
) -> Device:
    """The device that this process holds open for a spec; opened by the first call, as
    `open_device` does. Another one than before is opened after that was closed: a worker serves one
    at a time."""
    key = (spec, threads)
    if key not in _held:
        for other in _held.values():
            other.close()
        _held.clear()
        _held[key] = open_device(spec, threads, away_s=away_s)
    return _held[key]


def call_limit_s(spec: DeviceSpec, own_s: float) -> float:
    """Seconds after which a pool may give up a worker whose call takes `own_s` on the device.

    A server ends what hangs by itself, and a session that is lost is opened again, which is to be
    told and not to be taken for a program that hangs.
    """
    return own_s if spec.rpc is None else own_s + _BESIDE_S
