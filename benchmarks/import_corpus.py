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
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import common
import corpus
import corpus_nodes
import corpus_wheels

HERE = Path(__file__).parent
CORPORA = ("wheels", "torchvision", "timm", "transformers", "nodes")
#: Corpora of packages that may lie in a folder apart.
EXTRAS = ("torchvision", "timm")
#: Seconds that one network may take to be exported, and to be imported.
LONGEST_S = 600.0
COLUMNS = ["network", "outcome", "tasks", "difference", "import_s", "compile_s", "peak_mb", "why"]

#: What is missing here was not refused by its exporter.
MISSING = ("ImportError", "ModuleNotFoundError")
#: Of a corpus: the least share that must be whole. The rest must be delivered.
WHOLE = {"wheels": 0.85, "torchvision": 0.97, "timm": 0.97, "transformers": 0.97}
#: Networks of a corpus, spread over it, that show the path: what needs no download.
QUICK = {"transformers": 2, "nodes": 30}
#: Of ONNX's tests of deterministic operators of numbers: the least share that must pass.
PASS = 0.90


@dataclass(frozen=True)
class Item:
    """One network in one form: what it is called, and how its line is made."""

    key: str
    attempt: Callable[[], dict[str, Any]]
    #: Without the form.
    architecture: str


def items(name: str, options: argparse.Namespace) -> Iterator[Item]:
    if name == "wheels":
        for file in corpus_wheels.files(options.folder / "wheels"):
            key = f"{file.package}/{file.path.name}/{file.path.parent.name}"
            asked = {"shapes": file.shapes, "constants": file.constants}
            yield Item(key, partial(_imported, file.path, asked, options), key)
    elif name == "nodes":
        for test in corpus_nodes.tests():
            yield Item(test.name, partial(_tested, test), test.name)
    else:
        for made in corpus.architectures(name):
            for form in made.forms:
                key = f"{name}/{made.name}/{form}"
                yield Item(key, partial(_exported, made, form, options), made.name)


def _exported(
    made: corpus.Architecture, form: corpus.Form, options: argparse.Namespace
) -> dict[str, Any]:
    folder = options.folder / "files" / f"{made.package}-{made.name}-{form}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{made.name}.{form.partition('-')[0]}"
    asked, _ = _child(["export", made.package, made.name, form, str(path)], options)
    try:
        if asked.get("error", "").startswith(MISSING):
            sys.exit(f"{made.package}/{made.name}: {asked['error']}")
        if "error" in asked:
            return {"outcome": "not exported", **asked}
        return _imported(path, asked, options)
    finally:
        if not options.keep:
            shutil.rmtree(folder)


def _imported(path: Path, asked: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    row, peak = _child(["import", str(path), json.dumps(asked)], options)
    return row | {"outcome": outcome(row), "peak_mb": round(peak)}


_own = threading.local()


def _tested(test: corpus_nodes.NodeTest) -> dict[str, Any]:
    """A line of one of ONNX's tests; `outside` passes in ONNX Runtime alone."""
    if test.left_out:
        return {"outcome": "left out", "reasons": [test.left_out]}
    if not hasattr(_own, "runner"):
        _own.runner = corpus_nodes.Runner()
    found = _own.runner.run(test.name)
    row = {"operators": test.operators, "reasons": [found.reason] if found.reason else []}
    return row | {"outcome": found.form if found.passed else "failed"}


def _child(arguments: list[str], options: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """The line of JSON that `import_one.py` printed, and its peak memory in MB."""
    environment = {**os.environ, "CORPUS_THREADS": str(options.threads)}
    # A torchvision beside the wrong torch keeps transformers from importing.
    if arguments[0] == "export" and arguments[1] in EXTRAS and options.extras:
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
    ]
    # What is done of it by any time is a fair sample, of whole architectures.
    random.Random(0).shuffle(waiting)
    place = {item.architecture: i for i, item in enumerate(waiting)}
    waiting.sort(key=lambda item: place[item.architecture])
    if options.quick:
        waiting = waiting[: QUICK[name]]
    lock = threading.Lock()

    def one(item: Item) -> None:
        started = time.time()
        row = {"network": item.key, **item.attempt()}
        row["seconds"] = round(time.time() - started, 1)
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
    return {
        row["network"]: row for row in map(json.loads, log.read_text(encoding="utf-8").splitlines())
    }


def checks(name: str, rows: list[dict[str, Any]]) -> list[common.Check]:
    """What the source framework could not write itself is not a network that a user has."""
    counts = Counter(row["outcome"] for row in rows)
    there = len(rows) - counts["not exported"] - counts["left out"]
    if not there:
        return []
    if name == "nodes":
        passed = 1 - counts["failed"] / there
        return [common.at_least(f"nodes: pass, of {there}", passed, PASS, "condition")]
    delivered = (counts["whole"] + counts["segments"]) / there
    made = [common.at_least(f"{name}: delivered, of {there}", delivered, 1.0, "condition")]
    whole = counts["whole"] / there
    made.append(common.at_least(f"{name}: whole", whole, WHOLE[name], "condition"))
    return made


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    started, made, figures = time.time(), [], {}
    for name in options.corpus or (QUICK if options.quick else CORPORA):
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
    made.add_argument("--corpus", action="append", choices=CORPORA, help="the default is all")
    made.add_argument("--name", default="", help="only networks whose key has this in it")
    made.add_argument("--form", choices=corpus.FORMS)
    made.add_argument("--again", action="append", default=[], help="do these outcomes again")
    made.add_argument("--jobs", type=int, default=2, help="processes at once")
    made.add_argument("--threads", type=int, default=1, help="of each process")
    made.add_argument("--extras", type=Path, help="a folder with torchvision and timm")
    made.add_argument("--keep", action="store_true", help="keep the exported files")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(main())
