"""A compiled network in TVM's virtual machine: what runs a module, here and in workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.artifacts.runtime import load_runtime
from tunefleet.artifacts.segments import register_segments
from tunefleet.artifacts.tensors import CPU, GPU, Array, array_of, on_cpu, tensor_of, wait_for
from tunefleet.artifacts.weights import read_weights, weights_path
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.files import check_runs_code

#: What timing the kernels of a network may take in all.
_LONGEST_S = 4.0
_LEAST_REPEATS = 3
#: TVM's number of an allocator that keeps what it frees for the next call.
POOLED = 2
#: What the byte code of a module with CUDA graphs calls.
_GRAPH = "vm.builtin.cuda_graph.run_or_capture"


def entry_name(index: int) -> str:
    """The function of the shape with this place in `NetworkInfo.signatures`."""
    return f"main_{index}" if index else "main"


def open_library(path: str | Path) -> Any:
    """The code of a module. It is closed when nothing of it is in use any more.

    Raises InputError for a file that is no library of this machine, and SetupError for one that
    lies where nothing can be loaded from.
    """
    try:
        # The whole path: a name without a folder is looked for among the system's libraries.
        return load_runtime().load_module(str(Path(path).absolute()), keep_module_alive=False)
    except Exception as error:  # of C++: they have no common base
        raise_mistake(error)
        check_runs_code(Path(path).parent, "copy it to another disk")
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{path} cannot be loaded: {said[-1][-200:]}",
            cure="copy the artifact again, or tune again",
        ) from error


def new_machine(library: Any, gpu: int | None = None) -> Any:
    """A virtual machine for a library, on a GPU where one is named: it runs one function at a
    time."""
    machine = library["vm_load_executable"]()
    device = () if gpu is None else (GPU, gpu, POOLED)
    machine["vm_initialization"](*device, CPU, 0, POOLED)
    return machine


class LoadedNetwork:
    """A module on this machine's CPU or a GPU of it, at one of the shapes that it takes
    (`entry_name`), for one caller at a time.

    Set the threads (runtime.set_threads) before, and load TVM's CUDA runtime for a GPU.
    """

    def __init__(self, path: str | Path, entry: str = "main", gpu: int | None = None) -> None:
        register_segments(Path(path).parent, gpu)
        self._gpu = gpu
        library = open_library(path)
        #: Kernels that are launched as a CUDA graph are not called one by one.
        self._is_graph = gpu is not None and _GRAPH in str(library["stats"]())
        self._machine = new_machine(library, gpu)
        weights = read_weights(weights_path(path), entry)
        self._weights = weights if gpu is None else [tensor_of(array_of(w), gpu) for w in weights]
        self._main = self._machine[entry]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        tensors = [*(tensor_of(each, self._gpu) for each in inputs), *self._weights]
        places = {tensor.data_ptr() for tensor in tensors}
        return [array_of(each) for each in separate(fields_of(self._main(*tensors)), places)]

    def bound(self, inputs: Sequence[Array]) -> Callable[[], Any]:
        """One inference per call, inputs already in place; the call ends when the GPU has."""
        tensors = [*(tensor_of(each, self._gpu) for each in inputs), *self._weights]
        if self._gpu is None:
            return lambda: self._main(*tensors)
        wait = self._wait

        def run() -> Any:
            outputs = self._main(*tensors)
            wait()
            return outputs

        return run

    def _wait(self) -> None:
        if self._gpu is not None:
            wait_for(self._gpu)

    def kernel_times(self, inputs: Sequence[Array], repeats: int) -> dict[str, float]:
        """Seconds per inference spent in each kernel, by the kernel's name: median of repeats, of
        fewer where these would take long. Empty where a CUDA graph launches them."""
        if self._is_graph:
            return {}
        run = self.bound(inputs)
        runs: list[dict[str, float]] = []
        starts: list[float] = []

        def instrument(function: Any, name: str, before: bool, result: Any, *args: Any) -> int:
            if before:
                starts.append(time.perf_counter())
            else:
                self._wait()
                spent = time.perf_counter() - starts.pop()
                if not name.startswith("vm.builtin"):
                    runs[-1][name] = runs[-1].get(name, 0.0) + spent
            return 0

        self._machine["set_instrument"](instrument)
        runs.append({})
        started = time.perf_counter()
        run()
        fitting = max(_LEAST_REPEATS, int(_LONGEST_S / (time.perf_counter() - started)))
        for _ in range(max(_LEAST_REPEATS, min(repeats, fitting))):
            runs.append({})
            run()
        names = sorted(set().union(*runs[1:]))
        return {n: float(np.median([r.get(n, 0.0) for r in runs[1:]])) for n in names}


def fields_of(result: Any) -> list[Any]:
    """The tensors that a function returned: one or several."""
    return [result] if hasattr(result, "data_ptr") else list(result)


def separate(outputs: Sequence[Any], places: Collection[int]) -> list[Any]:
    """Outputs that a caller may write to and keep: copies of those that are an input or a weight,
    which begin at `places`, or an output before."""
    taken, apart = set(places), list[Any]()
    for output in outputs:
        is_apart = output.data_ptr() not in taken
        apart.append(output if is_apart else _copied(output))
        taken.add(output.data_ptr())
    return apart


def _copied(tensor: Any) -> Any:
    gpu = None if on_cpu(tensor) else tensor.device.index
    return tensor_of(array_of(tensor), gpu)
