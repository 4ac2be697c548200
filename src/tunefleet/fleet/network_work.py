"""Work on a whole network around the loop: import and check before, compile and measure after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.compiler.frontends import ImportedNetwork, load_network
from tunefleet.compiler.quiet import quiet
from tunefleet.core.statistics import Interval, interval
from tunefleet.core.target import Target
from tunefleet.core.task import WeightedTask
from tunefleet.errors import JobError
from tunefleet.fleet import work
from tunefleet.fleet.machine import Machine
from tunefleet.fleet.pool import CallFailure

#: Largest accepted difference from the source framework, relative to the largest output: float32
#: sums in another order through hundreds of layers.
TOLERANCE = 1e-3

_NETWORK_TIMEOUT_S = 900.0
_ROUND_S = 0.25


@dataclass(frozen=True, slots=True)
class PreparedNetwork:
    """A network after the graph pipeline, with its untuned module compiled. `difference` of that
    from the source framework's outputs is what `check` finds."""

    imported: ImportedNetwork
    module: Any
    tasks: list[WeightedTask]
    untuned: Path
    expected: list[Any]
    difference: float = math.nan


def import_network(spec: str, target: Target) -> tuple[ImportedNetwork, Any, list[WeightedTask]]:
    """Import, optimise the graph, extract the tasks."""
    from tunefleet.compiler.graph import prepare
    from tunefleet.compiler.host import to_tvm
    from tunefleet.compiler.tasks import extract_tasks

    imported = load_network(spec)
    with quiet():
        module = prepare(imported.mod, to_tvm(target))
        return imported, module, extract_tasks(module, target)


def prepare_network(spec: str, target: Target, directory: Path) -> PreparedNetwork:
    """Import a network and compile its untuned module into `directory`."""
    imported, module, tasks = import_network(spec, target)
    untuned = directory / "untuned.so"
    compile_to(untuned, module, target, {})
    expected = imported.reference(imported.example_inputs, target.threads)
    return PreparedNetwork(imported, module, tasks, untuned, expected)


def check(prepared: PreparedNetwork, machine: Machine) -> PreparedNetwork:
    """Compare the untuned module with the source framework, on the device.

    Raises JobError when they disagree: whatever tuning made of it would be wrong too.
    """
    imported = prepared.imported
    difference = difference_from(prepared.expected, prepared.untuned, imported, machine)
    if not difference <= TOLERANCE:
        raise JobError(
            f"{imported.info.name}: the imported network differs from its source framework by "
            f"{difference:.1e} of the largest output",
            cure="report the network; its import is wrong and tuning it would be too",
        )
    return replace(prepared, difference=difference)


def compile_to(path: Path, module: Any, target: Target, traces: Mapping[str, str]) -> None:
    """Compile a prepared module with the given traces into one shared library."""
    from tunefleet.compiler.executable import compile_network, save_executable

    with quiet():
        save_executable(compile_network(module, target, traces), str(path))


def difference_from(
    expected: Sequence[Any], path: Path, imported: ImportedNetwork, machine: Machine
) -> float:
    """How far a module's outputs are from `expected`; it runs in the device worker."""
    from tunefleet.compiler.executable import worst_difference

    outcome = machine.device.call(
        work.run_network, str(path), list(imported.example_inputs), timeout_s=_NETWORK_TIMEOUT_S
    )
    if isinstance(outcome, CallFailure):
        raise JobError(
            f"{imported.info.name}: the compiled module failed: {outcome.text}",
            cure="check the memory of this machine, then report the network",
        )
    return worst_difference(expected, outcome)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Latencies in seconds, measured in turn; the speed-up is of each round's pair."""

    untuned: Interval
    tuned: Interval
    speedup: Interval


def compare(
    untuned: Path, tuned: Path, inputs: Sequence[Any], machine: Machine, rounds: int
) -> Comparison:
    """Measure two modules end to end, A B A B ..., on the device."""
    found = _timed([untuned, tuned], inputs, machine, rounds)
    ratios = [a / b for a, b in zip(*found, strict=True)]
    return Comparison(interval(found[0]), interval(found[1]), interval(ratios))


def measure(path: Path, inputs: Sequence[Any], machine: Machine, rounds: int) -> Interval:
    return interval(_timed([path], inputs, machine, rounds)[0])


def _timed(
    paths: list[Path], inputs: Sequence[Any], machine: Machine, rounds: int
) -> list[list[float]]:
    outcome = machine.device.call(
        work.time_networks,
        [str(p) for p in paths],
        list(inputs),
        rounds,
        _ROUND_S,
        timeout_s=_NETWORK_TIMEOUT_S,
    )
    if isinstance(outcome, CallFailure):
        raise JobError(f"measuring the network failed: {outcome.text}", cure="try again")
    return outcome


def kernel_times(
    path: Path, inputs: Sequence[Any], machine: Machine
) -> dict[str, float] | CallFailure:
    """Seconds per inference by kernel."""
    return machine.device.call(
        work.kernel_times, str(path), list(inputs), 20, timeout_s=_NETWORK_TIMEOUT_S
    )
