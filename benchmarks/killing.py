"""A `tunefleet tune` that can be killed: its phase, its end, and the processes it leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: What the command goes through, in order. "start" lasts until its first line; "search" is its
#: phase "tune"; the others are the values of `tunefleet.fleet.live.PHASES`.
PHASES = ("start", "import", "check", "search", "verify winners", "compile", "verify", "publish",
          "measure")  # fmt: skip

_MARK = "TUNEFLEET_BENCHMARK_PROCESS"
_LOOK_S = 0.01


@dataclass(frozen=True)
class Blow:
    """A signal, to the process or to its group."""

    number: signal.Signals
    group: bool = False

    @property
    def polite(self) -> bool:
        return self.number is not signal.SIGKILL

    def __str__(self) -> str:
        return f"{self.number.name}{' to the group' if self.group else ''}"


class Command:
    """One process of `tunefleet tune`; what it says to stderr is read as it comes."""

    def __init__(
        self, networks: Sequence[str], options: Sequence[str], home: Path, temporary: Path
    ) -> None:
        self.networks = list(networks)
        self.phase = dict.fromkeys(networks, PHASES[0])
        self.began = {network: {PHASES[0]: time.monotonic()} for network in networks}
        #: Job ids (their first characters) by whether the command said that it resumed them.
        self.resumed: dict[str, bool] = {}
        self.lines: list[str] = []
        #: Processor seconds that it took from a signal to its end.
        self.ending_cpu_s = 0.0
        self._mark = uuid.uuid4().hex
        self._rest = ""
        program = str(Path(sys.executable).parent / "tunefleet")
        own = {"TUNEFLEET_HOME": str(home), "TMPDIR": str(temporary), _MARK: self._mark}
        errors = home.with_name("errors.txt")
        self.started = time.monotonic()
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                [program, "tune", *networks, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=os.environ | own,
                start_new_session=True,
            )
        self._said = errors.open(errors="replace")

    def watch(self, due: Callable[[], bool], limit_s: float) -> bool:
        """Wait until it is `due`; False when the process has ended before, or at the limit."""
        while self._process.poll() is None and time.monotonic() - self.started < limit_s:
            self.read()
            if due():
                return True
            time.sleep(_LOOK_S)
        self.read()
        return False

    def reached(self, phase: str, delay_s: float) -> bool:
        """Whether a network has been in a phase for so long."""
        times = [began[phase] for began in self.began.values() if phase in began]
        return bool(times) and time.monotonic() >= min(times) + delay_s

    def strike(self, blow: Blow) -> bool:
        """Send a signal; returns whether the command had said what shall happen then: not in the
        first moments of the interpreter, nor in its last."""
        guarded = _handles(self._process.pid, signal.SIGTERM)
        if self._process.poll() is None:
            send = os.killpg if blow.group else os.kill
            send(self._process.pid, blow.number)
        return guarded

    def end(self, timeout_s: float) -> int | None:
        """Wait for its end; its exit code as a shell tells it, None where it does not end."""
        first = _cpu_s(self._process.pid)
        until = time.monotonic() + timeout_s
        while (code := self._process.poll()) is None and time.monotonic() < until:
            self.ending_cpu_s = max(self.ending_cpu_s, _cpu_s(self._process.pid) - first)
            time.sleep(_LOOK_S)
        if code is None:
            return None
        return code if code >= 0 else 128 - code

    def left(self) -> list[int]:
        """Its processes that live, itself included."""
        wanted = f"{_MARK}={self._mark}".encode()
        return [
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit() and wanted in _environment(folder)
        ]

    def close(self) -> None:
        """End what it left, so that the next command is alone."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._said.close()

    def read(self) -> None:
        """Take in what it and its workers have said since."""
        *lines, self._rest = (self._rest + self._said.read()).split("\n")
        for line in filter(None, lines):
            self.lines.append(line)
            self._understand(line)

    def _understand(self, line: str) -> None:
        """A line is of the only network, or begins with its name less `zoo:`."""
        network, text = self.networks[0], line
        for each in self.networks if len(self.networks) > 1 else ():
            prefix = f"{each.removeprefix('zoo:')}: "
            if line.startswith(prefix):
                network, text = each, line.removeprefix(prefix)
        words = text.split()
        if words[:1] == ["job"] and words[2:3] and words[2] in ("resumed:", "started:"):
            self.resumed[words[1]] = words[2] == "resumed:"
        said = re.fullmatch(r"phase \d+ of \d+: ([a-z ]+?)(?:, [\d:]+)?", text)
        phase = "" if said is None else "search" if said[1] == "tune" else said[1]
        if phase in PHASES:
            self.phase[network] = phase
            # Two steps are one phase: it began with the first.
            self.began[network].setdefault(phase, time.monotonic())


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # it is gone, or another user's
        return b""


def _cpu_s(pid: int) -> float:
    """Processor seconds that a process has taken; 0 of one that is gone."""
    try:
        times = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[11:13]
        )
    except OSError:
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)
