"""Runs every benchmark with `--quick`, one after the other: does it still come to its checks?

A benchmark that ends with an error, is killed or takes too long fails, and so does one that misses
a check of what is right. What is fast, near or many enough a small run does not decide. What a
benchmark lacks on this machine it says itself ("skipped: ..."), or it is named below.

    python checks/bench_quick.py [--limit SECONDS] [NAME ...]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
#: What a benchmark cannot run without, and what `.[test]` does not install.
_PACKAGES = {
    "engines": ("openvino", "torchvision", "timm", "litert_torch"),
    "engines_precision": ("openvino", "nncf", "torchvision", "transformers"),
    "quantisers": ("openvino", "nncf", "sklearn"),
    "slow_machine": ("torchvision", "timm"),
}
#: Options that a benchmark asks for. It runs in an empty folder.
_OPTIONS = {"import_corpus": ["--folder", "corpus"]}
#: Of the output of a benchmark that failed: the lines that are shown.
_LAST_LINES = 30


@dataclass(frozen=True)
class Outcome:
    """How a benchmark ended. `end` is "0" for a good end or for one that was skipped."""

    name: str
    seconds: float
    end: str
    missed: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def failed(self) -> bool:
        return self.end != "0" or bool(self.missed)

    def __str__(self) -> str:
        note = f"skipped: {self.skipped}" if self.skipped else "; ".join(self.missed) or "-"
        return f"{self.name:18} {self.seconds:7.0f}  {self.end:12} {note}"


def names() -> list[str]:
    """Of the scripts that take the options which all benchmarks share."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in _BENCHMARKS.glob("*.py")}
    return sorted(
        name
        for name, text in found.items()
        if "import common\n" in text and '__name__ == "__main__"' in text
    )


def attempt(name: str, limit_s: float) -> Outcome:
    """Run one benchmark; its folder, its temporary files and its figures go away with it."""
    missing = [p for p in _PACKAGES.get(name, ()) if importlib.util.find_spec(p) is None]
    if missing:
        return Outcome(name, 0.0, "0", skipped=f"not installed: {', '.join(missing)}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        figures, log = Path(folder, "figures.json"), Path(folder, "log")
        end = _end(name, Path(folder), limit_s, ["--json", str(figures), *_OPTIONS.get(name, [])])
        seconds = time.monotonic() - started
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if end != "0":
            print("\n".join(lines[-_LAST_LINES:]))
            return Outcome(name, seconds, end)
        if lines and lines[-1].startswith("skipped: "):
            return Outcome(name, seconds, end, skipped=lines[-1].removeprefix("skipped: "))
        if not figures.exists():
            return Outcome(name, seconds, "no figures")
        checks: list[dict[str, Any]] = json.loads(figures.read_text(encoding="utf-8"))["checks"]
        return Outcome(
            name, seconds, end, [check["name"] for check in checks if check["ok"] is False]
        )


def _end(name: str, folder: Path, limit_s: float, options: list[str]) -> str:
    """How it ended: its exit code, the signal that killed it, or that its time was over."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(_BENCHMARKS / f"{name}.py"), "--quick", *options],
            cwd=folder, env=os.environ | {"TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"over {limit_s:.0f} s"
        finally:
            _end_group(process)
    return str(code) if code >= 0 else signal.Signals(-code).name


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """A benchmark's own processes do not outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of benchmarks; the default is all")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of each")
    options = parser.parse_args()
    outcomes = []
    for name in options.names or names():
        outcomes.append(attempt(name, options.limit))
        print(outcomes[-1], flush=True)
    print(f"\n{'benchmark':18} seconds  {'exit':12} missed")
    for outcome in outcomes:
        print(outcome)
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
