"""Random event sequences: exclusivity, no lost and no double stage, progress.

`TUNEFLEET_SEQUENCES=10000 pytest tests/scheduler/test_stateful.py` runs as many as that.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tunefleet.core.stage import StageKey
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.plan import FixedPlan
from tunefleet.scheduler.policies import POLICIES
from tunefleet.scheduler.values import (
    AbandonStage,
    End,
    Event,
    FinishJob,
    JobCancelled,
    JobPaused,
    JobRequest,
    JobResumed,
    JobSubmitted,
    LeaseExpired,
    Resource,
    ResourceJoined,
    ResourceLost,
    Role,
    SetTimer,
    StageFinished,
    StartStage,
    TimerFired,
)

#: One shared set of cores, cores of its own for each, a host with two slots, and a device that may
#: be shared with it.
MACHINES = (
    Resource("host-shared", Role.HOST, "host", frozenset({"c0", "c1"})),
    Resource("device-shared", Role.DEVICE, "device", frozenset({"c0", "c1"})),
    Resource("host-own", Role.HOST, "host", frozenset({"c2"})),
    Resource("device-own", Role.DEVICE, "device", frozenset({"c3"})),
    Resource("host-slots", Role.HOST, "host", frozenset({"c3", "c4"}), True, 2),
    Resource("device-slots", Role.DEVICE, "device", frozenset({"c4", "c5"}), True, 2),
    Resource("gpu", Role.DEVICE, "device", frozenset({"gpu"}), beside=frozenset({"c0", "c3"})),
)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        machines=st.sets(st.sampled_from(range(len(MACHINES)))),
    )
    def start(self, policy: str, machines: set[int]) -> None:
        self.core = Scheduler(POLICIES[policy]())
        self.now = 0.0
        self.submitted = 0
        self.running: dict[int, tuple[StageKey, Resource]] = {}
        self.stopping: set[int] = set()
        self.timers: list[SetTimer] = []
        self.done: set[StageKey] = set()
        self.finished: set[str] = set()
        self.joined: dict[str, Resource] = {}
        self.paused: set[str] = set()
        for index in sorted(machines):
            self.join(index)

    def send(self, event: Event) -> None:
        for instruction in self.core.handle(event):
            if isinstance(instruction, StartStage):
                resource = self.joined[instruction.resource_id]
                assert instruction.key not in self.done, "a finished stage was started again"
                assert instruction.key.job_id not in self.finished
                self.running[instruction.lease] = (instruction.key, resource)
            elif isinstance(instruction, AbandonStage):
                assert instruction.lease in self.running
                self.stopping.add(instruction.lease)
            elif isinstance(instruction, SetTimer):
                self.timers.append(instruction)
            elif isinstance(instruction, FinishJob):
                assert instruction.job_id not in self.finished, "a job ended twice"
                self.finished.add(instruction.job_id)

    def join(self, index: int) -> None:
        self.joined[MACHINES[index].resource_id] = MACHINES[index]
        self.forget(MACHINES[index].resource_id)
        self.send(ResourceJoined(self.now, MACHINES[index]))

    def forget(self, resource_id: str) -> None:
        """Whatever ran there is gone with it."""
        for lease in [n for n, (_, r) in self.running.items() if r.resource_id == resource_id]:
            del self.running[lease]

    def end(self, lease: int, end: End, drift: float = 0.0) -> None:
        key, _ = self.running.pop(lease)
        current = self.core.story().get(key)
        if end is End.DONE and current in ("running", "stopping") and self.holds(key, lease):
            assert key not in self.done
            self.done.add(key)
        self.send(StageFinished(self.now, key, lease, end, 1.0, drift=drift))

    def holds(self, key: StageKey, lease: int) -> bool:
        job = self.core.jobs[key.job_id]
        return any(s.key == key and s.lease == lease for s in job.stages())

    @rule(lanes=st.lists(st.integers(1, 3), min_size=1, max_size=3), lookahead=st.booleans(),
          width=st.sampled_from([None, 1, 2]), priority=st.integers(0, 2))  # fmt: skip
    def submit(self, lanes: list[int], lookahead: bool, width: int | None, priority: int) -> None:
        self.submitted += 1
        name = f"j{self.submitted}"
        plan = FixedPlan({f"{name}t{i}": rounds for i, rounds in enumerate(lanes)})
        request = JobRequest(name, plan, width=width, lookahead=lookahead, priority=priority,
                             user=f"u{self.submitted % 2}")  # fmt: skip
        self.send(JobSubmitted(self.now, request))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), end=st.sampled_from([End.DONE, End.DONE, End.DONE, End.FAILED]),
          drift=st.sampled_from([0.0, 0.0, 0.5]))  # fmt: skip
    def finish(self, data: st.DataObject, end: End, drift: float) -> None:
        self.now += 1.0
        lease = data.draw(st.sampled_from(sorted(self.running)))
        if lease in self.stopping and end is End.FAILED:
            end = End.ABANDONED
        self.end(lease, end, drift)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.send(LeaseExpired(self.now, data.draw(st.sampled_from(sorted(self.running)))))

    @rule(index=st.sampled_from(range(len(MACHINES))))
    def join_again(self, index: int) -> None:
        self.join(index)

    @precondition(lambda self: self.joined)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        resource_id = data.draw(st.sampled_from(sorted(self.joined)))
        del self.joined[resource_id]
        self.forget(resource_id)
        self.send(ResourceLost(self.now, resource_id))

    @precondition(lambda self: self.timers)
    @rule()
    def fire(self) -> None:
        timer = self.timers.pop(0)
        self.now = max(self.now, timer.at)
        self.send(TimerFired(self.now, timer.timer))

    @precondition(lambda self: self.core.jobs)
    @rule(data=st.data(), what=st.sampled_from([JobCancelled, JobPaused, JobResumed]))
    def command(self, data: st.DataObject, what: type) -> None:
        self.send(what(self.now, data.draw(st.sampled_from(sorted(self.core.jobs)))))

    @invariant()
    def units_are_exclusive(self) -> None:
        held = [resource for _, resource in self.running.values()]
        for index, one in enumerate(held):
            for other in held[index + 1 :]:
                if one.units & other.units:
                    assert one.shareable
                    assert other.shareable
                assert not one.units & other.beside or one.shareable
                assert not one.beside & other.units or other.shareable

    @invariant()
    def no_stage_runs_twice_under_a_valid_lease(self) -> None:
        keys = [s.key for job in self.core.jobs.values() for s in job.stages() if s.lease]
        assert len(keys) == len(set(keys))

    def teardown(self) -> None:
        """With every machine back and nothing failing, every job comes to its end."""
        if not hasattr(self, "core"):
            return
        for index in range(len(MACHINES)):
            self.join(index)
        for job_id in list(self.core.jobs):
            self.send(JobResumed(self.now, job_id))
        for _ in range(10_000):
            if self.running:
                lease = min(self.running)
                self.end(lease, End.ABANDONED if lease in self.stopping else End.DONE)
            elif self.timers:
                self.fire()
            else:
                break
        assert not self.core.jobs, f"stuck: {self.core.story()}"
        assert self.finished == {f"j{n + 1}" for n in range(self.submitted)}


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=int(os.environ.get("TUNEFLEET_SEQUENCES", "150")),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
