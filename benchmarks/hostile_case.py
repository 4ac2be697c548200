"""One broken, hostile or odd input: what is made, what is run, and what came of it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil

PROGRAM = str(Path(sys.executable).parent / "tunefleet")
#: By its path: a case may have no PATH.
_ENV = shutil.which("env") or "env"

#: Codes with which a command may refuse what it was given.
REFUSED = (2, 3, 6)
#: An odd input that is legal may also be done.
ODD = (0, *REFUSED)

#: What every case must keep to: seconds, and MB of its whole process tree.
MOST_S = 30.0
MOST_MB = 2048.0

#: Seconds after which a case is ended, whatever its limit.
_GIVEN_UP_S = 120.0
_SAMPLED_S = 0.05
#: Characters of stderr that are shown where a case ends otherwise than it may.
_LAST_WORDS = 3000
#: Seconds that what a command started may take to end after it.
_LINGERING_S = 5.0
_LONGEST_TEXT = 400


class Skipped(Exception):
    """A case cannot be tried on this machine; the text says why."""


@dataclass(frozen=True)
class Signal:
    """Sent to the whole group, as a terminal does, when stderr has the word; at once after the
    start where the word is empty."""

    number: signal.Signals
    word: str = ""


@dataclass(frozen=True)
class Case:
    """`make` writes files into the place of the case and returns the arguments of `tunefleet`.

    `shell` is a line of bash around the command, `"$@"`. `silent`: stderr cannot be seen, or what
    is wrong is no error line. `quick`: one that the test repeats; it needs nothing of the `World`.
    """

    category: str
    name: str
    make: Callable[[Place], Sequence[str | bytes]]
    codes: tuple[int, ...] = REFUSED
    shell: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    signal: Signal | None = None
    most_s: float = MOST_S
    silent: bool = False
    quick: bool = False


@dataclass(frozen=True)
class Row:
    """`faults`: the conditions that were not kept. `exit` is None where nothing was run."""

    category: str
    name: str
    exit: int | None
    seconds: float
    memory_mb: float
    said: str
    faults: tuple[str, ...] = ()


class World:
    """What all cases share, made when it is first asked for: a home with a small finished job, its
    artifact, records, a cost model. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._lock = threading.RLock()
        self.scratch = folder / "tmp"
        self.scratch.mkdir()

    @property
    def artifact(self) -> Path:
        """Of the finished job."""
        with self._lock:
            return self._artifact

    @cached_property
    def _artifact(self) -> Path:
        self.tunefleet("tune", "zoo:tiny_cnn", "--trials", "8", "--threads", "1", "--quiet")
        (artifact,) = (self.home / "artifacts").iterdir()
        return artifact

    @property
    def was_tuned(self) -> bool:
        return "_artifact" in self.__dict__

    @property
    def cost_model(self) -> Path:
        with self._lock:
            path = self.folder / "model.zip"
            if not path.exists():
                self.tunefleet("costmodel", "export", "x86", "-o", str(path))
            return path

    @property
    def records(self) -> Path:
        with self._lock:
            path = self.folder / "records.parquet"
            if not path.exists():
                log = self.folder / "records.json"
                log.write_text(LOG_LINE, encoding="utf-8")
                self.tunefleet(
                    "dataset", "import", "--device", "v100", str(log), "-o", str(path)
                )  # fmt: skip
            return path

    def tunefleet(self, *arguments: str) -> str:
        """Run a command that must not fail; returns what it printed."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment(self.home),
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def environment(self, home: Path) -> dict[str, str]:
        return os.environ | {
            "TUNEFLEET_HOME": str(home),
            "TMPDIR": str(self.scratch),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }


#: A record of the log of a tuner, as TenSet has them.
LOG_LINE = (
    '{"i": [["[\\"f\\", 8]", "llvm", [1, 64, 64, 0, 0, 0, 0, 0], "", 0, []], '
    '[[], [["SP", 2, 0, 8, [4], 1]]]], "r": [[0.1], 0, 1.0, 1600000000], "v": "v0.6"}\n'
)


class Place:
    """Where one case lies: a folder of its own, which is its working directory, with a home of its
    own. Nothing may create `canary`."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder = folder
        self.world = world
        self.home = folder / "home"
        #: Beside the folder, so that no case writes it by listing or sweeping.
        self.canary = folder.with_suffix(".canary")

    def write(self, name: str, content: bytes | str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def copied_home(self) -> Path:
        """A copy of the home with the finished job, to be damaged."""
        self.world.artifact  # noqa: B018  (made by being asked for)
        return Path(shutil.copytree(self.world.home, self.home))

    def copied_artifact(self) -> Path:
        return Path(shutil.copytree(self.world.artifact, self.folder / "artifact"))

    def image(self) -> str:
        """An input of the artifact."""
        import numpy as np

        np.save(self.folder / "x.npy", np.zeros((1, 3, 16, 16), "float32"))
        return "x.npy"


def run(case: Case, world: World) -> Row:
    """One case, from its files to what is left of it."""
    with tempfile.TemporaryDirectory(dir=world.folder, prefix="case-") as name:
        place = Place(Path(name), world)
        try:
            arguments = case.make(place)
        except Skipped as reason:
            return Row(case.category, case.name, None, 0.0, 0.0, f"not tried: {reason}")
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return Row(case.category, case.name, None, 0.0, 0.0, text, ("was not made",))
        # What is run in the background ignores some signals, and its children with it.
        command: list[str | bytes] = [_ENV, "--default-signal", PROGRAM, *arguments]
        if case.shell:
            command = ["bash", "-c", case.shell, "bash", *command]
        out, err = Path(name, ".stdout"), Path(name, ".stderr")
        environment = world.environment(place.home) | dict(case.environment)
        started = time.monotonic()
        with (
            out.open("wb") as stdout,
            err.open("wb") as stderr,
            subprocess.Popen(
                command,
                cwd=place.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            ) as process,
        ):
            seconds, peak, hung = _watched(process, case, err, started)
        faults = ["did not end"] if hung else []
        faults += _left_over(process.pid)
        told, printed = _text(err), _text(out)
        faults += _faults(case, process.returncode, seconds, peak, told, printed)
        if place.canary.exists():
            faults.append("ran code of the input")
            place.canary.unlink()
        said = _said(told, printed, place)
        if faults:
            print(told[-_LAST_WORDS:], flush=True)
    return Row(
        case.category, case.name, process.returncode, round(seconds, 1), round(peak), said,
        tuple(faults),
    )  # fmt: skip


def _watched(
    process: subprocess.Popen[bytes], case: Case, err: Path, started: float
) -> tuple[float, float, bool]:
    """Seconds, the most memory in MB, and whether it had to be ended."""
    peak, sent = 0.0, case.signal is None
    while process.poll() is None:
        seconds = time.monotonic() - started
        peak = max(peak, memory_mb(session(process.pid)))
        if not sent and case.signal is not None and _is_time(case.signal, err, seconds):
            os.killpg(process.pid, case.signal.number)
            sent = True
        if seconds > _GIVEN_UP_S:
            for each in session(process.pid):
                _end(each)
            process.wait()
            return seconds, peak, True
        time.sleep(_SAMPLED_S)
    return time.monotonic() - started, peak, False


def _is_time(wanted: Signal, err: Path, seconds: float) -> bool:
    if not wanted.word:
        return seconds > 0.3
    return f"{wanted.word}\n".encode() in err.read_bytes()


def session(leader: int) -> list[psutil.Process]:
    """The processes of a session, whoever their parents are by now."""
    found = []
    for number in psutil.pids():
        try:
            if os.getsid(number) == leader:
                found.append(psutil.Process(number))
        except (OSError, psutil.Error):
            continue
    return found


def memory_mb(processes: Sequence[psutil.Process]) -> float:
    """What they have of memory that no file backs and no other process shares."""
    total = 0
    for process in processes:
        try:
            memory = process.memory_info()
        except psutil.Error:
            continue
        total += memory.rss - memory.shared
    return total / 2**20


def _left_over(leader: int) -> list[str]:
    """Processes that outlive a command; they are ended."""
    until = time.monotonic() + _LINGERING_S
    while (left := session(leader)) and time.monotonic() < until:
        time.sleep(_SAMPLED_S)
    for each in left:
        _end(each)
    return [f"left {len(left)} processes"] if left else []


def _end(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()


def _text(path: Path) -> str:
    """The first and the last of what a file has, which may be much."""
    content = path.read_bytes()
    half = 1 << 19
    if len(content) > 2 * half:
        content = content[:half] + b"\n" + content[-half:]
    return content.decode(errors="replace")


def _faults(
    case: Case, code: int, seconds: float, peak: float, told: str, printed: str
) -> list[str]:
    found = []
    if code not in case.codes:
        found.append(f"exit {code}")
    if seconds > case.most_s:
        found.append(f"{seconds:.0f} s")
    if peak > MOST_MB:
        found.append(f"{peak:.0f} MB")
    return found + faults_of_text(code, told, printed, silent=case.silent)


def faults_of_text(code: int, told: str, printed: str, *, silent: bool = False) -> list[str]:
    """What is wrong with what a command wrote: a traceback, or no error line where it failed."""
    found = ["traceback"] if "Traceback" in told + printed else []
    lines = sum(line.startswith("error:") for line in told.splitlines())
    stopped = code in (130, 141) or code < 0 or code > 128
    wanted = 0 if code == 0 or stopped else 1
    if lines != wanted and not silent:
        found.append(f"{lines} error lines")
    return found


def _said(told: str, printed: str, place: Place) -> str:
    """The error, or else what was said last, with names of places that are the same in each run."""
    lines = [line for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error", "internal error"))]
    text = (errors or lines or printed.strip().splitlines() or [""])[-1]
    text = text.replace(str(place.folder), "DIR").replace(str(place.world.folder), "WORLD")
    text = text.replace(str(Path(sys.executable).parent), "BIN")
    if place.world.was_tuned:
        identity = place.world.artifact.name
        text = text.replace(identity, "RUN").replace(identity[:8], "RUN")
    text = re.sub(r"tunefleet-([a-z]+)-\d+-\d+-\d+-\w+", r"tunefleet-\1-...", text)
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."
