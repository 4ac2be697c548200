"""Quality of a schedule: a lower bound on its makespan, utilisation and waiting times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tunefleet.core.stage import STAGE_ORDER, StageKind, WorkKind
from tunefleet.scheduler.durations import LaneName
from tunefleet.scheduler.lanes import Pool
from tunefleet.scheduler.simulator import Simulation
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
    """The maximum of: the work of each pool divided over its resources, the work of pools that
    share units, and the sequence of stages of each lane."""
    work = _work(simulation)
    resources = list(simulation.resources.values())
    bounds = [Bound(0.0, "nothing")]
    for pools in _groups(resources, work):
        name = " + ".join(sorted({kind for _, kind in pools}))
        bounds.append(Bound(_pool_seconds(pools, work, resources), name))
    bounds += [Bound(end, f"lane {task}") for (_, task), end in _lane_ends(simulation).items()]
    return max(bounds, key=lambda bound: bound.seconds)


def _work(simulation: Simulation) -> dict[Pool, float]:
    work: dict[Pool, float] = {}
    for span in simulation.spans:
        pool = _pool(simulation.resources[span.resource_id])
        work[pool] = work.get(pool, 0.0) + span.end - span.start
    return work


def _pool(resource: Resource) -> Pool:
    return resource.role, resource.kind


def _pool_seconds(
    pools: Sequence[Pool], work: Mapping[Pool, float], resources: Sequence[Resource]
) -> float:
    """The minimum number of seconds for the work of some pools.

    Weight each stage by the share of its pool that it occupies. Stages that run together never
    have a total weight above `most`, so the sum of all weighted seconds divided by it is a bound.
    """
    of_pools = [r for r in resources if _pool(r) in pools]
    slots = {p: _most([r for r in of_pools if _pool(r) == p], dict.fromkeys(pools, 1.0))
             for p in pools}  # fmt: skip
    most = _most(of_pools, {p: 1.0 / slots[p] for p in pools})
    return sum(work[p] / slots[p] for p in pools) / most


def _groups(resources: Sequence[Resource], work: Mapping[Pool, float]) -> Iterator[list[Pool]]:
    """Each pool with work, and each group of pools whose resources share units."""
    yield from ([pool] for pool in work)
    linked: list[set[Pool]] = []
    for machine in _machines([r for r in resources if _pool(r) in work]):
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


def _lane_ends(simulation: Simulation) -> dict[LaneName, float]:
    """The end of each lane if it never waited."""
    seconds: dict[LaneName, dict[tuple[int, WorkKind], float]] = {}
    for span in simulation.spans:
        key = span.key
        of_lane = seconds.setdefault((key.job_id, key.task_id), {})
        stage = (key.iteration, key.kind)
        of_lane[stage] = of_lane.get(stage, 0.0) + span.end - span.start
    ends = {}
    for (job, task), of_lane in seconds.items():
        length = _with_lookahead if job in simulation.lookahead else _in_sequence
        ends[job, task] = simulation.submitted[job].at + length(of_lane)
    return ends


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
