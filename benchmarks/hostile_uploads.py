"""Hostile uploads, sent to the service over HTTP while it does jobs: refused with a reason, or
taken where they are odd but valid.

Of each upload: a problem with cause and cure, at most 30 s and 2 GB, no code of it run, no
connection made, nothing changed outside, nothing left behind. Meanwhile another user's jobs go on,
and the service answers. `hostile_upload_cases.py` has the archives and names, `hostile_requests.py`
what is hostile in how a file is sent; the networks are those of `hostile.py`.

    .venv/bin/python benchmarks/hostile_uploads.py --json OUT.json
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil

import common
import hostile_requests
import hostile_upload_cases
from hostile_case import MOST_MB, MOST_S
from hostile_requests import Attacker, HostileRequest
from hostile_upload_cases import Given, Sent, Upload

_WANTED = 60
_SAMPLED_S = 0.05
#: Of a line that says why something is refused.
_LONGEST = 500
#: What the service may take to say that it lives, while checks and jobs run on the same cores.
_ALIVE_MS = 1000.0


@dataclasses.dataclass(frozen=True)
class Row:
    """`outcome`: refused or taken. `faults`: what it did that it may not."""

    kind: str
    name: str
    outcome: str
    status: int
    seconds: float
    said: str
    faults: tuple[str, ...]


class Watch:
    """The largest process of the service, who connects to a port, and how long the service takes to
    say that it lives."""

    def __init__(self, url: str, service: psutil.Process) -> None:
        self.connections, self.peak_mb = 0, 0.0
        self.alive_ms: list[float] = []
        self._service = service
        self._http = httpx.Client(base_url=url, timeout=60.0)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._ends = threading.Event()
        for loop in (self._accept, self._sample, self._ask):
            threading.Thread(target=loop, daemon=True).start()

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
            for process in self._service.children(recursive=True):
                try:
                    memory = process.memory_info()
                except psutil.Error:
                    continue
                self.peak_mb = max(self.peak_mb, (memory.rss - memory.shared) / 2**20)

    def _ask(self) -> None:
        while not self._ends.wait(_SAMPLED_S):
            began = time.monotonic()
            self._http.get("/healthz").raise_for_status()
            self.alive_ms.append(1e3 * (time.monotonic() - began))


class Jobs:
    """Jobs of another user, one after another; `states` are those of the ones that ended."""

    def __init__(self, url: str, token: str) -> None:
        from tunefleet.client import connect

        self.states: list[str] = []
        self._client = connect(url, token)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the last one."""
        self._ends.set()
        self._thread.join()
        self._client.close()

    def _ask(self) -> None:
        while not self._ends.is_set():
            trials = 8 + len(self.states)
            view = self._client.submit("zoo:tiny_cnn", budget={"trials": trials}, threads=1)
            self.states.append(str(self._client.wait(view["id"])["state"]))


def main(options: argparse.Namespace) -> int:
    started = time.time()
    uploads = _chosen(hostile_upload_cases.uploads(), options)
    asked = [r for r in hostile_requests.requests() if (options.name or "") in f"sent: {r.name}"]
    if options.quick:
        asked = [request for request in asked if not request.slow][:4]
    with tempfile.TemporaryDirectory(prefix="uploads-") as name:
        folder = Path(name)
        for each in ("user", "tmp"):
            (folder / each).mkdir()
        with (
            service(folder) as (url, admin, process),
            closing(Watch(url, process)) as watch,
            closing(Jobs(url, _token_of(url, admin, "ann"))) as jobs,
        ):
            attacker = Attacker(url, _token_of(url, admin, "mallory"))
            slow = [Beside(request, attacker) for request in asked if request.slow]
            rows = [tried(upload, folder, watch, attacker) for upload in uploads]
            rows += [asked_for(each, attacker) for each in asked if not each.slow]
            rows += [each.row() for each in slow]
        left = _left(folder)
    figures = {
        "rows": [dataclasses.asdict(row) for row in rows],
        "refused": sum(row.outcome == "refused" for row in rows),
        "taken": sum(row.outcome == "taken" for row in rows),
        "jobs": Counter(jobs.states),
        "connections": watch.connections,
        "memory_mb": watch.peak_mb,
        "alive_ms": quantiles(watch.alive_ms),
    }
    print({name: figures[name] for name in figures if name != "rows"})
    wanted = 1 if options.quick or options.name else _WANTED
    checks = checks_of(rows, watch, jobs.states, left, wanted)
    return common.finish("hostile_uploads", started, figures, checks, options.json)


