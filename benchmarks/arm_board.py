"""Tasks of a small float32 network compiled for an aarch64 board, verified and measured on it.

    make arm-board BOARD=DIR                                  once
    python benchmarks/arm_board.py --board DIR [--quick]      starts its server, and ends it
    python benchmarks/arm_board.py --url rpc://HOST:PORT      a board that is there

Then the network is tuned for the board as a whole, by `tune`. The board is emulated by QEMU
(`benchmarks/arm_board.sh`): what is shown is that programs are cross-compiled, uploaded and right
there. Its latencies are those of an emulator.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
from common import Check, at_least
from tunefleet import BenchmarkContext, tune
from tunefleet.compiler.code import build
from tunefleet.compiler.space.opening import task_space
from tunefleet.compiler.toolchain.host import parse_target
from tunefleet.core.device import DeviceDescription, DeviceSpec, RegisteredDevice, RpcAddress
from tunefleet.core.home import Home
from tunefleet.core.settings import MeasureSettings, SearchSettings, TuneSettings
from tunefleet.core.trial import Built, Measurement
from tunefleet.devices import open_device
from tunefleet.devices.registry import DeviceRegistry
from tunefleet.search.guide import Guide
from tunefleet.search.selection import SelectRequest, select
from tunefleet.stages.importing import import_network

_SCRIPT = Path(__file__).with_name("arm_board.sh")
#: Neoverse N1 has the dot product; what QEMU emulates has more.
_TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
_START_S = 180.0
_SETTINGS = MeasureSettings(timeout_s=60, repeats=3, budget_s=0.5, min_repeat_ms=0.1)


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The url of a server on the emulated board, which ends with the block."""
    if not (folder / "root").is_dir():
        raise common.Skip(f"no board in {folder}: make arm-board BOARD={folder}")
    if shutil.which("qemu-aarch64-static") is None or os.getuid() != 0:
        raise common.Skip("QEMU is not installed, or this is not root: the board cannot run")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [str(_SCRIPT), "serve", str(folder), str(port)]
    process = subprocess.Popen(command, start_new_session=True, **silent)
    ends = time.monotonic() + _START_S
    try:
        while True:
            if process.poll() is not None or time.monotonic() > ends:
                raise common.Skip(f"the server of {folder} does not start: {' '.join(command)}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.5)
        yield f"rpc://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def opened(folder: Path, threads: int) -> Iterator[Any]:
    """The emulated board as a device."""
    with _served(folder) as url:
        device = open_device(DeviceSpec(rpc=RpcAddress.parse(url)), threads, name="arm-board")
        try:
            yield device
        finally:
            device.close()


def main(options: argparse.Namespace) -> int:
    began = time.time()
    with contextlib.ExitStack() as stack:
        url = options.url or stack.enter_context(_served(options.board))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        spec = DeviceSpec(rpc=RpcAddress.parse(url))
        device = open_device(spec, options.threads, name="arm-board")
        stack.callback(device.close)
        description = device.describe()
        print(f"{url}: {description.identity} ({description.machine})")
        target = parse_target(_TARGET, options.threads)
        tasks = import_network("zoo:tiny_cnn", target).tasks
        rows = []
        for weighted in tasks[: 2 if options.quick else None]:
            row = _tuned(weighted.task, target, device, folder, 2 if options.quick else 8)
            rows.append(row)
        common.table(rows, list(rows[0]))
        device.close()
        whole = _whole(Path(folder, "home"), spec, description, quick=options.quick)
        common.table([whole], list(whole))
        moved = device.transfers
        print(f"moved {moved.bytes / 1e6:.1f} MB in {moved.count} pieces, {moved.seconds:.1f} s")
    measured, right = sum(r["measured"] for r in rows), sum(r["right"] for r in rows)
    checks: list[Check] = [
        at_least(
            "programs measured",
            measured / sum(r["tried"] for r in rows),
            1.0,
            "condition",
            any_size=True,
        ),
        at_least("programs right", right / max(measured, 1), 1.0, "condition", any_size=True),
        at_least(
            "a network tuned and verified there", whole["right"], 1, "condition", any_size=True
        ),
    ]
    figures = {"board": description.to_json(), "tasks": rows, "network": whole}
    return common.finish("arm_board", began, figures, checks, options.json)


def _whole(home: Path, spec: DeviceSpec, what: DeviceDescription, *, quick: bool) -> dict[str, Any]:
    """A network tuned for the board as `tunefleet tune --device` does it."""
    DeviceRegistry(Home(home).devices).add(RegisteredDevice("board", spec, what, time.time()))
    context = BenchmarkContext(home=home, device="board", threads=1)
    settings = TuneSettings(measure=_SETTINGS)
    trials = 12 if quick else 64
    (outcome,) = tune(["zoo:tiny_cnn"], context=context, trials=trials, settings=settings)
    result = outcome.result
    if result is None or result.tuned_ms is None:
        raise RuntimeError(f"the network: {outcome.error or 'not measured'}")
    (untuned,) = result.baselines
    return {
        "network": "tiny_cnn", "target": result.target, "trials": result.trials,
        "failed": sum(result.failures.values()), "delivered": result.delivered,
        "right": int(result.verified or "not faster" in (result.why_plain or "")),
        "difference": result.difference.tuned,
        "untuned, ms": untuned.latency_ms.median, "tuned, ms": result.tuned_ms.median,
    }  # fmt: skip


def _tuned(task: Any, target: Any, device: Any, folder: str, trials: int) -> dict[str, Any]:
    """Random programs of a task: how many run, and how many of them compute what it does."""
    settings = SearchSettings(batch=trials, population=64, generations=0, pretrained="")
    request = SelectRequest(
        program=task.program, target=target, settings=settings, batch=trials, seed=1, known=(),
        tried=frozenset(), elsewhere=(), transfer_sources=(), operator=task.operator,
        flops=task.flops,
    )  # fmt: skip
    chosen = select(request, task_space(task.program, target), Guide.load(None, "random", b""))
    default = build.build_default(task.program, target, "default", folder)
    if not isinstance(default, Built):
        raise RuntimeError(f"{task.name} cannot be built: {default.text}")
    plain = device.measure(default, _SETTINGS, None)
    best, measured, right = None, 0, 0
    for candidate in chosen.candidates:
        named = (task.program, target, candidate.candidate_id, candidate.trace, folder)
        built = build.build_candidate(*named)
        if not isinstance(built, Built):
            continue
        outcome = device.measure(built, _SETTINGS, best)
        if isinstance(outcome, Measurement):
            measured += 1
            best = min(outcome.latency_s, best or outcome.latency_s)
            right += not device.verify(default, built, 1).difference
    return {
        "task": task.name,
        "tried": len(chosen.candidates),
        "measured": measured,
        "right": right,
        "plain_ms": plain.latency_s * 1e3 if isinstance(plain, Measurement) else None,
        "best_ms": best and best * 1e3,
    }


if __name__ == "__main__":
    asked = common.parser("Tasks compiled for an aarch64 board, verified and measured on it.")
    asked.add_argument("--board", type=Path, default=Path("build/arm-board"), metavar="DIR")
    asked.add_argument("--url", help="of a server that runs, instead")
    asked.add_argument("--threads", type=int, default=1, metavar="N")
    common.run(main, asked)
