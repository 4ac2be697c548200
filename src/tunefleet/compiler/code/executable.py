"""Whole networks: compile with the chosen traces, save, measure interleaved, compare outputs."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.network import fields_of
from tunefleet.artifacts.tensors import array_of, tensor_of
from tunefleet.artifacts.weights import weights_path
from tunefleet.compiler.code.build import lowered, lowering
from tunefleet.compiler.code.device_code import packed_imports
from tunefleet.compiler.code.packing import Arguments, with_weights_of, without_packing
from tunefleet.compiler.code.parallel import renamed, separated, write_objects
from tunefleet.compiler.code.prefetching import with_prefetches
from tunefleet.compiler.code.replay import scheduled
from tunefleet.compiler.code.weight_orders import packings_of
from tunefleet.compiler.graph.forms import direct, shapes_of
from tunefleet.compiler.graph.tasks import call_counts, normalized, task_id_of
from tunefleet.compiler.graph.weights import Lifted, write_weights
from tunefleet.compiler.space.spaces import plainly_scheduled
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import is_foreign, to_tvm
from tunefleet.compiler.toolchain.linking import link
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.step import Rounds
from tunefleet.core.target import CudaTarget, Target
from tunefleet.core.trial import Timer
from tunefleet.system.progress import working_on

tvm = load_tvm()
relax = tvm.relax

Array = NDArray[Any]

#: Rounds of a comparison of modules that there are in any case.
_FEWEST_ROUNDS = 3
#: Of a network's turn in a round: so many runs, but not less than so many seconds.
_ENOUGH_RUNS = 16
_SHORTEST_TURN_S = 0.1
#: Minimum scale of an output in comparisons: a saturated sigmoid holds the last digits of numbers
#: near 1, where frameworks differ by some 1e-7.
LEAST_SCALE = 1e-3
#: A network that takes so many times as long as the fastest needs few rounds to be compared.
_FAR = 10.0
#: Before each turn, while threads of the network before wait for work, and take a core.
_PAUSE_S = 0.05
#: One longer run is estimate enough.
_LONG_RUN_S = 0.5
#: The factor by which a network may exceed its share of a round. A first fraction of the runs is
#: checked alone, then the number of runs doubles.
_PATIENCE = 4.0
_FIRST_RUNS = 64


@dataclass(frozen=True, slots=True)
class CompiledNetwork:
    """Code and byte code with the weights. `programs` are modules of programs that are not in the
    executable and not yet compiled, `codes` the object files of others by the programs' names."""

    executable: Any
    weights: Lifted
    target: Target
    programs: tuple[Any, ...] = ()
    codes: Mapping[str, Path] = field(default_factory=dict)


def compile_network(
    mod: Any,
    target: Target,
    traces: Mapping[str, str],
    codes: Mapping[str, Path] | None = None,
    *,
    inside: bool = False,
) -> CompiledNetwork:
    """Compile a prepared module; `traces` are by task id, other tasks get the plain schedule.
    `codes` are object files of their programs, where these were compiled before.

    The task id includes the target, so a trace is never applied on another one. `inside`
    leaves the weights in the module, but for those that it returns.
    """
    with to_tvm(target), lowering(target):
        applied, ready = _apply(mod, target, traces, codes or {})
        lifted = Lifted(applied, inside=inside)
        lowered_mod, programs = separated(_lowered(lifted.mod, target), target, ready)
        there = {str(gvar.name_hint) for gvar in lowered_mod.get_global_vars()}
        executable = relax.build(lowered_mod, target=to_tvm(target), relax_pipeline=None)
        apart = {name: code for name, code in ready.items() if name not in there}
        return CompiledNetwork(executable, lifted, target, tuple(programs), apart)


def with_graphs(network: CompiledNetwork) -> CompiledNetwork:
    """A network for a GPU once more, whose kernels are launched together: the first call at a
    shape records them as a CUDA graph. Each machine is to be called with the same weights."""
    target, lifted = network.target, network.weights
    mod = lifted.mod.clone()
    for gvar, function in lifted.mod.functions_items():
        if isinstance(function, relax.Function):
            # Kernels that read what lies behind the inputs are recorded too.
            inputs = len(function.params) - len(lifted.entries[str(gvar.name_hint)])
            mod.update_func(gvar, function.with_attr("num_input", inputs))
    with to_tvm(target), lowering(target, graphs=True):
        lowered_mod = _lowered(mod, target)
        executable = relax.build(lowered_mod, target=to_tvm(target), relax_pipeline=None)
        return replace(network, executable=executable)


