"""A table of records as arrays, for splits and samplers.

Rows are numbered from 0 in table order. A task is device, target and workload; a program is its
sequence of primitives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tunefleet.core.trial import RANKING_QUANTILE

#: The minimum number of repeats for a low quantile.
_ENOUGH_REPEATS = 5

Codes = NDArray[np.int64]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Words:
    """A column of few distinct values: row i holds `names[codes[i]]`."""

    codes: Codes
    names: tuple[str, ...]

    def code(self, name: str) -> int | None:
        return self.names.index(name) if name in self.names else None

    def take(self, numbers: Codes) -> Words:
        return Words(self.codes[numbers], self.names)


@dataclass(frozen=True)
class ProgramSteps:
    """The concatenated primitives of all programs: row i has `lengths[i]` of `words.codes`."""

    words: Words
    lengths: Codes

    @cached_property
    def programs(self) -> NDArray[np.uint64]:
        """A hash per row, equal for equal primitives.

        64 bits of a sum over primitives mixed with their position. If two programs collide, a split
        keeps them in the same part, so nothing leaks.
        """
        starts = np.cumsum(self.lengths) - self.lengths
        place = np.arange(len(self.words.codes)) - np.repeat(starts, self.lengths)
        mixed = _mix(self.words.codes.astype(np.uint64) << np.uint64(20) ^ place.astype(np.uint64))
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        return np.asarray(ends[starts + self.lengths] - ends[starts], np.uint64)

    def take(self, numbers: Codes) -> ProgramSteps:
        """The primitives of these rows."""
        starts = (np.cumsum(self.lengths) - self.lengths)[numbers]
        lengths = self.lengths[numbers]
        place = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return ProgramSteps(self.words.take(np.repeat(starts, lengths) + place), lengths)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 hash."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)), np.uint64)


@dataclass(frozen=True)
class Rows:
    """Records as arrays. `latency_s` is inf for a failed trial.

    With five or more repeats it is the low quantile that ranks candidates (`tunefleet.core.trial`),
    since load on a shared machine only adds time; with fewer it is the mean, as in TenSet. XGB
    orders 0.753 of the pairs of held-out networks in datasets/cpu-epyc.parquet correctly with low
    quantiles, and 0.736 with means.
    """

    source: Words
    device: Words
    target: Words
    workload: Words
    steps: ProgramSteps
    latency_s: Vector

    def __len__(self) -> int:
        return len(self.latency_s)

    @cached_property
    def task(self) -> Codes:
        """The task index of each row, in order of first appearance."""
        joined = self.device.codes
        for words in (self.target, self.workload):
            joined = joined * len(words.names) + words.codes
        return first_seen(joined)

    @cached_property
    def program(self) -> Codes:
        """The index of each row's (task, primitives), in order of first appearance."""
        both = _mix(self.task.astype(np.uint64)) + self.steps.programs
        return first_seen(both)

    @property
    def valid(self) -> NDArray[np.bool_]:
        return np.isfinite(self.latency_s)

    @cached_property
    def labels(self) -> Vector:
        """Best latency of the task / latency; 0 for a failed trial."""
        best = np.full(int(self.task.max(initial=-1)) + 1, np.inf)
        np.minimum.at(best, self.task, self.latency_s)
        labels = np.zeros(len(self))
        np.divide(best[self.task], self.latency_s, out=labels, where=self.valid)
        return labels

    def take(self, numbers: Codes) -> Rows:
        """These rows only, with new task and program indices."""
        return Rows(
            source=self.source.take(numbers),
            device=self.device.take(numbers),
            target=self.target.take(numbers),
            workload=self.workload.take(numbers),
            steps=self.steps.take(numbers),
            latency_s=self.latency_s[numbers],
        )

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        """The rows of a table of `tunefleet.dataset.schema.RECORDS`."""
        steps = table.column("steps")
        lengths = [_numbers(chunk.value_lengths()) for chunk in steps.chunks]
        return cls(
            source=_words(table.column("source").chunks),
            device=_words(table.column("device").chunks),
            target=_words(table.column("target").chunks),
            workload=_words(table.column("workload").chunks),
            steps=ProgramSteps(
                _words([chunk.flatten() for chunk in steps.chunks]),
                np.concatenate([np.zeros(0, np.int64), *lengths]),
            ),
            latency_s=_latency(table),
        )


def first_seen(values: NDArray[Any]) -> Codes:
    """Indices of distinct values, in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _words(chunks: list[Any]) -> Words:
    """Unifies chunks with separate dictionaries (or none, depending on the reader)."""
    numbers: dict[str, int] = {}
    codes = [np.zeros(0, np.int64)]
    for chunk in chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        known = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
        codes.append(known[_numbers(encoded.indices)])
    return Words(np.concatenate(codes), tuple(numbers))


def _latency(table: pa.Table) -> Vector:
    latencies = [np.zeros(0)]
    for batch in table.select(["costs_s", "error_no"]).to_batches():
        lengths = _numbers(batch.column("costs_s").value_lengths())
        costs = batch.column("costs_s").flatten().to_numpy(zero_copy_only=False)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(owner, weights=costs, minlength=len(lengths)) / lengths
        ranked = np.where(lengths < _ENOUGH_REPEATS, mean, _low_quantile(costs, owner, lengths))
        valid = (_numbers(batch.column("error_no")) == 0) & np.isfinite(mean) & (ranked > 0)
        latencies.append(np.where(valid, ranked, np.inf))
    return np.concatenate(latencies)


def _low_quantile(costs: Vector, owner: Codes, lengths: Codes) -> Vector:
    """`core.trial.ranking_latency` of each record's costs; 0 without costs."""
    if len(costs) == 0:
        return np.zeros(len(lengths))
    ordered = costs[np.lexsort((costs, owner))]
    first = (np.cumsum(lengths) - lengths).clip(max=len(costs) - 1)
    last = (first + lengths - 1).clip(min=first)
    position = RANKING_QUANTILE * (last - first)
    low = first + position.astype(np.int64)
    # Costs of failed trials, which are ignored, may be infinite.
    with np.errstate(invalid="ignore", over="ignore"):
        between = ordered[np.minimum(low + 1, last)] - ordered[low]
        quantiles = ordered[low] + between * (position - position.astype(np.int64))
    return np.asarray(np.where(lengths > 0, quantiles, 0.0))


def _numbers(array: Any) -> Codes:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)
