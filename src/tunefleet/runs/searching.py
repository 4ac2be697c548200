"""The search of a job, which its pipeline begins, and begins again where it has stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tunefleet.core.budget import Budget
from tunefleet.core.events import Note, Observer, Prepared
from tunefleet.core.job import Job, JobKind
from tunefleet.core.phases import (
    Forecast,
    first_delivery_s,
    least_budget,
    search_budget,
    search_ends_by,
)
from tunefleet.core.step import SplitTasks, StepKind
from tunefleet.core.task import WeightedTask
from tunefleet.runs.outlook import Outlook
from tunefleet.runs.run import NetworkRun
from tunefleet.scheduler.job_plan import SearchTasks
from tunefleet.scheduler.values import JobEnd

if TYPE_CHECKING:
    from tunefleet.fleet.live import Ending, Live
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.scheduler.tuning_plan import TuningPlan


class JobSearch:
    """`is_over`: it has ended, because what it was to reach is `reached` or for another reason.
    `pauses`: it has stopped to measure the baseline once more, which was done `again` so often.

    `own` says which tasks of the network are searched; `opened` is called with a
    collection's budget.
    """

    def __init__(
        self,
        fleet: LocalFleet,
        run: NetworkRun,
        own: Callable[[Sequence[WeightedTask]], Sequence[WeightedTask]],
        observer: Observer,
        opened: Callable[[Job, Budget], None],
    ) -> None:
        self.is_over = self.reached = self.pauses = False
        self.again = 0
        self._fleet = fleet
        self._run = run
        self._own = own
        self._observer = observer
        self._opened = opened
        self._plan: TuningPlan | None = None
        self._outlook: Outlook | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a trial may have been made in this process."""
        return self._plan is not None

    def begin(
        self, asked: SearchTasks, forecast: Forecast, then: Callable[[Ending], Sequence[Live]]
    ) -> Live:
        """What is to be submitted for the trials of the job's tasks."""
        from tunefleet.fleet.live import search_of
        from tunefleet.stages.steering import remarks

        assert self._run.job is not None
        store = self._fleet.store
        job = store.jobs.get(self._run.job.job_id)  # with the time that its last search took
        tasks = store.work.tasks(job.job_id)
        if not tasks:
            tasks = list(self._own(self._found_tasks()))
            store.work.put_tasks(job.job_id, tasks)
        delivery_s = forecast.around_search_s(prepared=True)
        budget = self._own_budget(job, len(tasks), delivery_s)
        if job.spec.kind is JobKind.TUNE:
            self._observer(Prepared(self._run.checked.peak_gflops, budget))
        if job.spec.kind is JobKind.TUNE and self._plan is None:
            self._check_budget(job, tasks, forecast)
            models = self._fleet.place.models
            for text in remarks(models, job.spec, [weighted.task for weighted in tasks]):
                self._observer(Note(text))
        elif job.spec.kind is JobKind.COLLECT:
            per_task = job.spec.budget.trials or 0
            self._opened(job, Budget(trials=max(1, per_task * len(tasks))))
        ends_by = search_ends_by(job.spec.terms.deadline, delivery_s, time.time())
        if job.spec.kind is JobKind.TUNE:
            self._outlook = Outlook(store, job, asked.until_s, self._observer, ends_by)
        observer = self._outlook or self._observer
        search = search_of(
            store,
            job,
            observer,
            then,
            asked.until_s,
            asked.seconds,
            ends_by,
            budget,
            self._run.plan.after,
        )
        self._plan = search.plan
        if self._outlook is not None:
            self._outlook.follow(search.plan)
        return search

    def ended(self, ending: Ending) -> None:
        """What was submitted has."""
        assert self._plan is not None
        self._run.stopped = ending.reason
        self.pauses = ending.end is JobEnd.DONE and self._plan.pauses
        self.is_over = ending.end is JobEnd.DONE and not self.pauses
        self._run.estimated_s = self._plan.estimated_latency_s()
        self.reached = self._plan.reached
        if self._outlook is not None and self.is_over:
            self._outlook.ended(self.reached)

    def interrupted(self) -> None:
        """Steps are taken between two parts of it."""
        self.again += self.pauses
        self.pauses = False

    def _found_tasks(self) -> Sequence[WeightedTask]:
        if StepKind.IMPORT in self._run.plan.before:
            return self._run.imported.tasks
        return self._run.step_result(StepKind.SPLIT, SplitTasks, self._run.run_id).tasks

    def _own_budget(self, job: Job, tasks: int, delivery_s: float | None) -> Budget:
        """What a search has of its job's budget; a note says what it leaves to the other steps."""
        done = self._run.committed().values()
        prepared_s = sum(run.seconds for run in done if run.started_at >= job.created_at)
        if delivery_s is None:
            delivery_s = first_delivery_s(tasks, prepared_s)
        around_s = prepared_s + delivery_s
        budget = search_budget(job.spec.budget, around_s)
        left_s = (job.spec.budget.seconds or 0.0) - (budget.seconds or 0.0)
        if left_s and self._plan is None:
            text = f"the search leaves {left_s:.0f} s of its time to the other steps"
            self._observer(Note(f"{text}, which take about {around_s:.0f} s"))
        return budget

    def _check_budget(self, job: Job, tasks: Sequence[WeightedTask], forecast: Forecast) -> None:
        """Say before a search what it needs, and warn of a budget that is below that."""
        if not tasks or self._fleet.store.records.trial_count(job.job_id):
            return
        least = least_budget(tasks, job.spec.settings.search, forecast.round_s)
        self._observer(Note(least.text()))
        warning = least.warning(job.spec.budget)
        if warning:
            self._observer(Note(warning, warning=True))
