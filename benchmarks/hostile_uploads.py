"""Hostile uploads, each given to the function with which a service takes a network: refused with a
reason, or taken where it is odd but valid.

Of each upload: a line with cause and cure, at most 30 s and 2 GB, no code of it run, no connection
made, nothing changed outside, nothing left behind. `hostile_upload_cases.py` has the archives and
names; the networks are those of `hostile.py`.

    .venv/bin/python benchmarks/hostile_uploads.py --json OUT.json
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil

import common
import hostile_upload_cases
from hostile_case import MOST_MB, MOST_S, memory_mb
from hostile_upload_cases import Given, Upload

_WANTED = 60
_SAMPLED_S = 0.05
#: Of a line that says why something is refused.
_LONGEST = 500


@dataclasses.dataclass(frozen=True)
class Row:
    """`outcome`: refused or taken. `faults`: what it did that it may not."""

    kind: str
    name: str
    outcome: str
    seconds: float
    memory_mb: float
    said: str
    faults: tuple[str, ...]


class Watch:
    """What the processes of an upload take of memory, and who connects to a port meanwhile."""

    def __init__(self) -> None:
        self.connections = 0
        self.peak_mb = 0.0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._ends = threading.Event()
        self._known = {process.pid for process in psutil.Process().children(recursive=True)}
        for loop in (self._accept, self._sample):
            threading.Thread(target=loop, daemon=True).start()

    def begin(self) -> None:
        self.peak_mb = 0.0
        self._known = {process.pid for process in psutil.Process().children(recursive=True)}

    def close(self) -> None:
        self._ends.set()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.close()
            self.connections += 1

    def _sample(self) -> None:
        while not self._ends.wait(_SAMPLED_S):
            children = psutil.Process().children(recursive=True)
            own = [child for child in children if child.pid not in self._known]
            self.peak_mb = max(self.peak_mb, memory_mb(own))


def main(options: argparse.Namespace) -> int:
    started = time.time()
    uploads = [
        upload
        for upload in hostile_upload_cases.uploads()
        if (options.name or "") in f"{upload.kind}: {upload.name}"
        and (upload.quick or not options.quick)
    ]
    twice = [name for name, count in Counter(u.name for u in uploads).items() if count > 1]
    if twice:
        raise ValueError(f"two uploads have one name: {', '.join(twice)}")
    with tempfile.TemporaryDirectory(prefix="uploads-") as folder, closing(Watch()) as watch:
        # Scratch folders and a user's own files are where they can be seen.
        os.environ["TMPDIR"] = tempfile.tempdir = str(Path(folder, "tmp"))
        os.environ["HOME"] = str(Path(folder, "user"))
        Path(folder, "tmp").mkdir()
        Path(folder, "user").mkdir()
        rows = [tried(upload, Path(folder), watch) for upload in uploads]
        tempfile.tempdir = None
        connections = watch.connections
    figures = {"rows": [dataclasses.asdict(row) for row in rows], "connections": connections}
    checks = checks_of(rows, connections, wanted=1 if options.quick or options.name else _WANTED)
    return common.finish("hostile_uploads", started, figures, checks, options.json)


def tried(upload: Upload, folder: Path, watch: Watch) -> Row:
    """One upload: made, sent, and looked at for what it left."""
    from tunefleet.errors import InternalError, TunefleetError
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.runs.uploads import admit

    with tempfile.TemporaryDirectory(dir=folder, prefix="case-") as name:
        place = Given(Path(name), watch.port)
        sent = upload.make(place)
        context = BenchmarkContext(home=Path(name, "home"))
        assert context.target is not None
        before = listing(folder)
        watch.begin()
        began = time.monotonic()
        faults = []
        try:
            admit(sent.path, sent.name, context, sent.options)
            outcome, said = "taken", ""
            faults += [] if upload.may_be_taken else ["taken"]
        except InternalError as error:
            outcome, said = "refused", str(error)
            faults.append("a bug of ours")
        except TunefleetError as error:
            outcome, said = "refused", str(error)
            faults += [] if error.cure else ["no cure"]
        except Exception as error:
            outcome, said = "refused", f"{type(error).__name__}: {error}"
            faults.append("another error")
        seconds = time.monotonic() - began
        faults += [] if seconds <= MOST_S else [f"{seconds:.0f} s"]
        faults += [] if watch.peak_mb <= MOST_MB else [f"{watch.peak_mb:.0f} MB"]
        faults += ["ran code"] if place.canary.exists() else []
        # Of what is taken, its files are kept in the home.
        ours = str(Path(name, "home"))
        changed = [
            path
            for path in sorted({p for p, _ in before ^ listing(folder)})
            if not (outcome == "taken" and path.startswith(ours)) and not _is_empty_home(path, ours)
        ]
        faults += [f"changed {Path(path).relative_to(folder)}" for path in changed]
        faults += ["more than a line"] if "\n" in said or not said.isprintable() else []
        said = said.replace(name, "DIR").replace(str(folder), "ALL")[:_LONGEST]
    row = Row(upload.kind, upload.name, outcome, round(seconds, 1), round(watch.peak_mb), said,
              tuple(faults))  # fmt: skip
    mark = f"MISS {', '.join(faults)}" if faults else "ok  "
    print(f"{mark} {row.kind}: {row.name}: {outcome}, {row.seconds} s, {row.memory_mb} MB: "
          f"{said[:160]}", flush=True)  # fmt: skip
    return row


def _is_empty_home(path: str, home: str) -> bool:
    return (
        path.startswith(home)
        and os.path.isdir(path)
        and not any(names for _, _, names in os.walk(path))
    )


def listing(folder: Path) -> set[tuple[str, tuple[int, int]]]:
    """Every file and folder below, with its size and its last change; not the processes' own
    folders, which outlive a call, nor times of folders."""
    found = set()
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith("tunefleet-spawn-")]
        for each in (*folders, *files):
            path = os.path.join(parent, each)
            status = os.lstat(path)
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            state = (0, 0) if is_folder else (status.st_size, status.st_mtime_ns)
            found.add((path, state))
    return found


def checks_of(rows: list[Row], connections: int, wanted: int) -> list[common.Check]:
    bad = [f"{row.name} ({', '.join(row.faults)})" for row in rows if row.faults]
    return [
        common.at_least("uploads tried", len(rows), wanted, "condition"),
        common.Check("uploads that ended otherwise than they may", "; ".join(bad), "none",
                     "condition", not bad),
        common.at_most("longest, s", max((row.seconds for row in rows), default=0), MOST_S,
                       "condition", any_size=True),
        common.at_most("most memory, MB", max((row.memory_mb for row in rows), default=0),
                       MOST_MB, "condition", any_size=True),
        common.Check("connections made", str(connections), "none", "condition", not connections),
    ]  # fmt: skip


if __name__ == "__main__":
    made = common.parser("Hostile uploads, and how each of them ends.")
    made.add_argument("--name", help="only uploads that have this in their kind or name")
    common.run(main, made)
