"""Forecasts of a search while it runs, from earlier searches of its home and those shipped."""

from __future__ import annotations

import math
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING

from tunefleet.core.events import Event, Forecasted, Note, Observer, SearchEnded, StageCommitted
from tunefleet.core.forecast import SearchForecast, SearchOutcome, judge_forecast
from tunefleet.core.job import Job, JobKind
from tunefleet.core.stage import StageKind
from tunefleet.scheduler.tuning_plan import TuningPlan
from tunefleet.store import Store, each_job

if TYPE_CHECKING:
    from tunefleet.learning.curves import RunningTask
    from tunefleet.learning.forecasting import Forecaster

#: Jobs that are looked at, and the searches that are taken of them: the latest.
_LATEST, _SEARCHES = 300, 40
#: A search is forecast again after this part of its trials.
_STEP = 0.05
#: What searches tasks here.
METHOD = "tunefleet"
#: The part of a search's time that its forecasts may take; the first does not count.
_COST = 0.005


class Outlook:
    """Forecasts of the search of a job, whose tasks are to take `target_s` together, if anything,
    and which ends by `ends_by` (seconds since the epoch). It is an observer of the search's events,
    which it passes on; the shell's thread calls it. It learns from earlier searches in a thread of
    its own, since nothing of any job starts while the shell's is busy; there is no forecast before.
    """

    def __init__(
        self,
        store: Store,
        job: Job,
        target_s: float | None,
        observer: Observer,
        ends_by: float | None = None,
    ) -> None:
        self._store = store
        self._job = job
        self._target_s = target_s
        self._ends_by = ends_by
        self._observer = observer
        self._plan: TuningPlan | None = None
        self._began = (job.elapsed_s, 0)
        self._elapsed_s = job.elapsed_s
        self._last: SearchForecast | None = None
        self._warned = False
        self._spent_s = 0.0
        self._learning: _Learning | None = None

    def follow(self, plan: TuningPlan) -> None:
        """Forecast by what this plan knows."""
        self._plan, self._began = plan, (self._job.elapsed_s, plan.trials)
        if self._learning is None:
            self._learning = _Learning(self._store, self._job)
            self._learning.start()

    def __call__(self, event: Event) -> None:
        self._observer(event)
        if isinstance(event, StageCommitted) and event.run.key.kind is StageKind.UPDATE:
            self._elapsed_s = event.elapsed_s
            if self._plan is not None:
                self._after_round(self._plan, event.elapsed_s)

    def ended(self, reached: bool) -> None:
        """The search has, which judges its forecasts."""
        latency_s = None if self._plan is None else self._plan.estimated_latency_s()
        if self._last is not None and latency_s is not None:
            assert self._plan is not None
            outcome = SearchOutcome(self._plan.trials, self._elapsed_s, latency_s, reached)
            self._observer(SearchEnded(outcome))

    def _after_round(self, plan: TuningPlan, elapsed_s: float) -> None:
        assert self._learning is not None
        forecaster = self._learning.forecaster()
        trials, end = plan.trials, self._end_trials(plan, elapsed_s)
        if forecaster is None:
            return
        if end is None or end <= trials or plan.estimated_latency_s() is None:
            return
        if self._last is not None and trials - self._last.trials < _STEP * end:
            return
        if self._spent_s > _COST * elapsed_s:
            return
        began = time.perf_counter()
        forecast = self._forecast(forecaster, plan, elapsed_s, end)
        if forecast is None:
            return
        if self._last is None:
            self._warned = self._was_warned()
        else:
            self._spent_s += time.perf_counter() - began
        self._last = forecast
        self._observer(Forecasted(forecast))
        if forecast.is_unlikely and not self._warned:
            self._warned = True
            self._observer(Note(unlikely(forecast), warning=True))

    def _forecast(
        self, forecaster: Forecaster, plan: TuningPlan, elapsed_s: float, end: int
    ) -> SearchForecast | None:
        from tunefleet.learning.curves import SearchOrigin

        tasks = self._tasks(plan)
        if not tasks:
            return None
        spec = self._job.spec
        return forecaster.forecast(
            tasks,
            SearchOrigin(spec.network.name, device_class(self._job), METHOD),
            trials=plan.trials,
            end_trials=end,
            elapsed_s=elapsed_s,
            trial_s=self._trial_s(plan, elapsed_s),
            target_s=self._target_s,
        )

    def _tasks(self, plan: TuningPlan) -> list[RunningTask]:
        """Tasks with a latency; those that only earlier jobs measured gain no more."""
        from tunefleet.learning.curves import RunningTask

        own = {curve.task_id: curve for curve in self._store.records.curves(self._job.job_id)}
        tasks = []
        for task_id, lane in plan.progress.items():
            if lane.best_s is None:
                continue
            task, weight = lane.weighted.task, lane.weighted.weight
            running = None
            if task_id in own:
                running = RunningTask.of(own[task_id], exhausted=lane.exhausted)
            if running is None or lane.best_s < running.best_s:
                known_s = (lane.best_s, lane.best_s)
                running = RunningTask(
                    task.operator, task.flops, weight, 1, *known_s, exhausted=True
                )
            tasks.append(running)
        return tasks

    def _trial_s(self, plan: TuningPlan, elapsed_s: float) -> float:
        """What a trial takes, with the share of the device that the job has."""
        before_s, before = self._began
        done = plan.trials - before
        return (elapsed_s - before_s) / done if done > 0 else elapsed_s / max(1, plan.trials)

    def _end_trials(self, plan: TuningPlan, elapsed_s: float) -> int | None:
        """How many trials there are by the end of the budget; None where nothing says so."""
        budget, trials, device_s = plan.budget, plan.trials, plan.device_s
        trial_s = self._trial_s(plan, elapsed_s)
        limits: list[float] = []
        if budget.trials is not None:
            limits.append(budget.trials)
        if budget.trials_per_task is not None:
            limits.append(budget.trials_per_task * len(plan.progress))
        seconds = []
        if budget.seconds is not None:
            seconds.append(budget.seconds - elapsed_s)
        if self._ends_by is not None:
            seconds.append(self._ends_by - time.time())
        if trial_s > 0:
            limits += [trials + max(0.0, left_s) / trial_s for left_s in seconds]
        if budget.device_seconds is not None and device_s > 0:
            limits.append(trials * budget.device_seconds / device_s)
        return round(min(limits)) if limits else None

    def _was_warned(self) -> bool:
        kept = self._store.events.page(job_ids=[self._job.job_id], kinds=[Forecasted])
        return any(isinstance(e.event, Forecasted) and e.event.forecast.is_unlikely for e in kept)


