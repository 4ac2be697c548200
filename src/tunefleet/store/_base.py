"""The Store contract: everything durable that a job leaves behind.

**Threads and processes.** Every verb may be called from any thread of any process; a store
serialises writers itself and a reader never sees half of a commit.
**Durability.** When a verb returns, its effect survives kill -9 of any process. Each verb is one
transaction.
**Size.** A store may hold 100,000 jobs: what is of one job, or of one task, comes whole, and jobs
and events come in pages.
**Idempotence.** `put_tasks`, `commit`, `commit_step`, `select_winner` and `finish` may be repeated
with the same arguments; the repetition changes nothing. A stage is committed once: the first commit
of a key wins, a later one returns False and leaves no trace.
**Errors.** An unknown job or task raises `InputError`; a file that is not a store, that a newer
version wrote or that cannot be written raises `SetupError` naming it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from tunefleet.core.coordination import Lease
from tunefleet.core.events import JobEnded
from tunefleet.core.forecast import TaskCurve
from tunefleet.core.identity import DeviceIdentity, Tier, ToolchainIdentity
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.stage import StageKey, StageRun, StageSpan, UpdateResult
from tunefleet.core.step import StepKey, StepRun
from tunefleet.core.target import Target
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Candidate, Failure, Measurement, Trial
from tunefleet.store._accounts import Accounts, Holdings
from tunefleet.store._coordination import Coordination
from tunefleet.store._dispatch import Dispatch
from tunefleet.store._events import Events
from tunefleet.store._explorer import RecordExplorer
from tunefleet.store._webhooks import Webhooks

#: Jobs that are read at once where nobody says otherwise.
PAGE = 100


@dataclass(frozen=True, slots=True)
class Record:
    """A measured trial with who measured it: what later jobs reuse."""

    task_id: str
    job_id: str
    candidate: Candidate
    measurement: Measurement
    device: DeviceIdentity
    toolchain: ToolchainIdentity


@dataclass(frozen=True, slots=True)
class BestRecord:
    """The fastest program of a task and what the task is: what similar tasks start from."""

    task_id: str
    shapes: str
    flops: float
    trace: str
    latency_s: float


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The summary of a job (None while it runs) and how many trials it has."""

    summary: Any
    trials: int


@dataclass(frozen=True, slots=True)
class BestEntry:
    """An entry of the best-only table: the fastest winner of a task, with the checks that chose it,
    who measured it, and what the task is."""

    task: Task
    target: Target
    record: Record
    checks: Any

    @property
    def place(self) -> EntryPlace:
        """Where it stands in the order of entries."""
        return self.task.task_id, self.record.device.exact, self.record.toolchain.exact


#: Of an entry of the best-only table: task id, exact device, exact toolchain.
EntryPlace = tuple[str, str, str]
#: Before every entry.
FIRST: EntryPlace = ("", "", "")


class Jobs(Protocol):
    """The jobs of a store: what was asked for, and what came of it."""

    def open(self, spec: JobSpec, *, job_id: str, now: float) -> Job:
        """The running job with this spec's fingerprint (the latest), which is on the terms of this
        spec from now on, or a new one `job_id`."""

    def get(self, job_id: str) -> Job:
        """One job."""

    def page(
        self,
        *,
        after: str = "",
        limit: int = PAGE,
        state: JobState | None = None,
        fingerprint: str = "",
        prefix: str = "",
        tenant: str | None = None,
    ) -> list[Job]:
        """The newest `limit` jobs, newest first: of those that are older than the job `after`, in
        this state, with this fingerprint, whose ids begin so, of this tenant."""

    def finish(
        self, job_id: str, state: JobState, summary: Any, ended: JobEnded | None = None
    ) -> None:
        """Close a job with its JSON summary (what `--json` prints), and keep its last event with
        that or not at all: who follows a job waits for events until it is closed."""

    def summary(self, job_id: str) -> Any:
        """The summary given to `finish`, or None while the job runs."""

    def outcomes(self, job_ids: Sequence[str]) -> dict[str, JobOutcome]:
        """What came of jobs so far, by their ids; nothing of those that are unknown."""

    def remove(self, job_id: str) -> None:
        """Forget a job with its stages, steps, trials and winners, so that later jobs do not reuse
        them; of the winners that are left the fastest take the place of its own in the best-only
        table."""


