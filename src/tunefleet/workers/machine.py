"""This machine's workers: those of the host select, build and update, one for each device
measures."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tunefleet.core.layout import MachineLayout
from tunefleet.core.network import Footprint
from tunefleet.core.settings import BuildSettings, MeasureSettings, TuneSettings
from tunefleet.system.scratch import scratch_folder
from tunefleet.workers.memory import machine_memory, worker_bytes
from tunefleet.workers.pool import WorkerConfig, WorkerPool

#: Less than this need not be granted: limits have room for it.
_SMALL_GIB = 1.0


@contextmanager
def kept_on(cores: Collection[int]) -> Iterator[None]:
    """This thread, with all that it starts, runs on these cores within the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Machine:
    """Pools of warm workers, for jobs of any target. `scratch` holds libraries on their way from
    build to profile.

    The thread that makes it stays off the device's cores until `close`, with all it starts.
    """

    def __init__(self, layout: MachineLayout) -> None:
        self.layout = layout
        # A program that takes more than there is would end other processes than its worker.
        self._most_gib = machine_memory().total / 2**30
        with ExitStack() as opening:
            opening.enter_context(kept_on(layout.host_cores))
            self.scratch = Path(opening.enter_context(scratch_folder("machine")))
            self._make_pools(opening)
            self._open = opening.pop_all()

    def _make_pools(self, opening: ExitStack) -> None:
        layout, settings = self.layout, TuneSettings()

        def pool(workers: int, config: WorkerConfig) -> WorkerPool:
            return opening.enter_context(WorkerPool(workers, config))

        log = str(self.scratch / "workers.log")
        building, measuring = map(
            self.at_most, (settings.build.memory_gib, settings.measure.memory_gib)
        )
        host = WorkerConfig(1, building, log, layout.host_cores)
        device = WorkerConfig(len(layout.device_units), measuring, log, layout.device_cores)
        #: Selects and updates: its caches of tune contexts stay warm in one process.
        self.lead = pool(1, replace(host, memory_gib=self._most_gib))
        self.host = pool(layout.builders, host)
        self.device = pool(1, device)

    def at_most(self, gib: float) -> float:
        """So much memory, or all of this machine's where that is less."""
        return min(gib, self._most_gib)

    def builders(self, settings: BuildSettings) -> WorkerPool:
        """The workers that build, with the memory that a job lets each of them take."""
        self.host.fit(1, self.at_most(settings.memory_gib))
        return self.host

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def sender(self) -> WorkerPool:
        """A worker for one more device, which is elsewhere or a GPU of this machine."""
        # It only sends what runs elsewhere, whole networks too; a GPU's driver maps as much as all
        # memory that there is.
        config = replace(self.device.config, memory_gib=math.inf)
        return self._open.enter_context(WorkerPool(1, config))

    def grant(self, footprint: Footprint) -> None:
        """Let the device's worker take what a network of this footprint needs: a fresh worker,
        unless it may already."""
        alone = self.at_most(MeasureSettings().memory_gib)
        gib = worker_bytes(int(alone * 2**30), footprint) / 2**30
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
