"""How long the statistics of a million tuning records take, read from Parquet, on one core.

    python benchmarks/dataset_stats.py --logs ../shared/data/roller_v100_ops

Real logs are imported and repeated until there are enough rows. Time includes reading the Parquet;
`added_mib` is by how much the statistics raise what a process needs that only reads it.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

import common
from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.statistics import DatasetStatistics
from tunefleet.hardware import shipped_table

#: Small logs make small batches; what was imported at once makes larger ones.
_ROWS = 1 << 16


def main(options: argparse.Namespace) -> int:
    if options.logs is None:
        common.need_data()
        options.logs = [common.DATA / "roller_v100_ops"]
    started = time.time()
    rows = options.rows // (20 if options.quick else 1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "records.parquet"
        real = _replicate(_logs(options.logs), rows, path)
        figures = {"rows": rows, "real_rows": real, "parquet_mib": path.stat().st_size / 2**20}
        # In a process of its own, whose memory is not that of the import.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            figures |= alone.submit(_measure, path, options.repeats).result()
    common.table([figures], [*figures])
    checks = [
        common.at_most("CPU seconds per million", figures["cpu_s_per_million"], 10.0, "condition"),
        common.at_most("seconds per million", figures["s_per_million"], 10.0, "aim"),
        common.at_most("MiB beyond reading it", figures["added_mib"], 300.0, "aim"),
    ]
    return common.finish("dataset_stats", started, figures, checks, options.json)


def _logs(folders: list[Path]) -> list[Path]:
    return sorted(p for folder in folders for p in folder.rglob("*") if _is_log(p))


def _is_log(path: Path) -> bool:
    return path.is_file() and codecs.format_of(path) is not None


def _batches(logs: list[Path]) -> Iterator[pa.RecordBatch]:
    for log in logs:
        yield from codecs.read(log, device=log.parts[-2])


def _replicate(logs: list[Path], rows: int, path: Path) -> int:
    """Write `rows` rows, the records of the logs over and over; returns how many are real."""
    real = pa.Table.from_batches(_batches(logs)).unify_dictionaries()
    with parquet.Writer(path) as writer:
        left = rows
        while left > 0:
            part = real.slice(0, min(left, real.num_rows))
            for batch in part.combine_chunks().to_batches(max_chunksize=_ROWS):
                writer.write(batch)
            left -= part.num_rows
    return min(rows, int(real.num_rows))


def _measure(path: Path, repeats: int) -> dict[str, Any]:
    """Of some runs the one that took the least CPU time: others on the machine only ever add."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    runs = []
    rows = sum(batch.num_rows for batch in parquet.read(path))
    before = _peak_mib()
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), _cpu_s()
        statistics = DatasetStatistics()
        reading = 0.0
        batches = parquet.read(path)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            reading += time.perf_counter() - start
            if batch is None:
                break
            statistics.add(batch)
        found = statistics.to_json(shipped_table())
        runs.append((time.perf_counter() - wall, _cpu_s() - cpu, reading))
    seconds, cpu_s, reading = min(runs, key=lambda run: run[1])
    return {
        "tasks": found["tasks"],
        "steps": sum(n * count for n, count in found["sequence_lengths"].items()),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "reading_s": reading,
        "s_per_million": seconds * 1e6 / rows,
        "cpu_s_per_million": cpu_s * 1e6 / rows,
        "added_mib": _peak_mib() - before,
        "peak_mib": _peak_mib(),
    }


def _cpu_s() -> float:
    """Of this process and of the parsers that have ended."""
    return sum(os.times()[:4])


def _peak_mib() -> float:
    """Of this process alone: getrusage would tell that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kilobytes) / 1024


if __name__ == "__main__":
    options = common.parser(__doc__ or "")
    options.add_argument(
        "--logs", type=Path, nargs="+", help="folders of logs; default: recorded ones"
    )
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--repeats", type=int, default=3)
    common.run(main, options)
