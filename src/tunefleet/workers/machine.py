"""This machine's workers: those of the host select, build and update, one for each device
measures."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tunefleet.core.device import DeviceSpec
from tunefleet.core.layout import MachineLayout
from tunefleet.core.network import Footprint
from tunefleet.core.settings import TuneSettings
from tunefleet.core.target import Target
from tunefleet.system.files import check_runs_code
from tunefleet.system.scratch import scratch_folder
from tunefleet.workers.memory import machine_memory, worker_bytes
from tunefleet.workers.pool import WorkerConfig, WorkerPool

#: Less than this need not be granted: limits have room for it.
_SMALL_GIB = 1.0


class Machine:
    """Pools of warm workers. `scratch` holds libraries on their way from build to profile.

    The thread that makes it stays off the device's cores until `close`, with all it starts.
    """

    def __init__(
        self,
        target: Target,
        settings: TuneSettings,
        layout: MachineLayout,
        remotes: Sequence[DeviceSpec] = (),
    ) -> None:
        """`remotes` are measured on instead of this machine's processor: devices elsewhere, or GPUs
        of this machine. Raises SetupError where what is built could not be loaded."""
        self.target = target
        self.layout = layout
        #: Of what runs a network on this machine.
        self.threads = min(target.threads, len(layout.device_cores))
        with ExitStack() as opening:
            opening.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
            os.sched_setaffinity(0, layout.host_cores)
            self.scratch = Path(opening.enter_context(scratch_folder("machine")))
            if all(spec.is_here for spec in remotes):
                check_runs_code(self.scratch.parent, "set TMPDIR to a folder on another disk")
            self._start(settings, len(remotes), opening)
            self._open = opening.pop_all()

    def _start(self, settings: TuneSettings, remotes: int, opening: ExitStack) -> None:
        layout = self.layout

        def pool(workers: int, config: WorkerConfig) -> WorkerPool:
            return opening.enter_context(WorkerPool(workers, config))

        log = str(self.scratch / "workers.log")
        # A program that takes more than there is would end other processes than its worker.
        most = machine_memory().total / 2**30
        building, self._measuring_gib = (
            min(each.memory_gib, most) for each in (settings.build, settings.measure)
        )
        host = WorkerConfig(1, building, log, layout.host_cores)
        device = WorkerConfig(self.threads, self._measuring_gib, log, layout.device_cores)
        #: Selects and updates: its caches of tune contexts stay warm in one process.
        self.lead = pool(1, host)
        self.host = pool(layout.builders, host)
        self.device = pool(1, device)
        # They only send what runs elsewhere, whole networks too; a GPU's driver maps as much as all
        # memory that there is.
        sending = replace(device, memory_gib=math.inf)
        self.remotes = tuple(pool(1, sending) for _ in range(remotes))

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def warm_up(self) -> None:
        """Start every worker now, so that loading the compiler overlaps with other work."""
        for pool in (self.lead, self.host, *(self.remotes or (self.device,))):
            for _ in range(pool.workers):
                pool.submit(os.getpid)

    def grant(self, footprint: Footprint) -> None:
        """Let the device's worker take what a network of this footprint needs: a fresh worker,
        unless it may already."""
        gib = worker_bytes(int(self._measuring_gib * 2**30), footprint) / 2**30
        if gib > self.device.config.memory_gib + _SMALL_GIB:
            self._let_take(gib)

    def grant_all(self) -> None:
        """Let the device's worker, a fresh one, take all of this machine's memory."""
        self._let_take(_every_gib())

    def _let_take(self, gib: float) -> None:
        self.device.config = replace(self.device.config, memory_gib=gib)
        self.device.restart()

    def close(self) -> None:
        self._open.close()


def _every_gib() -> float:
    # Address space is more than memory: it maps libraries, files, the kernel's own pools.
    return 4 * machine_memory().total / 2**30
