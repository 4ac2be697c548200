"""Floating-point operations of tasks from their records alone, once per workload.

| format         | from                                 | how                                     |
|----------------|--------------------------------------|-----------------------------------------|
| auto_scheduler | extents in SP steps, argument shapes | exact for contractions, else estimated  |
| autotvm        | template name and argument shapes    | exact, transposed convolution estimated |
| metaschedule   | decisions of SamplePerfectTile       | estimated                               |
| kernel_tuner   | nothing: it names no shapes          | unknown                                 |

The rules are those of `flop_rules` and `operators`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tunefleet.dataset.flop_rules import (
    UNKNOWN,
    Flops,
    How,
    auto_scheduler_flops,
    metaschedule_flops,
)
from tunefleet.dataset.operators import autotvm_flops

#: Programs of a workload that are looked at, in each file, for one that tells the FLOPs exactly.
_PROGRAMS = 8

#: The rule of a workload whose programs have different extents.
SEVERAL_TASKS = "largest of several tasks under one key"

#: Format and workload.
Workload = tuple[str, str]


def flops_of(format: str, workload: str, programs: Iterable[Sequence[str]]) -> Flops:
    """Of a workload with some of its programs, each its primitives as JSON texts.

    The first program that tells it exactly decides; else the largest estimate does, because what
    a program leaves unsplit is missing in its own.
    """
    if format == "autotvm":
        return autotvm_flops(workload)
    found = UNKNOWN
    for program in programs:
        flops = _of_program(format, workload, [json.loads(primitive) for primitive in program])
        if flops.how is How.EXACT:
            return flops
        if (flops.count or 0.0) > (found.count or 0.0):
            found = flops
    return found


def _of_program(format: str, workload: str, steps: list[Any]) -> Flops:
    if format == "auto_scheduler":
        return auto_scheduler_flops(workload, steps)
    if format == "metaschedule":
        return metaschedule_flops(steps)
    return UNKNOWN


class FlopCounter:
    """Collects the FLOPs of every workload from batches of records in any order.

    A workload that means different tasks in different files (a key without shapes, as
    `["conv2d_1"]`) is never exact: its largest count is given as an estimate.
    """

    def __init__(self) -> None:
        self._found: dict[Workload, Flops] = {}
        self._looked: dict[tuple[str, Workload], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Look at the first programs of each workload in each file; failed ones tell it too."""
        columns = [_codes(batch.column(name)) for name in ("source", "format", "workload")]
        (sources, files), (formats, names), (workloads, keys) = columns
        rows_of = (sources.astype(np.int64) * len(names) + formats) * len(keys) + workloads
        order = np.argsort(rows_of, kind="stable")
        starts = np.flatnonzero(np.diff(rows_of[order], prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            row = order[start]
            workload = (names[formats[row]], keys[workloads[row]])
            self._look(files[sources[row]], workload, batch, order[start:end])

    def _look(self, file: str, workload: Workload, batch: pa.RecordBatch, rows: Any) -> None:
        looked = self._looked.get((file, workload), 0)
        if looked >= _PROGRAMS:
            return
        rows = rows[: _PROGRAMS - looked]
        flops = flops_of(*workload, batch.column("steps").take(pa.array(rows)).to_pylist())
        self._found[workload] = _joined(self._found.get(workload, UNKNOWN), flops)
        settled = flops.how is How.EXACT
        self._looked[file, workload] = _PROGRAMS if settled else looked + len(rows)

    @property
    def flops(self) -> dict[Workload, Flops]:
        """By format and workload."""
        return dict(self._found)


def flops_by_workload(batches: Iterable[pa.RecordBatch]) -> dict[Workload, Flops]:
    """By format and workload, of all records in `batches`."""
    counter = FlopCounter()
    for batch in batches:
        counter.add(batch)
    return counter.flops


def _codes(column: Any) -> tuple[Any, list[str]]:
    """Indices and values of a dictionary column."""
    return column.indices.to_numpy(zero_copy_only=False), column.dictionary.to_pylist()


def _joined(first: Flops, second: Flops) -> Flops:
    """Of two findings about one workload."""
    exact = [flops for flops in (first, second) if flops.how is How.EXACT]
    if len(exact) == 2 and first.count != second.count:
        count = max(first.count or 0.0, second.count or 0.0)
        return Flops(count, How.ESTIMATED, SEVERAL_TASKS)
    if first.rule == SEVERAL_TASKS:
        return max(first, second, key=lambda flops: flops.count or 0.0)
    return exact[0] if exact else max(first, second, key=lambda flops: flops.count or 0.0)
