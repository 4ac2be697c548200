from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.runs.spans import MINE, OTHER, T0, open_job, ran, whole_round
from tests.store.values import make_spec
from tunefleet import run_timeline
from tunefleet.core.job import JobState
from tunefleet.core.step import Compiled, StepKey, StepKind, StepRun
from tunefleet.errors import InputError
from tunefleet.runs.timeline import (
    _jobs_between,
    build_timeline,
    find_job,
    replay_of,
    without_other_names,
)
from tunefleet.scheduler.durations import Replay
from tunefleet.store import MemoryStore, open_store


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    open_job(store)
    open_job(store, OTHER, "other")
    return store


def trace(store: Any) -> dict[str, Any]:
    return build_timeline(store, find_job(store, MINE))


def ended(store: Any, job: str, *steps: tuple[str, str, float, float]) -> None:
    """Each of (step, resource, start, seconds)."""
    told = [
        {"step": step, "resource": on, "attempt": 1, "started_at": T0 + start, "seconds": s}
        for step, on, start, s in steps
    ]
    store.jobs.finish(job, JobState.SUCCEEDED, {"steps": told})


def times(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    return [(s["stage"], s["start_s"], s["end_s"]) for s in found["spans"]]


def test_stages_are_told_with_resource_task_and_time_since_the_first(store: Any) -> None:
    whole_round(store, 0.0)
    found = trace(store)
    assert times(found) == [("select", 0, 2), ("build", 2, 3), ("profile", 3, 6), ("update", 6, 7)]
    assert (found["started_at"], found["tuning_s"], found["unplaced"]) == (T0, 7.0, 0)
    assert found["spans"][2] == {
        "resource": "device 1", "job": MINE, "task_id": "t", "task": "conv", "iteration": 0,
        "stage": "profile", "attempt": 1, "start_s": 3.0, "end_s": 6.0, "waited_s": 0.0,
    }  # fmt: skip


def test_a_trace_is_json(store: Any) -> None:
    whole_round(store, 0.0)
    assert trace(store) == json.loads(json.dumps(trace(store), allow_nan=False))


def test_other_jobs_are_shown_and_cut_at_the_edges_of_the_run(store: Any) -> None:
    whole_round(store, 0.0)
    ran(store, "profile", -5.0, 1.0, job=OTHER)
    ran(store, "build", 5.0, 50.0, job=OTHER)
    ran(store, "update", 51.0, 52.0, job=OTHER)
    found = trace(store)
    mine, other = found["jobs"]
    assert [
        (s["stage"], s["start_s"], s["end_s"]) for s in found["spans"] if s["job"] == OTHER
    ] == [("profile", 0, 1), ("build", 5, 7)]
    assert (mine["label"], other["label"]) == ("net aaaaaaaa", "other bbbbbbbb")
    expected = {"select": 0.0, "build": 2.0, "profile": 1.0, "update": 0.0, "steps": 0.0}
    assert other["seconds"] == expected


def test_the_timeline_of_an_artifact_names_no_other_network(store: Any) -> None:
    whole_round(store, 0.0)
    whole_round(store, 1.0, job=OTHER)
    shown = without_other_names(trace(store))
    assert [job["label"] for job in shown["jobs"]] == ["net aaaaaaaa", "other job 1"]
    hidden = [span for span in shown["spans"] if span["job"] != MINE]
    assert {(s["job"], s["task"], s["task_id"]) for s in hidden} == {("other job 1", "", "other")}
    assert times(shown) == times(trace(store))
    assert OTHER not in json.dumps(shown)


def test_a_pause_is_cut_out_and_listed(store: Any) -> None:
    ran(store, "select", 0.0, 2.0)
    ran(store, "build", 7202.0, 7203.0)
    ran(store, "profile", 8203.0, 8204.0)
    found = trace(store)
    assert times(found) == [("select", 0, 2), ("build", 2, 3), ("profile", 3, 4)]
    expected = [{"at_s": 2.0, "seconds": 7200.0}, {"at_s": 3.0, "seconds": 1000.0}]
    assert expected == found["pauses"]


def test_an_idle_minute_is_no_pause(store: Any) -> None:
    ran(store, "select", 0.0, 2.0)
    ran(store, "build", 62.0, 63.0)
    assert (trace(store)["tuning_s"], trace(store)["pauses"]) == (63.0, [])


def test_while_another_job_runs_there_is_no_pause(store: Any) -> None:
    ran(store, "select", 0.0, 2.0)
    ran(store, "profile", 30.0, 100.0, job=OTHER)
    ran(store, "build", 120.0, 121.0)
    assert (trace(store)["tuning_s"], trace(store)["pauses"]) == (121.0, [])


def test_utilisation_is_the_share_of_what_ran_at_once(store: Any) -> None:
    ran(store, "build", 0.0, 4.0, on="host 1")
    ran(store, "build", 1.0, 3.0, iteration=1, on="host 1")
    ran(store, "profile", 4.0, 8.0, on="device 1")
    host, device = trace(store)["resources"]
    assert host == {
        "resource": "host 1", "slots": 2, "stages": 2, "busy_s": 6.0, "utilisation": 6 / 16,
    }  # fmt: skip
    assert (device["resource"], device["slots"], device["utilisation"]) == ("device 1", 1, 0.5)


def test_stages_right_after_each_other_are_not_at_once(store: Any) -> None:
    for i in range(50):
        ran(store, "build", i * 2**0.5, (i + 1) * 2**0.5, iteration=i)
    assert [r["slots"] for r in trace(store)["resources"]] == [1]


def test_hosts_come_above_devices(store: Any) -> None:
    ran(store, "profile", 0.0, 1.0, on="a device")
    ran(store, "select", 1.0, 2.0, on="z")
    ran(store, "build", 2.0, 3.0, on="b")
    assert [r["resource"] for r in trace(store)["resources"]] == ["b", "z", "a device"]


def test_a_stage_of_unknown_place_is_placed_by_its_kind_and_counted(store: Any) -> None:
    ran(store, "select", 0.0, 1.0)
    ran(store, "profile", 1.0, 2.0)
    ran(store, "update", 2.0, 3.0, on="host 7")
    found = trace(store)
    assert [s["resource"] for s in found["spans"]] == ["host", "device", "host 7"]
    assert found["unplaced"] == 2


def test_a_stage_waits_from_the_end_of_the_one_before_it(store: Any) -> None:
    ran(store, "select", 0.0, 1.0)
    ran(store, "build", 1.5, 3.0)
    ran(store, "profile", 5.5, 6.0)
    found = trace(store)
    assert [s["waited_s"] for s in found["spans"]] == [None, 0.5, 2.5]
    assert found["waiting"] == {"stages": 2, "median_s": 0.5, "p95_s": 2.5}


def test_a_stage_waits_for_the_same_one_of_the_round_before(store: Any) -> None:
    ran(store, "build", 0.0, 1.0)
    ran(store, "profile", 1.0, 9.0)
    ran(store, "build", 1.0, 2.0, iteration=1)
    ran(store, "profile", 10.0, 12.0, iteration=1)
    assert trace(store)["spans"][-1]["waited_s"] == 1.0


def test_steps_of_jobs_that_have_ended_are_drawn(store: Any) -> None:
    whole_round(store, 10.0)
    assert trace(store)["tuning_s"] == 7.0
    ended(store, MINE, ("import", "host", 0.0, 4.0), ("measure", "device", 20.0, 5.0))
    ended(store, OTHER, ("compile", "host", 8.0, 4.0), ("measure", "device", 90.0, 5.0))
    found = trace(store)
    steps = [s for s in found["spans"] if not s["task_id"]]
    assert [(s["job"], s["stage"], s["resource"], s["start_s"], s["end_s"]) for s in steps] == [
        (MINE, "import", "host", 0, 4), (OTHER, "compile", "host", 8, 12),
        (MINE, "measure", "device", 20, 25),
    ]  # fmt: skip
    assert (found["started_at"], found["tuning_s"]) == (T0, 25.0)
    assert found["jobs"][0]["stages"]["steps"] == 2
    assert found["jobs"][0]["seconds"]["steps"] == 9.0
    assert list(replay_of(found).lanes) == [(MINE, "t")]
    assert sum(r["stages"] for r in found["resources"]) == 4


def test_steps_of_a_job_that_runs_are_drawn_as_committed(store: Any) -> None:
    whole_round(store, 10.0)
    key = StepKey(MINE, StepKind.COMPILE)
    store.work.commit_step(StepRun(key, Compiled(""), T0 + 18.0, 2.0, (), "host 1", 3))
    found = trace(store)
    assert ("compile", 8.0, 10.0) in times(found)
    assert found["jobs"][0]["stages"]["steps"] == 1
    assert found["jobs"][0]["retried"] == 1


def test_later_attempts_are_counted_and_do_not_only_wait(store: Any) -> None:
    ran(store, "build", 0.0, 1.0)
    ran(store, "profile", 9.0, 10.0, attempt=3)
    found = trace(store)
    assert (found["spans"][1]["attempt"], found["spans"][1]["waited_s"]) == (3, None)
    assert (found["jobs"][0]["retried"], found["waiting"]["stages"]) == (1, 0)


def test_a_pause_is_no_waiting(store: Any) -> None:
    ran(store, "select", 0.0, 1.0)
    ran(store, "build", 5000.0, 5001.0)
    assert trace(store)["spans"][1]["waited_s"] == 0.0


def test_whole_rounds_of_the_run_are_replayed(store: Any) -> None:
    whole_round(store, 0.0)
    whole_round(store, 1.0, job=OTHER)
    ran(store, "update", 7.0, 7.5, iteration=-1)
    ran(store, "select", 8.0, 9.0, iteration=1)
    replay = replay_of(trace(store))
    assert replay.lanes == {(MINE, "t"): ((2.0, 1.0, 3.0, 1.0),)}
    assert replay == Replay.from_json(replay.to_json(), "file")


def test_a_run_without_a_whole_round_cannot_be_replayed(store: Any) -> None:
    ran(store, "select", 0.0, 1.0)
    with pytest.raises(InputError, match="no whole round"):
        replay_of(trace(store))


@pytest.mark.parametrize("name", ["aaaaaa", MINE, "c0ffee", "c0ffee" + "0" * 26])
def test_a_run_is_found_by_the_start_of_its_job_or_run_id(store: Any, name: str) -> None:
    store.jobs.finish(MINE, JobState.SUCCEEDED, {"run": "c0ffee" + "0" * 26})
    assert find_job(store, name).job_id == MINE


@pytest.mark.parametrize(
    ("name", "reason"),
    [("aaaaa", "too short"), ("", "too short"), ("dddddd", "no run dddddd"), ("eeeeee", "2 runs")],
)
def test_a_name_of_no_run_or_several_is_an_input_error(store: Any, name: str, reason: str) -> None:
    for end in "12":
        open_job(store, "e" * 31 + end, end)
    with pytest.raises(InputError, match=reason):
        find_job(store, name)


def test_a_run_without_stages_has_no_trace(store: Any) -> None:
    with pytest.raises(InputError, match="no finished stage"):
        trace(store)


def test_a_home_is_only_looked_at(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no runs"):
        run_timeline(MINE, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_run_is_traced_from_its_home(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        open_job(store)
        whole_round(store, 0.0)
    assert run_timeline("aaaaaa", tmp_path)["job"] == MINE


def test_jobs_that_were_opened_long_before_are_not_looked_at() -> None:
    """Each would be a query, and a timeline is made at the end of every run."""
    store, month = MemoryStore(), 31 * 86_400.0
    for name in ("old", "measuring"):
        store.jobs.open(make_spec(name), job_id=name, now=T0 - month)
    open_job(store)
    store.jobs.open(make_spec("late"), job_id="late", now=T0 + 99.0)
    looked_at = _jobs_between(store, T0, T0 + 7.0, {MINE, "measuring"})
    assert [job.job_id for job in looked_at] == [MINE, "measuring"]
