"""Where stages and steps work: what every one of them may use, and what they are asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from tunefleet.artifacts.blobs import Blobs, is_blob, open_blobs
from tunefleet.core.device import THIS_MACHINE, DeviceSpec
from tunefleet.core.events import Event
from tunefleet.core.home import Home
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import Job
from tunefleet.core.known import KnownPrograms
from tunefleet.core.network import Footprint
from tunefleet.core.settings import MeasureSettings, TuneSettings
from tunefleet.core.stage import StageKey, WorkKind
from tunefleet.core.step import Preparation, StepKey, StepKind
from tunefleet.core.target import Target
from tunefleet.core.task import Task
from tunefleet.costmodel.registry import Registry, registry_of
from tunefleet.errors import RetryElsewhereError
from tunefleet.store import Store
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import CallEnd, CallFailure, WorkerPool

T = TypeVar("T")


class LostInputError(Exception):
    """What an earlier stage or step made is gone; whoever schedules has it made again."""

    def __init__(self, kind: WorkKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _unwatched(key: StageKey, done: int, total: int) -> None:
    pass


def _untold(job_id: str, event: Event) -> None:
    pass


@dataclass(frozen=True, slots=True)
class DeviceWorker:
    """The worker that measures, and the device on which it does: with `threads` of it, as every
    program of the target has. One that takes no connection is waited for for `away_s`, None for as
    long as one that another session has. `memory_gib` is what a program may take on this machine's
    processor; None leaves the worker what it may take."""

    pool: WorkerPool
    threads: int
    spec: DeviceSpec = THIS_MACHINE
    away_s: float | None = None
    memory_gib: float | None = None

    def call(self, function: Callable[..., T], *args: Any, timeout_s: float) -> T | CallFailure:
        """Call a function of `work` in the worker, with that device as its device.

        Raises RetryElsewhereError where the device does not answer, DeviceError where it cannot be
        used.
        """
        if self.spec == THIS_MACHINE:
            self.pool.fit(self.threads, self.memory_gib)
            return self.pool.call(function, *args, timeout_s=timeout_s)
        from tunefleet.devices import call_limit_s
        from tunefleet.stages import work

        place = (self.spec, self.threads, self.away_s, function, args)
        if self.spec.is_here:
            return self.pool.call(work.on_device, *place, timeout_s=timeout_s)
        limit_s = call_limit_s(self.spec, timeout_s)
        outcome: T | CallFailure = self.pool.call(
            work.on_device, *place, timeout_s=limit_s, lives=1
        )
        if isinstance(outcome, CallFailure) and outcome.end in (CallEnd.CRASH, CallEnd.TIMEOUT):
            # No program of ours runs in that worker, and what hangs there the server ends.
            raise RetryElsewhereError(
                f"{self.spec.url} answers what ends TVM's client: {outcome.text}",
                cure="see what listens there, or start the server again",
            )
        return outcome


@dataclass(frozen=True, slots=True)
class Workplace:
    """A store, the workers of a machine, and a home. `remote` is where it measures (a server's
    device, a GPU of this machine), its own processor without. `blobs` is the URL below which
    objects lie, "" for those of the home. `progress` and `tell` reach whoever
    watches a job."""

    store: Store
    machine: Machine
    home: Home
    progress: Callable[[StageKey, int, int], None] = _unwatched
    tell: Callable[[str, Event], None] = _untold
    remote: DeviceWorker | None = None
    blobs: str = ""

    @property
    def pool(self) -> WorkerPool:
        """The worker that measures."""
        return self.machine.device if self.remote is None else self.remote.pool

    @property
    def models(self) -> Registry:
        return registry_of(self.home.root)

    def objects(self, owner: str) -> Blobs:
        """The objects of a preparation or a run."""
        return _blobs(f"{self.blobs}/{owner}") if self.blobs else objects_of(self.home, owner)

    def for_target(self, target: Target) -> StageContext:
        """As a stage or step of a job uses it, whose code is for a target."""
        return StageContext(
            self.store,
            self.machine,
            self.home,
            self.progress,
            self.tell,
            self.remote,
            self.blobs,
            target=target,
        )


@dataclass(frozen=True, slots=True)
class StageContext(Workplace):
    """A workplace for one stage or step: `target` is that of its job."""

    target: Target = field(kw_only=True)

    @property
    def device(self) -> DeviceWorker:
        if self.remote is not None:
            return replace(self.remote, threads=self.target.threads)
        threads = min(self.target.threads, len(self.machine.layout.device_cores))
        return DeviceWorker(self.machine.device, threads)

    def measuring(self, settings: MeasureSettings) -> DeviceWorker:
        """The device for programs one by one, with the memory that a job lets them take."""
        return replace(self.device, memory_gib=self.machine.at_most(settings.memory_gib))

    @property
    def is_here(self) -> bool:
        """Whether the device is one of this machine: source frameworks can be measured beside."""
        return self.device.spec.is_here

    @property
    def gpu_here(self) -> int | None:
        """The number of the GPU of this machine that is the device; None for any other."""
        return self.device.spec.gpu if self.is_here else None

    @property
    def framework_threads(self) -> int:
        """The threads of source frameworks on this machine's processor: those of the target, and
        beside a GPU all cores."""
        cores = len(self.machine.layout.device_cores)
        return self.device.threads if self.remote is None else cores

    def grant(self, footprint: Footprint) -> None:
        """Let this machine's device take what a network of this footprint needs."""
        if self.remote is None:
            self.machine.grant(footprint)


def objects_of(home: Home, owner: str) -> Blobs:
    """The objects of a preparation or a run below a home."""
    return _blobs(str(home.objects / owner))


def source_here(home: Home, source: NetworkSource) -> NetworkSource:
    """A network before its import, with its files where they lie here. Raises LostBlobError for one
    that was kept by its content, and is gone or damaged."""
    for path in (source.spec, *(file.path for file in source.options.inputs)):
        folder, name, *_ = (*Path(path).parts, "")
        # Names that earlier versions gave are no blobs', and say less.
        if folder == home.networks.name and is_blob(name):
            open_blobs(home.networks).path(name)
    return home.resolved(source)


@lru_cache(maxsize=64)
def _blobs(place: str) -> Blobs:
    """One for each owner, which knows what it has verified."""
    return open_blobs(place)


@dataclass(frozen=True, slots=True)
class JobTask:
    """A task within its job, as a stage needs it."""

    job: Job
    task: Task


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the steps after a search need besides what earlier ones committed.

    `run_id` owns them and names the artifact. Without a `job`, what is delivered are `programs`, or
    else the best records of earlier ones. `stopped` is why the search ended; `rounds` of measuring
    end to end, None for those of the settings. `estimated_s` is what the tasks took together at the
    end of the search; `impossible` is why what is agreed cannot be met.
    """

    run_id: str
    preparation: Preparation
    settings: TuneSettings
    job: Job | None = None
    resumed: bool = False
    stopped: str = ""
    rounds: int | None = None
    programs: KnownPrograms | None = None
    estimated_s: float | None = None
    impossible: str = ""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A step to be run. `watcher` is the id under which whoever watches is told."""

    kind: StepKind
    preparation: Preparation
    delivery: Delivery | None = None
    watcher: str = field(default="", compare=False)

    @property
    def key(self) -> StepKey:
        owner = self.preparation.id if self.delivery is None else self.delivery.run_id
        return StepKey(owner, self.kind)
