"""Whole networks: compile with the chosen traces, save, load, run, measure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.artifact import WEIGHTS_SUFFIX
from tunefleet.compiler.build import lowering
from tunefleet.compiler.forms import direct, with_transformed_weights
from tunefleet.compiler.host import to_tvm
from tunefleet.compiler.plain import plainly_scheduled
from tunefleet.compiler.replay import replay
from tunefleet.compiler.segments import register_segments
from tunefleet.compiler.tasks import call_counts, normalized, task_id_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.weights import Lifted, read_weights, write_weights
from tunefleet.core.target import Target

tvm = load_tvm()
relax = tvm.relax

Array = NDArray[Any]

#: What a comparison of modules may take in all.
_LONGEST_S = 40.0
#: An output that stays below this is compared as if it reached it: a sigmoid far from its middle is
#: the last digits of numbers near 1, and frameworks differ there by some 1e-7.
LEAST_SCALE = 1e-3
_LEAST_REPEATS = 3
#: A run as long as this is not warmed up again.
_LONG_RUN_S = 0.5


@dataclass(frozen=True, slots=True)
class CompiledNetwork:
    """Code and byte code, and the weights that they are called with."""

    executable: Any
    weights: Lifted


def compile_network(
    mod: Any, target: Target, traces: Mapping[str, str], *, plain: bool = True
) -> CompiledNetwork:
    """Compile a prepared module; `traces` are by task id, other tasks get the plain schedule.

    The lookup is by task id, which holds the target: a trace is never applied elsewhere. Without
    `plain`, other tasks stay as TVM writes them.
    """
    tvm_target = to_tvm(target)
    with tvm_target, lowering():
        scheduled = _apply(mod, target, traces, plain=plain)
        folded = tvm.transform.Sequential(
            [
                relax.transform.SplitLayoutRewritePreproc(),
                relax.transform.FoldConstant(),
                relax.transform.DeadCodeElimination(),
            ]
        )(scheduled)
        pipeline = relax.backend.cpu_generic.pipeline
        lower = tvm.transform.Sequential(
            pipeline.dataflow_lower_passes(tvm_target) + pipeline.finalize_passes(tvm_target)
        )
        lifted = Lifted(folded)
        executable = relax.build(lifted.mod, target=tvm_target, relax_pipeline=lower)
        return CompiledNetwork(executable, lifted)


def _apply(mod: Any, target: Target, traces: Mapping[str, str], *, plain: bool) -> Any:
    """`mod` with each task's PrimFunc replaced by its scheduled form."""
    called = call_counts(mod)
    programs: dict[str, Any] = {}
    replaced = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for gvar, function in mod.functions_items():
        name = str(gvar.name_hint)
        if name not in called or not isinstance(function, tvm.tirx.PrimFunc):
            continue
        trace = traces.get(task_id_of(function, target))
        if trace is not None:
            module = replay(normalized(function), target, trace).mod
        elif plain:
            module = plainly_scheduled(normalized(direct(function)))
        else:
            replaced.update_func(gvar, direct(function))
            continue
        scheduled = module["main"].with_attr("global_symbol", name)
        replaced.update_func(gvar, scheduled.with_attr("tirx.is_scheduled", True))
        programs[name] = function
    return with_transformed_weights(replaced, programs)


def weights_path(module: str | Path) -> Path:
    """Where the weights of a module lie: beside it."""
    return Path(module).with_suffix(WEIGHTS_SUFFIX)


def save_network(network: CompiledNetwork, path: str | Path) -> None:
    """Write the code as one shared library and the weights beside it."""
    network.executable.export_library(str(path))
    write_weights(weights_path(path), network.weights)


