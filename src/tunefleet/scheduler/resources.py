"""State of the resources: free, held, or quarantined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tunefleet.scheduler.exclusivity import Ledger
from tunefleet.scheduler.lanes import Pool, Stage
from tunefleet.scheduler.values import Resource, Role

#: Consecutive failures, of more than one lane, after which a resource is quarantined.
_FAILURES = 3
#: Consecutive disturbed profile stages (reference kernel drift above the job's limit) after which a
#: device is quarantined.
_DRIFTS = 3
#: First and longest quarantine in seconds: after failures, after disturbed measurements, and for a
#: device that did not answer (the worker has already waited for that one). Each further quarantine
#: is twice as long, until a stage succeeds.
_FAILING_S = (60.0, 3600.0)
_DISTURBED_S = (5.0, 80.0)
AWAY_S = (2.0, 60.0)
#: Most consecutive quarantines after disturbed measurements, two and a half minutes in total. A
#: longer disturbance would stop a search for hours.
_MAX_DRIFT_QUARANTINES = 5


class Held:
    """A resource with its running stages and its recent failures."""

    __slots__ = ("drift_quarantines", "drifts", "failed_lanes", "failures", "last_lease", "leases",
                 "pools", "quarantines", "resource", "sharers", "suspended", "touched",
                 "until")  # fmt: skip

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        kinds = (resource.kind, resource.also) if resource.also else (resource.kind,)
        self.pools: tuple[Pool, ...] = tuple((resource.role, kind) for kind in kinds)
        self.leases: dict[int, Stage] = {}
        #: That of the stage which started last.
        self.last_lease = 0
        #: Itself and the resources that share a unit with it.
        self.sharers: list[Held] = [self]
        #: The pools of these: where a stage may start when it frees its units.
        self.touched: set[Pool] = set(self.pools)
        self.failures = 0
        self.failed_lanes: set[tuple[str, str]] = set()
        self.drifts = 0
        self.quarantines = 0
        #: Quarantines for disturbed measurements since the last undisturbed one.
        self.drift_quarantines = 0
        self.until = 0.0
        #: The reason why no stage may start here now, or "".
        self.suspended = ""

    def share(self, other: Held) -> None:
        self.sharers.append(other)
        self.touched.update(other.pools)

    def part(self, other: Held) -> None:
        self.sharers.remove(other)
        self.touched = {pool for held in self.sharers for pool in held.pools}


class Resources:
    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._ledger = Ledger()
        #: Resources on which a stage can start now, by pool.
        self._idle: dict[Pool, dict[str, Held]] = {}
        self._owners: dict[str, dict[str, Held]] = {}
        self._of_pool: dict[Pool, int] = {}
        #: The lease of the stage which started last in a pool.
        self._last_lease: dict[Pool, int] = {}
        #: Whether a resource uses units beside its own.
        self.any_beside = False

    def join(self, resource: Resource) -> Held:
        held = Held(resource)
        self._held[resource.resource_id] = held
        # Sorted: the order of a set of names differs between processes.
        units = sorted(resource.units | resource.beside)
        owners = [self._owners.setdefault(unit, {}) for unit in units]
        for other in {name: o for of_unit in owners for name, o in of_unit.items()}.values():
            held.share(other)
            other.share(held)
        for of_unit in owners:
            of_unit[resource.resource_id] = held
        for pool in held.pools:
            self._of_pool[pool] = self._of_pool.get(pool, 0) + 1
            self._idle.setdefault(pool, {})
        self.any_beside |= bool(resource.beside)
        self._settle(held)
        return held

    def leave(self, held: Held) -> set[Pool]:
        """Remove a resource; returns the pools in which a stage may now start."""
        resource_id = held.resource.resource_id
        del self._held[resource_id]
        for _ in held.leases:
            self._ledger.release(held.resource)
        for unit in held.resource.units | held.resource.beside:
            del self._owners[unit][resource_id]
        for pool in held.pools:
            self._idle[pool].pop(resource_id, None)
            self._of_pool[pool] -= 1
        for other in held.sharers:
            if other is not held:
                other.part(held)
                self._settle(other)
        return held.touched

    def get(self, resource_id: str) -> Held | None:
        return self._held.get(resource_id)

    def count(self, pool: Pool) -> int:
        return self._of_pool.get(pool, 0)

    def pools(self) -> list[Pool]:
        return list(self._idle)

    def startable(self, pool: Pool) -> Held | None:
        """A resource of the pool on which a stage can start now. A resource without a success since
        its quarantine comes last: if it is a device that still does not answer, the stage waits for
        it before it moves elsewhere."""
        idle = self._idle.get(pool)
        if not idle:
            return None
        first = next(iter(idle.values()))
        return first if not first.quarantines else min(idle.values(), key=lambda h: h.quarantines)

    def in_turn(self, pools: Iterable[Pool]) -> list[Pool]:
        """Devices first, and of these the one on which no stage has started for longest."""
        pools = list(pools)
        if len(pools) < 2:
            return pools
        return sorted(pools, key=lambda p: (p[0] is not Role.DEVICE, self._last_lease.get(p, 0), p))

    def overtaken(self, held: Held) -> Iterator[Pool]:
        """The pools of resources that would wait once more for units which `held` uses beside its
        own: they are not free, and `held` has started a stage since theirs."""
        for other in held.sharers:
            wanted = not other.resource.shareable and other.resource.units & held.resource.beside
            waits = not (other.leases or other.suspended or self._ledger.free(other.resource))
            if wanted and waits and other.last_lease < held.last_lease:
                yield from other.pools

    def start(self, held: Held, stage: Stage, lease: int) -> None:
        self._ledger.take(held.resource)
        held.leases[lease] = stage
        held.last_lease = lease
        for pool in held.pools:
            self._last_lease[pool] = lease
        self._settle_all(held)

    def release(self, held: Held, lease: int) -> set[Pool]:
        """Free a slot; returns the pools in which a stage may now start."""
        del held.leases[lease]
        self._ledger.release(held.resource)
        return self._settle_all(held)

    def suspend(self, held: Held, reason: str) -> None:
        held.suspended = reason
        self._settle(held)

    def resume(self, held: Held) -> set[Pool]:
        held.suspended = ""
        held.failures = held.drifts = 0
        held.failed_lanes.clear()
        return self._settle_all(held)

    def _settle_all(self, held: Held) -> set[Pool]:
        for other in held.sharers:
            self._settle(other)
        return held.touched

    def _settle(self, held: Held) -> None:
        """List the resource as idle if and only if a stage could start on it."""
        resource = held.resource
        room = len(held.leases) < resource.slots and not held.suspended
        starts = room and self._ledger.free(resource)
        for pool in held.pools:
            if starts:
                self._idle[pool].setdefault(resource.resource_id, held)
            else:
                self._idle[pool].pop(resource.resource_id, None)

    def judge(self, held: Held, stage: Stage, failed: bool, drifted: bool) -> str:
        """Count a stage's outcome; returns the reason to quarantine the resource, or ""."""
        if failed:
            held.failures += 1
            held.failed_lanes.add((stage.job.job_id, stage.lane.task_id))
            # One lane that fails everywhere is a bad lane, not a bad machine.
            if held.failures >= _FAILURES and len(held.failed_lanes) > 1:
                return f"{held.failures} stages of {len(held.failed_lanes)} tasks failed in a row"
            return ""
        held.failures = 0
        held.failed_lanes.clear()
        if not drifted:
            held.drifts = held.quarantines = held.drift_quarantines = 0
            return ""
        held.drifts += 1
        if held.drifts < _DRIFTS or held.drift_quarantines == _MAX_DRIFT_QUARANTINES:
            return ""
        held.drift_quarantines += 1
        reason = (
            "another program may be slowing the device: its reference kernel moved in "
            f"{held.drifts} batches in a row"
        )
        if held.drift_quarantines == _MAX_DRIFT_QUARANTINES:
            reason += "; if this continues, measuring goes on, and records keep the drift"
        return reason


def complaint_s(held: Held) -> tuple[float, float]:
    """The first and the longest quarantine for a reason given by `judge`."""
    return _FAILING_S if held.failures else _DISTURBED_S


def quarantine_s(held: Held, first_s: float, longest_s: float) -> float:
    """Seconds of the next quarantine; doubles each time."""
    held.quarantines += 1
    return min(first_s * 2.0 ** (held.quarantines - 1), longest_s)
