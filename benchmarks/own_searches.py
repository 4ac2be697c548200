"""Searches of tunefleet itself as a file: the latencies of all trials of each task, in their order.

The searches of the homes' ended jobs are added to the file; those of the same job are replaced.
With `--network` each network is first tuned for each of the `--minutes`, in a new home with a seed
of its own, one after the other. `forecasts.py --searches FILE` reads the file.

    .venv/bin/python benchmarks/own_searches.py --home engines/resnet50/home --out FILE
    .venv/bin/python benchmarks/own_searches.py --network zoo:resnet18 --minutes 1 2 --out FILE
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
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


def add(homes: Sequence[Path], out: Path) -> None:
    kept: dict[str, dict[str, Any]] = {}
    if out.exists():
        with gzip.open(out, "rt", encoding="utf-8") as file:
            kept = {row["name"]: row for row in map(json.loads, file)}
    for home in homes:
        kept |= {row["name"]: row | {"file": out.name} for row in rows_of(home)}
    text = "".join(f"{json.dumps(row)}\n" for row in kept.values())
    out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(kept)} searches, {out.stat().st_size / 1e3:.0f} kB", flush=True)


def search(network: str, minutes: float, seed: int, out: Path) -> None:
    """Tune a network in a new home, and add its search."""
    with tempfile.TemporaryDirectory() as folder:
        # Unnamed networks are called as the folder of their file, which here is the home's too.
        home = Path(folder) / (Path(network).parent.name or "zoo") / "home"
        command = [sys.executable, "-m", "tunefleet", "tune", network, "--minutes", f"{minutes:g}",
                   "--seed", str(seed), "--home", str(home), "--quiet"]  # fmt: skip
        print(network, minutes, "minutes, seed", seed, flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        add([home], out)


def main(options: argparse.Namespace) -> int:
    add(options.home, options.out)
    for seed, minutes in enumerate(options.minutes):
        for network in options.network:
            search(network, minutes, seed, options.out)
    return 0


if __name__ == "__main__":
    made = argparse.ArgumentParser(description="Searches of tunefleet itself as a file.")
    made.add_argument("--home", type=Path, action="append", default=[])
    made.add_argument("--network", nargs="*", default=[])
    made.add_argument("--minutes", type=float, nargs="*", default=[])
    made.add_argument("--out", type=Path, required=True)
    raise SystemExit(main(made.parse_args()))
