"""Estimated remaining work of jobs, and how much of it goes before a job if shorter ones do."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunefleet.scheduler.lanes import Lane

#: How many hosts and devices there are.
MachineCounts = tuple[int, int]


@dataclass(slots=True)
class Pace:
    """When a lane started, and with which iteration, and its remaining seconds. `due` is that of
    its last profile or update; the select and the build that follow keep it."""

    start: float
    first: int
    due: float = 0.0
    host_s: float = 0.0
    device_s: float = 0.0


@dataclass(slots=True, eq=False)
class JobLoad:
    """Remaining seconds of a job on hosts and devices, and those of the shorter jobs of its group
    (`ahead`). `longest_s` is its longest lane. Both of the latter are those of the last
    `LoadGroup.rank`."""

    group: LoadGroup
    paces: dict[Lane, Pace] = field(default_factory=dict)
    host_s: float = 0.0
    device_s: float = 0.0
    longest_s: float = 0.0
    ahead_host_s: float = 0.0
    ahead_device_s: float = 0.0

    def open(self, lane: Lane, now: float, iteration: int) -> Pace:
        pace = self.paces[lane] = Pace(now, iteration)
        self.group.lanes += 1
        return pace

    def account(self, pace: Pace, host_s: float, device_s: float) -> None:
        """The remaining seconds of one of its lanes."""
        host_change, device_change = host_s - pace.host_s, device_s - pace.device_s
        self.host_s += host_change
        self.device_s += device_change
        self.group.host_s += host_change
        self.group.device_s += device_change
        self.group.changes += 1
        pace.host_s, pace.device_s = host_s, device_s

    def alone_s(self, counts: MachineCounts) -> float:
        """Seconds that the job takes with all machines to itself."""
        hosts, devices = counts
        return max(self.longest_s, self.host_s / hosts, self.device_s / devices)

    def end_s(self, counts: MachineCounts, share: float) -> float:
        """Seconds until the job ends on a share of the machines if shorter jobs go first."""
        hosts, devices = counts
        self.group.rank(counts)
        return max(
            self.longest_s,
            (self.ahead_host_s + self.host_s) / (hosts * share),
            (self.ahead_device_s + self.device_s) / (devices * share),
        )


class LoadGroup:
    """Jobs that compete for the same machines and share."""

    __slots__ = ("changes", "device_s", "host_s", "jobs", "lanes")

    def __init__(self) -> None:
        self.jobs: dict[JobLoad, None] = {}
        self.host_s = 0.0
        self.device_s = 0.0
        self.lanes = 0
        #: Changes of a lane since the last `rank`.
        self.changes = 0

    def join(self) -> JobLoad:
        """A job goes last until it is ranked."""
        load = JobLoad(self, ahead_host_s=self.host_s, ahead_device_s=self.device_s)
        self.jobs[load] = None
        return load

    def leave(self, load: JobLoad) -> None:
        del self.jobs[load]
        self.lanes -= len(load.paces)
        self.host_s -= load.host_s
        self.device_s -= load.device_s

    def end_s(self, counts: MachineCounts, share: float) -> float:
        """Seconds until all jobs end on a share of the machines."""
        hosts, devices = counts
        return max(self.host_s / (hosts * share), self.device_s / (devices * share))

    def rank(self, counts: MachineCounts) -> None:
        """Order the jobs by their remaining seconds: after as many changes as they have lanes, so
        that the cost of a change does not grow with their number."""
        if self.changes < self.lanes:
            return
        self.changes = 0
        for load in self.jobs:
            load.longest_s = max(
                (pace.host_s + pace.device_s for pace in load.paces.values()), default=0.0
            )
        host_s = device_s = 0.0
        for load in sorted(self.jobs, key=lambda load: load.alone_s(counts)):
            load.ahead_host_s, load.ahead_device_s = host_s, device_s
            host_s += load.host_s
            device_s += load.device_s
