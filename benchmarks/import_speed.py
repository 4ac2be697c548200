"""How fast auto_scheduler logs become Parquet on one core, and in how much memory.

Three ways over the same log, each in a process of its own, in turn: `tunefleet` as `dataset import`
does it; the plain one, `json.loads` for every line, the same columns as lists, the same Parquet;
and `json.loads` alone, of which nothing is kept. Then the first again for a log of ten times the
size. Rates are by processor time, of all threads: others on the machine make no difference to it.

    python benchmarks/import_speed.py [--folder NAME] [--repeats N] [--core N] [--json FILE]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common
import recorded_logs

FOLDER = "rtx2080ti_bert_resnet50"
TIMES = 10
COLUMNS = [
    "way",
    "log",
    "records",
    "CPU seconds",
    "wall seconds",
    "records/s",
    "MB/s",
    "peak MB",
    "Parquet MB",
]


def ours(log: Path, out: Path) -> int:
    from tunefleet.dataset.importing import find_logs, import_logs

    return import_logs(find_logs([log]), "any", out).records.total()


def plain(log: Path, out: Path) -> int:
    """What one writes without a library for it: a list for each column, a batch now and then."""
    import pyarrow as pa

    from tunefleet.dataset import parquet
    from tunefleet.dataset.schema import RECORDS

    encode = json.JSONEncoder(separators=(",", ":")).encode

    def batches() -> Iterator[pa.RecordBatch]:
        columns: dict[str, list[Any]] = {name: [] for name in RECORDS.names}
        for number, record in enumerate(_records(log), 1):
            task, (_, steps) = record["i"]
            costs, error_no, all_cost, timestamp = record["r"]
            names = ("hardware", "target_host", "layout_rewrite", "input_names")
            row = (
                str(log), number, "auto_scheduler", record["v"], "any", task[1], task[0],
                [*map(encode, steps)], costs, error_no,
                all_cost, float(timestamp),
                encode(dict(zip(names, task[2:], strict=False))), None,
            )  # fmt: skip
            for values, value in zip(columns.values(), row, strict=True):
                values.append(value)
            if len(columns["line"]) == 1 << 14:
                yield _batch(columns)
                columns = {name: [] for name in RECORDS.names}
        yield _batch(columns)

    def _batch(columns: dict[str, list[Any]]) -> pa.RecordBatch:
        arrays = []
        for field in RECORDS:
            if field.name == "steps":
                lists = pa.array(columns[field.name], pa.list_(pa.utf8()))
                values = lists.values.dictionary_encode()
                arrays.append(pa.ListArray.from_arrays(lists.offsets, values))
            elif pa.types.is_dictionary(field.type):
                arrays.append(pa.array(columns[field.name], pa.utf8()).dictionary_encode())
            else:
                arrays.append(pa.array(columns[field.name], field.type))
        return pa.record_batch(arrays, schema=RECORDS)

    return parquet.write(batches(), out)


def loads(log: Path, out: Path) -> int:
    return sum(1 for _ in _records(log))


def _records(log: Path) -> Iterator[Any]:
    with gzip.open(log) if log.suffix == ".gz" else log.open("rb") as file:
        for line in file:
            if line.strip() and line[:1] not in b"# ":
                yield json.loads(line)


WAYS: dict[str, Callable[[Path, Path], int]] = {
    "tunefleet": ours,
    "plain": plain,
    "json.loads": loads,
}


def measure_here(way: str, log: Path, out: Path) -> None:
    """The body of a process: seconds without the start of Python and the imports of libraries."""
    import pyarrow as pa

    import tunefleet.dataset.importing  # noqa: F401 (its time is not that of the import)

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    before_mb = _peak_mb()
    started, started_cpu = time.perf_counter(), time.process_time()
    records = WAYS[way](log, out)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    size = out.stat().st_size if out.exists() else 0
    figures = {
        "records": records,
        "CPU seconds": cpu_seconds,
        "wall seconds": seconds,
        "peak MB": _peak_mb(),
        "libraries MB": before_mb,
        "Parquet MB": size / 1e6,
    }
    print(json.dumps(figures))


def _peak_mb() -> float:
    # Not `ru_maxrss`: a process inherits that of the one it was started by.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def measure(way: str, log: Path, core: int) -> dict[str, Any]:
    out = log.with_name("out.parquet")
    out.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--measure", way, str(log), str(out)]
    done = subprocess.run(
        command, capture_output=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    return dict(json.loads(done.stdout))


def concatenated(folder: str, out: Path, times: int, most: int | None) -> int:
    """All logs of a folder as one, so many times; how many bytes of text that is."""
    size = 0
    with gzip.open(out, "wb", compresslevel=6) as file:
        for _ in range(times):
            for log in recorded_logs.logs(folder)[:most]:
                text = gzip.decompress(log.path.read_bytes())
                size += file.write(text if text.endswith(b"\n") else text + b"\n")
    return size


def main(options: argparse.Namespace) -> int:
    if options.measure:
        way, log, out = options.measure
        measure_here(way, Path(log), Path(out))
        return 0
    common.need_data()
    started = time.time()
    repeats, most = (2, 1) if options.quick else (options.repeats, None)
    with tempfile.TemporaryDirectory() as temporary:
        one, ten = Path(temporary) / "1.json.gz", Path(temporary) / "10.json.gz"
        sizes = {one: concatenated(options.folder, one, 1, most),
                 ten: concatenated(options.folder, ten, TIMES, most)}  # fmt: skip
        runs: dict[tuple[str, Path], list[dict[str, Any]]] = {}
        for _ in range(repeats):
            for way in WAYS:
                runs.setdefault((way, one), []).append(measure(way, one, options.core))
            runs.setdefault(("tunefleet", ten), []).append(measure("tunefleet", ten, options.core))
        rows = [_row(way, log, sizes[log], found) for (way, log), found in runs.items()]
    common.table(rows, COLUMNS)
    by_way = {row["way"]: row for row in rows if row["log"] == "1x"}
    (large,) = (row for row in rows if row["log"] == f"{TIMES}x")
    fastest = by_way["tunefleet"]["records/s"]
    checks = [
        common.at_least("records/s on one core", fastest, 60_000, "aim"),
        common.at_least("times as fast as the plain way",
                        fastest / by_way["plain"]["records/s"], 3, "aim"),
        common.at_most("peak MB, ten times the size", large["peak MB"], 500, "aim"),
        common.at_most("peak of ten times the size / of the size",
                       large["peak MB"] / by_way["tunefleet"]["peak MB"], 1.5, "aim"),
    ]  # fmt: skip
    times = fastest / by_way["json.loads"]["records/s"]
    print(f"\n{times:.2f} times as fast as json.loads alone, which makes no column of it")
    figures = {"folder": options.folder, "rows": rows, "times json.loads alone": times}
    return common.finish("import_speed", started, figures, checks, options.json)


def _row(way: str, log: Path, size: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    median = {
        name: statistics.median(run[name] for run in runs)
        for name in ("CPU seconds", "wall seconds")
    }
    return {
        **runs[0],
        **median,
        "way": way,
        "log": f"{log.name.partition('.')[0]}x",
        "all CPU seconds": [run["CPU seconds"] for run in runs],
        "records/s": runs[0]["records"] / median["CPU seconds"],
        "MB/s": size / 1e6 / median["CPU seconds"],
        "peak MB": max(run["peak MB"] for run in runs),
    }


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--folder", default=FOLDER, help="whose logs are read")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--core", type=int, default=0, help="the core that all of it runs on")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    common.run(main, parser)
