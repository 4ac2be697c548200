"""Faults, in the pure core: what is lost is run again, what is poison is given up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.mock import device, host, job
from tunefleet.core.stage import STAGE_ORDER, StageKind
from tunefleet.errors import InternalError
from tunefleet.scheduler.core import ATTEMPTS, Scheduler
from tunefleet.scheduler.plan import FixedPlan
from tunefleet.scheduler.policies import Interleaved, Predictive
from tunefleet.scheduler.resources import AWAY_S, Held, complaint_s, quarantine_s
from tunefleet.scheduler.transitions import TRANSITIONS, StageState, Transition, moved
from tunefleet.scheduler.values import (
    AbandonStage,
    End,
    FinishJob,
    Instruction,
    JobCancelled,
    JobEnd,
    JobPaused,
    JobRequest,
    JobResumed,
    JobSubmitted,
    LeaseExpired,
    QuarantineResource,
    Resource,
    ResourceJoined,
    ResourceLost,
    SetTimer,
    StageFinished,
    StartStage,
    TimerFired,
)


class Shell:
    """Carries instructions out by hand, one event at a time."""

    def __init__(self, *resources: Resource) -> None:
        self.core = Scheduler(Interleaved())
        self.now = 0.0
        self.running: dict[int, StartStage] = {}
        self.log: list[Instruction] = []
        for resource in resources:
            self.send(ResourceJoined(0.0, resource))

    def send(self, event: Any) -> list[Instruction]:
        out = self.core.handle(event)
        self.log += out
        for instruction in out:
            if isinstance(instruction, StartStage):
                self.running[instruction.lease] = instruction
        return out

    def finish(self, lease: int, end: End = End.DONE, **more: Any) -> list[Instruction]:
        self.now += 1.0
        started = self.running.pop(lease)
        return self.send(StageFinished(self.now, started.key, lease, end, 1.0, **more))

    def only(self) -> int:
        (lease,) = self.running
        return lease

    def finish_all(self) -> None:
        while self.running:
            self.finish(min(self.running))

    def of(self, kind: type) -> list[Any]:
        return [i for i in self.log if isinstance(i, kind)]


def test_a_lane_runs_its_stages_in_order_and_its_job_ends() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 2}))
    shell.finish_all()
    started = [i.key for i in shell.of(StartStage)]
    assert [(k.iteration, k.kind) for k in started] == [
        (i, kind) for i in range(2) for kind in STAGE_ORDER
    ]
    assert shell.of(FinishJob) == [FinishJob("a", JobEnd.DONE, "every lane is complete")]
    assert not shell.core.jobs


def test_a_failed_stage_is_tried_again_and_then_the_lane_is_given_up() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 2, "y": 1}, width=1))
    for attempt in range(1, ATTEMPTS + 1):
        assert shell.running[shell.only()].attempt == attempt
        shell.finish(shell.only(), End.FAILED, cause="the worker died")
    shell.finish_all()  # the other lane goes on
    (ended,) = shell.of(FinishJob)
    assert ended.end is JobEnd.DONE
    assert {i.key.task_id for i in shell.of(StartStage)} == {"x", "y"}


def test_a_job_whose_every_lane_is_poison_fails_and_says_why() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 2}))
    for _ in range(ATTEMPTS):
        shell.finish(shell.only(), End.FAILED, cause="out of memory")
    (ended,) = shell.of(FinishJob)
    assert ended.end is JobEnd.FAILED
    assert "select" in ended.reason
    assert "out of memory" in ended.reason


def test_a_lane_that_is_given_up_with_its_resource_leaves_nothing_to_abandon() -> None:
    """Two stages of one lane ran where the resource was lost; the first is poison."""
    shell = Shell(host(slots=2), device())
    shell.send(job("a", {"x": 5}, lookahead=True))
    for _ in range(3):  # select, build and profile; meanwhile the next batch is selected
        shell.finish(min(shell.running))
    assert {i.key.kind for i in shell.running.values()} == {StageKind.UPDATE, StageKind.SELECT}
    for _ in range(3):
        shell.running.clear()
        shell.send(ResourceLost(shell.now, "h0", "gone"))
        shell.send(ResourceJoined(shell.now, host(slots=2)))
    assert shell.of(AbandonStage) == []
    assert [f.end for f in shell.of(FinishJob)] == [JobEnd.FAILED]


def test_a_lost_resource_gives_its_stage_to_another() -> None:
    shell = Shell(host("h0"), host("h1"), device())
    shell.send(job("a", {"x": 1}))
    first = shell.running.pop(shell.only())
    shell.send(ResourceLost(1.0, first.resource_id, "power"))
    second = shell.running[shell.only()]
    assert second.key == first.key
    assert second.attempt == 2
    assert second.resource_id != first.resource_id
    # Whatever the lost one still says is too late.
    assert shell.send(StageFinished(2.0, first.key, first.lease, End.DONE, 1.0)) == []
    shell.finish_all()
    assert shell.of(FinishJob)


def test_an_expired_lease_frees_the_stage_but_not_the_resource() -> None:
    shell = Shell(host("h0"), host("h1"), device())
    shell.send(job("a", {"x": 1}))
    first = shell.running.pop(shell.only())
    out = shell.send(LeaseExpired(5.0, first.lease))
    assert [type(i) for i in out] == [AbandonStage, StartStage]
    second = shell.running[shell.only()]
    assert second.key == first.key
    assert second.resource_id != first.resource_id
    shell.send(job("b", {"y": 1}))
    assert len(shell.running) == 1  # the silent host gets nothing: it may still be at work
    shell.send(StageFinished(6.0, first.key, first.lease, End.ABANDONED, 1.0))
    assert {s.resource_id for s in shell.running.values()} == {"h0", "h1"}


def test_a_device_that_drifts_is_quarantined_and_tried_again_later() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 9}))
    while not shell.of(QuarantineResource):
        lease = shell.only()
        drift = 0.2 if shell.running[lease].key.kind is StageKind.PROFILE else 0.0
        shell.finish(lease, drift=drift)
    (first,) = shell.of(QuarantineResource)
    (timer,) = shell.of(SetTimer)
    assert "reference kernel" in first.reason
    assert sum(i.key.kind is StageKind.PROFILE for i in shell.of(StartStage)) == 3
    while shell.running:
        shell.finish(min(shell.running))
    assert not shell.of(FinishJob)  # waits for its only device
    shell.send(TimerFired(timer.at, timer.timer))
    assert shell.running[shell.only()].key.kind is StageKind.PROFILE
    shell.finish_all()
    assert shell.of(FinishJob)


def test_a_device_that_always_drifts_measures_all_the_same_after_a_while() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 60}))
    while not shell.of(FinishJob):
        if shell.running:
            lease = shell.only()
            profiles = shell.running[lease].key.kind is StageKind.PROFILE
            shell.finish(lease, drift=0.2 if profiles else 0.0)
        else:
            timer = shell.of(SetTimer)[-1]
            shell.send(TimerFired(timer.at, timer.timer))
    quarantines = shell.of(QuarantineResource)
    assert ["measuring goes on" in q.reason for q in quarantines] == [False] * 4 + [True]


def test_a_device_that_drifts_again_is_quarantined_again() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 60}))
    batches = 0
    while not shell.of(FinishJob):
        if shell.running:
            lease = shell.only()
            profiles = shell.running[lease].key.kind is StageKind.PROFILE
            batches += profiles
            # Every tenth batch is quiet: the nine between make three quarantines.
            shell.finish(lease, drift=0.2 if profiles and batches % 10 else 0.0)
        else:
            timer = shell.of(SetTimer)[-1]
            shell.send(TimerFired(timer.at, timer.timer))
    assert len(shell.of(QuarantineResource)) == 6 * 3


def test_a_quarantine_doubles_and_begins_short_after_a_disturbance() -> None:
    disturbed, failing = Held(device()), Held(device())
    failing.failures = 3
    assert [quarantine_s(disturbed, *complaint_s(disturbed)) for _ in range(3)] == [5.0, 10.0, 20.0]
    assert [quarantine_s(failing, *complaint_s(failing)) for _ in range(3)] == [60.0, 120.0, 240.0]
    away = Held(device())
    assert [quarantine_s(away, *AWAY_S) for _ in range(7)] == [2, 4, 8, 16, 32, 60, 60]


def test_a_device_that_is_away_costs_its_stage_no_attempt() -> None:
    shell = Shell(host(), device("d0", "m0"), device("d1", "m1"))
    shell.send(job("a", {"x": 1}))
    while shell.running[shell.only()].key.kind is not StageKind.PROFILE:
        shell.finish(shell.only())
    away = shell.running[shell.only()].resource_id
    for attempt in range(ATTEMPTS + 2):
        running = shell.running[shell.only()]
        assert running.attempt == 1
        shell.finish(shell.only(), End.AWAY, cause="no route")
        if attempt == 0:  # the other one takes it over at once
            assert shell.running[shell.only()].resource_id != away
            continue
        assert not shell.running
        timer = shell.of(SetTimer)[-1]
        shell.send(TimerFired(timer.at, timer.timer))
    assert {q.reason for q in shell.of(QuarantineResource)} == {"no route"}
    shell.finish_all()
    assert [f.end for f in shell.of(FinishJob)] == [JobEnd.DONE]


def test_one_bad_lane_does_not_condemn_a_machine_but_several_do() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 1}))
    for _ in range(ATTEMPTS):
        shell.finish(shell.only(), End.FAILED)
    assert not shell.of(QuarantineResource)
    shell.send(job("b", {"y": 1, "z": 1}))
    for _ in range(3):
        if shell.running:
            shell.finish(shell.only(), End.FAILED)
    assert shell.of(QuarantineResource)


def test_cancel_stops_what_runs_and_waits_for_its_worker() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 3, "y": 3}))
    lease = shell.only()
    out = shell.send(JobCancelled(1.0, "a"))
    assert [type(i) for i in out] == [AbandonStage]
    assert not shell.of(FinishJob)
    shell.finish(lease, End.ABANDONED)
    assert shell.of(FinishJob) == [FinishJob("a", JobEnd.CANCELLED, "cancelled by its user")]
    assert not shell.running


def test_a_cancellation_without_a_reason_ends_its_job() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 1}))
    shell.send(JobCancelled(1.0, "a", cause=""))
    shell.finish(shell.only(), End.ABANDONED)
    assert shell.of(FinishJob) == [FinishJob("a", JobEnd.CANCELLED, "")]


def test_pause_lets_finish_and_resume_goes_on() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 1}))
    shell.send(JobPaused(1.0, "a"))
    shell.finish(shell.only())
    assert not shell.running
    shell.send(JobResumed(2.0, "a"))
    assert shell.running[shell.only()].key.kind is StageKind.BUILD
    shell.finish_all()
    assert shell.of(FinishJob)
    shell.send(job("b", {"x": 1}))
    shell.send(JobPaused(9.0, "b"))
    shell.send(JobCancelled(9.0, "b"))
    shell.finish(shell.only(), End.ABANDONED)
    assert shell.of(FinishJob)[-1].end is JobEnd.CANCELLED


def test_shared_cores_are_never_used_for_both() -> None:
    shell = Shell(host(units="cores"), device(units="cores"))
    shell.send(job("a", {"x": 3, "y": 3}))
    shell.send(job("b", {"z": 3}))
    while shell.running:
        assert len(shell.running) == 1
        shell.finish(shell.only())
    assert len(shell.of(FinishJob)) == 2


def test_shareable_slots_run_together() -> None:
    shell = Shell(host(slots=2), device())
    shell.send(job("a", {"x": 1, "y": 1, "z": 1}))
    assert len(shell.running) == 2


class _Resumed(FixedPlan):
    def unfinished(self) -> Any:
        return [("x", 4, frozenset({StageKind.SELECT, StageKind.BUILD}))]


def test_a_round_left_open_by_an_earlier_scheduler_goes_on_where_it_was() -> None:
    shell = Shell(host(), device())
    shell.send(JobSubmitted(0.0, JobRequest("a", _Resumed({"x": 1}), width=1)))
    shell.finish_all()
    assert [(i.key.iteration, i.key.kind) for i in shell.of(StartStage)] == [
        (4, StageKind.PROFILE),
        (4, StageKind.UPDATE),
        *((5, kind) for kind in STAGE_ORDER),
    ]


def test_an_unknown_move_is_refused_with_the_story() -> None:
    for state in StageState:
        for move in Transition:
            if (state, move) in TRANSITIONS:
                moved(state, move, "")
            else:
                with pytest.raises(InternalError, match="profile of x"):
                    moved(state, move, "profile of x")


def test_a_job_submitted_twice_is_our_bug() -> None:
    shell = Shell(host(), device())
    shell.send(job("a", {"x": 1}))
    with pytest.raises(InternalError, match="twice"):
        shell.send(job("a", {"x": 1}))


def test_open_rounds_are_bounded_by_the_kind_of_their_device() -> None:
    scheduler = Scheduler(Interleaved(), {"gpu": 1, "board": 4})
    lanes = {f"t{i}": 1 for i in range(5)}
    for name, kind in (("a", "gpu"), ("b", "board"), ("c", "board"), ("d", "other")):
        scheduler.handle(job(name, lanes, device_kind=kind))
    rounds = {name: record.open_rounds for name, record in scheduler.jobs.items()}
    assert rounds == {"a": 1, "b": 4, "c": 2, "d": 5}


def test_a_job_in_a_hurry_may_open_as_many_rounds_as_alone() -> None:
    scheduler = Scheduler(Predictive(), in_flight=4)
    for resource in (host(), device()):
        scheduler.handle(ResourceJoined(0.0, resource))
    for name, deadline in (("first", None), ("far", 1e9), ("hurried", 30.0)):
        scheduler.handle(job(name, {f"{name}{lane}": 2 for lane in "abcd"}, deadline=deadline))
    opened = {name: record.open_rounds for name, record in scheduler.jobs.items()}
    assert opened == {"first": 4, "far": 2, "hurried": 4}
