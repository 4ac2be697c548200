"""Programs and networks in this process, on its processor or on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from tunefleet.artifacts.network import LoadedNetwork
from tunefleet.compiler.code.executable import timer_of
from tunefleet.compiler.code.packing import arguments_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.trial import Built, Timer
from tunefleet.devices._base import Array

tvm = load_tvm()

CHECK_RUNS = 5
LONG_RUN_S = 0.02


class LocalNetwork:
    """`gpu` is the number of the GPU; None for the processor."""

    def __init__(self, path: str, entry: str, gpu: int | None = None) -> None:
        self._loaded = LoadedNetwork(path, entry, gpu)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return self._loaded.run(inputs)

    def timer(self, inputs: Sequence[Array]) -> Timer:
        return timer_of(self._loaded.bound(inputs))

    def kernel_times(self, inputs: Sequence[Array], repeats: int) -> dict[str, float]:
        return self._loaded.kernel_times(inputs, repeats)


class LocalProgram:
    """`device` is TVM's."""

    def __init__(self, built: Built, device: Any) -> None:
        self._function = tvm.runtime.load_module(built.path)["main"]
        self._built = built
        self._device = device

    def run(self, arrays: Sequence[Array]) -> tuple[Array, float]:
        taken = arguments_of(self._built, arrays)
        arguments = [tvm.runtime.tensor(array, self._device) for array in taken]
        fastest = math.inf
        for _ in range(CHECK_RUNS):
            started = time.perf_counter()
            self._function(*arguments)
            self._device.sync()
            fastest = min(fastest, time.perf_counter() - started)
            if fastest > LONG_RUN_S:  # the first run is slower by page faults, but not this much
                break
        return arguments[-1].numpy(), fastest
