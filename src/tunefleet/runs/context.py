"""BenchmarkContext: what one run was asked for, and what it found (SimpleTVM, thesis 3.1)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tunefleet.core.device import LOCAL, RegisteredDevice
from tunefleet.core.gpu import CUDA
from tunefleet.core.home import Home, default_home
from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.job import Job, JobKind, JobState
from tunefleet.core.layout import LayoutChoice, MachineLayout, parse_cores
from tunefleet.core.result import ResultNetwork, RunResult, StepTime
from tunefleet.core.step import Imported
from tunefleet.core.target import Target
from tunefleet.errors import InputError, SetupError
from tunefleet.hardware import processor

if TYPE_CHECKING:
    from tunefleet.artifacts.artifact import Artifact
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.store import Store

#: Kinds of jobs that deliver a module, whose summary is a `RunResult`.
_DELIVERING = (JobKind.TUNE, JobKind.BUILD)


class BenchmarkContext:
    """One run: target, device, cores and home, and its `result` once there is one, which has the
    network, the times of its steps, and the figures. `load` finds it again.

    `target` is "cpu" (this machine), "cuda" (its GPU) or a target text; `arch` names the processor
    to generate code for instead. `device` names devices of `tunefleet devices` and `device_kind`
    all of a kind (`cpu`, `cuda`, or the name of their hardware): they are measured on, all at once,
    instead of this machine's processor, and have to be alike (`tune` makes a job for each kind);
    `cuda:0` is this machine's first GPU (as "cuda" for a target means it), `local` its processor.
    `device_key` is the user's name
    for the device: records measured under another key are not reused as they are. `host_cores` and
    `device_cores` say where this machine builds and where it measures (`tunefleet doctor` explains
    the default). `tenant` is the user of a service whose records count; none are the home's own.
    `run_id` has 32 characters.
    """

    def __init__(
        self,
        target: str = "cpu",
        *,
        device: str | Sequence[str] | None = (),
        device_kind: str = "",
        device_key: str = "",
        arch: str | None = None,
        threads: int | None = None,
        host_cores: Collection[int] | None = None,
        device_cores: Collection[int] | None = None,
        home: Path | str | None = None,
        tenant: str = "",
    ) -> None:
        self.run_id = uuid.uuid4().hex
        self.target_text = arch or target
        self.device_names = (device,) if isinstance(device, str) else tuple(device or ())
        self.device_kind = device_kind
        self.device_key = device_key
        self.threads = threads
        self.host_cores = host_cores
        self.device_cores = device_cores
        self.home = Path(home) if home is not None else default_home()
        self.tenant = tenant
        self.created_at = time.time()
        self.result: RunResult | None = None
        self._identity: DeviceIdentity | None = None
        self._target: Target | None = None
        self._devices: tuple[RegisteredDevice, ...] | None = None

    @classmethod
    def of_job(cls, job: Job, home: Path) -> BenchmarkContext:
        """The context of a job that a store holds."""
        spec = job.spec
        context = cls(
            str(spec.target),
            device=spec.terms.devices,
            device_kind=spec.terms.device_kind,
            device_key=spec.device.key,
            threads=spec.target.threads,
            home=home,
            tenant=spec.tenant,
        )
        context.run_id, context.created_at = job.job_id, job.created_at
        context._target = spec.target
        return context

    @property
    def devices(self) -> tuple[RegisteredDevice, ...]:
        """The devices that are measured on beside this machine's processor, or instead of it.
        Raises InputError, also for devices that are not alike: records of one would be taken for
        those of another."""
        if self._devices is None:
            devices = self._named_devices()
            kinds = {device.name: device.description.identity for device in devices}
            if LOCAL in self.device_names and devices:
                kinds[LOCAL] = processor.device_identity()
            first, *others = kinds.items() or [("", None)]
            for name, kind in others:
                if kind != first[1]:
                    raise InputError(
                        f"{name} and {first[0]} are not alike: {kind}; {first[1]}",
                        cure="tune for one of them: --device NAME",
                    )
            self._devices = devices
        return self._devices

    def _named_devices(self) -> tuple[RegisteredDevice, ...]:
        names = [name for name in self.device_names if name != LOCAL]
        if not (self.device_names or self.device_kind) and self._is_for_gpu():
            names = [CUDA]
        if not (names or self.device_kind):
            return ()
        from tunefleet.devices.registry import DeviceRegistry

        return DeviceRegistry(Home(self.home).devices).chosen(names, self.device_kind)

    @property
    def is_here(self) -> bool:
        """Whether this machine's processor is measured on."""
        return LOCAL in self.device_names or not self.devices

    @property
    def place(self) -> str:
        """What is measured on, as its user names it."""
        return ", ".join(dict.fromkeys([*[LOCAL] * self.is_here, *(d.name for d in self.devices)]))

    def each_kind(self) -> list[BenchmarkContext]:
        """A context for each kind of its devices, in their order: those that are alike take the
        batches of a job at the same time. Raises InputError."""
        named = self._named_devices()
        kinds: dict[str, list[str]] = {}
        if LOCAL in self.device_names:
            kinds[processor.device_identity().hardware] = [LOCAL]
        for device in named:
            kinds.setdefault(device.description.identity.hardware, []).append(device.name)
        if len(kinds) < 2:
            return [self]
        return [self.another(names) for names in kinds.values()]

    def _is_for_gpu(self) -> bool:
        """Whether the target means a GPU, and this machine has one."""
        from tunefleet.hardware.gpu import gpus

        # What is no text is refused when the target is parsed.
        return str(self.target_text).split(" ")[0].split("/")[0] == CUDA and bool(gpus())

    @property
    def device(self) -> DeviceIdentity:
        """The identity that the records of this run have."""
        if self._identity is not None:
            return self._identity
        if self.is_here:
            # The layout needs the target, and that the compiler: only where it matters.
            cores = self.layout.device_cores if processor.cpu_info().slower else ()
            return processor.device_identity(self.device_key, cores)
        return replace(self.devices[0].description.identity, key=self.device_key)

    @property
    def target(self) -> Target:
        """The parsed target; raises InputError when the device cannot run its code."""
        if self._target is None and not self.is_here:
            from tunefleet.compiler.toolchain.of_device import device_target

            # As many threads as all of them have.
            fewest = min(self.devices, key=lambda device: len(device.description.cores))
            self._target = device_target(self.target_text, fewest.description, self.threads)
        if self._target is None:
            from tunefleet.compiler.toolchain.host import check_runs_here, parse_target

            threads = self.threads
            if threads is None and (self.host_cores or self.device_cores):
                threads = self._choice(None, self.host_cores, self.device_cores).threads
            target = parse_target(self.target_text, threads)
            check_runs_here(target)
            self._target = target
        return self._target

    @property
    def layout(self) -> MachineLayout:
        """Where this machine builds and measures; raises InputError for cores it has not."""
        return self._layout_for(self.target.threads if self.is_here else None)

    @property
    def likely_layout(self) -> MachineLayout:
        """The layout, known without the compiler: another one where the target names its
        threads."""
        return self._layout_for(self.threads if self.is_here else None)

    def _layout_for(self, threads: int | None) -> MachineLayout:
        if not self.is_here and not self.device_cores:
            # It only sends, and runs the source framework once: it need not be kept free, and
            # hosts build on cores of all kinds.
            cores = self.host_cores or processor.cpu_info().granted
            return self._choice(None, cores, cores).layout
        return self._choice(threads, self.host_cores, self.device_cores).layout

    def _choice(
        self,
        threads: int | None,
        host_cores: Collection[int] | None,
        device_cores: Collection[int] | None,
    ) -> LayoutChoice:
        from tunefleet.devices.neighbours import joined_cores

        pairs = joined_cores(self.home)
        return processor.machine_layout(threads, host_cores, device_cores, pairs)

    def __repr__(self) -> str:
        given = {
            "device": ", ".join(self.device_names),
            "device_kind": self.device_kind,
            "device_key": self.device_key,
            "threads": self.threads,
            "host_cores": self.host_cores,
            "device_cores": self.device_cores,
            "home": str(self.home),
        }
        shown = "".join(f", {name}={value!r}" for name, value in given.items() if value)
        result = self.result
        facts = result.facts() if result is not None else [("run", self.run_id[:8])]
        shown += "".join(f", {name} {value}" for name, value in facts)
        return f"<tunefleet.BenchmarkContext {self.target_text!r}{shown}>"

    def renew(self) -> None:
        """What follows is another run, on this machine."""
        self.run_id, self.created_at = uuid.uuid4().hex, time.time()
        self.result = self._identity = self._target = None

    def another(self, devices: Sequence[str] = ()) -> BenchmarkContext:
        """A context for another run of the same kind, or on some of its devices."""
        return BenchmarkContext(
            self.target_text,
            device=devices or self.device_names,
            device_kind="" if devices else self.device_kind,
            device_key=self.device_key,
            threads=self.threads,
            host_cores=self.host_cores,
            device_cores=self.device_cores,
            home=self.home,
            tenant=self.tenant,
        )

    def created(self, path: Path) -> Path:
        """A directory below home, created; raises SetupError when it cannot be."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"cannot create {path}: {error.strerror}", cure="use --home DIR or TUNEFLEET_HOME"
            ) from error
        return path

    @classmethod
    def load(cls, run: str | Path, home: Path | str | None = None) -> BenchmarkContext:
        """The context of a run, with its result: of an artifact's directory, or by the beginning of
        the id of a run or job in `home`. The result of a job that has not ended, or delivers no
        module, has what is known of it. Raises InputError where there is neither."""
        from tunefleet.artifacts.opening import artifact_folder, open_artifact
        from tunefleet.report.result import read_result
        from tunefleet.runs.timeline import find_job
        from tunefleet.store import open_store, store_path

        at_home = Path(home) if home is not None else default_home()
        folder = artifact_folder(run, at_home)
        if folder.is_dir():
            return cls.of_artifact(open_artifact(folder), at_home)
        if not store_path(at_home).is_file():
            raise InputError(f"no run {run} in {at_home}", cure="name its home: --home DIR")
        with closing(open_store(at_home)) as store:
            job = find_job(store, str(run))
            if job.spec.kind in _DELIVERING and job.state is JobState.SUCCEEDED:
                result = read_result(store.jobs.summary(job.job_id), f"job {job.job_id}")
            else:
                result = _so_far(store, job)
        context = cls.of_job(job, at_home)
        context._found(job.spec.device, result)
        return context

    @classmethod
    def of_artifact(cls, artifact: Artifact, home: Path) -> BenchmarkContext:
        """The context of the run that made an artifact; the store of `home` has more where it has
        the job."""
        from tunefleet.report.result import read_result

        result = read_result(artifact.result, str(artifact.manifest))
        job = _job_of(result, home)
        if job is not None:
            context = cls.of_job(job, home)
        else:
            target, key = artifact.target, artifact.device.key
            context = cls(str(target), device_key=key, threads=target.threads, home=home)
            context._target = target
            context.created_at = min((step.started_at for step in result.steps), default=0.0)
        context._found(artifact.device, result)
        return context

    def _found(self, identity: DeviceIdentity, result: RunResult) -> None:
        self._identity, self.result = identity, result
        self.run_id = result.run  # a build is named by what it makes, not by its job
        host, device = result.host_cores, result.device_cores
        self.host_cores = parse_cores(host) if host else None
        self.device_cores = parse_cores(device) if device else None


def _so_far(store: Store, job: Job) -> RunResult:
    """What is known of a job without a result of its own."""
    spec = job.spec
    owners = [job.job_id] if spec.source is None else [spec.preparation.id, job.job_id]
    runs = [run for owner in owners for run in store.work.steps(owner)]
    imported = [run.result.info for run in runs if isinstance(run.result, Imported)]
    return RunResult(
        run=job.job_id,
        job=job.job_id,
        network=ResultNetwork.of(imported[0] if imported else spec.network),
        target=str(spec.target),
        threads=spec.target.threads,
        device=spec.device,
        toolchain=spec.toolchain,
        budget=spec.budget,
        trials=store.records.trial_count(job.job_id),
        steps=tuple(map(StepTime.of, sorted(runs, key=lambda run: run.started_at))),
    )


def _job_of(result: RunResult, home: Path) -> Job | None:
    """The job of a result, where the store of a home knows it."""
    from tunefleet.store import open_store, store_path

    if result.job is None or not store_path(home).is_file():
        return None
    with closing(open_store(home)) as store:
        return next(iter(store.jobs.page(prefix=result.job, limit=1)), None)


def context_of(given: BenchmarkContext | None) -> BenchmarkContext:
    """What is given, or that of whoever gives none. Raises InputError for what is no context."""
    if given is None:
        return BenchmarkContext()
    if not isinstance(given, BenchmarkContext):
        raise InputError(
            f"a context is a BenchmarkContext, not {type(given).__name__}",
            cure="such as context=BenchmarkContext('cpu', home='tuned')",
        )
    return given


def fleet_of(*contexts: BenchmarkContext, networks: Iterable[str] = ()) -> LocalFleet:
    """What runs the stages and steps of the networks of contexts, with the cores of the one that
    measures on this machine's processor. `networks`: those that are known already."""
    from tunefleet.compiler.frontends.spec import is_torch
    from tunefleet.workers.machine import kept_on
    from tunefleet.workers.pool import start_server

    first = max(contexts, key=lambda context: context.is_here)
    # Another command may measure on the device's cores meanwhile.
    with kept_on(first.likely_layout.host_cores):
        # Both processes need seconds to load the compiler.
        start_server(torch=any(map(is_torch, networks)))
        from tunefleet.fleet.local import LocalFleet

        fleet = LocalFleet(first.layout, first.home, first.devices, here=first.is_here)
    for context in contexts:
        fleet.add(context.devices, here=context.is_here)
    return fleet
