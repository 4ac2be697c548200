"""Measuring through TVM's RPC beside measuring here: latencies, throughput, one server and two at
once, and a server that is killed meanwhile.

    python benchmarks/rpc_devices.py [--quick] [--json FILE]

Servers are TVM's own, in processes of this machine, each on a core of its own; the worker that
measures locally has the same core. All figures of a row are taken in turn, within one run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import common
from common import Check, at_least, at_most, table
from tunefleet.compiler.toolchain.host import native_target
from tunefleet.core.device import DeviceSpec, RpcAddress
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.trial import Built, Measurement
from tunefleet.devices import reference
from tunefleet.stages import work
from tunefleet.workers.pool import WorkerConfig, WorkerPool

_LIMIT_S = 120.0
_LOCAL = DeviceSpec()


class _Server:
    """A stock server on one core."""

    def __init__(self, core: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._core = core
        self.spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", self.port))
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1"]
        ports = ["--port", str(self.port), "--port-end", str(self.port + 1)]
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        pinned = ["taskset", "-c", str(self._core), *command, *ports]
        self._process = subprocess.Popen(pinned, start_new_session=True, **silent)
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.1)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def _pool(folder: str, core: int) -> Iterator[WorkerPool]:
    with WorkerPool(1, WorkerConfig(1, 8.0, f"{folder}/log", (core,))) as made:
        yield made


def _measure(pool: WorkerPool, spec: DeviceSpec, built: Built) -> Measurement:
    args = (built, MeasureSettings(), None)
    call = (spec, 1, work.profile_candidate, args)
    outcome = pool.call(work.on_device, *call, timeout_s=_LIMIT_S)
    if not isinstance(outcome, Measurement):
        raise RuntimeError(f"not measured: {outcome}")
    return outcome


def _rate(pool: WorkerPool, spec: DeviceSpec, built: list[Built]) -> tuple[float, list[float]]:
    """Programs per second, and their latencies."""
    started = time.perf_counter()
    latencies = [_measure(pool, spec, each).latency_s for each in built]
    return len(built) / (time.perf_counter() - started), latencies


def main(options: argparse.Namespace) -> int:
    began = time.time()
    rounds, size = (2, 6) if options.quick else (6, 20)
    cores = sorted(os.sched_getaffinity(0))
    first, second = cores[-1], cores[0]
    checks: list[Check] = []
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        target = native_target(1)
        built = [reference.reference_kernel(target, folder) for _ in range(size)]
        here = stack.enter_context(_pool(folder, first))
        there = [stack.enter_context(_pool(folder, core)) for core in (second, first)]
        servers = [_Server(core) for core in (first, second)]
        for server in servers:
            stack.callback(server.kill)
        for pool, spec in ((here, _LOCAL), *zip(there, (s.spec for s in servers), strict=True)):
            _measure(pool, spec, built[0])
        for _ in range(rounds):
            local, local_s = _rate(here, _LOCAL, built)
            remote, remote_s = _rate(there[0], servers[0].spec, built)
            both = _both(there, servers, built)
            rows.append(
                {
                    "local/s": local,
                    "rpc/s": remote,
                    "two/s": both,
                    "rpc:local": remote / local,
                    "two:one": both / remote,
                    "latency": statistics.median(remote_s) / statistics.median(local_s),
                }
            )
        table(rows, list(rows[0]))
        medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        checks.append(at_least("throughput of RPC to local", medians["rpc:local"], 0.9, "aim"))
        checks.append(at_least("throughput of two servers to one", medians["two:one"], 1.6, "aim"))
        checks.append(at_most("latency of RPC to local", medians["latency"], 1.05, "condition"))
        checks.append(at_least("latency of RPC to local", medians["latency"], 0.95, "condition"))
        if len(cores) < 2:
            checks.pop(1)  # two servers on one core take turns
        lost = _killed(there[0], servers[0], built)
        checks.append(at_most("programs lost by a kill of the server", lost, 0, "condition"))
    figures = {"rounds": rows, "medians": medians}
    return common.finish("rpc_devices", began, figures, checks, options.json)


def _both(pools: list[WorkerPool], servers: list[_Server], built: list[Built]) -> float:
    """Programs per second that two servers measure at once."""
    started = time.perf_counter()
    threads = [
        threading.Thread(target=_rate, args=(pool, server.spec, built))
        for pool, server in zip(pools, servers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads) * len(built) / (time.perf_counter() - started)


def _killed(pool: WorkerPool, server: _Server, built: list[Built]) -> int:
    """Programs without a latency when the server is killed in the middle and started again."""

    def disturb() -> None:
        time.sleep(0.3)
        server.kill()
        server.start()

    thread = threading.Thread(target=disturb)
    thread.start()
    lost = 0
    for each in built:
        try:
            _measure(pool, server.spec, each)
        except RuntimeError:
            lost += 1
    thread.join()
    return lost


if __name__ == "__main__":
    common.run(main, common.parser("Measuring through TVM's RPC beside measuring here."))
