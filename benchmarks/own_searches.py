"""Searches of tunefleet itself as a file: the latencies of all trials of each task, in their order.

The searches of the homes' ended jobs are added to the file; those of the same job are replaced.
`forecasts.py --searches FILE` reads it.

    .venv/bin/python benchmarks/own_searches.py --home engines/resnet50/home --out FILE
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recorded_searches import RecordedSearch, recorded, searches_of
from tunefleet.core.forecast import TaskCurve
from tunefleet.learning.curves import SearchedNetwork, SearchOrigin

#: The name of the files that `engines.py` writes; the folder has the network's.
_UNNAMED = "network"
_DIGITS = 4


def load(path: Path) -> list[RecordedSearch]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [_search(json.loads(line)) for line in file]


def _search(row: dict[str, Any]) -> RecordedSearch:
    tasks = [
        TaskCurve(
            **{k: v for k, v in task.items() if k not in ("latencies_s", "numbers")},
            latencies_s=tuple(task["latencies_s"]),
            numbers=tuple(task["numbers"]),
        )
        for task in row["tasks"]
    ]
    origin = SearchOrigin(**row["origin"])
    return recorded(SearchedNetwork.of(origin, tasks), row["name"], (row["file"],))


def rows_of(home: Path) -> list[dict[str, Any]]:
    rows = []
    for search in searches_of(home):
        origin = asdict(search.origin)
        if origin["network"] == _UNNAMED:
            origin["network"] = home.resolve().parent.name
        tasks = [
            asdict(task)
            | {"latencies_s": [s and float(f"{s:.{_DIGITS}g}") for s in task.latencies_s]}
            for task in search.tasks
        ]
        rows.append({"name": search.name, "origin": origin, "file": "", "tasks": tasks})
    return rows


def main(options: argparse.Namespace) -> int:
    kept: dict[str, dict[str, Any]] = {}
    if options.out.exists():
        with gzip.open(options.out, "rt", encoding="utf-8") as file:
            kept = {row["name"]: row for row in map(json.loads, file)}
    for home in options.home:
        kept |= {row["name"]: row | {"file": options.out.name} for row in rows_of(home)}
    text = "".join(f"{json.dumps(row)}\n" for row in kept.values())
    options.out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(kept)} searches, {options.out.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    made = argparse.ArgumentParser(description="Searches of tunefleet itself as a file.")
    made.add_argument("--home", type=Path, action="append", required=True)
    made.add_argument("--out", type=Path, required=True)
    raise SystemExit(main(made.parse_args()))
