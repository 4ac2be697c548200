"""Merges Parquet files and removes duplicate records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tunefleet.dataset import files, parquet
from tunefleet.dataset.schema import TASK

RowNumbers = np.ndarray[Any, np.dtype[np.int32]]


@dataclass
class Merged:
    """Counts of rows read and of duplicates among them."""

    rows: int = 0
    duplicates: int = 0


def merge(paths: Sequence[Path], out: Path) -> Merged:
    """Write the records of all files to one, in order, without duplicates.

    Duplicates have equal device, target, workload, steps and costs. Memory: about a hundred bytes
    per distinct record.
    """
    merged = Merged()
    with files.Draft(out) as draft:
        parquet.write(_distinct(paths, merged), draft)
    return merged


def _distinct(paths: Sequence[Path], merged: Merged) -> Iterator[pa.RecordBatch]:
    seen: set[bytes] = set()
    numbers: dict[str, int] = {}
    for path in paths:
        for batch in parquet.read(path):
            new = []
            for key in _keys(batch, numbers):
                new.append(key not in seen)
                seen.add(key)
            merged.rows += batch.num_rows
            merged.duplicates += batch.num_rows - sum(new)
            yield batch if all(new) else batch.filter(pa.array(new, pa.bool_()))


def _keys(batch: pa.RecordBatch, numbers: dict[str, int]) -> Iterator[bytes]:
    """A digest of the identifying columns of each row.

    `numbers` maps every distinct text to an index that is stable over all batches.
    """
    tasks = np.stack([_numbered(batch.column(name), numbers) for name in TASK], axis=1)
    steps, costs = batch.column("steps"), batch.column("costs_s")
    step_numbers = _numbered(steps.values, numbers)
    seconds = costs.values.to_numpy()
    step_ends, cost_ends = steps.offsets.to_numpy(), costs.offsets.to_numpy()
    for row in range(batch.num_rows):
        program = step_numbers[step_ends[row] : step_ends[row + 1]]
        key = blake2b(tasks[row].tobytes(), digest_size=16)
        key.update(len(program).to_bytes(4, "little"))
        key.update(program.tobytes())
        key.update(seconds[cost_ends[row] : cost_ends[row + 1]].tobytes())
        yield key.digest()


def _numbered(array: pa.DictionaryArray, numbers: dict[str, int]) -> RowNumbers:
    texts = array.dictionary.to_pylist()
    known = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int32)
    result: RowNumbers = known[array.indices.to_numpy()]
    return result
