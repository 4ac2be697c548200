"""How programs are measured and compared, whatever device runs them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, floats_of, stored
from tunefleet.core.device import DeviceDescription
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.target import Target
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement, ranking_latency
from tunefleet.devices import reference
from tunefleet.devices._base import (
    NO_WEIGHTS,
    Array,
    Check,
    ClockError,
    Program,
    Runs,
    Transfers,
)
from tunefleet.devices.runners import random_array
from tunefleet.errors import DeviceError, TunefleetError, raise_mistake

_TOLERANCE = 1e-4
#: Types of outputs whose last bit is more than that.
_NARROW = (stored(BFLOAT16), BFLOAT16, "float16")
#: Seconds that a check or a kernel of ours may take.
_OWN_LIMIT_S = 60.0
#: Runs of each kernel for the peak: until one is seen to be slow, and of the others.
_PEAK_TRIES, _PEAK_REPEATS = 8, 150
#: How often a program is tried that is not known to be at fault.
_LIVES = 3
#: What a clock that is too coarse for a program says it takes, at least.
_LEAST_S = 1e-9
_FLUSH = "cache_flush_cpu_non_first_arg"

T = TypeVar("T")


class _Failed(Exception):
    """One of several programs failed."""

    def __init__(self, index: int, failure: Failure) -> None:
        self.index = index
        self.failure = failure


class MeasuringDevice(ABC):
    """A `Device` made of what a kind must do itself: run a program, and say whose fault an error
    is."""

    def __init__(self) -> None:
        self.transfers = Transfers()
        self._references: dict[tuple[Target, str], Built] = {}
        self._reference_runs: dict[tuple[Target, str], Runs] = {}

    @abstractmethod
    def describe(self) -> DeviceDescription: ...

    @abstractmethod
    def load(self, built: Built, limit_s: float) -> Program: ...

    @abstractmethod
    def _runs(
        self, built: Built, weights: TaskWeights, limit_s: float, arguments: Sequence[Any] = ()
    ) -> Runs:
        """A program with `arguments` or, without, random ones; with weights as cold as they are in
        the network. One call may take `limit_s`."""

    @abstractmethod
    def _in_turn(self, candidates: Sequence[Built]) -> list[Any]:
        """Arguments of programs that never run at once."""

    def _reference(self, target: Target, directory: str) -> Built:
        """The reference kernel, compiled into `directory`."""
        return reference.reference_kernel(target, directory)

    def _peaks(self, target: Target, directory: str) -> Iterable[tuple[float, Built]]:
        """Kernels for the peak, each with its floating-point operations."""
        return reference.peak_kernels(target, directory)

    @abstractmethod
    def _blame(self, error: Exception) -> Failure | None:
        """What an error says of the program that ran; None where it says nothing of it. Raises
        what the device is to blame for."""

    def measure(
        self,
        built: Built,
        settings: MeasureSettings,
        best_s: float | None,
        weights: TaskWeights = NO_WEIGHTS,
    ) -> Measurement | Failure:
        return self._guarded(lambda: self._measured(built, settings, best_s, weights))

    def _measured(
        self, built: Built, settings: MeasureSettings, best_s: float | None, weights: TaskWeights
    ) -> Measurement:
        flush = _FLUSH if settings.flush_cache else ""
        cold = NO_WEIGHTS if settings.flush_cache else weights
        run = _clocked(self._runs(built, cold, settings.timeout_s))
        warm = run(number=1, repeat=settings.slow_repeats, preprocess=flush)
        estimate = max(min(warm), _LEAST_S)
        if best_s is not None and estimate > settings.give_up_ratio * best_s:
            return Measurement(tuple(warm))
        number = 1
        if not settings.flush_cache:
            number = max(1, math.ceil(settings.min_repeat_ms * 1e-3 / estimate))
        fitting = int(settings.budget_s / (number * estimate))
        repeats = max(settings.slow_repeats, min(settings.repeats, fitting))
        return Measurement(_moved(run(number=number, repeat=repeats, preprocess=flush)))

    def measure_interleaved(
        self,
        candidates: Sequence[Built],
        settings: MeasureSettings,
        weights: TaskWeights = NO_WEIGHTS,
    ) -> list[Measurement | Failure]:
        outcomes: dict[int, Measurement | Failure] = {}
        while len(outcomes) < len(candidates):
            left = [i for i in range(len(candidates)) if i not in outcomes]
            chosen = [candidates[i] for i in left]
            try:
                latencies = self._interleaved(chosen, settings, weights)
            except _Failed as failed:  # the others again: a device may have lost all of them
                outcomes[left[failed.index]] = failed.failure
                continue
            outcomes |= {
                i: Measurement(_moved(own)) for i, own in zip(left, latencies, strict=True)
            }
        return [outcomes[i] for i in range(len(candidates))]

    def _interleaved(
        self, candidates: Sequence[Built], settings: MeasureSettings, weights: TaskWeights
    ) -> list[list[float]]:
        """Latencies of each; raises _Failed for the first that fails."""
        for left in reversed(range(_LIVES)):
            latencies: list[list[float]] = [[] for _ in candidates]
            running = 0
            try:
                prepared = []
                arguments = self._in_turn(candidates)
                for running, built in enumerate(candidates):
                    own = arguments[running]
                    run = _clocked(self._runs(built, weights, settings.timeout_s, own))
                    estimate = max(min(run(number=1, repeat=3, preprocess="")), _LEAST_S)
                    number = max(1, math.ceil(settings.min_repeat_ms * 1e-3 / estimate))
                    prepared.append((run, number))
                for _ in range(max(1, settings.final_repeats // 5)):
                    for running, (run, number) in enumerate(prepared):
                        latencies[running] += run(number=number, repeat=5, preprocess="")
                return latencies
            except ClockError:
                if not left:
                    raise
            except TunefleetError:
                raise
            except Exception as error:
                raise_mistake(error)
                failure = self._blame(error)
                if failure is not None:
                    raise _Failed(running, failure) from error
        raise _Failed(running, _given_up())

    def verify(self, default: Built, candidate: Built, seed: int) -> Check:
        outcome = self._guarded(lambda: self._compared(default, candidate, seed))
        if isinstance(outcome, Failure):
            return Check(f"outputs cannot be compared: {outcome.text}", math.inf)
        return outcome

    def _compared(self, default: Built, candidate: Built, seed: int) -> Check:
        arrays = [random_array(*types, seed + i) for i, types in enumerate(default.args)]
        ours, theirs = (self.load(each, _OWN_LIMIT_S) for each in (default, candidate))
        expected, default_s = ours.run(arrays)
        if expected.dtype.kind == "f" and not np.isfinite(expected).all():
            # The root of a sum of squares, say, whose squares are an argument.
            arrays = [np.abs(array) if array.dtype.kind == "f" else array for array in arrays]
            expected, default_s = ours.run(arrays)
        actual, _ = theirs.run(arrays)
        return Check(difference(expected, actual), default_s)

    def reference(self, target: Target, directory: str) -> float:
        """Low quantile of short repeats, some 30 ms in all."""

        def measured() -> float:
            key = (target, directory)
            if key not in self._references:
                self._references[key] = self._reference(target, directory)
            if key not in self._reference_runs:
                runs = _clocked(self._runs(self._references[key], NO_WEIGHTS, _OWN_LIMIT_S))
                runs(number=1, repeat=reference.REPEATS, preprocess="")
                self._reference_runs[key] = runs
            runs = self._reference_runs[key]
            latencies = runs(number=1, repeat=reference.REPEATS, preprocess="")
            return ranking_latency(_moved(latencies))

        return self._own("reference", measured)

    def peak(self, target: Target, directory: str) -> float:
        def measured() -> float:
            best = 0.0
            for flops, built in self._peaks(target, directory):
                run = _clocked(self._runs(built, NO_WEIGHTS, _OWN_LIMIT_S))
                tried = [s for s in run(number=1, repeat=_PEAK_TRIES, preprocess="") if s]
                # Sums that do not stay in registers take up to 20 times as long as others.
                if tried and flops / min(tried) / 1e9 < best / 2:
                    continue
                seconds = _moved(run(number=1, repeat=_PEAK_REPEATS, preprocess=""))
                best = max(best, flops / min(s for s in seconds if s) / 1e9)
            return best

        return self._own("peak", measured)

    def reset(self) -> None:
        self._reference_runs.clear()

    def close(self) -> None:
        self.reset()

    def _guarded(self, call: Callable[[], T]) -> T | Failure:
        """What a call of one program's gives, or the program's failure."""
        for left in reversed(range(_LIVES)):
            try:
                return call()
            except ClockError:
                if not left:
                    raise
            except TunefleetError:
                raise
            except Exception as error:
                raise_mistake(error)
                failure = self._blame(error)
                if failure is not None:
                    return failure
        return _given_up()

    def _own(self, name: str, call: Callable[[], T]) -> T:
        """What a call gives that runs a kernel of ours: where it fails, the device does."""
        outcome = self._guarded(call)
        if isinstance(outcome, Failure):
            raise DeviceError(
                f"the {name} kernel fails: {outcome.text}", cure="compare its target with it"
            )
        return outcome


def clocked(seconds: list[float]) -> list[float]:
    """What a device's clock says, where that can be a time. Raises ClockError."""
    wrong = [s for s in seconds if not (math.isfinite(s) and s >= 0)]
    if wrong:
        raise ClockError(
            f"the device's clock says that a program took {wrong[0]:.3g} s",
            cure="look after its clock: it must not be set while something is measured",
        )
    return seconds


