"""Quality of a schedule: a lower bound on its makespan, utilisation and waiting times."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tunefleet.core.stage import STAGE_ORDER, StageKind, WorkKind
from tunefleet.scheduler.durations import LaneName
from tunefleet.scheduler.lanes import Pool
from tunefleet.scheduler.simulator import Simulation, Span
from tunefleet.scheduler.values import Resource, Role


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on the makespan; `limit` names the pools or the lane that cause it."""

    seconds: float
    limit: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Quantiles of the seconds that stages waited while ready, each an observed value."""

    median_s: float
    p95_s: float


def lower_bound(simulation: Simulation) -> Bound:
    """The maximum of: the sequence of stages of each lane after its arrival, and for pools, and for
    groups of pools that share units, the time that the work of some lanes takes there.

    The latter counts arrivals. Let S be lanes, `head` a time before which none of their stages can
    start on the pools, and `tail` seconds that each of these lanes still takes after its last stage
    there. All stages of S on the pools run between `head` and the makespan less `tail`. By
    `_pool_seconds` that takes at least the seconds of their work when all resources are theirs, so
    head + seconds + tail is a bound for any S. S are the lanes whose head is at least a given one,
    for each lane's head, and those whose tail is at least a given one, for each lane's tail. The
    first kind says that the work of the jobs that come last cannot start before they come; all
    lanes together are of both kinds.
    """
    resources = list(simulation.resources.values())
    lanes = _lanes(simulation)
    bounds = [Bound(0.0, "nothing")]
    for pools in _groups(resources, dict.fromkeys(p for lane in lanes for p in lane.work)):
        name = " + ".join(sorted({kind for _, kind in pools}))
        occupations = [o for lane in lanes if (o := _occupation(lane, pools)) is not None]
        seconds = _pool_seconds(pools, resources)
        bounds += [Bound(end, name) for end in _ends(occupations, seconds)]
    bounds += [Bound(lane.arrival + lane.length, f"lane {lane.task_id}") for lane in lanes]
    return max(bounds, key=lambda bound: bound.seconds)


@dataclass(frozen=True, slots=True)
class _LaneWork:
    """What a lane ran. `first` and `last` are the pools and seconds of the stages of its first and
    last round in order, or empty where the round is not complete; `length` is its duration if it
    never waited."""

    task_id: str
    arrival: float
    work: Mapping[Pool, float]
    first: Sequence[tuple[Pool, float]]
    last: Sequence[tuple[Pool, float]]
    length: float


@dataclass(frozen=True, slots=True)
class _Occupation:
    """The work of a lane on some pools, between `head`, a time, and `tail`, seconds before the
    lane's end."""

    head: float
    tail: float
    work: Mapping[Pool, float]


def _lanes(simulation: Simulation) -> list[_LaneWork]:
    spans: dict[LaneName, list[Span]] = {}
    for span in simulation.spans:
        spans.setdefault((span.key.job_id, span.key.task_id), []).append(span)
    return [_lane(simulation, *name, of_lane) for name, of_lane in spans.items()]


def _lane(simulation: Simulation, job_id: str, task_id: str, spans: Sequence[Span]) -> _LaneWork:
    submitted = simulation.submitted[job_id]
    work: dict[Pool, float] = {}
    seconds: dict[tuple[int, WorkKind], float] = {}
    pool_of: dict[WorkKind, Pool] = {}
    for span in spans:
        pool = pool_of[span.kind] = _pool(simulation.resources[span.resource_id])
        took = span.end - span.start
        work[pool] = work.get(pool, 0.0) + took
        stage = (span.key.iteration, span.kind)
        seconds[stage] = seconds.get(stage, 0.0) + took
    order = submitted.request.order

    def round_of(iteration: int) -> list[tuple[Pool, float]]:
        complete = all((iteration, kind) in seconds for kind in order)
        return [(pool_of[k], seconds[iteration, k]) for k in order] if complete else []

    iterations = {iteration for iteration, _ in seconds}
    length = _with_lookahead if job_id in simulation.lookahead else _in_sequence
    return _LaneWork(
        task_id=task_id,
        arrival=submitted.at,
        work=work,
        first=round_of(min(iterations)),
        last=round_of(max(iterations)),
        length=length(seconds),
    )


def _occupation(lane: _LaneWork, pools: Collection[Pool]) -> _Occupation | None:
    """A lane's part in the work of pools, if it has one. With look-ahead too, no stage starts
    before the earlier ones of the first round are done, or ends after those that follow it in the
    last one: stages of one kind follow each other."""
    work = {pool: lane.work[pool] for pool in pools if pool in lane.work}
    if not work:
        return None
    head = lane.arrival + _seconds_until(lane.first, pools)
    return _Occupation(head, _seconds_until(lane.last[::-1], pools), work)


def _seconds_until(stages: Sequence[tuple[Pool, float]], pools: Collection[Pool]) -> float:
    """The seconds of the stages before the first one on the pools."""
    return sum(s for _, s in takewhile(lambda stage: stage[0] not in pools, stages))


def _ends(
    occupations: Sequence[_Occupation], seconds: Callable[[Mapping[Pool, float]], float]
) -> Iterator[float]:
    """A bound for each set of lanes; see `lower_bound`."""
    for by_head in (True, False):
        work: dict[Pool, float] = {}
        head = tail = math.inf
        for lane in sorted(occupations, key=lambda o: -(o.head if by_head else o.tail)):
            for pool, took in lane.work.items():
                work[pool] = work.get(pool, 0.0) + took
            head, tail = min(head, lane.head), min(tail, lane.tail)
            yield head + seconds(work) + tail


