"""The profile stage: shared libraries -> latencies, on the threads the target names."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunefleet.compiler.build import is_memory, one_line
from tunefleet.compiler.programs import nbytes
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement

tvm = load_tvm()

_TOLERANCE = 1e-4
_CHECK_RUNS = 5
_LONG_RUN_S = 0.02

#: Weights smaller than this are measured warm: fetching them takes a microsecond or two.
_COLD_BYTES = 64 * 2**10
#: More than caches hold: beyond it weights come from memory however many others there are.
_NO_CACHE_BYTES = 128 * 2**20
_MOST_COPIES = 256


def profile_candidate(
    built: Built, settings: MeasureSettings, best_s: float | None
) -> Measurement | Failure:
    """Measure one candidate: warm-up, then short repeats.

    `best_s` is the best latency of the task so far; a candidate far behind it is cut short.
    """
    try:
        run = runner(built)
        flush = "cache_flush_cpu_non_first_arg" if settings.flush_cache else ""
        warm = run(number=1, repeat=settings.slow_repeats, preprocess=flush)
        estimate = min(warm)
        if best_s is not None and estimate > settings.give_up_ratio * best_s:
            return Measurement(tuple(warm))
        number = 1
        if not settings.flush_cache:
            number = max(1, math.ceil(settings.min_repeat_ms * 1e-3 / max(estimate, 1e-9)))
        fitting = int(settings.budget_s / (number * estimate))
        repeats = max(settings.slow_repeats, min(settings.repeats, fitting))
        return Measurement(tuple(run(number=number, repeat=repeats, preprocess=flush)))
    except Exception as error:
        kind = FailureKind.RUN_MEMORY if is_memory(error) else FailureKind.RUN_ERROR
        return Failure(kind, one_line(error))


def profile_interleaved(
    candidates: Sequence[Built],
    settings: MeasureSettings,
    weights: Sequence[int] = (),
    between: int = 0,
) -> list[Measurement | Failure]:
    """Measure finalists in turn, A B C A B C ..., so that a slow minute hits all of them alike.

    Where `weights` (argument indices) are given, they are as cold as they are in the network, in
    which `between` bytes of weights pass through the caches from one run to the next.
    """
    prepared: list[Any] = []
    arguments = _in_turn(candidates)
    for built, own in zip(candidates, arguments, strict=True):
        try:
            run = _cold_runner(built, weights, between) or runner(built, own)
            estimate = min(run(number=1, repeat=3, preprocess=""))
            prepared.append((run, max(1, math.ceil(settings.min_repeat_ms * 1e-3 / estimate))))
        except Exception as error:
            prepared.append(Failure(FailureKind.RUN_ERROR, one_line(error)))
    latencies: list[list[float]] = [[] for _ in candidates]
    rounds = max(1, settings.final_repeats // 5)
    for _ in range(rounds):
        for index, entry in enumerate(prepared):
            if not isinstance(entry, Failure):
                run, number = entry
                latencies[index] += run(number=number, repeat=5, preprocess="")
    return [
        entry if isinstance(entry, Failure) else Measurement(tuple(values))
        for entry, values in zip(prepared, latencies, strict=True)
    ]


def runner(built: Built, arguments: Sequence[Any] = ()) -> Any:
    """run(number, repeat, preprocess) -> seconds per run of each repeat, on random numbers unless
    there are `arguments`."""
    library = tvm.runtime.load_module(built.path)
    arguments = arguments or [_random_tensor(shape, dtype) for shape, dtype in built.args]

    def run(*, number: int, repeat: int, preprocess: str) -> list[float]:
        evaluator = library.time_evaluator(
            "main", tvm.cpu(), number=number, repeat=repeat, f_preproc=preprocess
        )
        return [float(s) for s in evaluator(*arguments).results]

    return run


def _cold_runner(built: Built, weights: Sequence[int], between: int) -> Any:
    """Like `runner`, with another copy of the weights in each run; None where that tells nothing.

    Inputs stay warm, as what the kernel before has just written. The copies together are what the
    whole network's weights are, up to a size that no cache holds.
    """
    size = sum(nbytes(*built.args[i]) for i in weights)
    copies = min(_MOST_COPIES, math.ceil(min(between, _NO_CACHE_BYTES) / size)) if size else 0
    if size < _COLD_BYTES or copies < 2:
        return None
    function = tvm.runtime.load_module(built.path)["main"]
    shared = [_random_tensor(shape, dtype) for shape, dtype in built.args]
    sets = [
        [_random_tensor(*built.args[i]) if i in weights else a for i, a in enumerate(shared)]
        for _ in range(copies)
    ]
    following = itertools.cycle(sets)
    function(*next(following))

    def run(*, number: int, repeat: int, preprocess: str) -> list[float]:
        found = []
        for _ in range(repeat):
            arguments = [next(following) for _ in range(number)]
            started = time.perf_counter()
            for each in arguments:
                function(*each)
            found.append((time.perf_counter() - started) / number)
        return found

    return run


def _random_array(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    if dtype.startswith("float") or dtype == "bfloat16":
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype, copy=False)
    if dtype == "bool":
        return generator.random(shape) < 0.5
    # Indices must stay inside any table that they look up.
    return generator.integers(0, 2, shape, dtype=np.uint8).astype(dtype)


#: Random numbers by type, as many as the largest tensor so far had: shapes of packed weights are as
#: many as there are programs.
_numbers: dict[str, Any] = {}


def _in_turn(candidates: Sequence[Built]) -> list[list[Any]]:
    """Arguments of programs that never run at once: the first arguments of all are in one piece of
    memory, and so are the second ones, ..., each in its own shape."""
    largest: dict[tuple[int, str], int] = {}
    for built in candidates:
        for index, (shape, dtype) in enumerate(built.args):
            key = (index, dtype)
            largest[key] = max(largest.get(key, 0), math.prod(shape))
    pieces = {key: _random_tensor((size,), key[1]) for key, size in largest.items()}
    return [
        [
            pieces[index, dtype]._create_view(shape, dtype)
            for index, (shape, dtype) in enumerate(built.args)
        ]
        for built in candidates
    ]


def _random_tensor(shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor of its own, with numbers that are the same for every tensor of a type."""
    size = math.prod(shape)
    if dtype not in _numbers or _numbers[dtype].size < size:
        _numbers[dtype] = _random_array((size,), dtype, 0)
    return tvm.runtime.tensor(_numbers[dtype][:size].reshape(shape))


