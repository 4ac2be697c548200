"""What workers run: module-level functions, so that a pool can name them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tunefleet.compiler import build, executable, profile, programs, reference
from tunefleet.compiler.select import SelectRequest, select
from tunefleet.core.stage import SelectResult
from tunefleet.core.target import Target
from tunefleet.costmodel import MODELS
from tunefleet.features import unpack


@lru_cache(maxsize=4)
def _model(kind: str, data: bytes) -> Any:
    return MODELS[kind].load(data)


def run_select(request: SelectRequest, model_kind: str, model: bytes, threads: int) -> SelectResult:
    score = _model(model_kind, model).predict if model else None
    return select(request, score, threads)


def run_update(
    model_kind: str, features: list[bytes], labels: list[float], tasks: list[str]
) -> bytes:
    """Fit a cost model on packed features; returns its bytes."""
    programs = [unpack(f) for f in features]
    return MODELS[model_kind]().fit(programs, np.array(labels), tasks).save()


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
    paths: list[str], inputs: list[Any], rounds: int, round_s: float
) -> list[list[float]]:
    return executable.time_interleaved(paths, inputs, rounds, round_s)


def run_network(path: str, inputs: list[Any]) -> list[Any]:
    return executable.LoadedNetwork(path).run(inputs)


def kernel_times(path: str, inputs: list[Any], repeats: int) -> dict[str, float]:
    return executable.LoadedNetwork(path).kernel_times(inputs, repeats)


def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run any function of this module: for a batch of different ones."""
    return function(*args)
