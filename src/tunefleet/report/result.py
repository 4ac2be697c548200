"""What the result of a run looks like as JSON, schema `tunefleet-result/3`: what reports read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import msgspec

from tunefleet.errors import InputError

#: What formats can show: no negative, infinite or other absurd number.
_MOST = 1e18
Measure = Annotated[float, msgspec.Meta(ge=0.0, le=_MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**18)]
#: None where it was not measured.
Shown = Measure | None


class ReportedInterval(TypedDict):
    """A median, and what it lies between with 95 % probability."""

    median: Measure
    low: Measure
    high: Measure


class Baseline(TypedDict):
    name: str
    kind: str
    latency_ms: ReportedInterval
    speedup: ReportedInterval


class MeasuredShape(TypedDict, total=False):
    """At one of the network's shapes."""

    inputs: list[str]
    tuned_ms: ReportedInterval | None
    untuned_ms: ReportedInterval | None
    speedup: ReportedInterval | None
    baselines: list[Baseline]
    disturbed: Shown
    warnings: list[str]


class ReportedTask(TypedDict, total=False):
    task_id: str
    name: str
    shapes: str
    weight: Count
    flops: Measure
    trials: Count
    failed: Count
    latency_us: Shown
    gflops: Shown
    source: str
    winograd: bool
    intrinsic: str
    peak_share: Shown
    network_share: Measure


class CurvePoint(TypedDict):
    """Of the tuning curve: `latency_ms` of the whole network, once every task has one."""

    trials: Count
    wall_s: Measure
    latency_ms: Shown


class ReportedSegment(TypedDict):
    nodes: list[str]
    reason: str
    flops: Measure


class ReportedOutside(TypedDict):
    framework: str
    segments: list[ReportedSegment]
    share_of_flops: Shown
    share_of_time: Shown


class ReportedNetwork(TypedDict, total=False):
    name: str
    source: str
    digest: str
    inputs: list[str]
    outputs: list[str]


class ReportedDevice(TypedDict, total=False):
    kind: str
    name: str
    isa: list[str]
    cores: Count
    caches: list[tuple[str, Count]]
    memory_gib: Measure
    key: str


class Toolchain(TypedDict, total=False):
    tunefleet: str
    tvm: str
    llvm: str
    measure_version: Count


class ReportedBudget(TypedDict, total=False):
    trials: Count | None
    seconds: Shown
    target_latency_s: Shown


class Difference(TypedDict, total=False):
    """From the source framework; infinite where the outputs have another shape."""

    plain: float | None
    tuned: float | None
    untuned: float | None


class Result(MeasuredShape, total=False):
    """`tasks` and `curve` of a search, `shapes` where a module has several."""

    schema: str
    run: str
    job: str | None
    resumed: bool
    network: ReportedNetwork
    target: str
    threads: Count
    device: ReportedDevice
    toolchain: Toolchain
    budget: ReportedBudget | None
    stopped: str | None
    trials: Count
    failures: dict[str, Count]
    failure_texts: dict[str, list[tuple[str, Count]]]
    wall_s: Measure
    wall: dict[str, Measure]
    delivered: str | None
    why_plain: str | None
    verified: bool
    difference: Difference
    tolerance: Measure
    difference_measure: str
    peak_gflops: Shown
    kernels_ms: Shown
    outside: ReportedOutside | None
    artifact: str | None
    report: str | None
    tasks: list[ReportedTask]
    reused: Count
    curve: list[CurvePoint]
    shapes: list[MeasuredShape]


def check_result(value: Mapping[str, Any], name: str) -> None:
    """Raises InputError where `value`, of the file `name`, is no result that can be shown."""
    try:
        msgspec.convert(value, Result)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InputError(
            f"{name} is damaged: its result cannot be shown: {error}",
            cure="copy the artifact again, or tune again",
        ) from error
