"""Programs that were measured elsewhere become records, or what a search starts from."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.budget import Budget
from tunefleet.core.home import Home
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.ids import digest
from tunefleet.core.job import BESIDE_OTHERS, Job, JobKind, JobSpec, JobState
from tunefleet.core.network import NetworkInfo
from tunefleet.core.settings import TuneSettings
from tunefleet.core.stage import (
    Profiled,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageRun,
)
from tunefleet.core.step import Imported, StepKey, StepKind
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Failure, Measurement, Trial
from tunefleet.errors import InputError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.record_files import MeasuredProgram, is_home, read_programs
from tunefleet.runs.request import preparation_of
from tunefleet.store import Store, each_job, open_store, store_path
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from tunefleet.core.importing import NetworkSource

#: Of what is imported: a first round has number 0, and says how long those take.
_ITERATION = 1


@dataclass(slots=True)
class ImportedRecords:
    """What became of measured programs: `records` count here, a search `starts` from others. Of the
    records `verified` are what jobs delivered. `refused` counts the rest by the reason. `jobs` are
    those that hold them now, `known` how many programs were imported before."""

    records: int = 0
    starts: int = 0
    verified: int = 0
    known: int = 0
    jobs: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "starts": self.starts,
            "verified": self.verified,
            "known": self.known,
            "jobs": self.jobs,
            "refused": dict(self.refused),
        }


def import_records(
    path: Path, context: BenchmarkContext, network: NetworkSource | None = None
) -> ImportedRecords:
    """Enter what was measured elsewhere into the store of a context: another home, `records.jsonl`,
    Parquet of `dataset gather`, or a database of MetaSchedule. But for a home, `network` says whose
    tasks they are.

    Programs measured on exactly the device of the context, with its toolchain, count as records;
    those of a compatible one start searches; others are refused. Raises InputError for what is
    none of these files.
    """
    here = _Here.of(context)
    context.created(context.home)
    store = open_store(context.home)
    try:
        if is_home(path):
            return _from_home(store, path, context, here)
        if network is None:
            raise InputError(
                f"{path} does not say what its tasks are", cure="name their network: --network"
            )
        tasks = _tasks_of(store, context, network)
        done = ImportedRecords()
        programs = read_programs(path, tasks, context.target, done.refused)
        _enter_programs(store, here, context, path, network, tasks, programs, done)
        return done
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class _Here:
    """Who measures here."""

    device: DeviceIdentity
    toolchain: ToolchainIdentity

    @classmethod
    def of(cls, context: BenchmarkContext) -> _Here:
        from tunefleet.compiler.toolchain.host import toolchain_of

        return cls(context.device, toolchain_of(context.target))

    def is_same(self, device: DeviceIdentity, toolchain: ToolchainIdentity) -> bool:
        return (device.exact, toolchain.exact) == (self.device.exact, self.toolchain.exact)

    def refusal(self, device: DeviceIdentity, toolchain: ToolchainIdentity) -> str:
        """Why what was measured so says nothing here, or ""."""
        if device.compatible != self.device.compatible:
            return f"measured on another kind of device or instruction set: {device.name}"
        if toolchain.compatible != self.toolchain.compatible:
            return f"made by TVM {toolchain.tvm}, whose programs {self.toolchain.tvm} cannot replay"
        return ""


def _tasks_of(
    store: Store, context: BenchmarkContext, source: NetworkSource
) -> tuple[WeightedTask, ...]:
    """The tasks of a network, as an earlier import left them or by another one."""
    from tunefleet.stages.importing import tasked_network
    from tunefleet.stages.place import source_here

    run = store.work.step(StepKey(preparation_of(context, source).id, StepKind.IMPORT))
    if run is not None and isinstance(run.result, Imported):
        return run.result.tasks
    source = source_here(Home(context.home), source)
    with scratch_folder("tasks") as folder:
        tasked = tasked_network(source.spec, context.target, Path(folder), source.options)
    return tuple(tasked.tasks)


def _enter_programs(
    store: Store,
    here: _Here,
    context: BenchmarkContext,
    path: Path,
    network: NetworkSource,
    tasks: Sequence[WeightedTask],
    programs: Iterable[MeasuredProgram],
    done: ImportedRecords,
) -> None:
    """A job for each device and toolchain that measured some of them."""
    measured_by: dict[tuple[str, str], list[MeasuredProgram]] = {}
    for program in programs:
        device, toolchain = program.measured_by(here.device, here.toolchain)
        reason = here.refusal(device, toolchain)
        if reason:
            done.refused[reason] += 1
        else:
            measured_by.setdefault((device.exact, toolchain.exact), []).append(program)
    for identity, of_one in sorted(measured_by.items()):
        named = sorted([p.task_id, p.trial.candidate.candidate_id] for p in of_one)
        job_id = digest(["import", list(identity), named], 32)
        device, toolchain = of_one[0].measured_by(here.device, here.toolchain)
        spec = JobSpec(
            network=NetworkInfo(network.name, path.name, digest(["import", job_id]), (), ()),
            target=context.target,
            device=device,
            toolchain=toolchain,
            budget=Budget(trials=len(of_one)),
            settings=TuneSettings(),
            kind=JobKind.IMPORT,
        )
        trials: dict[str, dict[str, Trial]] = {}
        winners: dict[str, tuple[Trial | None, Any]] = {}
        for program in sorted(of_one, key=lambda each: -(each.trial.latency_s or 0.0)):
            candidate_id = program.trial.candidate.candidate_id
            trials.setdefault(program.task_id, {})[candidate_id] = program.trial  # the fastest last
            if program.is_verified:
                winners[program.task_id] = (program.trial, program.checks)
        own = [weighted for weighted in tasks if weighted.task.task_id in trials]
        of_tasks = {task_id: list(of.values()) for task_id, of in trials.items()}
        _enter(store, here, job_id, spec, own, of_tasks, winners, f"imported from {path}", done)


def _from_home(store: Store, home: Path, context: BenchmarkContext, here: _Here) -> ImportedRecords:
    """The jobs of another home with what they have by now, each as a job here; it is read from a
    copy, and stays as it is."""
    from tunefleet.store.maintenance import backup

    if home.resolve() == Path(context.home).resolve():
        raise InputError(f"{home} is this home", cure="name another one")
    done = ImportedRecords()
    with scratch_folder("home") as folder:
        backup(store_path(home), Home(Path(folder)).store)
        other = open_store(Path(folder))
        try:
            for job in reversed(list(each_job(other.jobs))):
                count = other.records.trial_count(job.job_id)
                reason = here.refusal(job.spec.device, job.spec.toolchain)
                if job.spec.shared:
                    reason = BESIDE_OTHERS
                if reason and count:
                    done.refused[reason] += count
                elif count:
                    _enter_job(store, here, other, job, home, done)
        finally:
            other.close()
    return done


def _enter_job(
    store: Store, here: _Here, other: Store, job: Job, home: Path, done: ImportedRecords
) -> None:
    network = replace(job.spec.network, digest=digest(["import", job.job_id]))
    spec = replace(job.spec, network=network, source=None, kind=JobKind.IMPORT)
    tasks = other.work.tasks(job.job_id)
    trials = {w.task.task_id: other.records.trials(job.job_id, w.task.task_id) for w in tasks}
    winners, text = other.records.winners(job.job_id), f"imported from {home}"
    job_id = job.job_id
    if job.state is JobState.RUNNING:  # what it has by now is not all that it will have
        job_id = digest(["import", job_id, sum(map(len, trials.values())), len(winners)], 32)
    _enter(store, here, job_id, spec, tasks, trials, winners, text, done)


def _enter(
    store: Store,
    here: _Here,
    job_id: str,
    spec: JobSpec,
    tasks: Sequence[WeightedTask],
    trials: Mapping[str, Sequence[Trial]],
    winners: Mapping[str, tuple[Trial | None, Any]],
    text: str,
    done: ImportedRecords,
) -> None:
    """Write a job with its trials and winners; one that is there already stays as it is."""
    count = sum(map(len, trials.values()))
    there = next(iter(store.jobs.page(prefix=job_id, limit=1)), None)
    if there is not None and there.state is not JobState.RUNNING:
        done.known += count
        return
    store.jobs.open(spec, job_id=job_id, now=time.time())
    store.work.put_tasks(job_id, tasks)
    for weighted in tasks:
        of_task = trials.get(weighted.task.task_id, ())
        if of_task:
            _commit(store, job_id, weighted.task.task_id, of_task)
    for task_id, (winner, checks) in winners.items():
        store.records.select_winner(job_id, task_id, winner, checks)
    store.jobs.finish(job_id, JobState.SUCCEEDED, {"stopped": text})
    done.jobs.append(job_id)
    if here.is_same(spec.device, spec.toolchain):
        done.records += count
        done.verified += sum(winner is not None for winner, _ in winners.values())
    else:
        done.starts += count


def _commit(store: Store, job_id: str, task_id: str, trials: Sequence[Trial]) -> None:
    """The trials of a task as one round, which took no time here."""

    def run(kind: StageKind, result: SelectResult | ProfileResult) -> StageRun:
        return StageRun(StageKey(job_id, task_id, _ITERATION, kind), result, 0.0, 0.0)

    store.work.commit(
        run(StageKind.SELECT, SelectResult(tuple(trial.candidate for trial in trials)))
    )
    measured = tuple(
        Profiled(trial.candidate.candidate_id, trial.outcome, trial.profile_s)
        for trial in trials
        if isinstance(trial.outcome, Measurement)
    )
    failed = tuple(
        (trial.candidate.candidate_id, trial.outcome)
        for trial in trials
        if isinstance(trial.outcome, Failure)
    )
    store.work.commit(run(StageKind.PROFILE, ProfileResult(measured, failed)))
