"""Computes the statistics of devices, tasks and primitives from the data of one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tunefleet.dataset.flop_rules import UNKNOWN, Certainty, Flops
from tunefleet.dataset.occurrences import Occurrences
from tunefleet.dataset.primitives import failure_name, kind_name
from tunefleet.hardware import HardwareTable

Array = NDArray[Any]

SCHEMA = "tunefleet-dataset-stats/1"


class TaskKey(NamedTuple):
    """The identity of a task: a workload on a target, measured on a device."""

    device: str
    target: str
    workload: str
    format: str


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """A row of 34 bytes per record, for medians and duplicates.

    `program` is a hash of task and primitives, `record` also of the measured values.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        "task", "length", "error_no", "latency_s", "program", "record",
    )  # fmt: skip

    task: Array
    length: Array
    error_no: Array
    latency_s: Array
    program: Array
    record: Array


def summary(
    records: RecordColumns,
    tasks: Sequence[TaskKey],
    devices: Sequence[str],
    occurrences: Mapping[str, Occurrences],
    flops: Mapping[tuple[str, str], Flops],
    sources: Sequence[str],
    hardware: HardwareTable | None,
) -> dict[str, Any]:
    """The value `tunefleet-dataset-stats/1`; devices with the most records come first."""
    by_task = _of_tasks(records, tasks, flops)
    device_of_task = np.array([devices.index(key.device) for key in tasks], np.int64)
    device_of_record = device_of_task[records.task] if len(tasks) else records.task
    entries = []
    for number, device in enumerate(devices):
        chosen = device_of_record == number
        own = [int(t) for t in np.flatnonzero(device_of_task == number)]
        entries.append(
            {
                "device": device,
                "hardware": _hardware(device, hardware),
                **_of_records(records, chosen),
                "tasks": len(own),
                "primitives": _of_primitives(occurrences, tasks, own, number),
                "sequences": sum(len(o.sequences(number)) for o in occurrences.values()),
                "throughput_gflops": _quantiles(
                    np.array([t["gflops"] for t in (by_task[i] for i in own) if t["gflops"]])
                ),
                "flops": {
                    str(how): sum(by_task[i]["flops_how"] == how for i in own) for how in Certainty
                },
                "task_list": sorted((by_task[i] for i in own), key=_task_order),
            }
        )
    entries.sort(key=lambda entry: (-entry["records"], entry["device"]))
    return {
        "schema": SCHEMA,
        "files": len(sources),
        "sources": list(sources),
        "tasks": len(tasks),
        **_of_records(records, np.ones(len(records.task), bool)),
        "devices": entries,
    }


def _of_records(records: RecordColumns, chosen: Array) -> dict[str, Any]:
    """Counts, failures, lengths and latencies of the chosen records."""
    count = int(chosen.sum())
    errors, failed = np.unique(records.error_no[chosen], return_counts=True)
    by_error = dict(zip(errors.tolist(), failed.tolist(), strict=True))
    valid = by_error.pop(0, 0)
    lengths = np.bincount(records.length[chosen]) if count else np.zeros(0, np.int64)
    latencies = records.latency_s[chosen]
    return {
        "records": count,
        "valid": valid,
        "failed": count - valid,
        "failures": {failure_name(number): n for number, n in sorted(by_error.items())},
        "programs": len(np.unique(records.program[chosen])),
        "identical_records": count - len(np.unique(records.record[chosen])),
        "sequence_length": _quantiles(records.length[chosen]),
        "sequence_lengths": {int(n): int(lengths[n]) for n in np.flatnonzero(lengths)},
        "latency_s": _quantiles(latencies[np.isfinite(latencies)]),
    }


def _of_tasks(
    records: RecordColumns, tasks: Sequence[TaskKey], flops: Mapping[tuple[str, str], Flops]
) -> list[dict[str, Any]]:
    """The statistics of each task, in the order of `tasks`."""
    counted = np.bincount(records.task, minlength=len(tasks)) if len(tasks) else np.zeros(0)
    valid = _count_by_task(records.task[records.error_no == 0], len(tasks))
    _, first = np.unique(records.program, return_index=True)
    programs = _count_by_task(records.task[first], len(tasks))
    measured = np.isfinite(records.latency_s)
    order = np.lexsort((records.latency_s[measured], records.task[measured]))
    latencies = records.latency_s[measured][order]
    ends = np.cumsum(_count_by_task(records.task[measured], len(tasks)))
    entries = []
    for number, key in enumerate(tasks):
        own = latencies[ends[number - 1] if number else 0 : ends[number]]
        known = flops.get((key.format, key.workload), UNKNOWN)
        best = float(own[0]) if len(own) else None
        entries.append(
            {
                **key._asdict(),
                "records": int(counted[number]),
                "valid": int(valid[number]),
                "programs": int(programs[number]),
                "best_s": best,
                "median_s": float(np.median(own)) if len(own) else None,
                "flops": known.count,
                "flops_how": str(known.how),
                "gflops": known.count / best / 1e9 if known.count and best else None,
            }
        )
    return entries


def _of_primitives(
    occurrences: Mapping[str, Occurrences], tasks: Sequence[TaskKey], own: list[int], device: int
) -> list[dict[str, Any]]:
    """A row per kind of primitive on a device, most frequent first."""
    rows = []
    for format, counted in occurrences.items():
        chosen = [t for t in own if tasks[t].format == format]
        for column, kind in enumerate(counted.kinds):
            totals = counted.total[chosen, column]
            if not totals.any():
                continue
            rows.append(
                {
                    "format": format,
                    "kind": kind,
                    "name": kind_name(format, kind),
                    "total": int(totals.sum()),
                    "records": int(counted.records[chosen, column].sum()),
                    "most_in_a_record": int(counted.most[chosen, column].max()),
                    "tasks": int((totals > 0).sum()),
                    "per_task": _quantiles(totals),
                }
            )
    return sorted(rows, key=lambda row: (-row["total"], row["kind"], row["format"]))


def _hardware(device: str, table: HardwareTable | None) -> dict[str, Any] | None:
    """The fields of the device table that statistics need."""
    row = table.get(device) if table is not None and device else None
    if row is None:
        return None
    return {"key": row.key, "name": row.name, "peak_fp32_gflops": row.peaks_gflops.get("fp32")}


def _task_order(task: Mapping[str, Any]) -> tuple[int, str, str, str]:
    """Sort key: most records first, then names for a stable order."""
    return (-task["records"], task["workload"], task["target"], task["format"])


def _count_by_task(tasks: Array, count: int) -> Array:
    return np.bincount(tasks, minlength=count) if count else np.zeros(0, np.int64)


def _quantiles(values: Array) -> dict[str, float] | None:
    """Minimum, quartiles, maximum and mean; None without values."""
    if not len(values):
        return None
    # Sorted, so that the mean does not depend on the order of records.
    values = np.sort(values)
    at = np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0])
    names = ("min", "q1", "median", "q3", "max")
    return {**dict(zip(names, at.tolist(), strict=True)), "mean": float(values.mean())}
