"""Jobs of one call, which no scheduler divides: a network placed on devices, an artifact measured
again. Whoever asks for one does it, or the server of the home, by a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tunefleet.artifacts.artifact import Artifact
from tunefleet.artifacts.opening import open_artifact
from tunefleet.core.budget import NO_SEARCH
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import Event, JobEnded, Note, Observer, ended_by
from tunefleet.core.home import Home, default_home
from tunefleet.core.ids import digest
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions, NetworkSource
from tunefleet.core.job import (
    Called,
    Evaluated,
    Job,
    JobKind,
    JobSpec,
    JobState,
    JobTerms,
    PlacedOn,
)
from tunefleet.core.precision import FLOAT32
from tunefleet.core.result import Evaluation, RunResult
from tunefleet.core.settings import MeasureSettings, TuneSettings
from tunefleet.core.statistics import Interval
from tunefleet.errors import InputError, JobError, TunefleetError, judged
from tunefleet.fleet.leases import Leases
from tunefleet.report.result import read_evaluation
from tunefleet.runs.calling import call_artifact, save_outputs
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.evaluation import device_alone, measured_again
from tunefleet.runs.jobs import close_cancelled
from tunefleet.runs.placement import check_division, placed
from tunefleet.runs.quotas import QUOTA_CURE, lack_of_quota
from tunefleet.runs.request import SearchRequest, check_rounds, enter_job, job_spec, source_of
from tunefleet.runs.submitting import done_by_server, server_of
from tunefleet.store import Store, open_store
from tunefleet.system.scratch import remove_own, torch_cache
from tunefleet.system.user import user_name

#: What no scheduler divides.
ERRANDS = frozenset({JobKind.PLACE, JobKind.EVALUATE, JobKind.RUN})
#: Where outputs of a run go in the folder of its job.
_OUTPUT = "output.npy"

#: Seconds between two looks whether a user cancels a job.
_LOOK_S = 0.5
#: Keeps the outputs of a job of kind `run` and returns their names.
_SaveOutputs = Callable[[Sequence[Any]], Sequence[str]]


def _save_nothing(arrays: Sequence[Any]) -> Sequence[str]:
    """For jobs of other kinds."""
    return ()


def _unheard(text: str) -> None:
    """Nobody watches."""


def place(
    network: str | Path,
    contexts: Mapping[str, BenchmarkContext],
    options: ImportOptions = DEFAULT_IMPORT,
    tell: Callable[[str], None] = _unheard,
    *,
    precision: str = FLOAT32,
    calibrate: str | Path | None = None,
) -> dict[str, Any]:
    """Where each task of a network should run, as one JSON value (schema tunefleet-placement/1).

    A division that is calculated to be faster than the best single device is compiled and run
    beside it. It `pays` if it is faster then too; otherwise that device is to be used alone.
    It is a job of the contexts' home. `contexts`, `tell` and what is raised are those of `Placing`.
    """
    check_division(contexts)
    first = next(iter(contexts.values()))
    source = source_of(network, options, first, precision, calibrate)
    return _answer(placing_spec(source, contexts), first, tell)


def placing_spec(source: NetworkSource, contexts: Mapping[str, BenchmarkContext]) -> JobSpec:
    """The job that places a network on devices that `check_division` let pass."""
    divided = tuple(
        PlacedOn(name, each.target_text, each.threads, each.device_key)
        for name, each in contexts.items()
    )
    request = SearchRequest(NO_SEARCH, TuneSettings(), divided=divided)
    return job_spec(next(iter(contexts.values())), source, request)


def evaluate_artifact(
    path_or_id: str | Path,
    home: Path | str | None = None,
    rounds: int = 12,
    signed_by: Path | str | None = None,
    tell: Callable[[str], None] = _unheard,
) -> Evaluation:
    """Measure a saved artifact on this machine again, at each of its shapes, beside its source
    framework, if what it was imported from is still there.

    A figure that its result lacks, since the measurement was disturbed, is filled in: in the
    artifact, unless it is signed, and in its job in the store of `home`. `tell` is told while a
    command of that home measures here. Of an artifact of the home it is a job of it.
    """
    check_rounds(rounds)
    artifact = open_artifact(path_or_id, home, signed_by)
    at_home = Path(home or default_home())
    if not _is_of(artifact, at_home):
        return measured_again(artifact, at_home, rounds, tell)
    context = BenchmarkContext(home=at_home)
    return read_evaluation(_answer(evaluation_spec(artifact, rounds), context, tell))


def evaluation_spec(artifact: Artifact, rounds: int, tenant: str = "") -> JobSpec:
    """The job that measures an artifact of the home again."""
    evaluated = Evaluated(artifact.path.name, rounds)
    content = digest(["evaluate", evaluated.artifact, rounds])
    spec = _of_artifact(artifact, JobKind.EVALUATE, content)
    terms = JobTerms(owner=tenant or user_name())
    return replace(spec, evaluated=evaluated, terms=terms, tenant=tenant)


def calling_spec(
    artifact: Artifact, inputs: Sequence[tuple[str, str]], repeat: int | None, tenant: str
) -> JobSpec:
    """The job that calls an artifact of the home on `.npy` files, given by their paths below home,
    each with its SHA-256."""
    called = Called(artifact.path.name, tuple(place for place, _ in inputs), repeat)
    content = digest(["run", called.artifact, repeat, *(content for _, content in inputs)])
    spec = _of_artifact(artifact, JobKind.RUN, content)
    return replace(spec, called=called, terms=JobTerms(owner=tenant), tenant=tenant)


def timed_run(
    path_or_id: str | Path,
    home: Path,
    content: str,
    timed: Callable[[], Interval],
    tell: Callable[[str], None] = _unheard,
) -> Interval:
    """What `timed` measures of an artifact in this process, in seconds, while no command of the
    home measures here. Of an artifact of the home it is a job of it; of one `content` there is one
    at a time."""
    artifact = open_artifact(path_or_id, home)
    if not _is_of(artifact, home):
        with device_alone(artifact, home, "run", tell):
            return timed()
    spec = _of_artifact(artifact, JobKind.RUN, digest(["run", artifact.path.name, content]))

    def call(heard: Callable[[str], None]) -> dict[str, Any]:
        with device_alone(artifact, home, "run", heard):
            return {"latency_ms": timed().scaled(1e3).to_json()}

    answer = _done_here(spec, BenchmarkContext(home=home), tell, call)
    return Interval(**answer["latency_ms"]).scaled(1e-3)


def _is_of(artifact: Artifact, home: Path) -> bool:
    return artifact.path.parent.resolve() == Home(home).artifacts.resolve()


def _of_artifact(artifact: Artifact, kind: JobKind, content: str) -> JobSpec:
    return JobSpec(
        network=replace(artifact.network, digest=content),
        target=artifact.target,
        device=artifact.device,
        toolchain=artifact.toolchain,
        budget=NO_SEARCH,
        settings=TuneSettings(),
        kind=kind,
        terms=JobTerms(owner=user_name()),
    )


def evaluated_again(
    artifact: Artifact,
    result: RunResult,
    home: Path,
    rounds: int | None,
    observer: Observer,
) -> RunResult:
    """The result of an artifact's run with figures measured now, as `evaluate_artifact` does;
    `observer` is called with what it warns of."""

    def tell(text: str) -> None:
        observer(Note(text))

    chosen = MeasureSettings().end_to_end_rounds if rounds is None else rounds
    evaluation = evaluate_artifact(artifact.path, home, chosen, tell=tell)
    for warning in evaluation.warnings:
        observer(Note(warning, warning=True))
    return result.evaluated(evaluation)


def _answer(
    spec: JobSpec, context: BenchmarkContext, tell: Callable[[str], None]
) -> dict[str, Any]:
    """What a job of one call brings, by the server of its home where one runs. Raises what ended
    it."""
    if server_of(context.home) is None:
        call = partial(_called, spec, context.home, _save_nothing)
        return _done_here(spec, context, tell, call)
    with closing(open_store(context.home)) as store:
        return done_by_server(store, spec, context, _notes_to(tell), ControlRequest.CANCEL)


def _done_here(
    spec: JobSpec,
    context: BenchmarkContext,
    tell: Callable[[str], None],
    call: Callable[[Callable[[str], None]], dict[str, Any]],
) -> dict[str, Any]:
    with (
        closing(open_store(context.home)) as store,
        closing(Leases(store.coordination)) as leases,
        leases.job(spec.fingerprint),
    ):
        job = enter_job(store, spec, context, new=False)
        return _done(store, job, _notes_to(tell), call)


def _notes_to(tell: Callable[[str], None]) -> Observer:
    def watch(event: Event) -> None:
        if isinstance(event, Note):
            tell(event.text)

    return watch


def _done(
    store: Store,
    job: Job,
    watch: Observer,
    call: Callable[[Callable[[str], None]], dict[str, Any]],
) -> dict[str, Any]:
    """Do a job by a call and close it. Raises what ended it; one that is interrupted stays open."""

    def keep(event: Event) -> None:
        with suppress(TunefleetError):  # the job itself meets a full disk, and says so
            store.events.append(job.job_id, time.time(), [event])
        watch(event)

    try:
        answer = call(lambda text: keep(Note(text)))
    except Exception as raised:
        error = judged(raised)
        summary = {"stopped": str(error), "error": type(error).__name__}
        store.jobs.finish(job.job_id, JobState.FAILED, summary, ended_by(error))
        watch(ended_by(error))
        if error is raised:
            raise
        raise error from raised
    cancelled = store.coordination.wanted(job.job_id) is ControlRequest.CANCEL
    state = JobState.CANCELLED if cancelled else JobState.SUCCEEDED
    store.jobs.finish(job.job_id, state, answer, JobEnded())
    watch(JobEnded())
    return answer


def _called(
    spec: JobSpec, home: Path, save: _SaveOutputs, tell: Callable[[str], None]
) -> dict[str, Any]:
    if spec.called is not None:
        return _call(spec.called, home, save, tell)
    if spec.evaluated is not None:
        artifact = open_artifact(spec.evaluated.artifact, home)
        return measured_again(artifact, home, spec.evaluated.rounds, tell).to_dict()
    assert spec.source is not None
    contexts = {
        each.device: BenchmarkContext(
            each.target,
            device=each.device,
            device_key=each.device_key,
            threads=each.threads,
            home=home,
            tenant=spec.tenant,
        )
        for each in spec.divided
    }
    return placed(spec.source, contexts, tell)


def _saved(store: Store, home: Path, job: Job, arrays: Sequence[Any]) -> list[str]:
    """Keep the outputs of a job; their names in its folder. Raises InputError where its tenant may
    not have as many bytes."""
    tenant, size = job.spec.tenant, sum(array.nbytes for array in arrays)
    if lack := lack_of_quota(store, home, tenant, size):
        raise InputError(lack, cure=QUOTA_CURE)
    folder = Home(home).outputs_of(tenant) / job.job_id
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(path).name for path in save_outputs(arrays, folder / _OUTPUT)]


def _call(
    called: Called, home: Path, save: _SaveOutputs, tell: Callable[[str], None]
) -> dict[str, Any]:
    with device_alone(open_artifact(called.artifact, home), home, "run", tell):
        return call_artifact(
            called.artifact,
            [home / path for path in called.inputs],
            repeat=called.repeat,
            save=save,
            home=home,
        )


class Errand:
    """A job of one call that a server has done by a process of its own, which goes on where the
    server ends."""

    def __init__(self, store: Store, home: Path, job: Job) -> None:
        self.name = job.spec.network.name
        self.error: Exception | None = None
        self._store = store
        self._job_id = job.job_id
        command = [sys.executable, "-m", "tunefleet.runs.errands", str(home), job.job_id]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    @property
    def is_over(self) -> bool:
        code = self._process.poll()
        if code and self.error is None:
            ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self.error = JobError(f"its process ended by {ending}", cure="give the command again")
            if self._store.jobs.get(self._job_id).state is JobState.RUNNING:
                summary = {"stopped": str(self.error)}
                ended = ended_by(self.error)
                self._store.jobs.finish(self._job_id, JobState.FAILED, summary, ended)
        return code is not None

    def close(self) -> None:
        """Returns once it is done."""
        self._process.wait()


@contextmanager
def _ended_by_user(store: Store, job: Job) -> Iterator[None]:
    """Where a user cancels the job within the block, this process ends at once, and its workers
    with it."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_S):
            if store.coordination.wanted(job.job_id) is ControlRequest.CANCEL:
                close_cancelled(store, job)
                remove_own()
                os._exit(0)

    looking = threading.Thread(target=look, name="tunefleet-errand", daemon=True)
    looking.start()
    try:
        yield
    finally:
        done.set()
        looking.join()


def _main(home: str, job_id: str) -> int:
    """Do an open job of a home, unless another process does or has done it."""
    with (
        closing(open_store(Path(home))) as store,
        torch_cache(),
        suppress(TunefleetError),
    ):  # the job has the error
        job = store.jobs.get(job_id)
        with closing(Leases(store.coordination)) as leases, leases.job(job.spec.fingerprint):
            if store.jobs.get(job_id).state is JobState.RUNNING:
                save = partial(_saved, store, Path(home), job)
                call = partial(_called, job.spec, Path(home), save)
                with _ended_by_user(store, job):
                    _done(store, job, lambda event: None, call)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