def _pool(resource: Resource) -> Pool:
    return resource.role, resource.kind


def _pool_seconds(
    pools: Sequence[Pool], resources: Sequence[Resource]
) -> Callable[[Mapping[Pool, float]], float]:
    """A function from the work of some pools to the least seconds that it takes.

    Weight each stage by the share of its pool that it occupies. Stages that run together never
    have a total weight above `most`, so the sum of all weighted seconds divided by it is a bound.
    """
    of_pools = [r for r in resources if _pool(r) in pools]
    slots = {p: _most([r for r in of_pools if _pool(r) == p], dict.fromkeys(pools, 1.0))
             for p in pools}  # fmt: skip
    most = _most(of_pools, {p: 1.0 / slots[p] for p in pools})
    return lambda work: sum(seconds / slots[p] for p, seconds in work.items()) / most


def _groups(resources: Sequence[Resource], working: Collection[Pool]) -> Iterator[list[Pool]]:
    """Each pool with work, and each group of pools whose resources share units."""
    yield from ([pool] for pool in working)
    linked: list[set[Pool]] = []
    for machine in _machines([r for r in resources if _pool(r) in working]):
        group = {_pool(r) for r in machine}
        for other in [g for g in linked if g & group]:
            linked.remove(other)
            group |= other
        linked.append(group)
    yield from (sorted(group) for group in linked if len(group) > 1)


def _machines(resources: Iterable[Resource]) -> list[list[Resource]]:
    """Connected components of resources that share units."""
    machine_of: dict[str, list[Resource]] = {}
    for resource in resources:
        units = {*resource.units, resource.resource_id}  # it may own no shared units
        met = {id(m): m for m in (machine_of.get(unit) for unit in units) if m is not None}
        machine = [resource, *(member for others in met.values() for member in others)]
        for member in machine:
            machine_of.update(dict.fromkeys((*member.units, member.resource_id), machine))
    return list({id(machine): machine for machine in machine_of.values()}.values())


def _most(resources: Iterable[Resource], weights: Mapping[Pool, float]) -> float:
    """The maximum total weight of stages that can run together."""
    return sum(_most_of_machine(machine, weights) for machine in _machines(resources))


def _most_of_machine(machine: Sequence[Resource], weights: Mapping[Pool, float]) -> float:
    disputed = max(machine, key=lambda r: _rivals(r, machine))
    if not _rivals(disputed, machine):
        return sum(r.slots * weights[_pool(r)] for r in machine)
    others = [r for r in machine if r is not disputed]
    beside = [r for r in others if not _exclude(r, disputed)]
    with_it = disputed.slots * weights[_pool(disputed)] + _most(beside, weights)
    return max(with_it, _most(others, weights))


def _rivals(resource: Resource, machine: Sequence[Resource]) -> int:
    return sum(_exclude(resource, r) for r in machine if r is not resource)


def _exclude(one: Resource, other: Resource) -> bool:
    return bool(one.units & other.units) and not (one.shareable and other.shareable)


def _in_sequence(seconds: Mapping[tuple[int, WorkKind], float]) -> float:
    return sum(seconds.values())


def _with_lookahead(seconds: Mapping[tuple[int, WorkKind], float]) -> float:
    """The length of a lane with look-ahead: a stage follows its predecessor in the round and the
    same stage of the previous round; a select follows the build of the previous round."""
    before = dict.fromkeys(STAGE_ORDER, 0.0)
    for iteration in sorted({i for i, _ in seconds}):
        before[StageKind.SELECT] = before[StageKind.BUILD]
        end = 0.0
        for kind in STAGE_ORDER:
            end = max(end, before[kind]) + seconds.get((iteration, kind), 0.0)
            before[kind] = end
    return max(before.values())


def utilisation(simulation: Simulation) -> dict[str, float]:
    """The busy share of the makespan by resource id, averaged over the resource's slots."""
    whole = simulation.makespan_s
    busy = dict.fromkeys(simulation.resources, 0.0)
    for span in simulation.spans:
        busy[span.resource_id] += span.end - span.start
    slots = {name: resource.slots for name, resource in simulation.resources.items()}
    return {name: s / (whole * slots[name]) if whole else 0.0 for name, s in busy.items()}


def role_utilisation(simulation: Simulation) -> dict[Role, float]:
    """Mean utilisation over the slots of all hosts, and of all devices."""
    shares = utilisation(simulation)
    by_role = {}
    for role in Role:
        of_role = [r for r in simulation.resources.values() if r.role is role]
        slots = sum(r.slots for r in of_role)
        busy = sum(shares[r.resource_id] * r.slots for r in of_role)
        by_role[role] = busy / slots if slots else 0.0
    return by_role


def waiting(waited_s: Iterable[float]) -> Waiting:
    waits = sorted(waited_s)
    if not waits:
        return Waiting(0.0, 0.0)
    return Waiting(*(waits[math.ceil(share * len(waits)) - 1] for share in (0.5, 0.95)))


def completion_s(simulation: Simulation) -> dict[str, float]:
    """Seconds from the submission of each job to its end."""
    ends = simulation.finished_at.items()
    return {job: end - simulation.submitted[job].at for job, end in ends}
