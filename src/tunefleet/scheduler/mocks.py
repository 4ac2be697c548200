"""Mock fleets and mock jobs for the simulator."""

from __future__ import annotations

from collections.abc import Mapping

from tunefleet.scheduler.durations import LaneName
from tunefleet.scheduler.plan import FixedPlan
from tunefleet.scheduler.values import JobRequest, JobSubmitted, Resource, ResourceJoined, Role


def mock_fleet(
    hosts: int, devices: int, *, shared: bool = False, at_once: int = 1
) -> list[ResourceJoined]:
    """Resources that join at time 0. Each is on a separate machine; with `shared`, the host and the
    device with equal index are on the same machine. With `at_once` above 1, so many stages run
    together on each resource."""
    may_share = at_once > 1
    apart = "" if shared else "host of "
    resources = [
        Resource(
            f"host{i}", Role.HOST, "host", frozenset({f"{apart}machine{i}"}), may_share, at_once
        )
        for i in range(hosts)
    ]
    resources += [
        Resource(
            f"device{i}", Role.DEVICE, "device", frozenset({f"machine{i}"}), may_share, at_once
        )
        for i in range(devices)
    ]
    return [ResourceJoined(0.0, resource) for resource in resources]


def mock_jobs(
    rounds: Mapping[LaneName, int], *, lookahead: bool | None = None
) -> list[JobSubmitted]:
    """Jobs submitted at time 0 whose lanes run `rounds` rounds each."""
    lanes: dict[str, dict[str, int]] = {}
    for (job, task), count in rounds.items():
        lanes.setdefault(job, {})[task] = count
    return [
        JobSubmitted(0.0, JobRequest(job, FixedPlan(of_job), lookahead=lookahead))
        for job, of_job in lanes.items()
    ]


def lane_names(jobs: int, lanes: int) -> list[LaneName]:
    """The names of the lanes of `jobs` jobs with `lanes` lanes each."""
    return [(f"job{j}", f"job{j}.task{n}") for j in range(jobs) for n in range(lanes)]
