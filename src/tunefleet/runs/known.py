"""A module of what earlier jobs verified, without a search: `tunefleet build`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.budget import NO_SEARCH
from tunefleet.core.events import (
    Event,
    JobContinued,
    JobEnded,
    JobHeld,
    Note,
    Observer,
    ended_by,
)
from tunefleet.core.home import Home
from tunefleet.core.importing import ImportOptions, NetworkSource
from tunefleet.core.job import BESIDE_OTHERS, Building, JobSpec, JobState
from tunefleet.core.known import module_id
from tunefleet.core.precision import FLOAT32
from tunefleet.core.result import RunResult
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import Preparation
from tunefleet.errors import InputError, StoreBusyError
from tunefleet.fleet.leases import jobs_held
from tunefleet.report.result import read_result
from tunefleet.runs.answered import FOUND, found_module, known_of, tasks_of
from tunefleet.runs.context import BenchmarkContext, context_of, fleet_of
from tunefleet.runs.driver import Pipeline
from tunefleet.runs.given_inputs import GivenInputs, input_files
from tunefleet.runs.request import SearchRequest, job_spec, preparation_of, shape_request, source_of
from tunefleet.runs.submitting import done_by_server, server_of
from tunefleet.runs.timeline import find_job
from tunefleet.runs.watching import default_observer
from tunefleet.store import Store, each_job, open_store

if TYPE_CHECKING:
    from torch.nn import Module

    from tunefleet.core.job import Job

#: Seconds between two looks whether another job is done.
_LOOK_S = 0.5
_MADE_NOW = "another job makes the same module now"


def build(
    network: str | Path | Module,
    *,
    from_job: str | None = None,
    measure: bool = False,
    context: BenchmarkContext | None = None,
    observer: Observer | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Mapping[int, Any]] | None = None,
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, float | Sequence[float]] | None = None,
    whole: bool = False,
    trust: bool = False,
    precision: str = FLOAT32,
    calibrate: str | Path | None = None,
    inputs: GivenInputs | None = None,
) -> RunResult:
    """Publish an artifact with the best programs that jobs verified on exactly this device and
    toolchain, without a search; tasks without one keep their plain schedule.

    `from_job` takes those of one job alone, by the beginning of its id. The artifact is named by
    what it is made of: one that is there already is the answer, and nothing is compiled or verified
    again. One that another job makes at that moment is waited for. `known_share` of the result is
    the share of the latency that tasks with a verified program take. `measure` also measures it end
    to end beside its source framework. All else is that of `Session.from_network`, with the same
    errors.

    Raises InputError for a job that is unknown, or whose programs were measured elsewhere or beside
    those of other jobs on purpose, JobError where the network cannot be compiled.
    """
    from tunefleet.compiler.frontends.torch_module import file_of

    base = context_of(context)
    folder = partial(base.created, Home(base.home).modules)
    file = file_of(network, example_inputs, dynamic, folder)
    options = ImportOptions(
        shape_request(shapes, dims, constants), whole, trust, inputs=input_files(inputs, folder)
    )
    source = source_of(file, options, base, precision, calibrate)
    watcher = observer or default_observer(source.name)
    preparation = preparation_of(base, source)
    busy: StoreBusyError | None = None
    while True:
        with closing(open_store(base.home)) as store:
            job = None if from_job is None else _source_job(store, from_job, preparation)
            building = Building("" if job is None else job.job_id, measure)
            request = SearchRequest(NO_SEARCH, TuneSettings(), building=building)
            # No worker starts, and no compiler is asked, where the module is there.
            found = found_module(store, Home(base.home), preparation, job, measure=measure)
            if found is not None:
                _close_open(store, job_spec(base, source, request), found)
                watcher(Note(FOUND))
                watcher(JobEnded())
                return found
        if busy is not None:
            watcher(ended_by(busy))
            raise busy
        try:
            return _built(base, source, request, _unless_busy(watcher))
        except StoreBusyError as error:
            with closing(open_store(base.home)) as store:
                units = _made_by(store, job_spec(base, source, request), job)
                busy = None if _waited(store, units, watcher) else error


def _built(
    base: BenchmarkContext, source: NetworkSource, request: SearchRequest, watcher: Observer
) -> RunResult:
    """What the job of a build brings, done by the server of the home or here."""
    if server_of(base.home) is not None:
        with closing(open_store(base.home)) as store:
            spec = job_spec(base, source, request)
            return read_result(done_by_server(store, spec, base, watcher), source.name)
    with ExitStack() as held:
        fleet = fleet_of(base, networks=[source.spec])
        held.callback(fleet.close)
        fleet.check()
        pipeline = Pipeline(fleet, base, source, watcher, closes=True)
        held.callback(pipeline.close)
        pipeline.open_job(request)
        lives = pipeline.advance()
        if lives:
            fleet.shell().run(lives)
    if pipeline.error is not None:
        raise pipeline.error
    assert pipeline.outcome is not None
    return pipeline.outcome


def _unless_busy(watcher: Observer) -> Observer:
    """A job that another one has to be waited for has not ended."""

    def watch(event: Event) -> None:
        if not (isinstance(event, JobEnded) and event.kind == StoreBusyError.__name__):
            watcher(event)

    return watch


def _made_by(store: Store, spec: JobSpec, job: Job | None) -> frozenset[str]:
    """What is locked by a process that does such a job, or makes its module."""
    preparation = spec.preparation
    tasks = tasks_of(store, preparation)
    if tasks is None:
        return frozenset({spec.fingerprint})
    return frozenset(
        {spec.fingerprint, module_id(preparation, known_of(store, preparation, tasks, job))}
    )


def _waited(store: Store, units: frozenset[str], watcher: Observer) -> bool:
    """Wait until nobody holds any of these locks; False where nobody did."""
    if not units & jobs_held(store.coordination):
        return False
    watcher(JobHeld(_MADE_NOW))
    while units & jobs_held(store.coordination):
        time.sleep(_LOOK_S)
    watcher(JobContinued())
    return True


def _close_open(store: Store, spec: JobSpec, found: RunResult) -> None:
    """A job like this that nobody works on has its answer."""
    if spec.fingerprint not in jobs_held(store.coordination):
        for job in each_job(store.jobs, state=JobState.RUNNING, fingerprint=spec.fingerprint):
            store.jobs.finish(job.job_id, JobState.SUCCEEDED, found.to_dict())


def _source_job(store: Store, name: str, preparation: Preparation) -> Job:
    """Raises InputError for a job that is unknown, or whose records serve no build here."""
    job = find_job(store, name)
    if job.spec.shared:
        raise InputError(
            f"job {job.job_id[:8]} is an experiment: {BESIDE_OTHERS}, and serve no other job",
            cure="leave out --from, or name a job that was measured alone",
        )
    cure = "leave out --from, or build on the device that it was tuned on"
    if job.spec.device.exact != preparation.device.exact:
        raise InputError(
            f"job {job.job_id[:8]} was measured on another device: {job.spec.device.name}",
            cure=cure,
        )
    if job.spec.toolchain.exact != preparation.toolchain.exact:
        raise InputError(
            f"job {job.job_id[:8]} was measured with another toolchain, "
            f"TVM {job.spec.toolchain.tvm}",
            cure=cure,
        )
    return job