def _clocked(run: Runs) -> Runs:
    def timed(*, number: int, repeat: int, preprocess: str) -> list[float]:
        return clocked(run(number=number, repeat=repeat, preprocess=preprocess))

    return timed


def _moved(seconds: list[float]) -> tuple[float, ...]:
    """Of a clock that is coarse but moves. Raises ClockError."""
    if not any(seconds):
        raise ClockError("the device's clock stands", cure="look after its clock")
    return tuple(seconds)


def difference(expected: Array, actual: Array) -> str:
    """What two outputs differ by, or "". In 16 bits (of bfloat16 they are its bits) sums in another
    order may fall to the next number."""
    if str(expected.dtype) in _NARROW:
        near = np.abs(_ordered(expected) - _ordered(actual)) <= 1
        expected, actual = _wide(expected), _wide(actual)
        actual = np.where(near, expected, actual)
    if expected.dtype.kind != "f":
        return "" if np.array_equal(expected, actual) else "integer outputs differ"
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(actual)):
        return "outputs are not finite"
    expected, actual = expected[finite], actual[finite]
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    worst = float(np.abs(expected - actual).max(initial=0.0)) / scale
    return "" if worst <= _TOLERANCE else f"outputs differ by {worst:.1e} of the largest output"


def _wide(array: Array) -> Array:
    """16-bit floats as float32."""
    return floats_of(array) if array.dtype == stored(BFLOAT16) else array.astype(np.float32)


def _ordered(array: Array) -> Array:
    """16-bit floats as integers in their order; 0 and -0 are one."""
    bits = array.view(np.uint16)
    sign, rest = bits >> 15, (bits & 0x7FFF).astype(np.int32)
    ordered: Array = np.where(sign, -rest, rest)
    return ordered


def _given_up() -> Failure:
    return Failure(FailureKind.RUN_CRASH, f"the device lost its session {_LIVES} times")
