"""What a device says of itself, asked in a process apart.

TVM's client believes what a server sends: one that sends anything else ends the client's process.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tunefleet.core.device import DeviceSpec
from tunefleet.devices.asking import Asked, ask
from tunefleet.errors import RetryElsewhereError
from tunefleet.system.scratch import scratch_folder
from tunefleet.workers.pool import CallFailure, WorkerConfig, WorkerPool

_MEMORY_GIB = 8.0
#: What asking all servers of a tracker may take beside waiting for them.
_LIMIT_S = 300.0


def ask_apart(spec: DeviceSpec, *, name: str = "", patience_s: float) -> Asked:
    """`ask`, and RetryElsewhereError where what answers ends the process that asks."""
    with scratch_folder("asking") as folder:
        config = WorkerConfig(1, _MEMORY_GIB, str(Path(folder, "log")))
        with WorkerPool(1, config) as pool:
            asked: Asked | CallFailure = pool.call(
                partial(ask, spec, name=name, patience_s=patience_s),
                timeout_s=_LIMIT_S + patience_s,
                lives=1,
            )
    if isinstance(asked, CallFailure):
        raise RetryElsewhereError(
            f"{spec.url} answers what ends TVM's client: {asked.text}",
            cure="see what listens there, or start the server again",
        )
    return asked