class LoadedNetwork:
    """A module on this machine's CPU, at one of the shapes that it takes (`variants.entry_name`).

    Set the threads (toolchain.set_threads) before.
    """

    def __init__(self, path: str, entry: str = "main") -> None:
        register_segments(Path(path).parent)
        self._machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
        self._weights = read_weights(weights_path(path), entry)
        self._main = self._machine[entry]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return _arrays(self._main(*_tensors(inputs), *self._weights))

    def bound(self, inputs: Sequence[Array]) -> Callable[[], Any]:
        """One inference per call, inputs already in place."""
        tensors = [*_tensors(inputs), *self._weights]
        return lambda: self._main(*tensors)

    def kernel_times(self, inputs: Sequence[Array], repeats: int) -> dict[str, float]:
        """Seconds per inference spent in each kernel, by the kernel's name: median of repeats, of
        fewer where these would take long."""
        tensors = [*_tensors(inputs), *self._weights]
        runs: list[dict[str, float]] = []
        starts: list[float] = []

        def instrument(function: Any, name: str, before: bool, result: Any, *args: Any) -> int:
            if before:
                starts.append(time.perf_counter())
            else:
                spent = time.perf_counter() - starts.pop()
                if not name.startswith("vm.builtin"):
                    runs[-1][name] = runs[-1].get(name, 0.0) + spent
            return 0

        self._machine.set_instrument(instrument)
        runs.append({})
        first = _seconds(lambda: self._main(*tensors))
        fitting = max(_LEAST_REPEATS, int(_LONGEST_S / first))
        for _ in range(min(repeats, fitting)):
            runs.append({})
            self._main(*tensors)
        names = sorted(set().union(*runs[1:]))
        return {n: float(np.median([r.get(n, 0.0) for r in runs[1:]])) for n in names}


def run_compiled(network: CompiledNetwork, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of a network that was not saved, at the first of its shapes, in this process."""
    weights = [network.weights.arrays[number] for number in network.weights.entries["main"]]
    main = relax.VirtualMachine(network.executable, tvm.cpu())["main"]
    return _arrays(main(*_tensors([*inputs, *weights])))


def _arrays(result: Any) -> list[Array]:
    fields = [result] if hasattr(result, "numpy") else result
    return [field.numpy() for field in fields]


def _tensors(inputs: Sequence[Array]) -> list[Any]:
    """Inputs as TVM's tensors. (NumPy makes contiguous arrays of one dimension at least.)"""
    return [tvm.runtime.tensor(np.ascontiguousarray(x).reshape(np.shape(x))) for x in inputs]


def time_interleaved(
    runs: Sequence[Callable[[], Any]], rounds: int, round_s: float
) -> list[list[float]]:
    """Seconds per inference of several networks, A B A B ..., `round_s` seconds each per round.

    Each round gives one number per network, its fastest quarter's median: the noise of a shared
    machine only ever adds.
    """
    estimates = [_estimate(run) for run in runs]
    fitting = int(_LONGEST_S / sum(max(round_s, e) for e in estimates))
    rounds = min(rounds, max(3, fitting))
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for index, run in enumerate(runs):
            if estimates[index] < _LONG_RUN_S:
                run()  # what another left in the caches is not this one's
            repeats = max(1, math.ceil(round_s / estimates[index]))
            times = sorted(_seconds(run) for _ in range(repeats))
            found[index].append(float(np.median(times[: max(1, len(times) // 4)])))
    return found


def _estimate(run: Callable[[], Any]) -> float:
    """Seconds of a run. An untuned network may take seconds, and its first run says enough."""
    first = _seconds(run)
    return first if first >= _LONG_RUN_S else min(first, _seconds(run))


def _seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def worst_difference(expected: Sequence[Array], actual: Sequence[Array]) -> float:
    """The largest difference of two networks' outputs, relative to each output's largest value,
    or to 1e-3 where that is smaller.

    infinity where shapes differ, or where one has an infinity or NaN that the other has not.
    """
    if len(expected) != len(actual):
        return math.inf
    return max((_difference(e, a) for e, a in zip(expected, actual, strict=True)), default=0.0)


def _difference(expected: Array, actual: Array) -> float:
    if expected.shape != actual.shape:
        return math.inf
    finite = np.isfinite(expected)
    others = expected[~finite]
    if not np.array_equal(others, actual[~finite], equal_nan=others.dtype.kind in "fc"):
        return math.inf
    e, a = expected[finite], actual[finite]
    if not np.isfinite(a).all():
        return math.inf
    if not e.size:
        return 0.0
    scale = max(float(np.abs(e).max()), LEAST_SCALE)
    return float(np.abs(e.astype(np.float64) - a).max()) / scale
