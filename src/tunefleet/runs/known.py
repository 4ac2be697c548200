"""A module of what earlier jobs verified, without a search: `tunefleet build`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.budget import NO_SEARCH
from tunefleet.core.events import JobEnded, Note, Observer
from tunefleet.core.home import Home
from tunefleet.core.importing import ImportOptions
from tunefleet.core.job import BESIDE_OTHERS, Building
from tunefleet.core.known import KnownPrograms, module_id
from tunefleet.core.precision import FLOAT32
from tunefleet.core.result import RunResult
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import Imported, Preparation, StepKey, StepKind
from tunefleet.core.task import WeightedTask
from tunefleet.errors import InputError
from tunefleet.report.result import read_result
from tunefleet.runs.context import BenchmarkContext, context_of
from tunefleet.runs.driver import Pipeline, fleet_of
from tunefleet.runs.given_inputs import GivenInputs, input_files
from tunefleet.runs.request import SearchRequest, job_spec, preparation_of, shape_request, source_of
from tunefleet.runs.submitting import done_by_server, server_of
from tunefleet.runs.timeline import find_job
from tunefleet.runs.watching import default_observer
from tunefleet.stages.known import known_programs
from tunefleet.store import Store, open_store

if TYPE_CHECKING:
    from torch.nn import Module

    from tunefleet.core.job import Job

_FOUND = "the same programs were built and verified before: nothing is built again"


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
    again. `known_share` of the result is the share of the latency that tasks with a verified
    program take. `measure` also measures it end to end beside its source framework. All else is
    that of `Session.from_network`, with the same errors.

    Raises InputError for a job that is unknown, or whose programs were measured elsewhere, JobError
    where the network cannot be compiled.
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
    store = open_store(base.home)
    try:
        preparation = preparation_of(base, source)
        job = None if from_job is None else _source_job(store, from_job, preparation)
        # No worker starts, and no compiler is asked, where the module is there.
        found = _found(store, Home(base.home), preparation, job, measure=measure)
    finally:
        store.close()
    if found is not None:
        watcher(Note(_FOUND))
        watcher(JobEnded())
        return found
    building = Building("" if job is None else job.job_id, measure)
    request = SearchRequest(NO_SEARCH, TuneSettings(), building=building)
    if server_of(base.home) is not None:
        with closing(open_store(base.home)) as store:
            spec = job_spec(base, source, request)
            return read_result(done_by_server(store, spec, base, watcher), source.name)
    with ExitStack() as held:
        fleet = fleet_of(base)
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


def _known(
    store: Store, preparation: Preparation, tasks: Sequence[WeightedTask], job: Job | None
) -> KnownPrograms:
    task_ids = [weighted.task.task_id for weighted in tasks]
    return known_programs(store, preparation, task_ids, "" if job is None else job.job_id)


def _found(
    store: Store, home: Home, preparation: Preparation, job: Job | None, *, measure: bool
) -> RunResult | None:
    """The result of an artifact that has these very programs, and its figures where these are to be
    measured."""
    imported = store.work.step(StepKey(preparation.id, StepKind.IMPORT))
    if imported is None or not isinstance(imported.result, Imported):
        return None
    known = _known(store, preparation, imported.result.tasks, job)
    for run_id in (module_id(preparation, known), *_job_of_all(store, preparation, known)):
        result = _published(home, run_id)
        if result is not None and not (measure and result.tuned_ms is None):
            return result
    return None


def _job_of_all(store: Store, preparation: Preparation, known: KnownPrograms) -> tuple[str, ...]:
    """The job of this network that all programs are winners of: its artifact is this module."""
    job_ids = {program.job_id for program in known.values()}
    if len(job_ids) != 1:
        return ()
    job = find_job(store, job_ids.pop())
    if job.spec.source is None or job.spec.preparation.id != preparation.id:
        return ()
    return (job.job_id,)


def _published(home: Home, run_id: str) -> RunResult | None:
    """The result of an artifact whose module is as it was verified; None where there is none."""
    from tunefleet.artifacts.artifact import check_files, read_artifact

    path = home.artifacts / run_id
    try:
        artifact = read_artifact(path)
        check_files(artifact, artifact.module)
        result = read_result(artifact.result, str(artifact.manifest))
    except InputError:
        return None
    return replace(
        result,
        artifact=str(path),
        report=str(artifact.report),
        # What its steps took, they took then.
        wall={},
        wall_s=None,
        known_share=result.share_of_tuned if result.known_share is None else result.known_share,
    )
