"""FLOPs of tasks, derived from their records only, once per workload.

| format         | from                                 | how                                     |
|----------------|--------------------------------------|-----------------------------------------|
| auto_scheduler | extents in SP steps, argument shapes | exact for contractions, else estimated  |
| autotvm        | template name and argument shapes    | exact, transposed convolution estimated |
| metaschedule   | decisions of SamplePerfectTile       | estimated                               |
| of tunefleet   | counted by the compiler              | exact                                   |
| kernel_tuner   | has no shapes                        | unknown                                 |

The rules are those of `flop_rules` and `operators`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tunefleet.dataset.flop_rules import (
    UNKNOWN,
    Certainty,
    Flops,
    auto_scheduler_flops,
    metaschedule_flops,
)
from tunefleet.dataset.formats import AUTO_SCHEDULER, AUTOTVM, METASCHEDULE
from tunefleet.dataset.operators import autotvm_flops

#: The number of first programs of a workload, per file, among which an exact count is expected. A
#: log may continue with another task under the same key, so every n-th later one and the last are
#: read too.
_PROGRAMS, _EVERY = 8, 256

#: Upper bound of the rows of a file.
_MOST = 1e300

#: The result for a workload whose programs have different extents.
SEVERAL_TASKS = Flops(None, Certainty.UNKNOWN, "several tasks under one key")

#: Format and workload.
WorkloadKey = tuple[str, str]
#: The FLOPs stated in a record, and its program.
_Row = tuple[Flops | None, list[str]]


def flops_of(format: str, workload: str, programs: Iterable[Sequence[str]]) -> Flops:
    """FLOPs of a workload from some of its programs, each as primitives in JSON.

    The first exact count decides, otherwise the largest estimate: unsplit iterators are missing in
    an estimate.
    """
    if format == AUTOTVM:
        return autotvm_flops(workload)
    largest = UNKNOWN
    for program in programs:
        flops = _of_program(format, workload, program)
        if flops.how is Certainty.EXACT:
            return flops
        if (flops.count or 0.0) > (largest.count or 0.0):
            largest = flops
    return largest


@lru_cache(maxsize=1 << 14)
def _parsed(primitive: str) -> Any:
    """The JSON value of a primitive; cached, since primitives recur, and never modified."""
    return json.loads(primitive)


def _of_program(format: str, workload: str, program: Sequence[str]) -> Flops:
    try:
        steps = [_parsed(primitive) for primitive in program]
        if format == AUTO_SCHEDULER:
            return auto_scheduler_flops(workload, steps)
        if format == METASCHEDULE:
            return metaschedule_flops(steps)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        pass  # a Parquet file may hold any text: not a known program
    return UNKNOWN


class FlopCounter:
    """Collects the FLOPs of every workload from batches of records in any order.

    A workload whose programs have different extents stands for several tasks (a key without shapes
    such as `["conv2d_1"]`); its FLOPs are unknown.
    """

    def __init__(self) -> None:
        self._found: dict[WorkloadKey, Flops] = {}
        self._seen: dict[tuple[str, WorkloadKey], int] = {}
        self._last: dict[tuple[str, WorkloadKey], _Row] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Read some programs of each workload in each file, also failed ones. The choice depends on
        their index in the file, not on the batches."""
        columns = [_codes(batch.column(name)) for name in ("source", "format", "workload")]
        (sources, files), (formats, names), (workloads, keys) = columns
        groups = (sources.astype(np.int64) * len(names) + formats) * len(keys) + workloads
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            row = order[start]
            of = files[sources[row]], (names[formats[row]], keys[workloads[row]])
            rows = self._chosen(of, order[start:end])
            programs = batch.column("steps").take(pa.array(rows, pa.int64())).to_pylist()
            *chosen, last = [(_told(batch, n), p) for n, p in zip(rows, programs, strict=True)]
            self._last[of] = last
            for each in chosen:
                self._found[of[1]] = _joined(self._found.get(of[1], UNKNOWN), _of(of[1], each))

    def _chosen(self, of: tuple[str, WorkloadKey], rows: Any) -> list[int]:
        """The rows of a workload to read, then its last row. AutoTVM rows are all equivalent."""
        before = self._seen.get(of, 0)
        self._seen[of] = before + len(rows)
        numbers = np.arange(before, before + len(rows))
        looked = (numbers < _PROGRAMS) | (numbers % _EVERY == 0)
        return [int(n) for n in (*(rows[looked] if of[1][0] != AUTOTVM else ()), rows[-1])]

    @property
    def flops(self) -> dict[WorkloadKey, Flops]:
        """By format and workload."""
        found = dict(self._found)
        for (_, workload), row in self._last.items():
            found[workload] = _joined(found.get(workload, UNKNOWN), _of(workload, row))
        return found


def _of(workload: WorkloadKey, row: _Row) -> Flops:
    stated, program = row
    return stated or flops_of(*workload, [program])


def flops_by_workload(batches: Iterable[pa.RecordBatch]) -> dict[WorkloadKey, Flops]:
    """By format and workload, of all records in `batches`."""
    counter = FlopCounter()
    for batch in batches:
        counter.add(batch)
    return counter.flops


def told_in(extra: str) -> Mapping[str, Any]:
    """The JSON object in a record's column `extra`; empty if it is not an object."""
    try:
        value = json.loads(extra or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _told(batch: pa.RecordBatch, row: int) -> Flops | None:
    """The FLOPs stated in a record, as in records collected by tunefleet."""
    if "extra" not in batch.schema.names:
        return None
    extra = batch.column("extra")[row].as_py() or ""
    count = told_in(extra).get("flops") if '"flops":' in extra else None
    if not isinstance(count, int | float) or not 0 <= count < _MOST:
        return None
    rule = "counted by the compiler"
    return (
        Flops(float(count), Certainty.EXACT, rule)
        if count
        else Flops(None, Certainty.UNKNOWN, rule)
    )


def _codes(column: Any) -> tuple[Any, list[str]]:
    """Indices and values of a dictionary column."""
    return column.indices.to_numpy(zero_copy_only=False), column.dictionary.to_pylist()


def _joined(first: Flops, second: Flops) -> Flops:
    """The better of two counts of a workload: an exact one, otherwise the larger estimate."""
    exact = [flops for flops in (first, second) if flops.how is Certainty.EXACT]
    several = len(exact) == 2 and first.count != second.count
    if several or SEVERAL_TASKS in (first, second):
        return SEVERAL_TASKS
    return exact[0] if exact else max(first, second, key=lambda flops: flops.count or 0.0)
