"""The order of a job: its steps, its search and its delivery, and what may start next of them.

A plan is a value: it knows no job. What is committed of one is given to it as `JobProgress`, by
whoever has read it from the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tunefleet.core.job import JobKind, JobSpec, JobState
from tunefleet.core.step import DELIVERY, PREPARATION, WINNERS, StepKind
from tunefleet.scheduler.values import JobEnd

#: Why a job has nothing to deliver.
EXPIRED = "its deadline passed before any of its tasks was tuned"
#: What is delivered and measured to judge a search, before it is published.
JUDGED = (*WINNERS, StepKind.COMPILE, StepKind.VERIFY, StepKind.MEASURE)
#: By how much the estimate has to be lower before a job delivers again. Less may be noise, and each
#: delivery takes as long as a hundred trials.
LEAST_GAIN = 0.03
#: How often a disturbed baseline is measured again, at most, and after how many seconds of search
#: first; each time it is after twice as many.
MOST_AGAIN, FIRST_AGAIN_S = 5, 30.0


@dataclass(frozen=True, slots=True)
class JudgedDelivery:
    """What the last delivery of a job was: `estimated_s` is what its tasks took together by then,
    `excess` how many times as long as agreed an inference takes, None where the measurement does
    not say."""

    estimated_s: float | None
    excess: float | None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What is known of a job. `done` are the steps that are committed and whose files are there;
    `searched`: its search has ended; `late`: its deadline has passed.

    `agreed_s` is the latency that was agreed, None where that is not known. A search ended with
    tasks that take `estimated_s` together, because what it was to reach is `reached` or for another
    reason. `judged` is its last delivery. `difference` is that of the network, not yet tuned, from
    its source framework. `is_disturbed`: so was its baseline, which was measured `again` so often;
    `pauses`: its search has stopped for that.
    """

    done: frozenset[StepKind]
    searched: bool = False
    trials: int = 0
    late: bool = False
    agreed_s: float | None = None
    estimated_s: float | None = None
    reached: bool = False
    judged: JudgedDelivery | None = None
    difference: float | None = None
    is_disturbed: bool = False
    again: int = 0
    pauses: bool = False

    @property
    def is_of_use(self) -> bool:
        """Whether a search found something, or records alone did."""
        found = self.searched and (self.trials > 0 or self.reached)
        return found or self.judged is not None


@dataclass(frozen=True, slots=True)
class TakeSteps:
    """Steps in their order, with those before them: where the output of one of these is lost, it is
    made again. Those of `again` are made again in any case."""

    kinds: tuple[StepKind, ...]
    again: frozenset[StepKind] = frozenset()


