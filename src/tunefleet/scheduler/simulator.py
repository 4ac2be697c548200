"""Runs the scheduler under a virtual clock with mock jobs and given durations."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunefleet.core.stage import StageKey, WorkKind
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.values import (
    AbandonStage,
    End,
    Event,
    FinishJob,
    JobSubmitted,
    Resource,
    ResourceJoined,
    SetTimer,
    StageFinished,
    StartStage,
    TimerFired,
)

#: Duration of a stage in seconds.
Durations = Callable[[StageKey], float]


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt of a stage on one resource, in seconds of the simulated clock.

    `waited_s` is how long the stage was ready before it started.
    """

    key: StageKey
    resource_id: str
    start: float
    end: float
    waited_s: float = 0.0
    attempt: int = 1

    @property
    def kind(self) -> WorkKind:
        return self.key.kind


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result of a simulation; `resources` and `submitted` are its inputs by id. `lookahead` are
    the jobs whose lanes may look ahead."""

    resources: dict[str, Resource]
    submitted: dict[str, JobSubmitted]
    lookahead: frozenset[str]
    spans: tuple[Span, ...]
    finished: dict[str, FinishJob]
    finished_at: dict[str, float]
    events: int

    @property
    def makespan_s(self) -> float:
        return max((span.end for span in self.spans), default=0.0)


def simulate(
    scheduler: Scheduler, arrivals: Sequence[Event], durations: Durations, *, keep: bool = True
) -> Simulation:
    """Run until no event is left. `arrivals` are jobs and resources with their times."""
    clock: list[tuple[float, int, Event]] = []
    sequence = 0
    for event in arrivals:
        sequence += 1
        heapq.heappush(clock, (event.at, sequence, event))
    resources = {
        e.resource.resource_id: e.resource for e in arrivals if isinstance(e, ResourceJoined)
    }
    submitted = {e.request.job_id: e for e in arrivals if isinstance(e, JobSubmitted)}
    lookahead = frozenset(j for j, e in submitted.items() if scheduler.looks_ahead(e.request))
    running: dict[int, tuple[StartStage, float]] = {}
    spans: list[Span] = []
    finished: dict[str, FinishJob] = {}
    finished_at: dict[str, float] = {}
    events = 0
    while clock:
        now, _, event = heapq.heappop(clock)
        if isinstance(event, StageFinished):
            ran = running.pop(event.lease, None)
            if ran is None:
                continue  # already abandoned
            if keep:
                begun, start = ran
                spans.append(
                    Span(begun.key, begun.resource_id, start, now, begun.waited_s, begun.attempt)
                )
        events += 1
        for instruction in scheduler.handle(event):
            sequence += 1
            later: Event
            if isinstance(instruction, StartStage):
                key, lease = instruction.key, instruction.lease
                running[lease] = (instruction, now)
                seconds = durations(key)
                later = StageFinished(now + seconds, key, lease, End.DONE, seconds)
            elif isinstance(instruction, AbandonStage):
                later = StageFinished(now, instruction.key, instruction.lease, End.ABANDONED, 0.0)
            elif isinstance(instruction, SetTimer):
                later = TimerFired(instruction.at, instruction.timer)
            else:
                if isinstance(instruction, FinishJob):
                    finished[instruction.job_id] = instruction
                    finished_at[instruction.job_id] = now
                continue
            heapq.heappush(clock, (later.at, sequence, later))
    return Simulation(resources, submitted, lookahead, tuple(spans), finished, finished_at, events)
