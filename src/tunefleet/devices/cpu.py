"""This machine's processor, in the process that opens it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from tunefleet.artifacts.network import LoadedNetwork
from tunefleet.artifacts.runtime import set_threads
from tunefleet.compiler.code.build import is_memory, one_line
from tunefleet.compiler.code.executable import timer_of
from tunefleet.compiler.graph.winograd import fitting
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.device import DeviceDescription
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind, Timer
from tunefleet.devices._base import Array, Network, Program, Runs
from tunefleet.devices.measuring import MeasuringDevice
from tunefleet.devices.runners import in_turn, runner_in_network
from tunefleet.hardware.processor import describe_machine

tvm = load_tvm()

CHECK_RUNS = 5
LONG_RUN_S = 0.02


class LocalCpu(MeasuringDevice):
    """Programs run in this process, on as many threads as it was told: a crash is its end, and what
    hangs is ended by whoever waits for it."""

    def __init__(self, threads: int | None = None) -> None:
        super().__init__()
        if threads is not None:
            set_threads(threads)

    def describe(self) -> DeviceDescription:
        return describe_machine()

    def load(self, built: Built, limit_s: float) -> Program:
        return _LocalProgram(built)

    def network(self, path: str, entry: str) -> Network:
        return _LocalNetwork(path, entry)

    def _runs(
        self, built: Built, weights: TaskWeights, limit_s: float, arguments: Sequence[Any] = ()
    ) -> Runs:
        runs: Runs = runner_in_network(built, weights, arguments)
        return runs

    def _in_turn(self, candidates: Sequence[Built]) -> list[Any]:
        return in_turn(candidates)

    def _blame(self, error: Exception) -> Failure:
        kind = FailureKind.RUN_MEMORY if is_memory(error) else FailureKind.RUN_ERROR
        return Failure(kind, one_line(error))


class _LocalNetwork:
    def __init__(self, path: str, entry: str) -> None:
        self._loaded = LoadedNetwork(path, entry)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return self._loaded.run(inputs)

    def timer(self, inputs: Sequence[Array]) -> Timer:
        return timer_of(self._loaded.bound(inputs))

    def kernel_times(self, inputs: Sequence[Array], repeats: int) -> dict[str, float]:
        return self._loaded.kernel_times(inputs, repeats)


class _LocalProgram:
    def __init__(self, built: Built) -> None:
        self._function = tvm.runtime.load_module(built.path)["main"]
        self._types = built.args

    def run(self, arrays: Sequence[Array]) -> tuple[Array, float]:
        pairs = zip(arrays, self._types, strict=True)
        arguments = [tvm.runtime.tensor(fitting(a, shape)) for a, (shape, _) in pairs]
        fastest = math.inf
        for _ in range(CHECK_RUNS):
            started = time.perf_counter()
            self._function(*arguments)
            fastest = min(fastest, time.perf_counter() - started)
            if fastest > LONG_RUN_S:  # the first run is slower by page faults, but not this much
                break
        return arguments[-1].numpy(), fastest
