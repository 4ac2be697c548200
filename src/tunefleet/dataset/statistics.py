"""Statistics of tuning records per device and task, in one pass over batches.

They include tables 5 and 6 of the paper on optimised data sets for tensor program tuning (lengths
of schedules, occurrences of primitives), failures, latencies, FLOPs, throughput and duplicates.

Primitives are processed once per distinct text, columns with NumPy. Memory grows by 34 bytes per
record and with the number of distinct primitives and tasks; steps are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tunefleet.dataset.flops import FlopCounter
from tunefleet.dataset.occurrences import Occurrences
from tunefleet.dataset.primitives import Vocabulary
from tunefleet.dataset.schema import TASK
from tunefleet.dataset.summary import RecordColumns, TaskKey, summary
from tunefleet.hardware import HardwareTable

Array = NDArray[Any]


class DatasetStatistics:
    """Collects statistics from batches of `schema.RECORDS` in any order; `to_json` gives them."""

    def __init__(self) -> None:
        self._tasks: dict[TaskKey, int] = {}
        self._devices: dict[str, int] = {}
        self._device_of_task: list[int] = []
        self._sources: set[str] = set()
        self._vocabularies: dict[str, Vocabulary] = {}
        self._occurrences: dict[str, Occurrences] = {}
        self._chunks: dict[str, list[Array]] = {name: [] for name in RecordColumns.COLUMNS}
        self._flops = FlopCounter()

    def add(self, batch: pa.RecordBatch) -> None:
        for format, part in _by_format(batch):
            self._flops.add(part)
            self._sources.update(_used(part.column("source")))
            tasks = self._task_numbers(format, part)
            lengths, programs = self._add_steps(format, part, tasks)
            costs, latencies = _latencies(part)
            self._keep(
                task=tasks.astype(np.int32),
                length=lengths.astype(np.int32),
                error_no=_numbers(part.column("error_no")).astype(np.int16),
                latency_s=latencies,
                program=programs,
                record=_mixed(programs, costs, *map(_bits, _measured(part))),
            )

    def to_json(self, hardware: HardwareTable | None = None) -> dict[str, Any]:
        """All statistics as `tunefleet-dataset-stats/1`; `hardware` gives peaks of devices."""
        columns = {
            name: np.concatenate(chunks) if chunks else np.empty(0)
            for name, chunks in self._chunks.items()
        }
        return summary(
            RecordColumns(**columns),
            list(self._tasks),
            list(self._devices),
            self._occurrences,
            self._flops.flops,
            sorted(self._sources),
            hardware,
        )

    def _keep(self, **columns: Array) -> None:
        for name, values in columns.items():
            self._chunks[name].append(values)

    def _task_numbers(self, format: str, part: pa.RecordBatch) -> Array:
        """The index of each record's task (device, target and workload)."""
        columns = [part.column(name) for name in TASK]
        codes = np.zeros(part.num_rows, np.int64)
        for column in columns:
            codes = codes * max(1, len(column.dictionary)) + _numbers(column.indices)
        distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), np.int64)
        for place, row in enumerate(first):
            device, target, workload = (column[int(row)].as_py() for column in columns)
            key = TaskKey(device, target, workload, format)
            if key not in self._tasks:
                self._tasks[key] = len(self._tasks)
                owner = self._devices.setdefault(device, len(self._devices))
                self._device_of_task.append(owner)
            numbers[place] = self._tasks[key]
        return numbers[inverse]

    def _add_steps(self, format: str, part: pa.RecordBatch, tasks: Array) -> tuple[Array, Array]:
        """Count primitives; returns their number in each record, and a hash of its program."""
        column = part.column("steps")
        lengths = _numbers(pc.list_value_length(column)).astype(np.int64)
        values = column.flatten()
        vocabulary = self._vocabularies.setdefault(format, Vocabulary(format))
        numbers, kinds = vocabulary.look_up(values.dictionary)
        indices = _numbers(values.indices)
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(len(indices)) - np.repeat(starts, lengths)
        weights = _scrambled(np.arange(int(lengths.max(initial=0)), dtype=np.uint64))[positions]
        programs = _sums(_scrambled(numbers)[indices] * weights, starts, lengths)
        kind_of_step = kinds[indices]
        sequences = _sums(_scrambled(kinds)[indices] * weights, starts, lengths)
        width = len(vocabulary.kinds)
        rows = np.repeat(np.arange(len(lengths)) * width, lengths)
        counts = np.bincount(rows + kind_of_step, minlength=len(lengths) * width)
        occurrences = self._occurrences.setdefault(format, Occurrences(vocabulary.kinds))
        devices = np.array(self._device_of_task)[tasks]
        occurrences.add(tasks, devices, lengths, counts.reshape(len(lengths), width), sequences)
        return lengths, _mixed(programs, tasks.astype(np.uint64))


def statistics(
    batches: Iterable[pa.RecordBatch], hardware: HardwareTable | None = None
) -> dict[str, Any]:
    """The statistics of all records in `batches` as `tunefleet-dataset-stats/1`."""
    totals = DatasetStatistics()
    for batch in batches:
        totals.add(batch)
    return totals.to_json(hardware)


def _by_format(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records grouped by format: each has its own primitives."""
    formats = _used(batch.column("format"))
    for format in formats:
        alike = len(formats) == 1
        yield format, batch if alike else batch.filter(pc.equal(batch.column("format"), format))


def _used(column: Any) -> list[str]:
    """The distinct values that occur in a dictionary column."""
    codes = np.unique(_numbers(column.indices))
    return column.dictionary.take(pa.array(codes)).to_pylist()  # type: ignore[no-any-return]


def _numbers(column: Any) -> Array:
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _latencies(part: pa.RecordBatch) -> tuple[Array, Array]:
    """A hash of each record's costs, and its mean latency; NaN for failures and without costs."""
    column = part.column("costs_s")
    lengths = _numbers(pc.list_value_length(column)).astype(np.int64)
    costs = _numbers(column.flatten())
    starts = np.cumsum(lengths) - lengths
    with np.errstate(invalid="ignore", divide="ignore"):
        means = _sums(costs, starts, lengths) / lengths
    measured = (_numbers(part.column("error_no")) == 0) & (means > 0) & np.isfinite(means)
    return _sums(_scrambled(_bits(costs)), starts, lengths), np.where(measured, means, np.nan)


def _measured(part: pa.RecordBatch) -> Iterator[Array]:
    for name in ("error_no", "all_cost_s", "timestamp"):
        yield _numbers(part.column(name).cast(pa.float64()))


def _sums(values: Array, starts: Array, lengths: Array) -> Array:
    """The sum of each record's values; 0 without values."""
    sums = np.zeros(len(lengths), values.dtype)
    filled = lengths > 0
    if filled.any():
        sums[filled] = np.add.reduceat(values, starts[filled])
    return sums


def _bits(values: Array) -> Array:
    return values.astype(np.float64).view(np.uint64)


def _mixed(*parts: Array) -> Array:
    """Combine several hashes per record."""
    mixed = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        mixed = _scrambled(mixed ^ part)
    return mixed


def _scrambled(values: Array) -> Array:
    """The splitmix64 hash."""
    bits = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
