"""An NVIDIA GPU of this machine, in the process that opens it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tunefleet.artifacts.cuda import load_cuda
from tunefleet.artifacts.runtime import set_threads
from tunefleet.compiler.code.build import is_memory, one_line
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.device import DeviceDescription, gpu_of_this_machine
from tunefleet.core.gpu import CUDA, Gpu
from tunefleet.core.target import Target
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind
from tunefleet.devices import reference_cuda
from tunefleet.devices._base import Network, Program, Runs
from tunefleet.devices.local import LocalNetwork, LocalProgram
from tunefleet.devices.measuring import MeasuringDevice
from tunefleet.devices.runners import in_turn, random_tensor
from tunefleet.errors import DeviceError
from tunefleet.hardware.gpu import gpus
from tunefleet.hardware.processor import describe_machine

tvm = load_tvm()

#: The function of TVM's runtime that is called before a repeat to empty the L2 cache.
_FLUSH = "tunefleet.flush_gpu"
#: Before a program is measured it runs until two readings agree, or for so long: an idle GPU lowers
#: its clocks.
_WARM_UP_S = 0.05
_STEADY = 0.02
_WARM_UP_REPEATS = 5


class LocalCuda(MeasuringDevice):
    """Programs run on a GPU that this process opens; they are timed by events on its stream.

    A program that breaks the GPU's context (an illegal address) breaks it for the whole process, so
    the process ends itself; who waits for it takes that as the program's crash, and the next one
    opens the GPU anew.
    """

    def __init__(self, number: int, threads: int | None = None) -> None:
        super().__init__()
        if threads is not None:
            set_threads(threads)
        load_cuda()
        self._gpu = _found(number)
        self._device = tvm.cuda(number)

    def describe(self) -> DeviceDescription:
        return gpu_of_this_machine(self._gpu, describe_machine()).description

    def load(self, built: Built, limit_s: float) -> Program:
        return LocalProgram(built, self._device)

    def network(self, path: str, entry: str) -> Network:
        return LocalNetwork(path, entry, self._gpu.number)

    def _runs(
        self, built: Built, weights: TaskWeights, limit_s: float, arguments: Sequence[Any] = ()
    ) -> Runs:
        """Weights of the whole network beyond what L2 holds are cold for each kernel: the cache is
        emptied before each run."""
        library = tvm.runtime.load_module(built.path)
        arguments = arguments or [random_tensor(*types, self._device) for types in built.args]
        is_cold = bool(weights.arguments) and weights.between > self._gpu.l2_bytes

        def run(*, number: int, repeat: int, preprocess: str) -> list[float]:
            flushes = is_cold or bool(preprocess)
            evaluator = library.time_evaluator(
                "main",
                self._device,
                number=1 if flushes else number,
                repeat=repeat,
                f_preproc=_flush(self._gpu) if flushes else "",
            )
            return [float(s) for s in evaluator(*arguments).results]

        self._warm_up(run)
        return run

    def _warm_up(self, run: Runs) -> None:
        started, before = time.perf_counter(), 0.0
        while time.perf_counter() - started < _WARM_UP_S:
            now = float(np.median(run(number=1, repeat=_WARM_UP_REPEATS, preprocess="")))
            if abs(now - before) <= _STEADY * now:
                return
            before = now

    def _in_turn(self, candidates: Sequence[Built]) -> list[Any]:
        return in_turn(candidates, self._device)

    def _reference(self, target: Target, directory: str) -> Built:
        return reference_cuda.reference_kernel(target, self._gpu, directory)

    def _peaks(self, target: Target, directory: str) -> Sequence[tuple[float, Built]]:
        return reference_cuda.peak_kernels(target, self._gpu, directory)

    def _blame(self, error: Exception) -> Failure:
        text = one_line(error)
        try:
            self._device.sync()
        except Exception:
            print(f"the GPU's context is dead: {text}", file=sys.stderr, flush=True)
            os.abort()
        kind = FailureKind.RUN_MEMORY if is_memory(error) else FailureKind.RUN_ERROR
        return Failure(kind, text)


def _found(number: int) -> Gpu:
    there = gpus()
    if number >= len(there):
        raise DeviceError(
            f"this machine has no GPU {CUDA}:{number}",
            cure="see `tunefleet devices`; CUDA_VISIBLE_DEVICES hides GPUs",
        )
    return there[number]


@lru_cache
def _flush(gpu: Gpu) -> str:
    """The name of a function that writes more than the L2 cache holds."""
    device = tvm.cuda(gpu.number)
    full = tvm.runtime.tensor(np.zeros(gpu.flush_bytes, np.uint8), device)
    other = tvm.runtime.empty((gpu.flush_bytes,), "uint8", device)

    def flush(*arguments: Any) -> None:
        full.copyto(other)

    tvm.register_global_func(_FLUSH, flush, override=True)
    return _FLUSH
