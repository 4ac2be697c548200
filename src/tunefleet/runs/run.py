"""A run as the store has it: what is committed of it, and what that makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tunefleet.core.job import Job, JobKind
from tunefleet.core.known import KnownPrograms
from tunefleet.core.result import RunResult
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import (
    PREPARATION,
    Checked,
    Imported,
    Preparation,
    StepKey,
    StepKind,
    StepResult,
    StepRun,
)
from tunefleet.errors import StepOrderError
from tunefleet.scheduler.job_plan import PLANS, JobPlan, plan_of

if TYPE_CHECKING:
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.stages.place import Delivery, StepRequest

R = TypeVar("R", bound=StepResult)


class NetworkRun:
    """One network with its job, where it has one: without, it is built of what earlier jobs found.

    `run_id` owns its steps and names the artifact. `stopped` is why its search ended; `rounds` of
    measuring end to end, None for those of the settings. `programs` are those that are delivered
    without a search. `estimated_s` is what its tasks take together after the search; `impossible`
    is why what is agreed cannot be met.
    """

    def __init__(self, fleet: LocalFleet, preparation: Preparation, run_id: str) -> None:
        self.preparation = preparation
        self.run_id = run_id
        self.job: Job | None = None
        self.settings = TuneSettings()
        self.is_resumed = False
        self.stopped = ""
        self.rounds: int | None = None
        self.programs: KnownPrograms | None = None
        self.estimated_s: float | None = None
        self.impossible = ""
        self._fleet = fleet

    @property
    def plan(self) -> JobPlan:
        return PLANS[JobKind.BUILD] if self.job is None else plan_of(self.job.spec)

    def committed(self) -> dict[StepKey, StepRun]:
        """The steps of its plan that are."""
        kinds = (*self.plan.before, *self.plan.after)
        runs = [self._fleet.store.work.step(self.request(kind).key) for kind in kinds]
        return {run.key: run for run in runs if run is not None}

    def request(self, kind: StepKind) -> StepRequest:
        """What a step of it is asked for."""
        from tunefleet.stages.place import StepRequest

        delivery = None if kind in PREPARATION else self.delivery()
        return StepRequest(kind, self.preparation, delivery, self.run_id)

    @property
    def is_prepared(self) -> bool:
        return self._fleet.store.work.step(StepKey(self.preparation.id, StepKind.CHECK)) is not None

    @property
    def imported(self) -> Imported:
        return self.step_result(StepKind.IMPORT, Imported, self.preparation.id)

    @property
    def checked(self) -> Checked:
        return self.step_result(StepKind.CHECK, Checked, self.preparation.id)

    def result(self) -> RunResult:
        """Everything that is known of the run by now."""
        from tunefleet.stages.result import build_result

        return build_result(self._fleet.place, self.delivery())

    def told(self) -> RunResult:
        """The result, written to the published artifact."""
        from tunefleet.stages.publish import tell

        if self._fleet.store.work.step(StepKey(self.run_id, StepKind.PUBLISH)) is not None:
            return tell(self._fleet.place, self.delivery(), self._timeline())
        return self.result()

    def _timeline(self) -> str:
        """The page that the report links to; "" of a run that searched nothing."""
        from tunefleet.report.run_timeline import timeline_page
        from tunefleet.runs.timeline import build_timeline, without_other_names

        store, job = self._fleet.store, self.job
        if job is None or not store.work.stages(job.job_id):
            return ""
        return timeline_page(without_other_names(build_timeline(store, job)))

    def module(self) -> Path:
        """The shared library that is delivered."""
        from tunefleet.stages.delivered import delivered_module

        return delivered_module(self._fleet.place, self.request(StepKind.VERIFY))

    @property
    def _searched_by(self) -> Job | None:
        """The job whose winners are delivered; None where those of other jobs are."""
        is_build = self.job is not None and self.job.spec.kind is JobKind.BUILD
        return None if is_build else self.job

    def delivery(self) -> Delivery:
        """What its steps after a search need besides what earlier ones committed."""
        from tunefleet.stages.place import Delivery

        return Delivery(
            self.run_id,
            self.preparation,
            self.settings,
            self._searched_by,
            self.is_resumed,
            self.stopped,
            self.rounds,
            self.programs,
            self.estimated_s,
            self.impossible,
        )

    def has_output(self, run: StepRun) -> bool:
        """Whether the files that a step made are still there."""
        objects = self._fleet.objects(run.key.owner)
        named = [getattr(run.result, name, None) for name in ("module", "examples", "expected")]
        return all(objects.has(name) for name in named if name is not None)

    def step_result(self, kind: StepKind, expected: type[R], owner: str) -> R:
        run = self._fleet.store.work.step(StepKey(owner, kind))
        result: StepResult | None = None if run is None else run.result
        if not isinstance(result, expected):
            raise StepOrderError(f"{kind} is not done", cure="call from_network() before")
        return result
