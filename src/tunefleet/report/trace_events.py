"""The timeline of a run as a trace that Perfetto and chrome://tracing open.

The format is Google's "Trace Event Format": a JSON object with `traceEvents`. Each resource is a
process, and each lane of stages that never overlap is a thread of it. Stages and steps are complete
events (`"ph": "X"`) in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefleet.report.run_timeline import RunTimeline, chart_of
from tunefleet.report.timeline import tracks
from tunefleet.report.units import format_seconds

Event = dict[str, Any]


def trace_events(timeline: RunTimeline) -> dict[str, Any]:
    """The trace as one JSON value. Its clock is that of the timeline: tuning time since the first
    stage, without pauses; where one was cut out there is an instant event."""
    chart = chart_of(timeline)
    labels = {job["job"]: job["label"] for job in timeline["jobs"]}
    events: list[Event] = []
    lanes: dict[int, tuple[int, int]] = {}
    for process, (resource, bars) in enumerate(chart.rows().items(), 1):
        events.append(_metadata("process_name", process, 0, name=resource))
        events.append(_metadata("process_sort_index", process, 0, sort_index=process))
        for lane, track in enumerate(tracks(bars), 1):
            events.append(_metadata("thread_name", process, lane, name=f"lane {lane}"))
            lanes |= {id(bar): (process, lane) for bar in track}
    for bar, span in zip(chart.bars, timeline["spans"], strict=True):
        events.append(_complete(span, labels[span["job"]], *lanes[id(bar)]))
    events += [_pause(pause) for pause in timeline["pauses"]]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "job": timeline["job"],
            "network": timeline["network"],
            "started_at": timeline["started_at"],
            "clock": "microseconds of tuning since started_at; pauses are cut out",
        },
    }


def _metadata(kind: str, process: int, thread: int, **values: Any) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": values}


def _complete(span: Mapping[str, Any], job: str, process: int, thread: int) -> Event:
    start, end = _microseconds(span["start_s"]), _microseconds(span["end_s"])
    args = {"job": job, "stage": span["stage"], "attempt": span["attempt"]}
    if span["task_id"]:
        args |= {"task": span["task"], "task_id": span["task_id"], "iteration": span["iteration"]}
    if span["waited_s"] is not None:
        args["waited_s"] = span["waited_s"]
    return {
        "name": span["stage"],
        "cat": "stage" if span["task_id"] else "step",
        "ph": "X",
        "ts": start,
        "dur": end - start,
        "pid": process,
        "tid": thread,
        "args": args,
    }


def _pause(pause: Mapping[str, float]) -> Event:
    return {
        "name": f"pause of {format_seconds(pause['seconds'])}, cut out",
        "cat": "pause",
        "ph": "i",
        "s": "g",
        "ts": _microseconds(pause["at_s"]),
        "pid": 1,
        "tid": 1,
        "args": {"seconds": pause["seconds"]},
    }


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