def _chosen(uploads: list[Upload], options: argparse.Namespace) -> list[Upload]:
    chosen = [
        upload
        for upload in uploads
        if (options.name or "") in f"{upload.kind}: {upload.name}"
        and (upload.quick or not options.quick or options.name)
    ]
    twice = [name for name, count in Counter(u.name for u in chosen).items() if count > 1]
    if twice:
        raise ValueError(f"two uploads have one name: {', '.join(twice)}")
    return chosen


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, str, psutil.Process]]:
    """The service of a home below a folder: its URL, its admin's token, and its process. Scratch
    folders and the user's own files are where they can be seen."""
    command = [sys.executable, "-m", "tunefleet", "serve", "--http", "0", "--threads", "1"]
    environment = {**os.environ, "HOME": str(folder / "user"), "TMPDIR": str(folder / "tmp")}
    log = (folder / "serve.txt").open("w+", encoding="utf-8")
    with (
        log,
        subprocess.Popen(
            [*command, "--home", str(folder / "home")], stderr=log, env=environment
        ) as process,
    ):
        end, said = time.monotonic() + 60, ""
        while "shown again: " not in said:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the service does not begin: {said}")
            time.sleep(0.1)
            said = (folder / "serve.txt").read_text(encoding="utf-8")
        [url], [token] = re.findall(r"answering at (\S+)", said), re.findall(r"tf_\S+", said)
        try:
            yield url, token, psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def _token_of(url: str, admin: str, name: str) -> str:
    headers = {"Authorization": f"Bearer {admin}"}
    with httpx.Client(base_url=url, headers=headers) as http:
        http.post("/v1/users", json={"name": name}).raise_for_status()
        made = http.post("/v1/tokens", json={"user": name}).raise_for_status()
    return str(made.json()["token"])


