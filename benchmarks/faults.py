"""Faults of the machine in the middle of a search: what the user is told, and what is left.

Each fault meets `tunefleet tune zoo:tiny_cnn` once it searches, in a home and a temporary folder of
its own: a disk that is full, a store that is removed or replaced, a log that is overwritten, a home
that cannot be written, a store that another process holds. Then the store is looked at, repaired
where it is damaged, and the same command given again must end with all its trials.

    .venv/bin/python benchmarks/faults.py --json faults.json [--quick] [--name log]

Disks are small file systems in memory, which only root may mount: without that they are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common
from killing import Command

TRIALS = 24
OPTIONS = ["--trials", str(TRIALS), "--batch", "8", "--first-batch", "8", "--threads", "1"]
#: Seconds of a search before the fault, and that a disk stays full.
INTO_SEARCH_S, FULL_S = 3.0, 6.0
LIMIT_S = 300.0
DISK = "400m"


@dataclass
class Scene:
    """Where a command runs. `space` is mounted where the fault needs a small disk."""

    folder: Path
    home: Path = field(init=False)
    temporary: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home, self.temporary = self.folder / "home", self.folder / "temporary"
        self.home.mkdir()
        self.temporary.mkdir()

    @property
    def store(self) -> Path:
        return self.home / "store.sqlite"


@dataclass(frozen=True)
class Fault:
    """`strike` does it, once the command searches, and returns what undoes it; `disk` says which
    folder must be a small disk. Exit code 0: the command goes on by itself."""

    name: str
    strike: Callable[[Scene], Callable[[], None]]
    exits: int
    disk: str = ""
    before: bool = False


def _nothing() -> None:
    pass


def _fill(name: str) -> Callable[[Scene], Callable[[], None]]:
    def strike(scene: Scene) -> Callable[[], None]:
        file = getattr(scene, name) / "filler"
        with file.open("wb") as out:
            try:
                while True:
                    out.write(bytes(1 << 20))
                    out.flush()
            except OSError:
                pass
        threading.Timer(FULL_S, file.unlink).start()
        return _nothing

    return strike


def _remove(scene: Scene) -> Callable[[], None]:
    kept = scene.folder / "kept.sqlite"
    scene.store.rename(kept)
    return lambda: _put_back(scene, kept)


def _put_back(scene: Scene, kept: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{scene.store}{suffix}").unlink(missing_ok=True)
    kept.rename(scene.store)


def _replace(scene: Scene) -> Callable[[], None]:
    undo = _remove(scene)
    sqlite3.connect(scene.store).close()
    scene.store.write_bytes(b"")
    return undo


def _overwrite_log(scene: Scene) -> Callable[[], None]:
    log = Path(f"{scene.store}-wal")
    with log.open("r+b") as file:
        file.write(b"\xa5" * log.stat().st_size)
    return lambda: _repair(scene)


def _spoil(scene: Scene) -> Callable[[], None]:
    """The end of the file, where what came last lies."""
    with sqlite3.connect(scene.store) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with scene.store.open("r+b") as file:
        file.seek(-(1 << 14), os.SEEK_END)
        file.write(b"\xa5" * (1 << 14))
    return lambda: _repair(scene)


def _repair(scene: Scene) -> None:
    log = Path(f"{scene.store}-wal")
    log.unlink(missing_ok=True)
    Path(f"{scene.store}-shm").unlink(missing_ok=True)
    command = [_program(), "store", "repair", "--home", str(scene.home)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _lock(scene: Scene) -> Callable[[], None]:
    with sqlite3.connect(scene.store) as connection:
        connection.execute("PRAGMA user_version")
    other = sqlite3.connect(scene.store, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other.close


def _read_only(scene: Scene) -> Callable[[], None]:
    _mount("-o", "remount,ro", str(scene.home))
    return lambda: _mount("-o", "remount,rw", str(scene.home))


FAULTS = (
    Fault("the temporary folder's disk is full for a while", _fill("temporary"), 0, "temporary"),
    Fault("the home's disk is full for a while", _fill("home"), 0, "home"),
    Fault("the store is removed", _remove, 3),
    Fault("the store is replaced by an empty file", _replace, 3),
    Fault("the store's log is overwritten", _overwrite_log, 3),
    Fault("the end of the store is overwritten", _spoil, 3),
    Fault("another process holds the store", _lock, 4),
    # Not in the middle: Linux refuses it while anybody has a file open to write to it.
    Fault("home is read-only from the start", _read_only, 3, "home", before=True),
)


@contextmanager
def _disk(folder: Path | None) -> Iterator[bool]:
    """A small file system in memory at a folder; False where this user may not mount one."""
    if folder is None:
        yield True
        return
    try:
        _mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError):
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _program() -> str:
    return str(Path(sys.executable).parent / "tunefleet")


def _trials(scene: Scene) -> int:
    from tunefleet.store import open_store

    store = open_store(scene.home)
    try:
        return sum(store.records.trial_count(job.job_id) for job in store.jobs.page())
    finally:
        store.close()


def suffer(fault: Fault) -> dict[str, Any]:
    """One fault, and what became of the job."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    scene = Scene(folder)
    try:
        with _disk(getattr(scene, fault.disk) if fault.disk else None) as mounted:
            if not mounted:
                return {"fault": fault.name, "said": "left out: this user may not mount a disk"}
            undo = fault.strike(scene) if fault.before else _nothing
            first = Command(["zoo:tiny_cnn"], OPTIONS, scene.home, scene.temporary)
            if first.watch(lambda: first.reached("search", INTO_SEARCH_S), LIMIT_S):
                undo = fault.strike(scene)
            struck = time.monotonic()
            code = first.end(LIMIT_S)
            seconds = time.monotonic() - struck
            first.read()
            said = [line for line in first.lines if "error" in line or "paused" in line]
            first.close()
            undo()
            kept = _trials(scene)
            again = Command(["zoo:tiny_cnn"], OPTIONS, scene.home, scene.temporary)
            ended = again.end(LIMIT_S)
            again.close()
            return {
                "fault": fault.name,
                "exit": code,
                "seconds": seconds,
                "kept": kept,
                "again": ended,
                "trials": _trials(scene),
                "expected": fault.exits,
                "said": (said or first.lines)[-1].replace(str(folder), "DIR"),
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(options: argparse.Namespace) -> int:
    started = time.time()
    chosen = [f for f in FAULTS if options.name in f.name][: 2 if options.quick else None]
    rows = []
    for fault in chosen:
        rows.append(suffer(fault))
        print(f"{fault.name}: {rows[-1].get('exit')}, {rows[-1]['said']}", flush=True)
    common.table(rows, ["fault", "exit", "seconds", "kept", "again", "trials", "said"])
    done = [row for row in rows if "exit" in row]
    wrong = [r["fault"] for r in done if r["exit"] != r["expected"]]
    lost = [r["fault"] for r in done if r["again"] != 0 or r["trials"] < TRIALS]
    checks = [
        common.Check("faults that end otherwise", ", ".join(wrong), "none", "condition", not wrong),
        common.Check("jobs that cannot go on", ", ".join(lost), "none", "condition", not lost),
    ]
    return common.finish("faults", started, {"rows": rows}, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Faults of the machine in the middle of a search.")
    made.add_argument("--name", default="", help="only faults with this in their name")
    common.run(main, made)