@dataclass(frozen=True, slots=True)
class SearchTasks:
    """The trials of the job's tasks, until its budget ends, or they take `until_s` together, or
    for `seconds` at most, for what is to be measured between its rounds."""

    until_s: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CloseJob:
    """Nothing of the job is left to do, or can be: it ends in this state, for a reason with a
    cure."""

    state: JobState
    reason: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Steps `before` the search, the search where the job has one, and the steps `after` it.

    `goes_on`: where a part after the preparation fails, the job stays open, and the same request
    continues it. `judges`: a latency or a speed-up is agreed, and the search goes on until the
    delivery has it. `most_lost`: the network may not differ more from its source framework.
    """

    before: tuple[StepKind, ...] = PREPARATION
    searches: bool = True
    after: tuple[StepKind, ...] = (*WINNERS, *DELIVERY)
    goes_on: bool = True
    judges: bool = False
    most_lost: float | None = None

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
        if progress.pauses:
            return TakeSteps(before, frozenset({StepKind.BASELINE}))
        if self.searches and progress.late and not progress.is_of_use:
            return CloseJob(JobState.EXPIRED, EXPIRED, "give it a later deadline")
        part = self._refused(progress) or self._searching(progress, upto)
        if part is not None:
            return part
        after = tuple(kind for kind in _upto(self.after, upto) if kind not in without)
        if not progress.done.issuperset(after):
            return TakeSteps((*self.before, *after))
        return CloseJob(JobState.SUCCEEDED) if upto in (None, *self.after[-1:]) else None

    def _refused(self, progress: JobProgress) -> CloseJob | None:
        lost = progress.difference
        if self.most_lost is None or lost is None or lost <= self.most_lost:
            return None
        return CloseJob(
            JobState.FAILED,
            f"in this precision its outputs differ by {lost:.2g} from those of its source "
            f"framework, and at most {self.most_lost:.2g} is agreed; nothing is delivered instead",
            "leave out --precision, or agree to more",
        )

    def _searching(
        self, progress: JobProgress, upto: StepKind | None
    ) -> TakeSteps | SearchTasks | None:
        """What is missing of the search, and of the deliveries by which it is judged."""
        if not self.searches:
            return None
        if not self.judges:
            return None if progress.searched else SearchTasks()
        last = progress.judged
        if last is not None and upto in DELIVERY:
            return None  # whoever asks for its steps one by one has ended the search before
        missed = last is not None and last.excess is not None and last.excess > 1
        if not progress.searched:
            search = SearchTasks(_until_s(progress), _seconds(progress))
            return search if missed or last is None else None
        if last is None:
            return TakeSteps((*self.before, *JUDGED))
        if _is_faster(progress.estimated_s, last.estimated_s):
            return TakeSteps((*self.before, *JUDGED), frozenset(JUDGED))
        until_s = _until_s(progress)
        if missed and progress.reached and not progress.late and until_s:
            return SearchTasks(until_s)
        return None

    def closed_by(self, end: JobEnd, progress: JobProgress) -> JobState | None:
        """The state of a job of which a part ended before its end; None: it stays open."""
        if end is JobEnd.CANCELLED:
            return JobState.CANCELLED
        prepared = progress.done.issuperset(self.before)
        return None if prepared and self.goes_on else JobState.FAILED


def _is_faster(estimated_s: float | None, before_s: float | None) -> bool:
    """Whether an estimate is so much lower than before that a delivery may tell."""
    if estimated_s is None or before_s is None:
        return False
    return estimated_s < before_s and estimated_s <= before_s * (1 - LEAST_GAIN)


def _until_s(progress: JobProgress) -> float | None:
    """What the tasks may take together for the delivery to have what is agreed: by the last one's
    measured latency, which is another than its estimate, and lower than that in any case."""
    last = progress.judged
    if last is None or last.estimated_s is None or last.excess is None:
        return progress.agreed_s
    return min(last.estimated_s / last.excess, last.estimated_s * (1 - LEAST_GAIN))


def _seconds(progress: JobProgress) -> float | None:
    """For how long a search goes on before its baseline is measured again; None where it is not."""
    if not progress.is_disturbed or progress.again >= MOST_AGAIN:
        return None
    return FIRST_AGAIN_S * float(2**progress.again)


def _upto(kinds: tuple[StepKind, ...], last: StepKind | None) -> tuple[StepKind, ...]:
    return kinds[: kinds.index(last) + 1] if last in kinds else kinds


#: A build delivers what earlier jobs found; a collection imports nothing but its tasks. A
#: placement, an evaluation and a run are one call, and nothing of an import is left to do.
PLANS = {
    JobKind.TUNE: JobPlan(),
    JobKind.BUILD: JobPlan(searches=False, after=DELIVERY),
    JobKind.COLLECT: JobPlan(before=(StepKind.SPLIT,), after=(), goes_on=False),
    JobKind.PLACE: JobPlan(before=(), searches=False, after=()),
    JobKind.EVALUATE: JobPlan(before=(), searches=False, after=()),
    JobKind.RUN: JobPlan(before=(), searches=False, after=()),
    JobKind.IMPORT: JobPlan(before=(), searches=False, after=()),
}


def plan_of(spec: JobSpec) -> JobPlan:
    """The plan of a job by its kind, and by what is agreed: over its source framework it can only
    be faster once that was measured."""
    plan, agreed = PLANS[spec.kind], spec.agreement
    if spec.building is not None and not spec.building.measure:
        return replace(plan, after=tuple(k for k in plan.after if k is not StepKind.MEASURE))
    if spec.kind is not JobKind.TUNE:
        return plan
    return replace(
        plan,
        before=(*plan.before, *((StepKind.BASELINE,) if agreed.speedup else ())),
        judges=agreed.latency_ms is not None or agreed.speedup is not None,
        most_lost=agreed.most_lost,
    )