def tried(upload: Upload, folder: Path, watch: Watch, attacker: Attacker) -> Row:
    """One upload: made, sent, asked for in a job where it was taken, and looked at for what it
    did."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="case-") as name:
        place = Given(Path(name), watch.port)
        sent = upload.make(place)
        content = sent.path.read_bytes()
        before = listing(folder / "user", Path(name))
        row = _row(upload.kind, upload.name, lambda: _sent(attacker, sent, content))
        faults = list(row.faults)
        if row.outcome == "taken" and not upload.may_be_taken:
            faults.append("taken")
        faults += ["ran code"] if place.canary.exists() else []
        changed = sorted({path for path, _ in before ^ listing(folder / "user", Path(name))})
        faults += [f"changed {Path(path).relative_to(folder)}" for path in changed]
        if any(str(folder / own) in row.said for own in ("home", "tmp")):
            faults.append("says where it lies")
    return _told(dataclasses.replace(row, faults=tuple(faults)))


def _sent(attacker: Attacker, sent: Sent, content: bytes) -> httpx.Response:
    """The first refusal, or the answer on a job, which is cancelled."""
    answer = attacker.send(sent.name, content)
    if answer.is_error:
        return answer
    job: dict[str, Any] = {"network": answer.json()["digest"], "threads": 1}
    job["dims"] = {name: list(values) for name, values in sent.options.shapes.dims}
    if sent.options.trust:
        job["trust"] = True
    answer = attacker.http.post("/v1/jobs", json=job | {"budget": {"trials": 4}})
    if answer.is_success:
        attacker.http.post(f"/v1/jobs/{answer.json()['id']}/cancel").raise_for_status()
    return answer


def asked_for(request: HostileRequest, attacker: Attacker) -> Row:
    return _told(_row("sent", request.name, lambda: request.ask(attacker), most_s=120.0))


class Beside:
    """A request sent concurrently with others."""

    def __init__(self, request: HostileRequest, attacker: Attacker) -> None:
        self._rows: list[Row] = []
        self._thread = threading.Thread(
            target=lambda: self._rows.append(asked_for(request, attacker))
        )
        self._thread.start()

    def row(self) -> Row:
        self._thread.join()
        return self._rows[0]


def _row(kind: str, name: str, ask: Callable[[], httpx.Response], most_s: float = MOST_S) -> Row:
    began, faults = time.monotonic(), list[str]()
    try:
        answer = ask()
        status, said, taken = answer.status_code, "", answer.is_success
        if not taken:
            problem = answer.json()
            said = f"{problem['detail']}; {problem.get('cure', '')}"
            faults += [] if 400 <= status < 500 else [f"status {status}"]
            faults += [] if problem.get("cure") else ["no cure"]
    except Exception as error:  # each row is judged
        status, said, taken = 0, f"{type(error).__name__}: {error}", False
        faults.append("no answer")
    seconds = time.monotonic() - began
    faults += [] if seconds <= most_s else [f"{seconds:.0f} s"]
    faults += ["more than a line"] if "\n" in said or not said.isprintable() else []
    outcome = "taken" if taken else "refused"
    return Row(kind, name, outcome, status, round(seconds, 1), said[:_LONGEST], tuple(faults))


def _told(row: Row) -> Row:
    mark = f"MISS {', '.join(row.faults)}" if row.faults else "ok  "
    print(f"{mark} {row.kind}: {row.name}: {row.outcome}, {row.status}, {row.seconds} s: "
          f"{row.said[:160]}", flush=True)  # fmt: skip
    return row


def listing(*folders: Path) -> set[tuple[str, tuple[int, int]]]:
    """Every file and folder below, with its size and its last change; not times of folders."""
    found = set()
    for folder in folders:
        for parent, below, files in os.walk(folder):
            for each in (*below, *files):
                path = os.path.join(parent, each)
                status = os.lstat(path)
                is_folder = os.path.isdir(path) and not os.path.islink(path)
                state = (0, 0) if is_folder else (status.st_size, status.st_mtime_ns)
                found.add((path, state))
    return found


def _left(folder: Path) -> list[str]:
    """What is there at the end that should not be: files and scratch folders, and bugs that were
    reported."""
    left = [*(folder / "tmp").iterdir(), *folder.glob("home/bugs/*")]
    return [str(path.relative_to(folder)) for path in left]


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    of = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(int(q * len(ordered)), len(ordered) - 1)] for name, q in of.items()}


def checks_of(
    rows: list[Row], watch: Watch, states: list[str], left: list[str], wanted: int
) -> list[common.Check]:
    bad = [f"{row.name} ({', '.join(row.faults)})" for row in rows if row.faults]
    refused = sum(row.outcome == "refused" for row in rows)
    failed = [state for state in states if state != "succeeded"]
    return [
        common.at_least("refused with a reason", refused, wanted, "condition", any_size=True),
        common.Check("uploads that ended otherwise than they may", "; ".join(bad), "none",
                     "condition", not bad),
        common.at_least("jobs of another user done meanwhile", len(states), 2, "condition"),
        common.Check("jobs that failed", ", ".join(failed), "none", "condition", not failed),
        common.at_most("most memory of a process, MB", watch.peak_mb, MOST_MB,
                       "condition", any_size=True),
        common.at_most("longest answer on whether it lives, ms", max(watch.alive_ms), _ALIVE_MS,
                       "condition"),
        common.Check("connections made", str(watch.connections), "none", "condition",
                     not watch.connections),
        common.Check("left behind", ", ".join(left), "none", "condition", not left),
    ]  # fmt: skip


if __name__ == "__main__":
    made = common.parser("Hostile uploads to the service, and how each of them ends.")
    made.add_argument("--name", help="only uploads that have this in their kind or name")
    common.run(main, made)
