"""The one way of a network: preparation, search and delivery, each submitted to a shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tunefleet.core.events import JobOpened, Note, Observer
from tunefleet.core.home import Home
from tunefleet.core.importing import ImportOptions, NetworkSource
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.phases import Forecast, least_budget
from tunefleet.core.precision import FLOAT32, FLOATS, INT8
from tunefleet.core.result import RunResult
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import (
    DELIVERY,
    PREPARATION,
    WINNERS,
    Checked,
    Imported,
    Preparation,
    StepKey,
    StepKind,
    StepResult,
    StepRun,
)
from tunefleet.core.task import WeightedTask
from tunefleet.errors import InputError, JobError, StepOrderError, TunefleetError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.forecast import forecast_of
from tunefleet.runs.request import SearchRequest, job_spec
from tunefleet.scheduler.values import JobEnd

if TYPE_CHECKING:
    from tunefleet.fleet.live import Ending, Live
    from tunefleet.fleet.local import LocalFleet, Wanted
    from tunefleet.stages.place import Delivery
    from tunefleet.store import Store

EXPIRED = "its deadline passed before any of its tasks was tuned"

Then = Callable[["Ending"], Sequence["Live"]]
R = TypeVar("R", bound=StepResult)


def source_of(
    spec: str | Path,
    options: ImportOptions,
    context: BenchmarkContext,
    precision: str = FLOAT32,
    calibrate: str | Path | None = None,
) -> NetworkSource:
    """A network before its import, in a precision: in int8 it is an ONNX file below home, which is
    made first, in a process of its own. Raises InputError for a network that is not there or cannot
    be had so, SetupError where the quantiser is not installed."""
    from tunefleet.compiler.frontends.spec import (
        check_precision,
        in_floats,
        is_zoo,
        network_digest,
        network_name,
        wanted_precision,
    )

    text = str(spec)
    if "\0" in text:
        raise InputError(f"{text!r} is no path", cure="leave out its NUL characters")
    wanted = wanted_precision(text, precision)
    if calibrate is not None and wanted != INT8:
        raise InputError(
            f"there is nothing to calibrate in {wanted}", cure=f"write --precision {INT8}"
        )
    of_products = ""
    if wanted == INT8:
        text = _quantised(text, context, calibrate)
    elif wanted in FLOATS:
        check_precision(wanted, context.target)
        text, of_products = in_floats(text), f"-{wanted}"
        options = replace(options, precision=wanted)
    # Found again from another folder, to be measured beside its artifact.
    place = text if is_zoo(text) else str(Path(text).resolve())
    name = network_name(text) + of_products
    return NetworkSource(place, name, network_digest(text), options)


def _quantised(text: str, context: BenchmarkContext, calibrate: str | Path | None) -> str:
    from tunefleet.compiler.frontends.spec import in_floats
    from tunefleet.compiler.quantize import quantized_file
    from tunefleet.workers.apart import call_apart

    data = None if calibrate is None else Path(calibrate).resolve()
    folder = context.created(Home(context.home).quantized)
    plain = in_floats(text)
    # It keeps the outputs of all layers for each sample: the network's size says nothing of it.
    return str(call_apart(f"quantising {plain}", quantized_file, plain, data, folder))


def preparation_of(context: BenchmarkContext, source: NetworkSource) -> Preparation:
    """What its import and check are found by, on the target and the device of a context."""
    from tunefleet.compiler.toolchain.host import toolchain_of

    return Preparation(source, context.target, context.device, toolchain_of(context.target))


def fleet_of(context: BenchmarkContext, settings: TuneSettings) -> LocalFleet:
    """What runs the stages and steps of a context's networks."""
    from tunefleet.workers.pool import start_server

    start_server()  # both processes need seconds to load the compiler
    from tunefleet.fleet.local import LocalFleet

    layout, devices = context.layout, context.devices
    return LocalFleet(context.target, settings, layout, context.home, devices)


def unneeded_objects(store: Store, home: Home) -> list[Path]:
    """Folders of modules and libraries on their way, and of the preparations that they belong to,
    that no job which goes on needs; somebody may use them all the same."""
    running = [job for job in store.jobs() if job.state is JobState.RUNNING]
    wanted = {job.job_id for job in running}
    wanted |= {job.spec.preparation.id for job in running if job.spec.source is not None}
    folders = home.objects.iterdir() if home.objects.is_dir() else ()
    return [folder for folder in folders if folder.name not in wanted]


def sweep_objects(store: Store, home: Home) -> None:
    """Remove what `unneeded_objects` finds and nobody uses."""
    from tunefleet.artifacts.objects import remove_unused

    def forget(owner: str) -> None:
        if store.step(StepKey(owner, StepKind.IMPORT)) is not None:
            store.forget_steps(owner)

    for folder in unneeded_objects(store, home):
        remove_unused(folder, forget)


