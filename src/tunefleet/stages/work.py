"""What workers run: module-level functions, so that a pool can name them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np

from tunefleet.compiler.code import build, executable
from tunefleet.compiler.frontends.references import reference_of, runs_on_gpu
from tunefleet.compiler.space.opening import task_space
from tunefleet.compiler.toolchain import programs
from tunefleet.core.device import DeviceDescription, DeviceSpec
from tunefleet.core.gpu import Gpu
from tunefleet.core.placement import Connection
from tunefleet.core.roofline import Bandwidth, without_dips
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.stage import SelectResult
from tunefleet.core.step import Rounds
from tunefleet.core.target import Target
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, Measurement
from tunefleet.devices import NO_WEIGHTS, Check, Device, held_device, links, reference, sequence
from tunefleet.features import unpack
from tunefleet.hardware import nvml
from tunefleet.search.guide import Guide, Pretrained
from tunefleet.search.selection import SelectRequest, select
from tunefleet.workers import disturbance
from tunefleet.workers.memory import give_back

_guide = lru_cache(maxsize=4)(Guide.load)

#: Many single runs: of a bandwidth the best one counts.
_READING = MeasureSettings(repeats=200, budget_s=0.1, min_repeat_ms=1e-3)


def run_select(
    request: SelectRequest, pretrained: Pretrained | None, model_kind: str, model: bytes
) -> SelectResult:
    """`model` are the bytes of `run_update`, or none."""
    space = task_space(request.program, request.target)
    return select(request, space, _guide(pretrained, model_kind, model))


def run_update(
    pretrained: Pretrained | None,
    model_kind: str,
    features: list[bytes],
    labels: list[float],
    tasks: list[str],
    steered: Collection[str],
) -> bytes:
    """Learn from packed features beside a pretrained model, which steers the tasks `steered`."""
    programs = [unpack(f) for f in features]
    return Guide.learn(pretrained, model_kind, programs, np.array(labels), tasks, steered)


build_candidate = build.build_candidate
build_default = build.build_default
weights = programs.weights
compile_probe = links.compile_probe
run_sequences = sequence.run_sequences

#: Where the functions below run: this machine's processor unless `on_device` says otherwise.
_place: ContextVar[tuple[DeviceSpec, int | None, float | None]] = ContextVar(
    "device", default=(DeviceSpec(), None, None)
)


def on_device(
    spec: DeviceSpec,
    threads: int,
    away_s: float | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> Any:
    """Run a function of this module that measures or checks on a device, which the worker opens
    and holds until it is asked for another; one that is gone is waited for for `away_s`."""
    token = _place.set((spec, threads, away_s))
    try:
        return function(*args)
    finally:
        _place.reset(token)


def describe_device() -> DeviceDescription:
    """`Device.describe`."""
    return _device().describe()


def reset_device() -> None:
    """`Device.reset`."""
    _device().reset()


def _device() -> Device:
    return held_device(*_place.get())


def profile_candidate(
    built: Built,
    settings: MeasureSettings,
    best_s: float | None,
    weights: TaskWeights = NO_WEIGHTS,
) -> Measurement | Failure:
    """`Device.measure`."""
    return _device().measure(built, settings, best_s, weights)


def profile_interleaved(
    candidates: Sequence[Built], settings: MeasureSettings, weights: TaskWeights = NO_WEIGHTS
) -> list[Measurement | Failure]:
    """`Device.measure_interleaved`."""
    return _device().measure_interleaved(candidates, settings, weights)


def check_output(default: Built, candidate: Built, seed: int) -> Check:
    """`Device.verify`."""
    return _device().verify(default, candidate, seed)


def peak_gflops(target: Target, directory: str) -> float:
    """`Device.peak`."""
    return _device().peak(target, directory)


def bandwidths(
    target: Target, directory: str, levels: Sequence[tuple[str, int, int]]
) -> tuple[Bandwidth, ...]:
    """How fast the target's threads read from each of `levels` (`core.roofline.levels_to_read`),
    up to the first that cannot be measured."""
    measured = []
    for level, holds, size in levels:
        read, built = reference.reading_kernel(target, directory, size)
        outcome = _device().measure(built, _READING, None)
        if isinstance(outcome, Failure):
            break
        measured.append(Bandwidth(level, holds, read / min(outcome.latencies_s) / 1e9))
    return without_dips(measured)


def measure_reference(target: Target, directory: str) -> float:
    """`Device.reference`: seconds of the reference kernel now."""
    return _device().reference(target, directory)


def connection(probe: str) -> Connection:
    """How the device is reached, by a call of the network that `compile_probe` wrote."""
    return links.connection_of(_device(), probe)


def time_networks(
    contenders: list[str | Mapping[str, Any]],
    entry: str,
    inputs: list[Any],
    threads: int,
    rounds: Rounds,
) -> tuple[list[list[float]], float]:
    """Latencies of modules (by path) and, on this machine's processor, source frameworks in turn,
    and the share of the processor that other processes took, 0 where it is not this machine's."""
    gpu = _place.get()[0].gpu
    timers = [
        _device().network(c, entry).timer(inputs)
        if isinstance(c, str)
        else executable.timer_of(reference_of(c, gpu).bound(inputs, threads))
        for c in contenders
    ]
    with disturbance.watched() as watch:
        latencies = executable.time_interleaved(timers, rounds)
    timers.clear()
    give_back()  # what source frameworks opened is as large as the network
    elsewhere = _place.get()[0].rpc is not None
    return latencies, 0.0 if elsewhere else watch.share


def held_down() -> str:
    """What holds the clocks of the device down, which is a GPU of this machine; else ""."""
    gpu = _gpu_here()
    return nvml.held_down(gpu) if gpu is not None else ""


def others_on_gpu() -> int:
    """How many other processes use the device, where that is a GPU of this machine."""
    gpu = _gpu_here()
    return nvml.others_on(gpu) if gpu is not None else 0


def _gpu_here() -> Gpu | None:
    spec = _place.get()[0]
    return _device().describe().gpu if spec.is_here and spec.gpu is not None else None


def framework_on_gpu(source: Mapping[str, Any]) -> bool:
    """Whether the source framework is measured on the device, which is a GPU."""
    gpu = _place.get()[0].gpu
    return gpu is not None and runs_on_gpu(source, gpu)


def run_network(path: str, entry: str, inputs: list[Any], calls: int = 1) -> list[Any]:
    """The outputs of the last of so many calls of a module."""
    network = _device().network(path, entry)
    for _ in range(calls):
        outputs = network.run(inputs)
    return outputs


def run_reference(
    source: Mapping[str, Any], inputs: list[Any], threads: int, gpu: int | None = None
) -> list[Any]:
    """What the source framework makes of inputs, on a GPU where it can; `source` as
    `references.reference_of` takes it."""
    outputs = reference_of(source, gpu)(inputs, threads)
    give_back()
    return outputs


def kernel_times(path: str, inputs: list[Any], repeats: int) -> dict[str, float]:
    """Seconds per inference by kernel, empty where the device does not tell."""
    return _device().network(path, "main").kernel_times(inputs, repeats)


def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run any function of this module: for a batch of different ones."""
    return function(*args)
