"""The trace keeps the rules of the Trace Event Format, which Perfetto and chrome://tracing read."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.runs.spans import MINE, OTHER, T0, open_job, ran, whole_round
from tunefleet.core.job import JobState
from tunefleet.report.trace_events import trace_events
from tunefleet.runs.timeline import build_timeline, find_job
from tunefleet.store import MemoryStore


@pytest.fixture
def trace() -> dict[str, Any]:
    """Two jobs, of which one has a step, builds that overlap and a pause of 93 s."""
    store = MemoryStore()
    open_job(store, MINE, "net \udc80<b>")
    open_job(store, OTHER, "other")
    whole_round(store, 0.0)
    whole_round(store, 0.5, job=OTHER)
    ran(store, "build", 100.0, 104.0, iteration=1, on="host 1", attempt=2)
    ran(store, "build", 101.0, 105.0, iteration=2, on="host 1")
    step = {
        "step": "import",
        "resource": "host 1",
        "attempt": 1,
        "started_at": T0 - 4,
        "seconds": 3,
    }
    store.jobs.finish(MINE, JobState.SUCCEEDED, {"steps": [step]})
    return trace_events(build_timeline(store, find_job(store, MINE)))


def complete(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_the_trace_is_json_without_infinities(trace: Any) -> None:
    assert trace == json.loads(json.dumps(trace, allow_nan=False))


def test_every_event_has_what_its_phase_requires(trace: Any) -> None:
    required = {"X": {"cat", "ts", "dur"}, "M": set(), "i": {"s", "ts"}}
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid", "args"} | required[event["ph"]] <= event.keys()
        assert all(type(event[key]) is int for key in ("pid", "tid"))
        assert all(
            type(event[key]) is int and event[key] >= 0 for key in event.keys() & {"ts", "dur"}
        )


def test_each_resource_is_a_named_process_and_each_lane_a_named_thread(trace: Any) -> None:
    named = [e for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert {e["pid"]: e["args"]["name"] for e in named} == {1: "host 1", 2: "device 1"}
    threads = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in complete(trace)} == threads


def test_events_of_a_thread_do_not_overlap(trace: Any) -> None:
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in complete(trace):
        extent = event["ts"], event["ts"] + event["dur"]
        threads.setdefault((event["pid"], event["tid"]), []).append(extent)
    assert len(threads) == 4
    for extents in threads.values():
        assert all(one[1] <= other[0] for one, other in pairwise(sorted(extents)))


def test_a_stage_names_its_job_task_and_attempt_and_lasts_microseconds(trace: Any) -> None:
    last = complete(trace)[-2]
    assert (last["name"], last["cat"], last["dur"]) == ("build", "stage", 4_000_000)
    job = "net \udc80<b> aaaaaaaa"
    expected = {"job": job, "task": "conv", "stage": "build", "attempt": 2, "iteration": 1}
    assert expected == {key: last["args"][key] for key in expected}


def test_a_step_has_no_task(trace: Any) -> None:
    step = complete(trace)[0]
    assert tuple(step[k] for k in ("name", "cat", "ts", "dur")) == ("import", "step", 0, 3_000_000)
    assert "task" not in step["args"]


def test_a_pause_is_cut_out_and_marked(trace: Any) -> None:
    pause = next(event for event in trace["traceEvents"] if event["ph"] == "i")
    assert (pause["s"], pause["ts"], pause["args"]) == ("g", 11_500_000, {"seconds": 92.5})
    assert complete(trace)[-2]["ts"] == pause["ts"]
