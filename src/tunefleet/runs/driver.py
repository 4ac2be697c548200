"""The one driver of jobs: takes one through its plan, from its preparation to its delivery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tunefleet.core.budget import Budget
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import (
    Event,
    JobEnded,
    JobOpened,
    Note,
    Observer,
    ended_by,
)
from tunefleet.core.home import Home
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import Building, Job, JobKind, JobSpec, JobState
from tunefleet.core.known import module_id
from tunefleet.core.phases import Forecast
from tunefleet.core.result import RunResult
from tunefleet.core.step import (
    StepKey,
    StepKind,
)
from tunefleet.core.task import WeightedTask
from tunefleet.errors import JobError, StoreBusyError, TunefleetError, judged
from tunefleet.runs.answered import FOUND, answer_of
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.forecast import forecast_of
from tunefleet.runs.judging import closing_summary, why_impossible, with_agreement
from tunefleet.runs.on_the_way import sweep_objects
from tunefleet.runs.request import SearchRequest, enter_job, job_spec, preparation_of
from tunefleet.runs.run import NetworkRun
from tunefleet.runs.run_log import RunLog
from tunefleet.runs.searching import JobSearch
from tunefleet.scheduler.job_plan import (
    CloseJob,
    JobProgress,
    SearchTasks,
    TakeSteps,
)
from tunefleet.scheduler.values import JobEnd

if TYPE_CHECKING:
    from tunefleet.fleet.live import Ending, Live
    from tunefleet.fleet.local import LocalFleet


class Pipeline:
    """One network on its way, by the plan of its job; without a job it is built of what earlier
    ones found.

    `advance` gives what is to be submitted to a shell, which `ended` follows up to the goal.
    `close` releases its locks; what lies on its way is removed unless its job goes on.
    """

    def __init__(
        self,
        fleet: LocalFleet,
        context: BenchmarkContext,
        source: NetworkSource,
        observer: Observer,
        own: Callable[[Sequence[WeightedTask]], Sequence[WeightedTask]] = tuple,
        *,
        closes: bool = False,
    ) -> None:
        """`own`: which of its tasks are searched. `closes`: its job ends with its last step, not
        when the result was told (`finish`)."""
        self.run = NetworkRun(fleet, preparation_of(context, source), context.run_id)
        #: What ended it before its goal.
        self.error: Exception | None = None
        #: Whether it was followed to its end, or cannot go on, and what it brought.
        self.is_over = False
        self.outcome: RunResult | None = None
        self._answer: RunResult | None = None
        fleet.add(context.devices, here=context.is_here)
        self._fleet = fleet
        self._context = context
        self._log = RunLog(Home(context.home).logs, self._log_name, observer)
        self._own = own
        self._closes = closes
        self._search = self._new_search()
        self._forecast = Forecast()
        self._upto: StepKind | None = None
        self._without: frozenset[StepKind] = frozenset()
        self._again: frozenset[StepKind] = frozenset()
        self._told: set[StepKey] = set()
        self._held, self._locked = ExitStack(), ExitStack()
        self._used: set[str] = set()
        self._use(self.run.preparation.id)

    def _new_search(self) -> JobSearch:
        return JobSearch(self._fleet, self.run, self._own, self._observer, self._opened)

    def _log_name(self) -> str:
        return self.run.run_id if self.run.job is None else self.run.job.job_id

    @property
    def name(self) -> str:
        return self.run.preparation.source.name

    def close(self) -> None:
        """Release the locks, and remove what lies on the way of networks that are not on it."""
        self._locked.close()
        self._held.close()
        self._log.close()
        with suppress(TunefleetError):  # whoever met it before has told it
            sweep_objects(self._fleet.store, Home(self._context.home))

    # Its job

    def spec(self, request: SearchRequest) -> JobSpec:
        source = self.run.preparation.source
        return job_spec(self._context, source, request, self._fleet.store)

    def lock(self, spec: JobSpec) -> None:
        """Nobody else works on such a job until another one is opened, or `close`."""
        self._locked.close()
        self._locked.enter_context(self._fleet.leases.job(spec.fingerprint))

    def open_job(self, request: SearchRequest) -> Job:
        """Enter the job of this network into the store, or find it there, and lock it until
        another one is opened or `close`."""
        store, spec = self._fleet.store, self.spec(request)
        self.lock(spec)
        if self.run.job is not None:  # whose id is the run's
            self._context.renew()
        job = enter_job(store, spec, self._context, new=request.new_job)
        self.run.is_resumed = job.job_id != self._context.run_id
        return self._have(job)

    def take_up(self, job: Job) -> Job:
        """Go on with a job of the store, which nobody else does until `close`. Raises JobError
        where it was asked for on another device, or of another version."""
        if job.spec.preparation != self.run.preparation:
            raise JobError(
                f"job {job.job_id[:8]} ({self.name}) was asked for on another device, or with "
                "another version",
                cure="go on with it there or with that version, or cancel it and ask again",
            )
        self.lock(job.spec)
        self.run.is_resumed = bool(self._fleet.store.work.stages(job.job_id))
        return self._have(job)

    def _have(self, job: Job) -> Job:
        # A job has one artifact, also where a process before published it and was killed then.
        self._context.run_id = self.run.run_id = job.job_id
        self.run.settings, self.run.job = job.spec.settings, job
        self._search, self.run.stopped = self._new_search(), ""
        self.run.estimated_s, self.run.impossible = None, ""
        self._use(job.job_id)
        if job.spec.kind is not JobKind.BUILD:
            self._forecast = forecast_of(self._fleet.store, job.spec)
        if job.spec.kind is JobKind.TUNE:
            self._opened(job, job.spec.budget)
            self._tell_impossible(job)
        return job

    def _tell_impossible(self, job: Job) -> None:
        """Warn where what is agreed cannot be met, before anything is done for it."""
        if not self.run.is_resumed:
            prepared = self.run.is_prepared
            why = why_impossible(job.spec, self._forecast, time.time(), prepared=prepared)
            self.run.impossible = why
            if why:
                self._observer(Note(f"what is agreed cannot be met: {why}", warning=True))

    def _opened(self, job: Job, budget: Budget) -> None:
        how_far = (self.run.is_resumed, budget, job.elapsed_s, self._forecast)
        self._observer(JobOpened(job.job_id, *how_far, self.run.plan.judges))

    def _observer(self, event: Event) -> None:
        """Keep an event of the job and log it, and tell whoever watches here. From any thread."""
        if self.run.job is not None:
            with suppress(TunefleetError):  # the job itself meets a full disk, and says so
                self._fleet.store.events.append(self.run.job.job_id, time.time(), [event])
        self._log(event)

    def finish(self, summary: object) -> None:
        """The job is done, and its user knows: the same request is a job of its own from now on."""
        self._close_job(JobState.SUCCEEDED, summary, None)

    def _choose_programs(self, building: Building) -> None:
        """What a build delivers, as soon as its tasks are known. The run is named by what it makes,
        and nobody else makes the same until `close`."""
        from tunefleet.stages.known import known_programs

        store, preparation = self._fleet.store, self.run.preparation
        task_ids = [weighted.task.task_id for weighted in self.run.imported.tasks]
        programs = known_programs(store, preparation, task_ids, building.from_job)
        run_id, leases = module_id(preparation, programs), self._fleet.leases
        if leases.of_job(run_id) is not None:
            raise StoreBusyError(
                f"another job builds the same module of {self.name} now",
                cure="give the command again when that is done",
            )
        self._locked.enter_context(leases.job(run_id))
        self.run.programs = programs
        self._context.run_id = self.run.run_id = run_id
        # There is no such artifact, or it was damaged, whatever was committed of it.
        self._again = frozenset({StepKind.VERIFY, StepKind.PUBLISH})

    # Its way

    def advance(
        self,
        upto: StepKind | None = None,
        *,
        without: frozenset[StepKind] = frozenset(),
        again: frozenset[StepKind] = frozenset(),
        rounds: int | None = None,
    ) -> Sequence[Live]:
        """What is to be submitted next on the way to the end, or to the step `upto`; nothing where
        that is done.

        Steps of `without` are left out, those of `again` are done once more; `rounds` of measuring
        end to end, None for those of the settings.
        """
        self._upto, self._without, self._again, self.run.rounds = upto, without, again, rounds
        self.error, self.is_over = None, False
        return self._next()

    def ended(self, ending: Ending) -> Sequence[Live]:
        """A part that was submitted has ended: what follows it."""
        try:
            return self._after(ending)
        except Exception as error:  # of this job; others go on
            return self._fail(judged(error))

    def _after(self, ending: Ending) -> Sequence[Live]:
        self._again = frozenset()
        if ending.end is JobEnd.DONE:
            return self._next()
        reason = str(ending.error or ending.reason)
        end = JobEnd.FAILED if ending.error is not None else ending.end
        state = self.run.plan.closed_by(end, self._progress())
        again = f"{JobKind.TUNE if self.run.job is None else self.run.job.spec.kind} it again"
        error = ending.error or JobError(f"{self.name}: {reason}", cure=again)
        return self._fail(error, state, {"stopped": reason})

    def _next(self) -> Sequence[Live]:
        building = None if self.run.job is None else self.run.job.spec.building
        try:
            if building is not None and self.run.programs is None and self.run.is_prepared:
                self._choose_programs(building)
            if self._is_answered():
                self._complete()
                return ()
            progress = self._progress()
            self._remark(progress)
            match self.run.plan.following(progress, self._upto, self._without):
                case TakeSteps(kinds, again):
                    self._search.interrupted()
                    return [self._steps(kinds, again)]
                case SearchTasks() as asked:
                    self._tell_missed(progress)
                    return [self._search.begin(asked, self._forecast, self._search_ended)]
                case CloseJob(JobState.SUCCEEDED):
                    self._complete()
                case CloseJob(state, reason, cure):
                    job = self.run.job
                    summary = None if job is None else closing_summary(job.spec, reason)
                    error = JobError(f"{self.name}: {reason}", cure=cure)
                    return self._fail(error, state, summary)
        except Exception as error:  # of this job; others go on
            return self._fail(judged(error))
        return ()

    def _is_answered(self) -> bool:
        """Whether a module that is there already is known to have what is agreed."""
        job, is_new = self.run.job, not (self.run.is_resumed or self._search.has_begun)
        is_asked = self._upto is None and self.run.plan.judges and self.run.is_prepared
        if job is not None and is_new and is_asked:
            self._answer = answer_of(self._fleet.store, Home(self._context.home), job)
        if self._answer is not None:
            self._observer(Note(FOUND))
        return self._answer is not None

    def _complete(self) -> None:
        if self._upto is not None:
            return
        if self.run.job is not None and self.run.job.spec.kind is JobKind.COLLECT:
            trials = self._fleet.store.records.trial_count(self.run.job.job_id)
            summary: object = {"stopped": self.run.stopped, "trials": trials}
            self._close_job(JobState.SUCCEEDED, summary, JobEnded())
        else:
            self.outcome = self._answer or self.run.told()
            if self._closes:
                self._close_job(JobState.SUCCEEDED, self.outcome.to_dict(), JobEnded())
            else:
                self._observer(JobEnded())
        self.is_over = True

    def _fail(
        self, error: Exception, state: JobState | None = None, summary: object = None
    ) -> Sequence[Live]:
        """`state`: that in which the job is closed; without one it stays open."""
        self.error = error
        self._log.failed(error)
        ended = ended_by(error) if self._upto is None else None
        if state is not None and self.run.job is not None:
            self._close_job(state, summary, ended)
            self._fleet.store.coordination.ask(self.run.job.job_id, ControlRequest.RUN)
        elif ended is not None:
            self._observer(ended)
        self.is_over = True
        return ()

    def _close_job(self, state: JobState, summary: object, ended: JobEnded | None) -> None:
        """Its records stay. `ended` is kept with its state: who follows the job waits for it until
        the job is closed."""
        if self.run.job is not None:
            self._fleet.store.jobs.finish(self.run.job.job_id, state, summary, ended)
        if ended is not None:
            self._log(ended)

    def _progress(self) -> JobProgress:
        store, job = self._fleet.store, self.run.job
        committed = {
            key.kind: run.result
            for key, run in self.run.committed().items()
            if self.run.has_output(run)
        }
        done = frozenset(committed.keys() - self._again)
        if job is None:
            return JobProgress(done, self._search.is_over)
        deadline = job.spec.terms.deadline
        progress = JobProgress(
            done,
            self._search.is_over,
            store.records.trial_count(job.job_id),
            deadline is not None and time.time() >= deadline,
            estimated_s=self.run.estimated_s,
            reached=self._search.reached,
            again=self._search.again,
            pauses=self._search.pauses,
        )
        return with_agreement(progress, job.spec, committed)

    def _tell_missed(self, progress: JobProgress) -> None:
        """Why a search goes on after a delivery."""
        if progress.judged is not None and progress.judged.excess is not None:
            times = f"{progress.judged.excess:.3g} times as long as agreed"
            self._observer(Note(f"measured: an inference takes {times}; the search goes on"))

    def _steps(self, kinds: Sequence[StepKind], again: frozenset[StepKind]) -> Live:
        from tunefleet.fleet.live import Steps

        requests = [self.run.request(kind) for kind in kinds]
        for request in requests:  # without a job, the run is an owner too
            self._use(request.key.owner)
        committed = self.run.committed()
        done = {request.kind: committed[request.key] for request in requests
                if request.key in committed}  # fmt: skip
        lost = {kind for kind, run in done.items() if not self.run.has_output(run)}
        obeys = self.run.job.job_id if self.run.job is not None else ""
        again |= self._again | lost
        return Steps(
            self.run.run_id,
            requests,
            done,
            self._observer,
            self.ended,
            obeys,
            again,
            self._told,
            None if self.run.job is None else self.run.job.spec.terms.deadline,
            self.run.plan.searches and not self._search.is_over,
        )

    def _remark(self, progress: JobProgress) -> None:
        """What the user should know of steps that are not repeated, once."""
        for key, run in self.run.committed().items():
            if key.kind in progress.done and key not in self._told:
                self._told.add(key)
                for remark in run.remarks:
                    self._observer(Note(remark.text, remark.warning))

    def _search_ended(self, ending: Ending) -> Sequence[Live]:
        self._search.ended(ending)
        return self.ended(ending)

    def _use(self, owner: str) -> None:
        """Nobody removes the objects of an owner before `close`."""
        if owner not in self._used:
            self._held.enter_context(self._fleet.objects(owner).in_use())
            self._used.add(owner)