def _lowered(mod: Any, target: Target) -> Any:
    """The module for TVM's virtual machine; the pass context decides on graphs."""
    tvm_target = to_tvm(target)
    backend = relax.backend.cuda if isinstance(target, CudaTarget) else relax.backend.cpu_generic
    passes = backend.pipeline.dataflow_lower_passes(tvm_target)
    passes += backend.pipeline.finalize_passes(tvm_target)
    return tvm.transform.Sequential(passes)(mod)


def _apply(
    mod: Any, target: Target, traces: Mapping[str, str], codes: Mapping[str, Path]
) -> tuple[Any, dict[str, Path]]:
    """`mod` with the scheduled PrimFunc of each task, and the weights that these take; the object
    files of PrimFuncs, by their names."""
    called = call_counts(mod)
    ready: dict[str, Path] = {}
    taken: dict[str, Arguments] = {}
    replaced = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for gvar, function in mod.functions_items():
        name = str(gvar.name_hint)
        if name not in called or not isinstance(function, tvm.tirx.PrimFunc):
            continue
        working_on(f"the program {name}")
        task_id = task_id_of(function, target)
        trace = traces.get(task_id)
        if trace is not None:
            module = scheduled(normalized(function), target, trace)
            packings = packings_of(module["main"])
            module = with_prefetches(without_packing(module), packings)
            taken[name] = shapes_of(module["main"]), packings
            if task_id in codes:
                ready[name] = codes[task_id]
        else:
            module = plainly_scheduled(normalized(direct(function)), target)
        made = module["main"].with_attr("global_symbol", name)
        replaced.update_func(gvar, made.with_attr("tirx.is_scheduled", True))
    return with_weights_of(replaced, taken), ready


def save_network(
    network: CompiledNetwork, path: str | Path, weights_of: Path | None = None
) -> None:
    """Write the code as one shared library, and the weights next to it; those of another module of
    the same network are linked.

    Raises SetupError if the target's compiler or linker is missing, CudaError for a kernel that
    nvcc rejects.
    """
    target, options = network.target, dict[str, Any]()
    if isinstance(target, CudaTarget):
        options["fpack_imports"] = lambda module, _system, _prefix, folder: packed_imports(
            module, target, folder
        )
    if is_foreign(target):
        options["fcompile"] = lambda library, objects, **_: link(objects, library, target)
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        objects = write_objects(network.programs, target, Path(folder))
        objects += renamed(network.codes, target, Path(folder))
        network.executable.export_library(str(path), addons=objects, **options)
    if weights_of is None:
        write_weights(weights_path(path), network.weights)
    else:
        os.link(weights_path(weights_of), weights_path(path))


def compile_to(
    path: Path,
    module: Any,
    target: Target,
    traces: Mapping[str, str],
    codes: Mapping[str, Path] | None = None,
    *,
    inside: bool = False,
    graphs: Path | None = None,
) -> Lifted:
    """Compile a prepared module with the given traces, or the object files of their programs, into
    one shared library; its weights, of which only those that it returns lie beside it where they
    are `inside`. `graphs` is for another one whose kernels a GPU launches together."""
    with quiet():
        network = compile_network(module, target, traces, codes, inside=inside)
        save_network(network, path)
        if graphs is not None:
            save_network(with_graphs(network), graphs, weights_of=path)
    return network.weights


