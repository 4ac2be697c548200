from __future__ import annotations

import pytest

from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    JobContinued,
    JobEnded,
    JobHeld,
    JobOpened,
    PhaseStarted,
    StageAbandoned,
    StageProgressed,
    StageStarted,
)
from tunefleet.core.phases import PHASES, Forecast
from tunefleet.core.stage import StageKind

from .streams import JOB, after, finished, key, lane, weighted

#: What a run of this network took before.
KNOWN = Forecast({phase: 10.0 for phase in PHASES if phase != "tune"}, trial_s=2.0)


def test_time_left_follows_the_rate_of_this_run() -> None:
    opened = JobOpened(JOB, True, Budget(trials=100), 300.0, KNOWN)
    progress, _ = after([opened, PhaseStarted("tune"), lane(0, trials=40)])
    assert progress.tuning_left_s(10.0) == 120.0
    progress.absorb(StageStarted(key(0, 1, StageKind.SELECT)), 10.0)
    progress.absorb(lane(0, trials=60), 30.0)
    assert progress.tuning_left_s(30.0) == 40.0
    assert progress.left_s(30.0) == 90.0  # five phases of 10 s follow


def test_the_nearer_limit_decides_the_time_left() -> None:
    opened = JobOpened(JOB, False, Budget(trials=100, seconds=60.0), 0.0)
    progress, now = after([opened, PhaseStarted("tune")])
    assert progress.tuning_left_s(now + 20.0) == 40.0
    assert progress.left_s(now + 20.0) is None


def test_the_time_of_the_budget_does_not_run_during_import_and_delivery() -> None:
    opened = JobOpened(JOB, False, Budget(seconds=60.0), 0.0, KNOWN)
    progress, now = after([opened, PhaseStarted("import")])
    assert (progress.elapsed_s(now + 55), progress.tuning_left_s(now + 55)) == (0.0, 60.0)
    progress.absorb(PhaseStarted("tune"), now + 60)
    progress.absorb(PhaseStarted("verify winners"), now + 121)
    assert progress.elapsed_s(now + 300) == 61.0
    assert progress.left_s(now + 123) == 48.0


def test_two_steps_of_a_phase_are_one_phase() -> None:
    progress, now = after([PhaseStarted("verify winners"), PhaseStarted("verify winners")])
    assert progress.in_phase_s(now) == 1.0


def test_tasks_are_ranked_by_their_share() -> None:
    progress, _ = after([lane(0, best_s=1e-3), lane(1, best_s=5e-3), lane(2)])
    order = [item.weighted.task.task_id for item in progress.ranked()]
    assert order == [weighted(i).task.task_id for i in (1, 0, 2)]


def test_a_new_phase_ends_what_ran() -> None:
    progress, _ = after([StageStarted(key(0, 0, StageKind.BUILD)), PhaseStarted("compile")])
    assert progress.running == {}


def test_a_stage_that_is_given_up_may_start_again() -> None:
    build = key(0, 0, StageKind.BUILD)
    progress, _ = after([lane(0), StageStarted(build, "a"), StageAbandoned(build, "no heartbeat")])
    assert progress.running == {}
    assert progress.notes[-1].text == "build of conv2d+add+maximum given up: no heartbeat"
    progress.absorb(StageProgressed(build, 3, 16), 9.0)  # a late word of the lost worker
    assert progress.running == {}
    progress.absorb(StageStarted(build, "b"), 10.0)
    assert progress.running[build].resource_id == "b"


def test_a_stage_without_a_resource_runs_where_its_kind_does() -> None:
    keys = [key(0, 0, kind) for kind in (StageKind.UPDATE, StageKind.PROFILE)]
    progress, _ = after(StageStarted(k) for k in keys)
    assert [progress.running[k].resource_id for k in keys] == ["host", "device"]


@pytest.mark.parametrize(
    ("state", "events"),
    [
        ("waiting", []),
        ("importing", [PhaseStarted("import")]),
        ("waiting", [PhaseStarted("tune")]),
        ("tuning", [PhaseStarted("tune"), StageStarted(key(0, 0, StageKind.SELECT))]),
        ("paused", [PhaseStarted("tune"), JobHeld("by its user")]),
        ("waiting", [PhaseStarted("tune"), JobHeld("by its user"), JobContinued()]),
        ("verifying", [PhaseStarted("verify winners")]),
        ("measuring", [PhaseStarted("measure")]),
        ("done", [PhaseStarted("publish"), JobEnded()]),
        ("failed", [PhaseStarted("compile"), JobEnded("the network differs")]),
    ],
)
def test_the_state_of_a_job_in_a_word(state: str, events: list[Event]) -> None:
    assert after(events)[0].state == state


def test_the_time_of_a_job_stops_with_its_end() -> None:
    opened = JobOpened(JOB, False, Budget(trials=9), 50.0)
    progress, now = after([opened, PhaseStarted("tune"), JobEnded()])
    assert progress.elapsed_s(now + 1000.0) == 51.0


def test_the_time_follows_the_finished_stages() -> None:
    progress, _ = after([JobOpened(JOB, False, Budget(trials=9), 0.0), PhaseStarted("tune")])
    progress.absorb(finished(key(0, 0, StageKind.BUILD), 0, 50.0), 60.0)
    assert progress.elapsed_s(62.0) == 52.0


def test_pictures_are_rare_while_a_device_measures() -> None:
    progress, _ = after([PhaseStarted("tune"), StageStarted(key(0, 0, StageKind.BUILD))])
    assert not progress.measuring
    progress.absorb(StageStarted(key(1, 0, StageKind.PROFILE)), 3.0)
    assert progress.measuring
    progress.absorb(PhaseStarted("compile"), 4.0)
    assert not progress.measuring
    progress.absorb(PhaseStarted("measure"), 5.0)
    assert progress.measuring
    progress.absorb(JobEnded(), 6.0)
    assert not progress.measuring
