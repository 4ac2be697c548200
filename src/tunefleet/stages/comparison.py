"""End-to-end latencies on the device, in turn: the source framework, untuned TVM, the module that
is delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefleet.compiler.frontends import Reference
from tunefleet.core.statistics import Interval, interval
from tunefleet.stages import work
from tunefleet.stages.network_steps import on_device
from tunefleet.stages.network_work import PreparedNetwork
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import CallFailure

#: Names of the contenders of an evaluation.
SOURCE, UNTUNED, TUNED = "source", "untuned", "tuned"

_ROUND_S = 0.25
#: How often a disturbed measurement is made, as that of candidates.
_ATTEMPTS = 2
#: A measurement beside which other processes took a larger share of the cores is warned of.
_MOST_DISTURBED = 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """Latencies in seconds by name, of each round in turn. `disturbed` is the share of the cores'
    time that other processes took meanwhile."""

    rounds: Mapping[str, Sequence[float]]
    disturbed: float

    def latency(self, name: str) -> Interval:
        return interval(self.rounds[name])

    def ratio(self, slow: str, fast: str) -> Interval:
        """How many times as long one takes as the other, of each round's pair."""
        pairs = zip(self.rounds[slow], self.rounds[fast], strict=True)
        return interval([a / b for a, b in pairs])

    @property
    def warning(self) -> str:
        """What is to be said of the figures, or ""."""
        if self.disturbed <= _MOST_DISTURBED:
            return ""
        return (
            f"other processes took {self.disturbed:.0%} of the cores during the measurement: "
            "these latencies may be several times too long; measure again on a quiet machine"
        )


@dataclass(frozen=True, slots=True)
class Contender:
    """What is to be measured: a module, or the source framework."""

    name: str
    runs: Path | Reference


def compare(
    contenders: Sequence[Contender],
    prepared: PreparedNetwork,
    machine: Machine,
    rounds: int,
    variant: int = 0,
) -> Comparison:
    """Measure contenders end to end at one of the network's shapes, A B C A B C ..., on the
    device. What was disturbed is measured once more, and the quieter measurement counts."""
    from tunefleet.artifacts.network import entry_name

    quietest: Comparison | None = None
    for _ in range(_ATTEMPTS):
        latencies, disturbed = on_device(
            machine,
            "measuring the network failed",
            work.time_networks,
            [str(c.runs) if isinstance(c.runs, Path) else c.runs for c in contenders],
            entry_name(variant),
            list(prepared.tasked.variants[variant].example_inputs),
            machine.target.threads,
            rounds,
            _ROUND_S,
        )
        if quietest is None or disturbed < quietest.disturbed:
            named = {c.name: each for c, each in zip(contenders, latencies, strict=True)}
            quietest = Comparison(named, disturbed)
        if not quietest.warning:
            break
    assert quietest is not None
    return quietest


def kernel_times(path: Path, prepared: PreparedNetwork, machine: Machine) -> dict[str, float]:
    """Seconds per inference by kernel, at the first of the network's shapes."""
    inputs: list[Any] = list(prepared.tasked.variants[0].example_inputs)
    what = "timing the kernels one by one failed"
    return on_device(machine, what, work.kernel_times, str(path), inputs, 20)


def peak_gflops(machine: Machine) -> float | None:
    """float32 GFLOP/s that the device's threads reach at best, measured; None where that failed."""
    where = str(machine.scratch)
    outcome = machine.device.call(work.peak_gflops, machine.target, where, timeout_s=60)
    return None if isinstance(outcome, CallFailure) else outcome


def told(comparison: Comparison, framework: str, inputs: list[str]) -> dict[str, Any]:
    """What was measured at one of a network's shapes as JSON: the latency of what is delivered,
    and what is gained over each baseline. `framework` is the name of the source framework."""
    names = {SOURCE: framework, UNTUNED: "untuned TVM"}
    baselines = [
        {
            "name": name,
            "kind": kind,
            "latency_ms": comparison.latency(kind).scaled(1e3).to_json(),
            "speedup": comparison.ratio(kind, TUNED).to_json(),
        }
        for kind, name in names.items()
        if kind in comparison.rounds
    ]
    warnings = [comparison.warning] if comparison.warning else []
    if SOURCE in comparison.rounds and comparison.ratio(SOURCE, TUNED).high < 1.0:
        times = comparison.ratio(TUNED, SOURCE).median
        warnings.append(
            f"this module takes {times:.2f} times as long as {framework}; a search with a larger "
            "--trials or --minutes goes on from its records"
        )
    return {
        "inputs": inputs,
        "tuned_ms": comparison.latency(TUNED).scaled(1e3).to_json(),
        "speedup": baselines[0]["speedup"] if baselines else None,
        "baselines": baselines,
        "disturbed": comparison.disturbed,
        "warnings": warnings,
    }
