"""The profile stage: shared libraries -> latencies, on the threads the target names."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunefleet.compiler.code.build import is_memory, one_line
from tunefleet.compiler.graph.winograd import fitting
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement
from tunefleet.devices.runners import in_turn, random_array, runner, runner_in_network
from tunefleet.errors import raise_mistake

tvm = load_tvm()

_TOLERANCE = 1e-4
_CHECK_RUNS = 5
_LONG_RUN_S = 0.02
_NO_WEIGHTS = TaskWeights()


def profile_candidate(
    built: Built,
    settings: MeasureSettings,
    best_s: float | None,
    weights: TaskWeights = _NO_WEIGHTS,
) -> Measurement | Failure:
    """Measure one candidate: warm-up, then short repeats, with `weights` as cold as in the network.

    `best_s` is the best latency of the task so far; a candidate far behind it is cut short.
    """
    try:
        run = runner(built) if settings.flush_cache else runner_in_network(built, weights)
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
        raise_mistake(error)
        kind = FailureKind.RUN_MEMORY if is_memory(error) else FailureKind.RUN_ERROR
        return Failure(kind, one_line(error))


def profile_interleaved(
    candidates: Sequence[Built],
    settings: MeasureSettings,
    weights: TaskWeights = _NO_WEIGHTS,
) -> list[Measurement | Failure]:
    """Measure finalists in turn, A B C A B C ..., so that a slow minute hits all of them alike;
    `weights` are as cold as in the network."""
    prepared: list[Any] = []
    arguments = in_turn(candidates)
    for built, own in zip(candidates, arguments, strict=True):
        try:
            run = runner_in_network(built, weights, own)
            estimate = min(run(number=1, repeat=3, preprocess=""))
            prepared.append((run, max(1, math.ceil(settings.min_repeat_ms * 1e-3 / estimate))))
        except Exception as error:
            raise_mistake(error)
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


@dataclass(frozen=True, slots=True)
class Check:
    """How a candidate's output compares with the default schedule's on random input.

    `difference` is "" when they agree; `default_s` is the fastest of a few runs of the default, in
    seconds.
    """

    difference: str
    default_s: float


def check_output(default: Built, candidate: Built, seed: int) -> Check:
    """Run both programs on the same random input, the candidate in whatever form it is.

    The tolerance follows from float32 sums in another order: relative to the largest output.
    """
    arrays = [random_array(*types, seed + i) for i, types in enumerate(default.args)]
    expected, default_s = _output(default, arrays)
    if expected.dtype.kind == "f" and not np.isfinite(expected).all():
        # The root of a sum of squares, say, whose squares are an argument.
        arrays = [np.abs(array) if array.dtype.kind == "f" else array for array in arrays]
        expected, default_s = _output(default, arrays)
    actual, _ = _output(candidate, arrays)
    if expected.dtype.kind != "f":
        same = np.array_equal(expected, actual)
        return Check("" if same else "integer outputs differ", default_s)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(actual)):
        return Check("outputs are not finite", default_s)
    expected, actual = expected[finite], actual[finite]
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    worst = float(np.abs(expected - actual).max(initial=0.0)) / scale
    text = "" if worst <= _TOLERANCE else f"outputs differ by {worst:.1e} of the largest output"
    return Check(text, default_s)


def _output(built: Built, arrays: Sequence[Any]) -> tuple[Any, float]:
    """The last argument of a program on given ones, and the seconds of its fastest run."""
    library = tvm.runtime.load_module(built.path)
    pairs = zip(arrays, built.args, strict=True)
    arguments = [tvm.runtime.tensor(fitting(a, shape)) for a, (shape, _) in pairs]
    fastest = math.inf
    for _ in range(_CHECK_RUNS):
        started = time.perf_counter()
        library["main"](*arguments)
        fastest = min(fastest, time.perf_counter() - started)
        if fastest > _LONG_RUN_S:  # the first run is slower by page faults, but not this much
            break
    return arguments[-1].numpy(), fastest
