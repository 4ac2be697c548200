"""Measuring through TVM's RPC beside measuring here: latencies, throughput, one server and two at
once, and servers that are killed, that hang and that are cut off meanwhile; then a network tuned
here, through one server and through two.

    python benchmarks/rpc_devices.py [--quick] [--no-networks] [--json FILE]

Servers are TVM's own, in processes of this machine, each on a core of its own; the worker that
measures locally has the same core. All figures of a row are taken in turn, within one run.
"""

from __future__ import annotations

import argparse
import contextlib
import math
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
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
from common import Check, at_least, at_most, table
from tunefleet import BenchmarkContext, tune
from tunefleet.compiler.toolchain.host import native_target
from tunefleet.core.device import DeviceSpec, RegisteredDevice, RpcAddress
from tunefleet.core.home import Home
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.trial import Built, Measurement
from tunefleet.devices import open_device, reference
from tunefleet.devices.registry import DeviceRegistry
from tunefleet.errors import RetryElsewhereError
from tunefleet.stages import work
from tunefleet.workers.pool import WorkerConfig, WorkerPool

_LIMIT_S = 120.0
_LOCAL = DeviceSpec()


class Server:
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

    def stop(self) -> None:
        """Like a board whose cable is cut: nothing answers, nothing ends."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def _pool(folder: str, core: int) -> Iterator[WorkerPool]:
    with WorkerPool(1, WorkerConfig(1, 8.0, f"{folder}/log", (core,))) as made:
        yield made


def _measure(
    pool: WorkerPool, spec: DeviceSpec, built: Built, settings: MeasureSettings
) -> Measurement:
    args = (built, settings, None)
    call = (spec, 1, None, work.profile_candidate, args)
    outcome = pool.call(work.on_device, *call, timeout_s=_LIMIT_S)
    if not isinstance(outcome, Measurement):
        raise RuntimeError(f"not measured: {outcome}")
    return outcome


def _rate(
    pool: WorkerPool, spec: DeviceSpec, built: list[Built], settings: MeasureSettings
) -> tuple[float, list[float]]:
    """Programs per second, and their latencies."""
    started = time.perf_counter()
    latencies = [_measure(pool, spec, each, settings).latency_s for each in built]
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
        servers = [Server(core) for core in (first, second)]
        for server in servers:
            stack.callback(server.kill)
        settings = MeasureSettings()
        for pool, spec in ((here, _LOCAL), *zip(there, (s.spec for s in servers), strict=True)):
            found = _measure(pool, spec, built[0], settings)
        # Two runs a repeat: a program of just a millisecond would have one or two by its noise.
        settings = replace(settings, min_repeat_ms=1.5e3 * found.latency_s)
        for _ in range(rounds):
            local, local_s = _rate(here, _LOCAL, built, settings)
            remote, remote_s = _rate(there[0], servers[0].spec, built, settings)
            both = _both(there, servers, built, settings)
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
        for how in ("killed", "stopped"):
            lost = _disturbed(there[0], servers[0], built, settings, how)
            name = f"programs lost while the server was {how}"
            checks.append(at_most(name, lost, 0, "condition", any_size=True))
    networks: list[dict[str, Any]] = []
    if not options.no_networks:
        networks, more = _networks(folder, (first, second), quick=options.quick)
        table(networks, list(networks[0]))
        checks += more
    figures = {"rounds": rows, "medians": medians, "networks": networks}
    return common.finish("rpc_devices", began, figures, checks, options.json)


def _both(
    pools: list[WorkerPool], servers: list[Server], built: list[Built], settings: MeasureSettings
) -> float:
    """Programs per second that two servers measure at once."""
    started = time.perf_counter()
    threads = [
        threading.Thread(target=_rate, args=(pool, server.spec, built, settings))
        for pool, server in zip(pools, servers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads) * len(built) / (time.perf_counter() - started)


def _disturbed(
    pool: WorkerPool, server: Server, built: list[Built], settings: MeasureSettings, how: str
) -> int:
    """Programs without a latency when the server is killed in the middle and started again, or
    stopped, as one that hangs or whose cable is cut, until somebody starts it again."""

    def disturb() -> None:
        time.sleep(0.3)
        if how == "stopped":
            server.stop()
            time.sleep(5)
        server.kill()
        server.start()

    thread = threading.Thread(target=disturb)
    thread.start()
    lost = 0
    for each in built:
        for _ in range(3):  # as the scheduler does it: the device was away, the work is fine
            try:
                _measure(pool, server.spec, each, settings)
            except RetryElsewhereError:
                pool.restart()
                continue
            except RuntimeError:
                lost += 1
            break
        else:
            lost += 1
    thread.join()
    return lost


def _networks(
    folder: str, cores: tuple[int, int], *, quick: bool
) -> tuple[list[dict[str, Any]], list[Check]]:
    """A network tuned here and through servers: what it takes, and what comes of it. The last
    server is killed in the middle of measuring and started again."""
    from tunefleet.core.events import StageStarted
    from tunefleet.core.stage import StageKind
    from tunefleet.runs.errands import evaluate_artifact

    network, trials = ("zoo:tiny_cnn", 24) if quick else ("zoo:squeezenet", 192)
    rows, checks = [], list[Check]()
    for name, count, kill in (
        ("here", 0, False), ("one server", 1, False), ("two servers", 2, False),
        ("one server, killed", 1, True),
    ):  # fmt: skip
        home = Path(folder, name.replace(" ", "-"))
        with contextlib.ExitStack() as stack:
            servers = [Server(core) for core in cores[:count]]
            for index, server in enumerate(servers):
                stack.callback(server.kill)
                register(home, f"server-{index}", server.spec)
            killed: list[threading.Thread] = []

            def observe(event: Any, servers=servers, killed=killed, kill=kill) -> None:  # type: ignore[no-untyped-def]
                profiled = isinstance(event, StageStarted) and event.key.kind is StageKind.PROFILE
                if kill and profiled and not killed:
                    killed.append(threading.Thread(target=_restart, args=servers))
                    killed[0].start()

            context = BenchmarkContext(
                home=home,
                threads=1,
                host_cores=(cores[1],),
                device_cores=(cores[0],),
                device=[f"server-{i}" for i in range(count)],
            )
            started = time.perf_counter()
            (outcome,) = tune(
                [network], context=context, trials=trials, observer=lambda index: observe
            )
            wall_s = time.perf_counter() - started
            for thread in killed:
                thread.join()
        if outcome.result is None or outcome.result.tuned_ms is None:
            raise RuntimeError(f"{name}: {outcome.error or 'not measured'}")
        tuned_ms = outcome.result.tuned_ms.median
        here = evaluate_artifact(context.run_id, home).tuned_ms
        here_ms = here.median if here is not None else math.nan
        row: dict[str, Any] = {
            "measured": name, "trials": outcome.result.trials,
            "failed": sum(outcome.result.failures.values()), "wall, s": wall_s,
            "profile, s": outcome.result.wall["profile"], "tuned, ms": tuned_ms,
            "same artifact here, ms": here_ms, "tuned / here": tuned_ms / here_ms,
        }  # fmt: skip
        rows.append(row)
        wrong = abs(outcome.result.trials - trials)
        checks.append(
            at_most(
                f"{name}: trials that are missing or more", wrong, 0, "condition", any_size=True
            )
        )
    for row in rows[1:]:
        ratio = row["tuned / here"] / rows[0]["tuned / here"]
        checks.append(at_most(f"{row['measured']}: latency to that here", ratio, 1.1, "aim"))
        checks.append(at_least(f"{row['measured']}: latency to that here", ratio, 0.9, "aim"))
    return rows, checks


def _restart(server: Server) -> None:
    time.sleep(0.3)
    server.kill()
    time.sleep(1)
    server.start()


def register(home: Path, name: str, spec: DeviceSpec) -> None:
    device = open_device(spec, 1)
    description = device.describe()
    device.close()
    found = RegisteredDevice(name, spec, description, time.time())
    DeviceRegistry(Home(home).devices).add(found)


if __name__ == "__main__":
    made = common.parser("Measuring through TVM's RPC beside measuring here.")
    made.add_argument("--no-networks", action="store_true", help="programs alone")
    common.run(main, made)