def run_compiled(network: CompiledNetwork, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of an unsaved network for its first shape, computed in this process."""
    for module in network.programs:
        network.executable.mod.import_module(lowered(module, network.target))
    weights = [network.weights.arrays[number] for number in network.weights.entries["main"]]
    main = relax.VirtualMachine(network.executable, tvm.cpu())["main"]
    return [array_of(f) for f in fields_of(main(*map(tensor_of, [*inputs, *weights])))]


def timer_of(run: Callable[[], Any]) -> Timer:
    """A timer of a function in this process."""
    return lambda repeats: [_seconds(run) for _ in range(repeats)]


def time_interleaved(timers: Sequence[Timer], rounds: Rounds) -> list[list[float]]:
    """Seconds per inference of several networks, A B A B ...: of each turn the time of
    `_ENOUGH_RUNS` is enough.

    Each round yields one number per network, the median of its fastest quarter: noise on a shared
    machine only adds time. A network that takes longer than a round and far longer than the fastest
    is in the first rounds only.
    """
    estimates = [_estimate(timer) for timer in timers]
    turns_s = [min(rounds.turn_s, max(_SHORTEST_TURN_S, _ENOUGH_RUNS * e)) for e in estimates]
    takes_s = list(map(max, turns_s, estimates))
    far = [each > max(rounds.turn_s, _FAR * min(estimates)) for each in estimates]
    far_s = sum(s for s, is_far in zip(takes_s, far, strict=True) if is_far)
    fitting = int((rounds.limit_s - _FEWEST_ROUNDS * far_s) / (sum(takes_s) - far_s))
    seconds: list[list[float]] = [[] for _ in timers]
    spent_s = 0.0
    for number in range(min(rounds.number, max(_FEWEST_ROUNDS, fitting))):
        if number >= _FEWEST_ROUNDS and spent_s > rounds.limit_s:
            break  # it takes longer than estimated
        for index, timer in enumerate(timers):
            if far[index] and number >= _FEWEST_ROUNDS:
                continue
            time.sleep(_PAUSE_S)
            if estimates[index] < rounds.turn_s:
                spent_s += sum(timer(1))  # refill the caches after another network
            repeats = max(1, math.ceil(turns_s[index] / estimates[index]))
            times = sorted(_turn(timer, repeats, _PATIENCE * turns_s[index]))
            spent_s += sum(times)
            seconds[index].append(float(np.median(times[: max(1, len(times) // 4)])))
    return seconds


def _turn(timer: Timer, repeats: int, limit_s: float) -> list[float]:
    """Seconds of the runs that start within the limit. Threads that wait for each other on busy
    cores may take hundreds of times longer than estimated."""
    times = timer(max(1, repeats // _FIRST_RUNS))
    while len(times) < repeats and sum(times) < limit_s:
        times = [*times, *timer(min(len(times), repeats - len(times)))]
    return times


def _estimate(timer: Timer) -> float:
    """Seconds of a run. For an untuned network that takes seconds, the first run is enough."""
    first = timer(1)[0]
    return first if first >= _LONG_RUN_S else min(first, *timer(1))


def _seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def worst_difference(
    expected: Sequence[Array], actual: Sequence[Array], *, ordered: bool = True
) -> float:
    """The largest difference of two networks' outputs, relative to each output's largest value, at
    least 1e-3; sorted values are compared for outputs that are not `ordered`.

    Infinity if shapes differ, or if only one has an infinity or NaN.
    """
    if len(expected) != len(actual):
        return math.inf
    both = list(zip(expected, actual, strict=True))
    if not ordered:
        both = [(_sorted(e), _sorted(a)) if e.shape == a.shape else (e, a) for e, a in both]
    return max((_difference(e, a) for e, a in both), default=0.0)


def mean_difference(expected: Sequence[Array], actual: Sequence[Array]) -> float:
    """The worst output of two networks: the root mean square of the differences, relative to that
    of the output; for integers the share that differs. Infinity as in `worst_difference`."""
    if len(expected) != len(actual):
        return math.inf
    return max((_mean(e, a) for e, a in zip(expected, actual, strict=True)), default=0.0)


def _mean(expected: Array, actual: Array) -> float:
    finite = _finite(expected, actual)
    if finite is None:
        return math.inf
    e, a = finite
    if not e.size:
        return 0.0
    if expected.dtype.kind not in "fc":
        return float(np.mean(e != a))
    size = max(float(np.sqrt(np.mean(np.abs(e) ** 2))), LEAST_SCALE)
    return float(np.sqrt(np.mean(np.abs(e - a) ** 2))) / size


def _sorted(array: Array) -> Array:
    return np.sort(array, axis=None)


def _difference(expected: Array, actual: Array) -> float:
    finite = _finite(expected, actual)
    if finite is None:
        return math.inf
    e, a = finite
    if not e.size:
        return 0.0
    scale = max(float(np.abs(e).max()), LEAST_SCALE)
    return float(np.abs(e - a).max()) / scale


def _finite(expected: Array, actual: Array) -> tuple[Array, Array] | None:
    """The finite numbers of both in double precision, where integers do not overflow and booleans
    can be subtracted; None if shapes or non-finite numbers differ."""
    if expected.shape != actual.shape:
        return None
    finite = np.isfinite(expected)
    others = expected[~finite]
    if not np.array_equal(others, actual[~finite], equal_nan=others.dtype.kind in "fc"):
        return None
    e, a = expected[finite], actual[finite]
    if not np.isfinite(a).all():
        return None
    wide = np.complex128 if "c" in (e.dtype.kind, a.dtype.kind) else np.float64
    return e.astype(wide), a.astype(wide)
