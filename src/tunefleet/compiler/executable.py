"""Whole networks: compile with the chosen traces, save, load, run, measure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.build import lowering
from tunefleet.compiler.host import to_tvm
from tunefleet.compiler.replay import replay
from tunefleet.compiler.tasks import call_counts, normalized, task_id_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.target import Target

tvm = load_tvm()
relax = tvm.relax

Array = NDArray[Any]

#: What a comparison of modules may take in all.
_LONGEST_S = 40.0
#: A run as long as this is not warmed up again.
_LONG_RUN_S = 0.5


def compile_network(mod: Any, target: Target, traces: Mapping[str, str]) -> Any:
    """A prepared module -> Relax executable; `traces` are by task id, other tasks stay as they are.

    The lookup is by task id, which holds the target: a trace is never applied elsewhere.
    """
    tvm_target = to_tvm(target)
    with tvm_target, lowering():
        scheduled = _apply(mod, target, traces)
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
        return relax.build(folded, target=tvm_target, relax_pipeline=lower)


def _apply(mod: Any, target: Target, traces: Mapping[str, str]) -> Any:
    """`mod` with each task's PrimFunc replaced by its scheduled form."""
    called = call_counts(mod)
    replaced = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for gvar, function in mod.functions_items():
        name = str(gvar.name_hint)
        if name not in called or not isinstance(function, tvm.tirx.PrimFunc):
            continue
        trace = traces.get(task_id_of(function, target))
        if trace is None:
            continue
        schedule = replay(normalized(function), target, trace)
        tuned = schedule.mod["main"].with_attr("global_symbol", name)
        replaced.update_func(gvar, tuned.with_attr("tirx.is_scheduled", True))
    return replaced


def save_executable(executable: Any, path: str) -> None:
    """Write one shared library: code, byte code and weights."""
    executable.export_library(path)


class LoadedNetwork:
    """A module on this machine's CPU. Set the threads (toolchain.set_threads) before."""

    def __init__(self, path: str) -> None:
        self._machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
        self._main = self._machine["main"]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        result = self._main(*[tvm.runtime.tensor(np.ascontiguousarray(x)) for x in inputs])
        if hasattr(result, "numpy"):
            return [result.numpy()]
        return [field.numpy() for field in result]

    def bound(self, inputs: Sequence[Array]) -> Callable[[], Any]:
        """One inference per call, inputs already in place."""
        tensors = [tvm.runtime.tensor(np.ascontiguousarray(x)) for x in inputs]
        return lambda: self._main(*tensors)

    def kernel_times(self, inputs: Sequence[Array], repeats: int) -> dict[str, float]:
        """Seconds per inference spent in each kernel, by the kernel's name: median of repeats."""
        tensors = [tvm.runtime.tensor(np.ascontiguousarray(x)) for x in inputs]
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
        for _ in range(repeats + 1):
            runs.append({})
            self._main(*tensors)
        names = sorted(set().union(*runs[1:]))
        return {n: float(np.median([r.get(n, 0.0) for r in runs[1:]])) for n in names}


def time_interleaved(
    paths: Sequence[str], inputs: Sequence[Array], rounds: int, round_s: float
) -> list[list[float]]:
    """Seconds per inference of several modules, A B A B ..., `round_s` seconds each per round.

    Each round gives one number per module, its fastest quarter's median: the noise of a shared
    machine only ever adds.
    """
    runs = [LoadedNetwork(path).bound(inputs) for path in paths]
    estimates = [_estimate(run) for run in runs]
    fitting = int(_LONGEST_S / sum(max(round_s, e) for e in estimates))
    rounds = min(rounds, max(3, fitting))
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for index, run in enumerate(runs):
            if estimates[index] < _LONG_RUN_S:
                run()  # what the other module left in the caches is not this one's
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
    """The largest difference of two networks' outputs, relative to each output's largest value.

    infinity where shapes differ or a value is not finite.
    """
    if len(expected) != len(actual):
        return math.inf
    worst = 0.0
    for e, a in zip(expected, actual, strict=True):
        if e.shape != a.shape or not np.isfinite(a).all():
            return math.inf
        scale = float(np.abs(e).max()) if e.size else 0.0
        difference = float(np.abs(e.astype(np.float64) - a).max()) if e.size else 0.0
        worst = max(worst, difference / scale if scale else difference)
    return worst
