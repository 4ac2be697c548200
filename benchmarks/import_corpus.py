"""Does what runs elsewhere import here? A line per network, resumable.

Corpora: `wheels` (ONNX files inside packages), `torchvision`, `timm` and `transformers` (each
architecture as .pt2 and as ONNX with and without free dimensions, random weights), `nodes` (ONNX's
own backend tests). Each network is exported in one process and imported in another: compiled with
the plain schedule, run, and compared with its source framework on seeded inputs.

    python benchmarks/import_corpus.py --folder corpus [--corpus timm] [--name resnet] [--form pt2]

Lines go to FOLDER/CORPUS.jsonl; what has a line is not done again, unless `--again` names outcomes.
torchvision and timm must be importable (--extras names a folder with them).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import common
import corpus
import corpus_wheels

HERE = Path(__file__).parent
CORPORA = ("wheels", "torchvision", "timm", "transformers", "nodes")
#: Seconds that one network may take to be exported, and to be imported.
LONGEST_S = 600.0
COLUMNS = ["network", "outcome", "tasks", "difference", "import_s", "compile_s", "peak_mb", "why"]

#: Of a corpus: the least share that must be whole, or pass. The rest must be delivered.
WHOLE = {"wheels": 0.85, "torchvision": 0.97, "timm": 0.97, "transformers": 0.97, "nodes": 0.90}


@dataclass(frozen=True)
class Item:
    """One network in one form. `fetch` gives its file and what is asked of its shapes."""

    key: str
    fetch: Callable[[], tuple[Path, dict[str, Any]]]
    temporary: bool = True


class NotExported(Exception):
    """The source framework itself could not write the file."""


def items(name: str, options: argparse.Namespace) -> Iterator[Item]:
    if name == "wheels":
        for file in corpus_wheels.files(options.folder / "wheels"):
            key = f"{file.package}/{file.path.name}/{file.path.parent.name}"
            asked = {"shapes": file.shapes, "constants": file.constants}
            yield Item(key, lambda file=file, asked=asked: (file.path, asked), False)
        return
    for made in corpus.architectures(name):
        for form in corpus.FORMS:
            yield Item(
                f"{name}/{made.name}/{form}",
                lambda made=made, form=form: _exported(made, form, options),
            )


def _exported(
    made: corpus.Architecture, form: corpus.Form, options: argparse.Namespace
) -> tuple[Path, dict[str, Any]]:
    folder = options.folder / "files" / f"{made.package}-{made.name}-{form}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{made.name}.{form.partition('-')[0]}"
    row, _ = _child(["export", made.package, made.name, form, str(path)], options)
    if "error" in row:
        raise NotExported(row["error"])
    return path, row


def _child(arguments: list[str], options: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """The line of JSON that `import_one.py` printed, and its peak memory in MB."""
    environment = {**os.environ, "CORPUS_THREADS": str(options.threads)}
    if arguments[0] == "export" and options.extras:
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(options.extras), environment.get("PYTHONPATH", "")]
        )
    command = [sys.executable, str(HERE / "import_one.py"), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            out, err = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"error": f"took longer than {LONGEST_S:.0f} s"}, 0.0
    lines = out.decode(errors="replace").strip().splitlines()
    if process.returncode or not lines:
        last = err.decode(errors="replace").strip().splitlines() or [""]
        return {"error": f"process ended with {process.returncode}: {last[-1][:200]}"}, 0.0
    row = json.loads(lines[-1])
    if "error" in row:
        row["log"] = err.decode(errors="replace")[-3000:]
    return row, row.pop("peak_mb", 0.0)


def outcome(row: dict[str, Any]) -> str:
    if "error" in row:
        return "failed"
    if not row["verified"]:
        return "differs"
    return "segments" if row["segments"] else "whole"


def tried(item: Item, options: argparse.Namespace) -> dict[str, Any]:
    started = time.time()
    path = None
    try:
        path, asked = item.fetch()
        row, peak = _child(["import", str(path), json.dumps(asked)], options)
        row |= {"outcome": outcome(row), "peak_mb": round(peak)}
    except NotExported as error:
        row = {"outcome": "not exported", "error": str(error)}
    if path is not None and item.temporary and not options.keep:
        for file in path.parent.iterdir():
            file.unlink()
    return {"network": item.key, **row, "seconds": round(time.time() - started, 1)}


def run(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Do what is still to do of a corpus; every line of it, old and new."""
    log = options.folder / f"{name}.jsonl"
    done = _read(log)
    waiting = [
        item
        for item in items(name, options)
        if options.name in item.key
        and (not options.form or item.key.endswith(f"/{options.form}"))
        and (item.key not in done or done[item.key]["outcome"] in options.again)
    ][: options.most]
    lock = Lock()

    def one(item: Item) -> None:
        row = tried(item, options)
        with lock:
            done[item.key] = row
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            why = row.get("error") or "; ".join(row["reasons"])
            print(f"{row['outcome']:12} {item.key}  {row['seconds']} s  {why[:150]}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, waiting))
    return list(done.values())


def _read(log: Path) -> dict[str, dict[str, Any]]:
    """The last line of each network."""
    if not log.exists():
        return {}
    return {row["network"]: row for row in map(json.loads, log.read_text().splitlines())}


def checks(name: str, rows: list[dict[str, Any]]) -> list[common.Check]:
    """What the source framework could not write itself is not a network that a user has."""
    counts = Counter(row["outcome"] for row in rows)
    there = len(rows) - counts["not exported"]
    if not there:
        return []
    delivered = (counts["whole"] + counts["segments"]) / there
    made = [common.at_least(f"{name}: delivered, of {there}", delivered, 1.0, "condition")]
    whole = counts["whole"] / there
    made.append(common.at_least(f"{name}: whole", whole, WHOLE[name], "condition"))
    return made


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    started, made, figures = time.time(), [], {}
    for name in options.corpus or CORPORA:
        rows = run(name, options)
        for row in rows:
            row["why"] = (row.get("error") or "; ".join(row.get("reasons", [])))[:60]
        print(f"\n{name}")
        common.table(rows, COLUMNS)
        print(dict(Counter(row["outcome"] for row in rows)))
        figures[name] = rows
        made += checks(name, rows)
    return common.finish("import_corpus", started, figures, made, options.json)


def _options() -> argparse.Namespace:
    made = common.parser(__doc__ or "")
    made.add_argument("--folder", type=Path, required=True, help="lines, wheels, exported files")
    made.add_argument("--corpus", action="append", choices=CORPORA)
    made.add_argument("--name", default="", help="only networks whose key has this in it")
    made.add_argument("--form", choices=corpus.FORMS)
    made.add_argument("--again", action="append", default=[], help="do these outcomes again")
    made.add_argument("--most", type=int, help="at most so many networks of each corpus")
    made.add_argument("--jobs", type=int, default=2, help="processes at once")
    made.add_argument("--threads", type=int, default=1, help="of each process")
    made.add_argument("--extras", type=Path, help="a folder with torchvision and timm")
    made.add_argument("--keep", action="store_true", help="keep the exported files")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(main())