class StoredWork(Protocol):
    """What was done for jobs: their tasks, their stages, and steps on whole networks."""

    def put_tasks(self, job_id: str, tasks: Sequence[WeightedTask]) -> None:
        """Set the tasks of a job, in their order. A task known from other jobs is shared; its
        precision is entered where it was not told before."""

    def tasks(self, job_id: str) -> list[WeightedTask]:
        """The tasks of a job in the order they were put; empty before `put_tasks`."""

    def commit(
        self,
        run: StageRun,
        *,
        elapsed_s: float = 0.0,
        again: bool = False,
        leases: Sequence[Lease] = (),
    ) -> bool:
        """Write a finished stage and all that follows from it in one transaction. Raises
        LeaseLostError where one of the `leases` that it was made under is over, and leaves no
        trace.

        `again`: a build whose libraries were lost was made once more; its result takes the place of
        the one that is committed, and what failed this time becomes a trial as well.

        select: its candidates. build: what was built; each failure becomes a trial. profile: each
        measurement and each failure becomes a trial. update: the model, the newest of the job.
        A candidate that is already a trial of the job never becomes a second one. `elapsed_s` is
        the wall-clock time the job has been tuned for, in seconds; the job keeps the largest,
        since its stages overlap and may be committed out of order.
        """

    def stage(self, key: StageKey) -> StageRun | None:
        """A committed stage with its result as it was committed, or None."""

    def stages(self, job_id: str) -> list[StageRun]:
        """Every committed stage of a job in the order of commit, update models left out
        (`UpdateResult.model` is empty) and candidates without features."""

    def commit_step(
        self, run: StepRun, *, again: bool = False, leases: Sequence[Lease] = ()
    ) -> bool:
        """Write a finished step, under leases as `commit`. The first commit of a key wins and a
        later one returns False, unless it was made `again` on purpose: then it takes the place of
        the first."""

    def step(self, key: StepKey) -> StepRun | None:
        """A committed step, or None."""

    def steps(self, owner: str) -> list[StepRun]:
        """The committed steps of a preparation or a run in the order of commit."""

    def forget_steps(self, owner: str) -> None:
        """Remove the steps of an owner; nothing where there are none."""

    def stages_between(self, start: float, end: float) -> list[StageSpan]:
        """When and where the stages of all jobs ran that touch [start, end] (seconds since the
        epoch), in the order of their start, equals in the order of commit.

        Raises InputError when `end` is before `start`.
        """


class StoredRecords(Protocol):
    """What was measured, and what later jobs reuse of it.

    Of records of all jobs a `tenant` is given its own and those that were shared with it or with
    all (`Accounts.share`).
    """

    def trials(self, job_id: str, task_id: str | None = None) -> list[Trial]:
        """The trials of a job (of one of its tasks) in the order of commit, with features."""

    def trial_count(self, job_id: str) -> int:
        """How many trials `trials` would give."""

    def curves(self, job_id: str) -> list[TaskCurve]:
        """The latencies of the trials of each task of a job that has some, in the order of commit,
        numbered over the job's tasks from 0; tasks in the order they were put."""

    def model(self, job_id: str) -> UpdateResult:
        """The newest result of the job's update stages that has a cost model; an empty one if none
        has."""

    def fastest(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tier: Tier,
        limit: int,
        tenant: str = "",
    ) -> list[Record]:
        """The fastest measured trials of a task over all jobs, fastest first, one per candidate.

        EXACT: device and toolchain agree exactly. COMPATIBLE: both compatible digests agree and
        at least one exact digest does not (so the tiers are disjoint). Ranked by
        `Measurement.latency_s`. A candidate that failed with `wrong_answer` in any job of
        the same exact identities is never returned.
        """

    def fastest_of_operator(
        self,
        operator: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        measured: int = 1,
        tenant: str = "",
    ) -> list[BestRecord]:
        """Of every task with this operator and at least so many `measured` trials the fastest of
        them over all jobs, ordered by task id; of equals the earliest. Both tiers: what it decides
        is verified before use."""

    def select_winner(
        self,
        job_id: str,
        task_id: str,
        winner: Trial | None,
        checks: Any,
        rejected: Sequence[tuple[str, Failure]] = (),
    ) -> None:
        """Remember what a job delivers for a task: a verified trial, or None for the default.

        `checks` is a JSON value saying how it was chosen. A winner is also entered into the
        best-only table for (task, exact device, exact toolchain) unless a faster one stands
        there. `rejected` are candidates found to compute something else: their trials, in every
        job of the same exact device and toolchain, become that failure. Repeating replaces the
        job's own entry.
        """

    def winners(self, job_id: str) -> dict[str, tuple[Trial | None, Any]]:
        """task_id -> (winner, checks) of a job as selected so far."""

    def best(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tenant: str = "",
    ) -> Record | None:
        """The entry of the best-only table: the fastest winner any job delivered here."""

    def best_page(
        self,
        *,
        operator: str = "",
        after: EntryPlace = FIRST,
        limit: int = PAGE,
        tenant: str = "",
    ) -> list[BestEntry]:
        """A page of the best-only table, in the order of `BestEntry.place`: entries behind `after`,
        of tasks with this operator where one is given."""


class ServiceParts(Protocol):
    """The parts of a store that a service of several users needs."""

    @property
    def accounts(self) -> Accounts: ...

    @property
    def holdings(self) -> Holdings: ...

    @property
    def webhooks(self) -> Webhooks: ...

    @property
    def explorer(self) -> RecordExplorer: ...


class Store(ServiceParts, Protocol):
    @property
    def jobs(self) -> Jobs: ...

    @property
    def work(self) -> StoredWork: ...

    @property
    def records(self) -> StoredRecords: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def events(self) -> Events: ...

    @property
    def dispatch(self) -> Dispatch: ...

    def close(self) -> None:
        """Release files and connections; every verb afterwards raises."""


def job_pages(
    jobs: Jobs, *, state: JobState | None = None, fingerprint: str = "", size: int = PAGE
) -> Iterator[list[Job]]:
    """The pages of jobs, newest first, as they are wanted."""
    after = ""
    while page := jobs.page(after=after, limit=size, state=state, fingerprint=fingerprint):
        yield page
        after = page[-1].job_id


def each_job(jobs: Jobs, *, state: JobState | None = None, fingerprint: str = "") -> Iterator[Job]:
    """The jobs of all pages, newest first, as they are wanted."""
    return chain.from_iterable(job_pages(jobs, state=state, fingerprint=fingerprint))