@dataclass(frozen=True, slots=True)
class Check:
    """How a candidate's output compares with the default schedule's on random input.

    `difference` is "" when they agree; `default_s` is the fastest of a few runs of the default, in
    seconds.
    """

    difference: str
    default_s: float


def check_output(default: Built, candidate: Built, seed: int) -> Check:
    """Run both programs on the same random input.

    The tolerance follows from float32 sums in another order: relative to the largest output.
    """
    expected, default_s = _output(default, seed)
    actual, _ = _output(candidate, seed)
    if expected.dtype.kind != "f":
        same = np.array_equal(expected, actual)
        return Check("" if same else "integer outputs differ", default_s)
    if not np.isfinite(actual).all():
        return Check("outputs are not finite", default_s)
    scale = float(np.abs(expected).max()) or 1.0
    worst = float(np.abs(expected - actual).max()) / scale
    text = "" if worst <= _TOLERANCE else f"outputs differ by {worst:.1e} of the largest output"
    return Check(text, default_s)


def _output(built: Built, seed: int) -> tuple[Any, float]:
    """The last argument of a program on random input, and the seconds of its fastest run."""
    library = tvm.runtime.load_module(built.path)
    arguments = [
        tvm.runtime.tensor(_random_array(shape, dtype, seed + i))
        for i, (shape, dtype) in enumerate(built.args)
    ]
    fastest = math.inf
    for _ in range(_CHECK_RUNS):
        started = time.perf_counter()
        library["main"](*arguments)
        fastest = min(fastest, time.perf_counter() - started)
        if fastest > _LONG_RUN_S:  # the first run is slower by page faults, but not this much
            break
    return arguments[-1].numpy(), fastest
