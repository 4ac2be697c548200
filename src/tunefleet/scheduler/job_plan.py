"""The order of a job: its steps, its search and its delivery, and what may start next of them.

A plan is a value: it knows no job. What is committed of one is given to it as `JobProgress`, by
whoever has read it from the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunefleet.core.job import JobKind, JobState
from tunefleet.core.step import DELIVERY, PREPARATION, WINNERS, StepKind
from tunefleet.scheduler.values import JobEnd

#: Why a job has nothing to deliver.
EXPIRED = "its deadline passed before any of its tasks was tuned"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What is known of a job. `done` are the steps that are committed and whose files are there;
    `searched`: its search has ended; `late`: its deadline has passed."""

    done: frozenset[StepKind]
    searched: bool = False
    trials: int = 0
    late: bool = False


@dataclass(frozen=True, slots=True)
class TakeSteps:
    """Steps in their order, with those before them: where the output of one of these is lost, it is
    made again."""

    kinds: tuple[StepKind, ...]


@dataclass(frozen=True, slots=True)
class SearchTasks:
    """The trials of the job's tasks, until its budget ends."""


@dataclass(frozen=True, slots=True)
class CloseJob:
    """Nothing of the job is left to do, or can be: it ends in this state."""

    state: JobState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Steps `before` the search, the search where the job has one, and the steps `after` it.

    `goes_on`: where a part after the preparation fails, the job stays open, and the same request
    continues it.
    """

    before: tuple[StepKind, ...] = PREPARATION
    searches: bool = True
    after: tuple[StepKind, ...] = (*WINNERS, *DELIVERY)
    goes_on: bool = True

    def following(
        self,
        progress: JobProgress,
        upto: StepKind | None = None,
        without: frozenset[StepKind] = frozenset(),
    ) -> TakeSteps | SearchTasks | CloseJob | None:
        """What comes next, on the way to the end or to the step `upto`; None where that is done.

        Steps of `without` are left out.
        """
        before = _upto(self.before, upto)
        if not progress.done.issuperset(before):
            return TakeSteps(before)
        if upto in self.before:
            return None
        if self.searches and progress.late and not (progress.searched and progress.trials):
            return CloseJob(JobState.EXPIRED, EXPIRED)
        if self.searches and not progress.searched:
            return SearchTasks()
        after = tuple(kind for kind in _upto(self.after, upto) if kind not in without)
        if not progress.done.issuperset(after):
            return TakeSteps((*self.before, *after))
        return CloseJob(JobState.SUCCEEDED) if upto in (None, *self.after[-1:]) else None

    def closed_by(self, end: JobEnd, progress: JobProgress) -> JobState | None:
        """The state of a job of which a part ended before its end; None: it stays open."""
        if end is JobEnd.CANCELLED:
            return JobState.CANCELLED
        prepared = progress.done.issuperset(self.before)
        return None if prepared and self.goes_on else JobState.FAILED


def _upto(kinds: tuple[StepKind, ...], last: StepKind | None) -> tuple[StepKind, ...]:
    return kinds[: kinds.index(last) + 1] if last in kinds else kinds


#: A build delivers what earlier jobs found; a collection imports nothing but its tasks. Nothing
#: of an import is left to do.
PLANS = {
    JobKind.TUNE: JobPlan(),
    JobKind.BUILD: JobPlan(searches=False, after=DELIVERY),
    JobKind.COLLECT: JobPlan(before=(StepKind.SPLIT,), after=(), goes_on=False),
    JobKind.IMPORT: JobPlan(before=(), searches=False, after=()),
}
