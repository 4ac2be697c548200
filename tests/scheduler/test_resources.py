"""Which resource can start a stage: kept up to date, against looking at all of them."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.mock import device, host, job, run
from tunefleet.scheduler.names import SEQUENTIAL, SYNCHRONOUS
from tunefleet.scheduler.policies import POLICIES
from tunefleet.scheduler.resources import AWAY_S, Held, Resources, quarantine_s
from tunefleet.scheduler.values import Resource, Role

FLEET = (
    host("h0", "a"),
    host("h1", "b"),
    host("slots", "c", slots=2),
    device("d0", "a"),
    device("d1", "c"),
    Resource("may be shared", Role.DEVICE, "device", frozenset({"c"}), True, 2),
    Resource("launches", Role.DEVICE, "gpu", frozenset({"g"}), beside=frozenset({"a", "c"})),
    Resource("both", Role.DEVICE, "wide", frozenset({"a", "b", "c"})),
    Resource("two kinds", Role.DEVICE, "gpu", frozenset({"b"}), also="device"),
)
STAGE: Any = object()


def looked_up(resources: Resources, held: list[Held]) -> dict[Any, set[str]]:
    """What can start, found without the resources' own account."""
    found: dict[Any, set[str]] = {}
    for one in held:
        free = not one.suspended and len(one.leases) < one.resource.slots
        for other in held:
            if other.leases and other.resource.units & one.resource.units:
                free &= one.resource.shareable and other.resource.shareable
            if other.leases and other.resource.beside & one.resource.units:
                free &= one.resource.shareable
            if other.leases and other.resource.units & one.resource.beside:
                free &= other.resource.shareable
        if free:
            for pool in one.pools:
                found.setdefault(pool, set()).add(one.resource.resource_id)
    return found


@given(st.data())
def test_a_resource_is_offered_exactly_when_a_stage_can_start_on_it(data: st.DataObject) -> None:
    resources, present, lease = Resources(), dict[str, Held](), 0
    for step in range(data.draw(st.integers(1, 25))):
        resource = data.draw(st.sampled_from(FLEET), label=f"resource {step}")
        held = present.get(resource.resource_id)
        move = data.draw(st.sampled_from(["leave", "start", "release", "suspend", "resume"]))
        if held is None:
            resources.join(resource)
            joined = resources.get(resource.resource_id)
            assert joined is not None
            present[resource.resource_id] = joined
        elif move == "leave":
            resources.leave(present.pop(resource.resource_id))
        elif move == "start" and (startable := resources.startable(held.pools[-1])) is not None:
            lease += 1
            resources.start(startable, STAGE, lease)
        elif move == "release" and held.leases:
            touched = resources.release(held, next(iter(held.leases)))
            assert touched.issuperset(held.pools)
        elif move == "suspend":
            resources.suspend(held, "test")
        elif move == "resume":
            resources.resume(held)
        expected = looked_up(resources, list(present.values()))
        for pool in {pool for h in present.values() for pool in h.pools}:
            offered = resources.startable(pool)
            assert (offered is not None) == (pool in expected)
            assert offered is None or offered.resource.resource_id in expected[pool]


def test_what_comes_free_is_told_for_every_pool_that_shares_the_units() -> None:
    resources = Resources()
    for resource in FLEET:
        resources.join(resource)
    taken = resources.startable((Role.DEVICE, "wide"))
    assert taken is not None
    resources.start(taken, STAGE, 1)
    assert resources.startable((Role.HOST, "host")) is None
    assert resources.release(taken, 1) == {
        (Role.DEVICE, "wide"), (Role.HOST, "host"), (Role.DEVICE, "device"), (Role.DEVICE, "gpu"),
    }  # fmt: skip


def test_a_device_that_was_away_is_tried_where_no_other_is_free() -> None:
    resources = Resources()
    for name in ("d0", "d1"):
        resources.join(device(name))
    away, answers = resources.get("d0"), resources.get("d1")
    assert away is not None
    assert answers is not None
    resources.suspend(away, "test")
    quarantine_s(away, *AWAY_S)
    resources.start(answers, STAGE, 1)
    resources.resume(away)  # it is idle longer than the other
    assert away is resources.startable(away.pools[0])
    resources.release(answers, 1)
    assert answers is resources.startable(away.pools[0])


def test_units_used_beside_others_are_shared_and_taken_in_turn() -> None:
    """Two GPUs whose programs are launched from the cores that a processor is measured on."""
    cores, lanes = frozenset({"c0", "c1"}), {f"t{i}": 4 for i in range(6)}
    processor = Resource("d0", Role.DEVICE, "processor", cores)
    gpus = [
        Resource(name, Role.DEVICE, "gpu", frozenset({name}), beside=cores) for name in ("g0", "g1")
    ]
    for policy in POLICIES:
        events = [job(kind, lanes, device_kind=kind) for kind in ("gpu", "processor")]
        done = run(policy, [host(slots=8), processor, *gpus], events)
        spans = [s for s in done.spans if s.resource_id != "h0"]
        alone = [s for s in spans if s.resource_id == "d0"]
        others = [s for s in spans if s.resource_id != "d0"]
        assert (len(alone), len(others)) == (24, 24)
        for one in alone:
            assert all(one.end <= o.start or o.end <= one.start for o in others)
        if policy not in (SEQUENTIAL, SYNCHRONOUS):
            assert any(a.start < b.end and b.start < a.end for a, b in itertools.pairwise(others))
            middle = [s.resource_id == "d0" for s in sorted(spans, key=lambda s: s.start)][:24]
            assert 6 <= sum(middle) <= 18
