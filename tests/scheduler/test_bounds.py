"""What no policy can beat: by hand for small cases, against every policy for random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.mock import THESIS, device, host, job, run
from tunefleet.core.stage import STAGE_ORDER, StageKind
from tunefleet.scheduler.bounds import (
    completion_s,
    lower_bound,
    role_utilisation,
    utilisation,
    waiting,
)
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.durations import Replay
from tunefleet.scheduler.mocks import lane_names, mock_fleet, mock_jobs
from tunefleet.scheduler.policies import POLICIES
from tunefleet.scheduler.simulator import simulate
from tunefleet.scheduler.values import JobSubmitted, Resource, ResourceJoined, Role

ROUND_S = sum(THESIS.values())
PROFILE_S = THESIS[StageKind.PROFILE]
HOST_S = ROUND_S - PROFILE_S


def jobs(count: int, rounds: int = 2, **options: Any) -> list[Any]:
    return [job(f"j{n}", {f"t{n}": rounds}, **options) for n in range(count)]


def test_one_lane_is_bound_by_its_own_length() -> None:
    bound = lower_bound(run("interleaved", [host(), device()], jobs(1)))
    assert (bound.seconds, bound.limit) == (pytest.approx(2 * ROUND_S), "lane t0")


def test_many_lanes_are_bound_by_the_host() -> None:
    bound = lower_bound(run("interleaved", [host(), device()], jobs(4)))
    assert (bound.seconds, bound.limit) == (pytest.approx(8 * HOST_S), "host")


def test_more_hosts_leave_the_device_as_the_bound() -> None:
    bound = lower_bound(run("interleaved", [host("h0"), host("h1"), device()], jobs(4)))
    before, after = THESIS[StageKind.SELECT] + THESIS[StageKind.BUILD], THESIS[StageKind.UPDATE]
    least = before + 8 * PROFILE_S + after
    assert (bound.seconds, bound.limit) == (pytest.approx(least), "device")


def test_slots_count_as_so_many_hosts() -> None:
    bound = lower_bound(run("interleaved", [host(slots=3), device()], jobs(9)))
    before, after = THESIS[StageKind.SELECT] + THESIS[StageKind.BUILD], THESIS[StageKind.UPDATE]
    assert bound.seconds == pytest.approx(max(18 * HOST_S / 3, before + 18 * PROFILE_S + after))


def test_host_and_device_on_the_same_cores_add_up() -> None:
    found = run("interleaved", [host(units="c"), device(units="c")], jobs(3))
    bound = lower_bound(found)
    assert (bound.seconds, bound.limit) == (pytest.approx(6 * ROUND_S), "device + host")
    assert found.makespan_s == pytest.approx(bound.seconds)


def test_only_the_machines_that_are_shared_add_up() -> None:
    """Two machines, one of them host and device: at most one host stage beside each profile."""
    fleet = [host("h0", "a"), host("h1", "b"), device("d0", "a")]
    work = 8 * HOST_S, 8 * PROFILE_S
    bound = lower_bound(run("interleaved", fleet, jobs(4)))
    # Host work counts half, profiles whole; at any moment at most 1.5 of it can run.
    assert bound.seconds >= max(work[0] / 2, work[1], (work[0] / 2 + work[1]) / 1.5)
    assert bound.seconds == pytest.approx(ROUND_S - PROFILE_S + work[1])


def test_a_host_that_shares_cores_with_several_devices_is_counted_once() -> None:
    """While the host builds, neither device runs; while they run, it does not build."""
    fleet = [
        Resource("h", Role.HOST, "host", frozenset({"a", "b"})),
        device("d0", "a"),
        device("d1", "b"),
    ]
    bound = lower_bound(run("interleaved", fleet, jobs(4)))
    assert bound.seconds == pytest.approx(8 * HOST_S + 8 * PROFILE_S / 2)


def test_with_lookahead_a_lane_is_as_long_as_its_longest_chain() -> None:
    found = run("interleaved", [host("h0"), host("h1"), device()], jobs(1, 10, lookahead=True))
    # The profiles follow each other; before them the first batch, after them the last update.
    first, last = THESIS[StageKind.SELECT] + THESIS[StageKind.BUILD], THESIS[StageKind.UPDATE]
    assert lower_bound(found).seconds == pytest.approx(first + 10 * PROFILE_S + last)
    assert found.makespan_s == pytest.approx(lower_bound(found).seconds)


def test_nothing_is_bound_by_nothing() -> None:
    assert lower_bound(run("interleaved", [host()], [])).seconds == 0.0


def test_what_arrives_late_cannot_start_before() -> None:
    mix = [job("early", {"e": 1}), *(at(1000.0, job(f"late{n}", {f"l{n}": 1})) for n in range(3))]
    bound = lower_bound(run("interleaved", [host(), device()], mix))
    before, after = THESIS[StageKind.SELECT] + THESIS[StageKind.BUILD], THESIS[StageKind.UPDATE]
    least = 1000.0 + before + 3 * PROFILE_S + after
    assert (bound.seconds, bound.limit) == (pytest.approx(least), "device")


def at(moment: float, event: JobSubmitted) -> JobSubmitted:
    return replace(event, at=moment)


@settings(max_examples=100)
@given(
    rounds=st.lists(st.tuples(*[st.integers(1, 9)] * 4), min_size=2, max_size=3),
    arrivals=st.lists(st.integers(0, 30), min_size=3, max_size=3),
    fleet=st.sampled_from([(1, 1, False), (2, 1, False), (1, 2, False), (1, 1, True)]),
)
def test_no_schedule_beats_the_bound_of_jobs_that_arrive(
    rounds: list[Any], arrivals: list[int], fleet: tuple[int, int, bool]
) -> None:
    """Against all schedules: in some order of the stages, each starts as early as it can."""
    names = [(f"j{n}", f"t{n}") for n in range(len(rounds))]
    replay = Replay({name: (r,) for name, r in zip(names, rounds, strict=True)})
    jobs_of = mock_jobs(dict.fromkeys(names, 1))
    mix = [at(moment, event) for moment, event in zip(arrivals, jobs_of, strict=False)]
    hosts, devices, shared = fleet
    found = simulate(
        Scheduler(POLICIES["interleaved"]()), [*mock_fleet(hosts, devices, shared=shared), *mix],
        replay,
    )  # fmt: skip
    free_hosts, free_devices = [0] * hosts, [0] * devices
    least = least_makespan(
        rounds, tuple(arrivals), (0,) * len(rounds), free_hosts, free_devices, shared
    )
    assert lower_bound(found).seconds <= least <= found.makespan_s


def least_makespan(
    rounds: list[Any], ready: tuple[int, ...], done: tuple[int, ...],
    hosts: list[int], devices: list[int], shared: bool,
) -> int:  # fmt: skip
    """The least end of lanes of one round that are `ready` at these times with so many stages
    `done`, on resources that are free at the times given."""
    ends = [moment for moment, count in zip(ready, done, strict=False) if count == 4]
    found = []
    for lane, count in enumerate(done):
        if count == 4:
            continue
        places = [list(hosts), list(devices)]
        of_role = places[STAGE_ORDER[count] is StageKind.PROFILE]
        start = max(ready[lane], min(of_role))
        of_role[of_role.index(min(of_role))] = end = start + rounds[lane][count]
        if shared:
            places = [[end], [end]]
        later = tuple(end if n == lane else moment for n, moment in enumerate(ready))
        counts = tuple(c + (n == lane) for n, c in enumerate(done))
        found.append(least_makespan(rounds, later, counts, places[0], places[1], shared))
    return min(found) if found else max(ends)


durations = st.floats(0.1, 9.0)
recorded = st.lists(
    st.lists(st.tuples(*[durations] * 4), min_size=1, max_size=4), min_size=1, max_size=6
)


@st.composite
def fleets(draw: st.DrawFn) -> list[ResourceJoined]:
    hosts, devices = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    fleet = mock_fleet(hosts, devices, shared=draw(st.booleans()))
    if draw(st.booleans()):
        fleet.append(ResourceJoined(0.0, host("slots", "machine0", slots=draw(st.integers(2, 3)))))
    return fleet


@settings(max_examples=150)
@given(
    lanes=recorded,
    fleet=fleets(),
    lookahead=st.booleans(),
    policy=st.sampled_from([*POLICIES]),
    arrivals=st.lists(st.floats(0.0, 30.0), min_size=6, max_size=6),
)
def test_no_policy_beats_the_bound(
    lanes: list[Any],
    fleet: list[ResourceJoined],
    lookahead: bool,
    policy: str,
    arrivals: list[float],
) -> None:
    names = lane_names(-(-len(lanes) // 2), 2)[: len(lanes)]
    replay = Replay({n: tuple(rounds) for n, rounds in zip(names, lanes, strict=True)})
    mix = mock_jobs({n: len(r) for n, r in replay.lanes.items()}, lookahead=lookahead)
    mix = [at(moment, event) for moment, event in zip(arrivals, mix, strict=False)]
    found = simulate(Scheduler(POLICIES[policy]()), [*fleet, *mix], replay)
    assert len(found.spans) == 4 * sum(map(len, lanes))
    assert found.makespan_s >= lower_bound(found).seconds * (1 - 1e-9)


def test_utilisation_is_the_share_of_the_makespan_at_work() -> None:
    found = run("sequential", [host(), device()], jobs(1))
    used = utilisation(found)
    assert used == {"h0": pytest.approx(HOST_S / ROUND_S), "d0": pytest.approx(PROFILE_S / ROUND_S)}
    assert role_utilisation(found)[Role.HOST] == used["h0"]


def test_utilisation_counts_every_slot() -> None:
    found = run("sequential", [host(slots=2), device()], jobs(1))
    assert utilisation(found)["h0"] == pytest.approx(HOST_S / ROUND_S / 2)


def test_a_lone_lane_never_waits_and_two_wait_for_each_other() -> None:
    alone = run("interleaved", [host(), device()], jobs(1)).spans
    assert waiting(s.waited_s for s in alone).p95_s == 0.0
    found = run("interleaved", [host(), device()], jobs(2, 1))
    first = [s for s in found.spans if s.key.job_id == "j1" and s.kind is StageKind.SELECT]
    assert [s.waited_s for s in first] == [THESIS[StageKind.SELECT]]


def test_waiting_is_the_time_between_ready_and_started() -> None:
    """Against the ends of the stages before, which the simulator does not look at."""
    found = run("predictive", [host(), device()], jobs(3, 3, lookahead=False))
    ends = {s.key: s.end for s in found.spans}
    keys = sorted(ends, key=lambda k: (k.job_id, k.iteration, STAGE_ORDER.index(k.kind)))
    before = {k: (ends[keys[i - 1]] if i and keys[i - 1].job_id == k.job_id else 0.0)
              for i, k in enumerate(keys)}  # fmt: skip
    assert all(s.start - before[s.key] == pytest.approx(s.waited_s) for s in found.spans)


def test_the_95th_percentile_is_not_the_maximum() -> None:
    spans = run("interleaved", [host(), device()], jobs(8, 5)).spans
    waits = sorted(s.waited_s for s in spans)
    assert waits[int(0.94 * len(waits))] <= waiting(waits).p95_s < waits[-1]


def test_one_long_wait_moves_neither_median_nor_95th_percentile() -> None:
    found = waiting([0.02] * 40 + [5.0])
    assert (found.median_s, found.p95_s) == (0.02, 0.02)
    assert waiting([3.0, 1.0, 2.0]).median_s == 2.0


def test_completion_counts_from_submission() -> None:
    found = run("interleaved", [host(), device()], jobs(1))
    assert completion_s(found) == {"j0": pytest.approx(2 * ROUND_S)}