class Course:
    """One network on its way. Every part makes what is to be submitted to a shell, and is given
    what follows it.

    `close` releases its locks; what lies on its way is removed unless its job goes on.
    """

    def __init__(
        self,
        fleet: LocalFleet,
        context: BenchmarkContext,
        source: NetworkSource,
        observer: Observer,
    ) -> None:
        self.preparation = preparation_of(context, source)
        self.job: Job | None = None
        self._fleet = fleet
        self._context = context
        self._observer = observer
        self._settings = TuneSettings()
        self._resumed = False
        self._stopped = ""
        self._forecast = Forecast()
        self._held, self._locked = ExitStack(), ExitStack()
        self._used: set[str] = set()
        self._use(self.preparation.id)

    @property
    def run_id(self) -> str:
        """Names the artifact: the job's id, where there is one."""
        return self._context.run_id

    @property
    def name(self) -> str:
        return self.preparation.source.name

    def close(self) -> None:
        """Release the locks, and remove what lies on the way of networks that are not on it."""
        self._locked.close()
        self._held.close()
        with suppress(TunefleetError):  # whoever met it before has told it
            sweep_objects(self._fleet.store, Home(self._context.home))

    # Before the search

    def preparing(self, then: Then) -> Sequence[Live]:
        """Import and check."""
        return self._steps(PREPARATION, then)

    @property
    def is_prepared(self) -> bool:
        return self._fleet.store.step(StepKey(self.preparation.id, StepKind.CHECK)) is not None

    @property
    def imported(self) -> Imported:
        return self._result(StepKind.IMPORT, Imported, self.preparation.id)

    @property
    def checked(self) -> Checked:
        return self._result(StepKind.CHECK, Checked, self.preparation.id)

    # The search

    def spec(self, request: SearchRequest) -> JobSpec:
        return job_spec(self._context, self.preparation.source, request.budget, request.settings)

    def open_job(self, request: SearchRequest) -> Job:
        """Enter the job of this network into the store, or find it there, and lock it until
        another one is opened or `close`."""
        from tunefleet.fleet.locks import job_lock

        store, spec = self._fleet.store, self.spec(request)
        locks = self._context.created(Home(self._context.home).locks)
        self._locked.close()
        self._locked.enter_context(job_lock(locks, spec.fingerprint))
        if self.job is not None:  # whose id is the run's
            self._context.renew()
        if request.new_job:
            for old in store.jobs():
                if old.state is JobState.RUNNING and old.spec.fingerprint == spec.fingerprint:
                    store.finish(old.job_id, JobState.FAILED, {"stopped": "replaced by a new job"})
        job = store.open_job(spec, job_id=self.run_id, now=self._context.created_at)
        self._resumed = job.job_id != self.run_id
        # A job has one artifact, also where a process before published it and was killed then.
        self._context.run_id = job.job_id
        self._settings, self.job = request.settings, job
        self._use(job.job_id)
        self._forecast = forecast_of(store, spec)
        elapsed_s = job.elapsed_s
        self._observer(JobOpened(job.job_id, self._resumed, spec.budget, elapsed_s, self._forecast))
        return job

    def searching(self, wanted: Wanted, then: Then) -> Sequence[Live]:
        """The trials of the job's tasks."""
        from tunefleet.stages.steering import remarks

        assert self.job is not None
        tasks = self.imported.tasks
        self._fleet.store.put_tasks(self.job.job_id, tasks)
        self._check_budget(self.job, tasks)
        models = self._fleet.place.models
        for text in remarks(models, self.job.spec, [weighted.task for weighted in tasks]):
            self._observer(Note(text))

        def searched(ending: Ending) -> Sequence[Live]:
            self._stopped = ending.reason
            return then(ending)

        return [self._fleet.search(self.job, self._observer, wanted, searched)]

    def _check_budget(self, job: Job, tasks: Sequence[WeightedTask]) -> None:
        """Say before a search what it needs, and warn of a budget that is below that."""
        if not tasks or self._fleet.store.trial_count(job.job_id):
            return
        least = least_budget(tasks, job.spec.settings.search, self._forecast.round_s)
        self._observer(Note(least.text()))
        warning = least.warning(job.spec.budget)
        if warning:
            self._observer(Note(warning, warning=True))

    # After it

    def choosing(self, then: Then) -> Sequence[Live]:
        """The winner of every task."""
        return self._steps((*PREPARATION, *WINNERS), then)

    def delivering(
        self,
        then: Then,
        kinds: Sequence[StepKind] = DELIVERY,
        *,
        rounds: int | None = None,
        again: frozenset[StepKind] = frozenset(),
    ) -> Sequence[Live]:
        """Compiling and what follows; of what is done, `again` says what is wanted once more."""
        before = (*PREPARATION, *(WINNERS if self.job is not None else ()))
        return self._steps((*before, *kinds), then, rounds, again)

    def result(self) -> RunResult:
        """Everything that is known of the run by now."""
        from tunefleet.stages.result import build_result

        return build_result(self._fleet.place, self._delivery())

    def told(self) -> RunResult:
        """The result, written to the published artifact."""
        from tunefleet.stages.publish import tell

        if self._fleet.store.step(StepKey(self.run_id, StepKind.PUBLISH)) is not None:
            tell(self._fleet.place, self._delivery(), self._timeline())
        return self.result()

    def _timeline(self) -> str:
        """The page that the report links to; "" of a run that searched nothing."""
        from tunefleet.report.run_timeline import timeline_page
        from tunefleet.runs.timeline import build_timeline, without_other_names

        store, job = self._fleet.store, self.job
        if job is None or not store.stages(job.job_id):
            return ""
        return timeline_page(without_other_names(build_timeline(store, job)))

    def finish(self, result: RunResult) -> None:
        """The job is done, and its user knows: the same request is a job of its own from now on."""
        if self.job is not None:
            self._fleet.store.finish(self.job.job_id, JobState.SUCCEEDED, result.to_dict())

    def module(self) -> Path:
        """The shared library that is delivered."""
        from tunefleet.stages.delivered import delivered_module
        from tunefleet.stages.place import StepRequest

        request = StepRequest(StepKind.VERIFY, self.preparation, self._delivery())
        return delivered_module(self._fleet.place, request)

    def check_ended(self, ending: Ending) -> None:
        """Raises what ended a part of the way before its end."""
        if ending.error is not None:
            raise ending.error
        if ending.end is JobEnd.CANCELLED:
            self.cancelled(ending.reason)
        if ending.end is not JobEnd.DONE:
            raise JobError(f"{self.name}: {ending.reason}", cure="tune it again")

    def cancelled(self, reason: str) -> None:
        """Its user does not want the job any more; its records stay."""
        if self.job is not None:
            self._fleet.cancelled(self.job, reason)

    def expired(self) -> None:
        """Its deadline passed before there was anything to deliver; its records stay."""
        if self.job is not None:
            self._fleet.expired(self.job, EXPIRED)

    @property
    def has_trials(self) -> bool:
        return self.job is not None and self._fleet.store.trial_count(self.job.job_id) > 0

    def unprepared(self, error: str) -> None:
        """Its import or check failed: there is nothing that could go on."""
        if self.job is not None:
            self._fleet.store.finish(self.job.job_id, JobState.FAILED, {"stopped": error})

    # How it does it

    def _delivery(self, rounds: int | None = None) -> Delivery:
        from tunefleet.stages.place import Delivery

        return Delivery(
            self.run_id,
            self.preparation,
            self._settings,
            self.job,
            self._resumed,
            self._stopped,
            rounds,
        )

    def _steps(
        self,
        kinds: Sequence[StepKind],
        then: Then,
        rounds: int | None = None,
        again: frozenset[StepKind] = frozenset(),
    ) -> Sequence[Live]:
        from tunefleet.fleet.live import Ending, Steps
        from tunefleet.stages.place import StepRequest

        delivery, watcher = self._delivery(rounds), self.run_id
        requests = [
            StepRequest(k, self.preparation, None if k in PREPARATION else delivery, watcher)
            for k in kinds
        ]
        for request in requests:  # without a job, the run is an owner too
            self._use(request.key.owner)
        store = self._fleet.store
        done = {r.kind: run for r in requests if (run := store.step(r.key)) is not None}
        again |= {kind for kind, run in done.items() if not self._has_output(run)}
        obeys = self.job.job_id if self.job is not None else ""
        live = Steps(watcher, requests, done, self._observer, then, obeys, again)
        if live.over:
            live.submitted()
            return then(Ending(JobEnd.DONE, "every step is done"))
        return [live]

    def _has_output(self, run: StepRun) -> bool:
        """Whether the files that a step made are still there."""
        objects = self._fleet.objects(run.key.owner)
        named = [getattr(run.result, name, None) for name in ("module", "examples", "expected")]
        return all(objects.has(name) for name in named if name is not None)

    def _result(self, kind: StepKind, expected: type[R], owner: str) -> R:
        run = self._fleet.store.step(StepKey(owner, kind))
        result: StepResult | None = None if run is None else run.result
        if not isinstance(result, expected):
            raise StepOrderError(f"{kind} is not done", cure="call from_network() before")
        return result

    def _use(self, owner: str) -> None:
        """Nobody removes the objects of an owner before `close`."""
        if owner not in self._used:
            self._held.enter_context(self._fleet.objects(owner).in_use())
            self._used.add(owner)
