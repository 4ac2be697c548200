"""Every recorded log to Parquet, and back where the format is written.

For each folder of `../shared/data`: records, failures and bad lines as read, held against those of
its README.md; and of auto_scheduler and MetaSchedule whether the log that is written from the
Parquet file is the one that was read, record by record as `json.loads` has them. Files that show no
format (the reports of droplet_autotvm) are read as the logs beside them, and counted apart.

    python benchmarks/import_all.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import recorded_logs
from recorded_logs import Log
from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.codecs.metaschedule import workloads_of

COLUMNS = ["folder", "files", "MB", "records", "README", "failed", "README failed", "bad lines",
           "README bad", "no logs", "their lines", "equal", "seconds"]  # fmt: skip


def imported(log: Log, folder: Path) -> dict[str, Any]:
    """What one log gave; `equal` is None for a format that is not written."""
    bad: list[int] = []
    records = folder / "records.parquet"
    batches = codecs.read(
        log.path, device="any", format=log.format, on_bad=lambda line: bad.append(line.line)
    )
    count = parquet.write(batches, records)
    failed = sum(
        int((batch.column("error_no").to_numpy() != 0).sum())
        for batch in parquet.read(records, ["error_no"])
    )
    found = {"records": count, "failed": failed, "bad lines": len(bad), "equal": None}
    if log.format == "auto_scheduler" and count:
        codecs.write(parquet.read(records), folder / "again.json", log.format)
        again = _records(folder / "again.json")
        found["equal"] = all(
            one == other for one, other in zip(_records(log.path, {*bad}), again, strict=True)
        )
    if log.format == "metaschedule" and count:
        found["equal"] = _same_database(log.path, records, folder / "database")
    return found


def _same_database(path: Path, records: Path, folder: Path) -> bool:
    codecs.write(parquet.read(records), folder, "metaschedule")
    again = folder / "database_tuning_record.json"
    workloads, written = workloads_of(path), workloads_of(again)
    if list(_records(path)) != list(_records(again)):
        return False
    if workloads is None or written is None:
        return workloads is written
    return list(_records(workloads)) == list(_records(written))


def _records(path: Path, left_out: set[int] | None = None) -> Iterator[Any]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and line[:1] not in b"# " and number not in (left_out or ()):
                yield json.loads(line)


def row_of(folder: str, most: int | None) -> dict[str, Any]:
    started = time.perf_counter()
    logs = recorded_logs.logs(folder)[:most]
    with tempfile.TemporaryDirectory() as temporary:
        found = [imported(log, Path(temporary)) for log in logs]
    said = recorded_logs.counts(folder)
    reports = [one for log, one in zip(logs, found, strict=True) if not log.is_told]
    their_lines = sum(one["bad lines"] for one in reports)
    compared = [one["equal"] for one in found if one["equal"] is not None]
    return {
        "folder": folder,
        "files": len(logs),
        "MB": sum(log.path.stat().st_size for log in logs) / 1e6,
        **{name: sum(one[name] for one in found) for name in ("records", "failed")},
        "bad lines": sum(one["bad lines"] for one in found) - their_lines,
        "README": said.records,
        "README failed": None if said.ok is None else (said.records or 0) - said.ok,
        "README bad": said.not_records,
        "no logs": len(reports),
        "their lines": their_lines,
        "equal": f"{sum(compared)}/{len(compared)}" if compared else None,
        "seconds": time.perf_counter() - started,
    }


def main(options: argparse.Namespace) -> int:
    started = time.time()
    common.need_data()
    rows = [row_of(folder, 2 if options.quick else None) for folder in recorded_logs.folders()]
    common.table(rows, COLUMNS)
    checks = []
    if not options.quick:
        for name, said in (("records", "README"), ("failed", "README failed"),
                           ("bad lines", "README bad")):  # fmt: skip
            # How the lines of reports were counted there is not known.
            wrong = [r["folder"] for r in rows if r[said] not in (None, r[name])
                     and not (name == "bad lines" and r["no logs"] and not r[name])]  # fmt: skip
            checks.append(common.Check(f"folders with other {name} than their README.md",
                                       ", ".join(wrong) or "none", "none", "condition",
                                       not wrong))  # fmt: skip
    changed = [r["folder"] for r in rows if r["equal"] and len(set(r["equal"].split("/"))) > 1]
    checks.append(common.Check("folders with a log that comes back changed",
                               ", ".join(changed) or "none", "none", "condition",
                               not changed))  # fmt: skip
    total = {name: sum(row[name] for row in rows) for name in ("files", "records", "failed")}
    print(f"\n{total['files']:,} files, {total['records']:,} records, {total['failed']:,} failed")
    return common.finish("import_all", started, {"folders": rows}, checks, options.json)


if __name__ == "__main__":
    common.run(main, common.parser(__doc__ or ""))
