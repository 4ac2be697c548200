"""The state of several networks that are tuned at once: no clock, no terminal, only sums."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tunefleet.cli.progress import NOTES, Progress, Running
from tunefleet.cli.usage import Usage
from tunefleet.core.events import Event, ResourceBack, ResourceQuarantined


@dataclass(frozen=True, slots=True)
class Told:
    """A note with the network it is about; empty where that goes without saying."""

    network: str
    text: str
    warning: bool

    def line(self, plain: str = "") -> str:
        """The note as a line; `plain` stands before one that is no warning."""
        name = f"{self.network}: " if self.network else ""
        return f"{name}{'warning: ' if self.warning else plain}{self.text}"


class Overview:
    """What a watcher may want to know of all networks and of the resources they share.

    Times are `now` of whoever calls, in seconds.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        """`networks` are what each is called where there are several."""
        self.jobs = [Progress(name) for name in networks]
        self.usage = Usage()
        self.began: float | None = None
        self.notes: deque[Told] = deque(maxlen=NOTES)
        #: Until when each resource rests that is quarantined.
        self.resting: dict[str, tuple[ResourceQuarantined, float]] = {}

    def absorb(self, index: int, event: Event, now: float) -> Told | None:
        """Take an event of a network into account; returns what a user should be told of it.

        What is said of a resource may come with the events of every network and is told once.
        """
        self.began = now if self.began is None else self.began
        note = self.jobs[index].absorb(event, now)
        self.usage = self.usage.after(frozenset(self.resources()), now)
        about_job = True
        if isinstance(event, ResourceQuarantined):
            about_job, known = False, self._rests(event, now)
            self.resting[event.resource_id] = (event, now + event.seconds)
            if known:
                return None
        elif isinstance(event, ResourceBack):
            about_job = False
            if self.resting.pop(event.resource_id, None) is None:
                return None
        if note is None:
            return None
        told = Told(self.name(index) if about_job else "", note.text, note.warning)
        self.notes.append(told)
        return told

    def name(self, index: int) -> str:
        """What tells a network from the others; empty for the only one."""
        return self.jobs[index].network if len(self.jobs) > 1 else ""

    def resources(self) -> dict[str, list[tuple[Progress, Running]]]:
        """The stages that run now, by resource."""
        by_resource: dict[str, list[tuple[Progress, Running]]] = {}
        for job in self.jobs:
            for stage in job.running.values():
                by_resource.setdefault(stage.resource_id, []).append((job, stage))
        return by_resource

    @property
    def measuring(self) -> bool:
        """Whether a device measures now."""
        return any(job.measuring for job in self.jobs)

    def left_s(self, now: float) -> float | None:
        """Time until the last network is tuned, or None while that of one is unknown."""
        times = [job.tuning_left_s(now) for job in self.jobs if job.ended is None]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    def _rests(self, event: ResourceQuarantined, now: float) -> bool:
        known, until = self.resting.get(event.resource_id, (None, 0.0))
        return known == event and now < until


def short_names(networks: Sequence[str]) -> list[str]:
    """Networks without `zoo:` and directories if that tells them apart; one alone as it is."""
    if len(networks) == 1:
        return list(networks)
    short = [name.removeprefix("zoo:").rsplit("/", 1)[-1] for name in networks]
    return short if len(set(short)) == len(short) else list(networks)
