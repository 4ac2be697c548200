"""What workers run: module-level functions, so that a pool can name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tunefleet.artifacts.network import LoadedNetwork
from tunefleet.compiler.code import build, executable
from tunefleet.compiler.frontends.references import reference_of
from tunefleet.compiler.space.opening import task_space
from tunefleet.compiler.toolchain import programs
from tunefleet.core.stage import SelectResult
from tunefleet.core.target import Target
from tunefleet.devices import measuring as profile
from tunefleet.devices import reference
from tunefleet.features import unpack
from tunefleet.search.guide import Guide, Pretrained
from tunefleet.search.selection import SelectRequest, select
from tunefleet.workers import disturbance
from tunefleet.workers.memory import give_back

_guide = lru_cache(maxsize=4)(Guide.load)


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
) -> bytes:
    """Learn from packed features beside a pretrained model."""
    programs = [unpack(f) for f in features]
    return Guide.learn(pretrained, model_kind, programs, np.array(labels), tasks)


build_candidate = build.build_candidate
build_default = build.build_default
build_checked = build.build_checked
profile_candidate = profile.profile_candidate
profile_interleaved = profile.profile_interleaved
check_output = profile.check_output
peak_gflops = reference.peak_gflops
weights = programs.weights


@lru_cache(maxsize=2)
def _reference(target: Target, directory: str) -> reference.Reference:
    return reference.Reference(target, directory)


def measure_reference(target: Target, directory: str) -> float:
    """Seconds of the reference kernel now; the first call of a worker compiles it."""
    return _reference(target, directory).measure()


def time_networks(
    contenders: list[str | Mapping[str, Any]],
    entry: str,
    inputs: list[Any],
    threads: int,
    rounds: int,
    round_s: float,
) -> tuple[list[list[float]], float]:
    """Latencies of modules (by path) and source frameworks in turn, and the share of the cores
    that other processes took."""
    runs = [
        LoadedNetwork(c, entry).bound(inputs)
        if isinstance(c, str)
        else reference_of(c).bound(inputs, threads)
        for c in contenders
    ]
    with disturbance.watched() as watch:
        latencies = executable.time_interleaved(runs, rounds, round_s)
    runs.clear()
    give_back()  # what source frameworks opened is as large as the network
    return latencies, watch.share


def run_network(path: str, entry: str, inputs: list[Any]) -> list[Any]:
    return LoadedNetwork(path, entry).run(inputs)


def run_reference(source: Mapping[str, Any], inputs: list[Any], threads: int) -> list[Any]:
    """What the source framework makes of inputs; `source` as `references.reference_of` takes it."""
    outputs = reference_of(source)(inputs, threads)
    give_back()
    return outputs


def kernel_times(path: str, inputs: list[Any], repeats: int) -> dict[str, float]:
    return LoadedNetwork(path).kernel_times(inputs, repeats)


def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run any function of this module: for a batch of different ones."""
    return function(*args)
