"""Small mixes of mock jobs for the scheduler's tests."""

from __future__ import annotations

from collections.abc import Mapping

from tunefleet.core.stage import StageKey, StageKind
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.plan import FixedPlan
from tunefleet.scheduler.policies import POLICIES
from tunefleet.scheduler.simulator import Durations, Simulation, simulate
from tunefleet.scheduler.values import (
    Event,
    JobRequest,
    JobSubmitted,
    Resource,
    ResourceJoined,
    Role,
)

#: The thesis's mean durations: select and update took 44 s together.
THESIS = {
    StageKind.SELECT: 22.0,
    StageKind.BUILD: 8.3,
    StageKind.PROFILE: 39.5,
    StageKind.UPDATE: 22.0,
}


def host(name: str = "h0", units: str = "", slots: int = 1) -> Resource:
    return Resource(name, Role.HOST, "host", frozenset([units or name]), slots > 1, slots)


def device(name: str = "d0", units: str = "") -> Resource:
    return Resource(name, Role.DEVICE, "device", frozenset([units or name]))


def job(name: str, lanes: Mapping[str, int], **options: object) -> JobSubmitted:
    return JobSubmitted(0.0, JobRequest(name, FixedPlan(lanes), **options))  # type: ignore[arg-type]


def thesis_seconds(key: StageKey) -> float:
    return THESIS[StageKind(key.kind)]


def run(
    policy: str,
    resources: list[Resource],
    jobs: list[JobSubmitted],
    durations: Durations = thesis_seconds,
) -> Simulation:
    arrivals: list[Event] = [ResourceJoined(0.0, r) for r in resources]
    return simulate(Scheduler(POLICIES[policy]()), [*arrivals, *jobs], durations)
