"""This machine's processor, in the process that opens it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunefleet.artifacts.runtime import set_threads
from tunefleet.compiler.code.build import is_memory, one_line
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.device import DeviceDescription
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind
from tunefleet.devices._base import Network, Program, Runs
from tunefleet.devices.local import LocalNetwork, LocalProgram
from tunefleet.devices.measuring import MeasuringDevice
from tunefleet.devices.runners import in_turn, runner_in_network
from tunefleet.hardware.processor import describe_machine

tvm = load_tvm()


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
        return LocalProgram(built, tvm.cpu())

    def network(self, path: str, entry: str) -> Network:
        return LocalNetwork(path, entry)

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