class _Learning(threading.Thread):
    """Makes the forecaster of a job."""

    def __init__(self, store: Store, job: Job) -> None:
        super().__init__(name="tunefleet-outlook", daemon=True)
        self._store = store
        self._job = job
        self._made: Forecaster | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            made = forecaster_of(self._store, self._job)
            made.gains.prepare()
            self._made = made
        except Exception as error:  # raised by `forecaster`
            self._error = error

    def forecaster(self) -> Forecaster | None:
        """None while it is not there. Raises what was raised in making it."""
        if self._error is not None:
            raise self._error
        return self._made


def device_class(job: Job) -> str:
    return "cpu" if job.spec.device.kind == "cpu" else "gpu"


def forecaster_of(store: Store, job: Job) -> Forecaster:
    """From the latest searches of other jobs of the same tenant, the forecasts that were kept of
    them, and what is shipped."""
    from tunefleet.learning.curves import SearchedNetwork, SearchOrigin
    from tunefleet.learning.forecasting import Calibration, Forecaster, Pair, Signs
    from tunefleet.learning.task_gains import TaskGains

    searches, pairs = [], []
    others = (
        other
        for other in islice(each_job(store.jobs), _LATEST)
        if other.spec.kind is JobKind.TUNE
        and other.job_id != job.job_id
        and other.spec.tenant == job.spec.tenant
    )
    searched = ((other, own) for other in others if (own := store.records.curves(other.job_id)))
    for other, own in islice(searched, _SEARCHES):
        origin = SearchOrigin(other.spec.network.name, device_class(other), METHOD)
        searches.append(SearchedNetwork.of(origin, own))
        forecasts, outcome = kept_forecasts(store, other.job_id)
        pairs += [
            Pair(origin.network, other.job_id, Signs(*each.signs), math.log(each.now_s / end_s))
            for _, each in forecasts
            if outcome is not None and judge_forecast(each, outcome).held is not None
            for end_s in (min(each.now_s, outcome.latency_s),)
        ]
    own_calibration = Calibration.of(pairs)
    shipped = Forecaster.shipped()
    gains = TaskGains.of(searches) + shipped.gains
    return Forecaster(gains, own_calibration + shipped.calibration)


def kept_forecasts(
    store: Store, job_id: str
) -> tuple[list[tuple[float, SearchForecast]], SearchOutcome | None]:
    """The forecasts of a job, each with when it was kept, and how its search ended."""
    forecasts, outcome, after = [], None, 0
    kinds: list[type[Event]] = [Forecasted, SearchEnded]
    while page := store.events.page(after, [job_id], kinds=kinds):
        after = page[-1].seq
        for kept in page:
            if isinstance(kept.event, Forecasted):
                forecasts.append((kept.at, kept.event.forecast))
            elif isinstance(kept.event, SearchEnded):
                outcome = kept.event.outcome
    return forecasts, outcome


def unlikely(forecast: SearchForecast) -> str:
    """That a target will hardly be reached, with the best so far."""
    at_end, probability = forecast.latency_s, forecast.probability or 0.0
    likely = f"{100 * probability:.0f} %" if probability >= 0.01 else "under 1 %"
    p10, p50, p90 = (1e3 * (each or 0.0) for each in (at_end.p10, at_end.p50, at_end.p90))
    return (
        f"forecast: what is agreed is not likely to be reached ({likely}); "
        f"its tasks may take {1e3 * (forecast.target_s or 0.0):.3g} ms together, and take "
        f"{1e3 * forecast.now_s:.3g} ms so far, {p50:.3g} ms ({p10:.3g}-{p90:.3g}) at the end of "
        "the budget; the search goes on"
    )
