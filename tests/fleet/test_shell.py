"""The live shell with executors made up for the test: no compiler, no processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.scheduler.test_tuning_plan import Mock, plan_of
from tests.store.values import make_spec
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import (
    JobContinued,
    JobHeld,
    ResourceQuarantined,
    StageAbandoned,
    StageCommitted,
    StageStarted,
)
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import Job, JobState
from tunefleet.core.stage import StageKey, StageKind, StageRun
from tunefleet.core.step import (
    DELIVERY,
    PREPARATION,
    WINNERS,
    Compiled,
    Preparation,
    StepKey,
    StepKind,
    StepRun,
)
from tunefleet.core.waiting import WaitingTime
from tunefleet.errors import JobError, RetryElsewhereError
from tunefleet.fleet.clock import now
from tunefleet.fleet.executor import Assignment, Report
from tunefleet.fleet.live import Ending, Live, Search, Steps
from tunefleet.fleet.shell import Shell
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.policies import POLICIES, Predictive
from tunefleet.scheduler.simulator import simulate
from tunefleet.scheduler.values import (
    ROLE_OF,
    End,
    JobEnd,
    JobRequest,
    JobSubmitted,
    Resource,
    ResourceJoined,
    Role,
    StartStage,
    at_home,
)
from tunefleet.stages.place import Delivery, LostInputError, StepRequest

pytestmark = pytest.mark.tvm


#: What the jobs of these tests need: the host has the files of the home, which steps want.
KINDS = {
    Role.HOST: at_home(make_spec().toolchain.host),
    Role.DEVICE: make_spec().device.hardware,
}


class FakeExecutor:
    """Answers from mocks, in a thread of its own after a moment; `stuck` leases are never heard
    of again until they are abandoned."""

    def __init__(self, resource: Resource, shell: Shell, mocks: dict[str, Mock]) -> None:
        self.resource, self._shell, self._mocks = resource, shell, mocks
        self.stuck: set[int] = set()
        self.errors: dict[str, Exception] = {}
        self.away: Exception | None = None
        self.started: list[Assignment] = []
        #: How often the first stage that comes is never heard of again.
        self.stick_next = 0
        self.poison: StageKey | None = None
        self.closed = False
        #: Steps that were done, and by those that will not find it what is lost.
        self.done: list[StepKind] = []
        self.lost: dict[StepKind, StepKind] = {}

    def start(self, assignment: Assignment) -> None:
        self.started.append(assignment)
        self.poison = self.poison or (assignment.key if self.stick_next else None)
        if self.stick_next and assignment.key == self.poison:
            self.stick_next -= 1
            self.stuck.add(assignment.lease)
            return
        threading.Timer(0.001, self._answer, (assignment,)).start()

    def _answer(self, assignment: Assignment) -> None:
        key = assignment.key
        if self.away is not None:
            self._shell.report(Report(assignment, End.AWAY, error=self.away))
            return
        if key.job_id in self.errors:
            self._shell.report(Report(assignment, End.FAILED, error=self.errors[key.job_id]))
            return
        if assignment.step is not None:
            kind = assignment.step.kind
            lost = self.lost.pop(kind, None)
            if lost is not None:
                self._shell.report(
                    Report(assignment, End.LOST, lost=LostInputError(lost, "it is gone"))
                )
                return
            self.done.append(kind)
            step = StepRun(assignment.step.key, Compiled(""), time.time(), 0.001)
            self._shell.report(Report(assignment, End.DONE, run=step))
            return
        mock = self._mocks[key.job_id]
        run = StageRun(key, mock.result(key), time.time(), 0.001)
        mock.runs.append(run)
        self._shell.report(Report(assignment, End.DONE, run=run))

    def abandon(self, lease: int) -> None:
        if lease in self.stuck:
            self.stuck.discard(lease)
            assignment = next(a for a in self.started if a.lease == lease)
            self._shell.report(Report(assignment, End.ABANDONED))

    def responsive(self) -> bool:
        return not self.stuck

    def close(self) -> None:
        self.closed = True


def resource_of(name: str, role: Role, kind: str = "") -> Resource:
    kind = kind or KINDS[role]
    return Resource(name, role, kind, frozenset([name]), also=at_home(kind))


class Bench:
    def __init__(
        self, *names: str, trials: int = 12, lease_s: float = 0.05, needed: Any = None
    ) -> None:
        self.requests: dict[str, ControlRequest] = {}
        self.shell = Shell(
            Scheduler(Predictive(), in_flight=3),
            lease_s,
            lambda job: self.requests.get(job, ControlRequest.RUN),
            **({} if needed is None else {"needed": needed}),
        )
        self.mocks = {name: Mock(plan_of(2, trials)) for name in names}
        self.events: dict[str, list[Any]] = {name: [] for name in names}
        self.host, self.device = (
            FakeExecutor(resource_of(n, role), self.shell, self.mocks)
            for n, role in (("host", Role.HOST), ("device", Role.DEVICE))
        )
        self.done, self.lost = self.host.done, self.host.lost
        self.device.done, self.device.lost = self.done, self.lost
        self.shell.join(self.host)
        self.shell.join(self.device)
        for name in self.mocks:
            self.submit(name)

    def submit(self, name: str, device_kind: str = KINDS[Role.DEVICE]) -> None:
        mock = self.mocks[name]
        job = Job(name, make_spec(), JobState.RUNNING, 0.0)
        tasks = {t: lane.weighted.task for t, lane in mock.plan.progress.items()}
        request = JobRequest(name, mock.plan, host_kind=KINDS[Role.HOST], device_kind=device_kind)
        observer, waiting = self.events[name].append, WaitingTime(now())
        self.shell.submit(Search(job, mock.plan, tasks, observer, request, waiting))

    def of(self, name: str, kind: type) -> list[Any]:
        return [e for e in self.events[name] if isinstance(e, kind)]


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefleet.fleet.shell._BEAT_S", 0.02)


def test_every_job_ends_with_its_trials() -> None:
    bench = Bench("a", "b", "c")
    endings = bench.shell.run()
    assert {n: e.end for n, e in endings.items()} == dict.fromkeys("abc", JobEnd.DONE)
    assert [m.plan.trials for m in bench.mocks.values()] == [12, 12, 12]
    assert bench.host.closed


def test_what_a_search_only_waits_for_other_jobs_is_not_of_its_budget() -> None:
    began, spec = now(), make_spec()
    job, plan = Job("a", spec, JobState.RUNNING, 0.0), plan_of(2, now=began)
    tasks = {t: lane.weighted.task for t, lane in plan.progress.items()}
    request = JobRequest("a", plan, host_kind=KINDS[Role.HOST], device_kind=KINDS[Role.DEVICE])
    search = Search(job, plan, tasks, lambda event: None, request, WaitingTime(began))

    def started(lease: int, at: float) -> Assignment:
        key = StageKey("a", f"t{lease % 2}", 0, StageKind.SELECT)
        return search.assignment(StartStage(key, "host", lease, 1), at)

    first = started(0, began + 100.0)
    assert first.elapsed_s == 0.0
    second = started(1, began + 110.0)
    assert second.elapsed_s == 10.0
    for assignment, at in ((first, 120.0), (second, 130.0)):
        search.finished(Report(assignment, End.DONE), began + at)
    assert started(2, began + 1130.0).elapsed_s == 30.0


def steps_of(
    watcher: str, kinds: Sequence[StepKind], done: Sequence[StepKind] = (), **more: Any
) -> Steps:
    spec = make_spec()
    source = NetworkSource("zoo:net", "net", "content")
    preparation = Preparation(source, spec.target, spec.device, spec.toolchain)
    delivery = Delivery(watcher, preparation, spec.settings)
    requests = [
        StepRequest(k, preparation, None if k in PREPARATION else delivery, watcher) for k in kinds
    ]
    runs = {k: StepRun(StepKey(watcher, k), Compiled(""), 0.0, 1.0) for k in done}
    told: list[Any] = []
    return Steps(watcher, requests, runs, told.append, **more)


@pytest.mark.parametrize("before_search", [False, True])
def test_steps_have_the_deadline_of_their_job(before_search: bool) -> None:
    due = time.time() + 100.0
    request = steps_of("j", PREPARATION, deadline=due, before_search=before_search).request
    assert request.deadline == pytest.approx(now() + 100.0, abs=1.0)
    assert request.following == (None if before_search else ())


ALL = (*PREPARATION, *WINNERS, *DELIVERY)


def test_steps_run_in_their_order_where_they_belong() -> None:
    bench = Bench("a")

    def then(ending: Ending) -> list[Live]:
        return [steps_of("later", DELIVERY)]

    bench.shell.submit(steps_of("steps", (*PREPARATION, *WINNERS), then=then))
    endings = bench.shell.run()
    assert {e.end for e in endings.values()} == {JobEnd.DONE}
    started = [(a.step.kind, r.resource.role) for r in (bench.host, bench.device)
               for a in r.started if a.step is not None]  # fmt: skip
    assert sorted(started) == sorted((kind, ROLE_OF[kind]) for kind in ALL)
    assert bench.done == list(ALL)


def test_a_device_without_the_files_of_the_home_runs_no_step() -> None:
    bench = Bench("a", "b")
    kind = KINDS[Role.DEVICE]
    elsewhere = FakeExecutor(
        Resource("elsewhere", Role.DEVICE, kind, frozenset(["elsewhere"])), bench.shell, bench.mocks
    )
    bench.shell.join(elsewhere)
    bench.shell.submit(steps_of("steps", ALL))
    assert {e.end for e in bench.shell.run().values()} == {JobEnd.DONE}
    assert {StageKind.PROFILE} == {assignment.key.kind for assignment in elsewhere.started}


def test_steps_that_are_done_are_not_done_again() -> None:
    bench = Bench("a")
    bench.shell.submit(steps_of("steps", ALL, done=ALL[:3]))
    assert bench.shell.run()["steps"].end is JobEnd.DONE
    assert bench.done == list(ALL[3:])


def test_what_an_earlier_step_made_and_is_gone_is_made_again() -> None:
    bench = Bench("a")
    bench.lost[StepKind.VERIFY] = StepKind.COMPILE
    bench.shell.submit(steps_of("steps", ALL, done=PREPARATION))
    assert bench.shell.run()["steps"].end is JobEnd.DONE
    around = bench.done[2:5]
    assert around == [StepKind.COMPILE, StepKind.COMPILE, StepKind.VERIFY]
    again = [a.again for a in bench.host.started if a.step and a.step.kind is StepKind.COMPILE]
    assert again == [False, True]


def test_no_step_begins_before_the_one_before_it_has_ended() -> None:
    """Under a policy that looks ahead, with a host that idles while the device works."""
    steps = steps_of("e", ALL)
    arrivals = [
        ResourceJoined(0.0, resource_of("host", Role.HOST)),
        ResourceJoined(0.0, resource_of("device", Role.DEVICE)),
    ]
    submitted = JobSubmitted(0.0, steps.request)
    found = simulate(Scheduler(POLICIES["predictive"]()), [*arrivals, submitted], lambda key: 1.0)
    ends = [span.end for span in found.spans]
    assert [span.start for span in found.spans] == [0.0, *ends[:-1]]


def test_a_step_that_fails_ends_those_after_it() -> None:
    bench = Bench("a")
    bench.host.errors["e"] = JobError("no space")
    bench.shell.submit(steps_of("e", ALL))
    endings = bench.shell.run()
    assert "no space" in str(endings["e"].error)
    assert bench.done == []
    assert endings["a"].end is JobEnd.DONE


def test_a_silent_resource_costs_an_attempt_and_nothing_else() -> None:
    bench = Bench("a")
    bench.device.stick_next = 1
    bench.shell.run()
    assert bench.mocks["a"].plan.trials == 12
    (abandoned,) = bench.of("a", StageAbandoned)
    assert abandoned.key.kind is StageKind.PROFILE
    again = [a for a in bench.device.started if a.key == abandoned.key]
    assert [a.attempt for a in again] == [1, 2]
    keys = [e.run.key for e in bench.of("a", StageCommitted)]
    assert len(set(keys)) == len(keys)


def test_a_stage_that_is_lost_three_times_is_given_up_and_the_job_goes_on() -> None:
    bench = Bench("a")
    bench.device.stick_next = 3
    ending = bench.shell.run()["a"]
    assert ending.end is JobEnd.DONE
    assert bench.mocks["a"].plan.trials == 12
    assert len([x for x in bench.mocks["a"].plan.progress.values() if x.given_up]) == 1


def test_an_error_ends_its_job_and_no_other() -> None:
    bench = Bench("a", "b")
    error = JobError("the disk is full")
    bench.host.errors["a"] = error
    endings = bench.shell.run()
    assert endings["a"].error is error
    assert endings["a"].end is JobEnd.FAILED
    assert endings["b"].end is JobEnd.DONE


def test_a_cancelled_job_leaves_the_others_alone() -> None:
    bench = Bench("a", "b", trials=60)
    threading.Timer(0.03, bench.requests.update, ({"a": ControlRequest.CANCEL},)).start()
    endings = bench.shell.run()
    assert endings["a"].end is JobEnd.CANCELLED
    assert bench.mocks["b"].plan.trials == 60


def test_a_paused_job_starts_nothing_until_it_is_resumed() -> None:
    bench = Bench("a", trials=40)
    bench.requests["a"] = ControlRequest.PAUSE
    seen: list[int] = []

    def look() -> None:
        seen.append(len(bench.host.started) + len(bench.device.started))

    threading.Timer(0.15, look).start()
    threading.Timer(0.3, look).start()
    threading.Timer(0.35, bench.requests.clear).start()
    assert bench.shell.run()["a"].end is JobEnd.DONE
    assert seen[0] == seen[1]
    assert len(bench.of("a", JobHeld)) == len(bench.of("a", JobContinued)) == 1


def test_a_drifting_device_is_quarantined_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def drift(run: StageRun) -> float:
        return 0.2 if run.key.kind is StageKind.PROFILE else 0.0

    monkeypatch.setattr("tunefleet.fleet.shell._drift", drift)
    monkeypatch.setattr("tunefleet.scheduler.resources._DISTURBED_S", (0.05, 1.0))
    bench = Bench("a")
    assert bench.shell.run()["a"].end is JobEnd.DONE
    told = bench.of("a", ResourceQuarantined)
    assert told
    assert told[0].resource_id == "device"
    assert "reference kernel" in told[0].reason


def test_a_supply_is_asked_at_once_where_it_wakes_the_shell() -> None:
    class Woken:
        """Has nothing; ends the shell as soon as it is asked again."""

        is_open, is_stopped, asked = True, False, 0

        def take(self) -> None:
            self.asked += 1
            self.is_stopped = self.asked == 3

    shell = Shell(Scheduler(Predictive()), 5.0, lambda job_id: ControlRequest.RUN)
    supply, began = Woken(), time.monotonic()
    for after_s in (0.1, 0.2):
        threading.Timer(after_s, shell.wake).start()
    shell.run(supply)
    assert time.monotonic() - began < 0.9  # a beat is 1 s


def test_a_device_joins_when_a_job_comes_that_needs_it() -> None:
    joined: list[str] = []

    def needed(shell: Shell, request: JobRequest) -> list[Any]:
        kind = request.device_kind
        if kind in (*joined, KINDS[Role.DEVICE]):
            return []
        joined.append(kind)
        return [FakeExecutor(resource_of(kind, Role.DEVICE, kind), shell, bench.mocks)]

    bench = Bench("a", needed=needed)
    for name in ("b", "c"):
        bench.mocks[name], bench.events[name] = Mock(plan_of(2, 12)), []
        bench.submit(name, "gpu")
    endings = bench.shell.run()
    assert {n: e.end for n, e in endings.items()} == dict.fromkeys("abc", JobEnd.DONE)
    assert joined == ["gpu"]
    measured = {
        name: {e.resource_id for e in bench.of(name, StageStarted)
               if e.key.kind is StageKind.PROFILE} for name in "abc"
    }  # fmt: skip
    assert measured == {"a": {"device"}, "b": {"gpu"}, "c": {"gpu"}}


def test_a_device_that_cannot_be_reached_ends_the_jobs_that_need_it_and_no_other() -> None:
    error = RetryElsewhereError("the board is not there", cure="start it")

    def needed(shell: Shell, request: JobRequest) -> list[Any]:
        if request.device_kind == "board":
            raise error
        return []

    bench = Bench("a", needed=needed)
    bench.mocks["b"], bench.events["b"] = Mock(plan_of(2, 12)), []
    bench.submit("b", "board")
    endings = bench.shell.run()
    assert (endings["b"].end, endings["b"].error) == (JobEnd.FAILED, error)
    assert endings["a"].end is JobEnd.DONE


def test_a_job_does_not_wait_for_devices_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefleet.fleet.shell.AWAY_S", 0.0)
    bench = Bench("a")
    board = FakeExecutor(resource_of("board", Role.DEVICE, "board"), bench.shell, bench.mocks)
    board.away = RetryElsewhereError("the board is not there", cure="start it")
    bench.shell.join(board)
    bench.mocks["b"], bench.events["b"] = Mock(plan_of(2, 12)), []
    bench.submit("b", "board")
    endings = bench.shell.run()
    assert (endings["b"].end, endings["b"].error) == (JobEnd.FAILED, board.away)
    assert endings["a"].end is JobEnd.DONE
