"""Steps on a whole network around the search, as the driver sees them: import and check before,
compile and verify after. Its own process holds no compiler's work and no weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from tunefleet.compiler.frontends import (
    Reference,
    network_bytes,
    network_name,
)
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions
from tunefleet.core.shapes import ShapeRequest
from tunefleet.core.target import Target
from tunefleet.errors import JobError
from tunefleet.stages import network_work, work
from tunefleet.stages.agreement import Arrays, Run, agreement, largest_difference
from tunefleet.stages.network_work import PreparedNetwork, TaskedNetwork
from tunefleet.workers.apart import call_apart
from tunefleet.workers.machine import Machine
from tunefleet.workers.memory import check_fits, gib, machine_memory
from tunefleet.workers.pool import CallEnd, CallFailure
from tunefleet.workers.space import check_space

T = TypeVar("T")

_NETWORK_TIMEOUT_S = 900.0
#: Modules that lie in the scratch folder at once, each with its weights: plain, untuned, tuned.
_MODULES = 3


def tasked_network(
    spec: str,
    target: Target,
    folder: Path,
    options: ImportOptions = DEFAULT_IMPORT,
) -> TaskedNetwork:
    """`network_work.import_network` in a process of its own, and without the module."""
    return _imported(network_work.tasks_of, spec, target, folder, options)


def prepared_network(
    spec: str,
    target: Target,
    folder: Path,
    options: ImportOptions = DEFAULT_IMPORT,
    *,
    cores: Collection[int] = (),
) -> PreparedNetwork:
    """Import a network and compile its plain module into `folder`, in a process of its own on the
    given cores."""
    return _imported(network_work.import_and_prepare, spec, target, folder, options, cores)


def source_networks(spec: str, folder: Path, requests: Sequence[ShapeRequest]) -> list[Reference]:
    """A network in its source framework at each of the shapes, imported in a process of its own."""
    what = f"{network_name(spec)}: its import failed"
    size = network_bytes(spec)
    work_of = network_work.references_of
    return call_apart(what, work_of, spec, folder, list(requests), network_bytes=size)


def _imported(
    function: Callable[..., T],
    spec: str,
    target: Target,
    folder: Path,
    options: ImportOptions,
    cores: Collection[int] = (),
) -> T:
    name, size = network_name(spec), network_bytes(spec)
    check_space(name, folder, _MODULES * size)
    return call_apart(
        f"{name}: its import failed",
        function,
        spec,
        target,
        folder,
        options,
        cores=cores,
        network_bytes=size,
    )


def compile_tuned(
    prepared: PreparedNetwork,
    path: Path,
    target: Target,
    traces: Mapping[str, str],
    cores: Collection[int] = (),
) -> None:
    """Compile a prepared network with the given traces into one shared library, in a process of
    its own on the given cores."""
    call_apart(
        f"{prepared.info.name}: compiling it failed",
        network_work.compile_program,
        prepared.program,
        prepared.plain,
        path,
        target,
        traces,
        cores=cores,
        network_bytes=prepared.tasked.footprint.weights,
    )


def check(prepared: PreparedNetwork, machine: Machine) -> PreparedNetwork:
    """Compare the plain module with the source framework, on the device.

    Raises JobError when they disagree, whatever tuning made of it would be wrong too, and before
    when this machine has not the memory for it.
    """
    name, variants = prepared.info.name, prepared.tasked.variants
    check_fits(name, prepared.tasked.footprint, machine_memory())
    machine.grant(prepared.tasked.footprint)

    def reference(index: int, inputs: Arrays) -> list[NDArray[Any]]:
        what, threads = f"{name}: the source framework failed", machine.target.threads
        source = variants[index].reference
        return on_device(machine, what, work.run_reference, source, list(inputs), threads)

    found = agreement(
        [each.example_inputs for each in variants],
        prepared.tasked.float_type,
        reference,
        _running(prepared, prepared.plain, machine),
    )
    if not found.holds:
        raise JobError(
            f"{name}: the imported network differs from its source framework by "
            f"{found.difference:.1e} of the largest output",
            cure="report the network; its import is wrong and tuning it would be too",
        )
    both = zip(variants, found.inputs, strict=True)
    compared = tuple(replace(each, example_inputs=tuple(inputs)) for each, inputs in both)
    return replace(
        prepared,
        tasked=replace(prepared.tasked, variants=compared),
        expected=found.expected,
        difference=found.difference,
        tolerance=found.tolerance,
        ordered=found.ordered,
    )


def difference_of(prepared: PreparedNetwork, path: Path, machine: Machine) -> float:
    """How far a module's outputs are from the source framework's at any of its shapes; it runs in
    the device worker."""
    inputs = [each.example_inputs for each in prepared.tasked.variants]
    run = _running(prepared, path, machine)
    return largest_difference(prepared.expected, run, inputs, ordered=prepared.ordered)


def _running(prepared: PreparedNetwork, path: Path, machine: Machine) -> Run:
    from tunefleet.artifacts.network import entry_name

    def run(index: int, inputs: Arrays) -> list[NDArray[Any]]:
        what, entry = f"{prepared.info.name}: the compiled module failed", entry_name(index)
        return on_device(machine, what, work.run_network, str(path), entry, list(inputs))

    return run


def on_device(machine: Machine, what: str, function: Callable[..., T], *args: Any) -> T:
    """Call a function of `work` in the device worker; once more, in a fresh one with all of the
    machine's memory, where the worker died or met its limit. Raises JobError beginning with `what`.
    """
    outcome = machine.device.call(function, *args, timeout_s=_NETWORK_TIMEOUT_S)
    if isinstance(outcome, CallFailure) and outcome.end in (CallEnd.MEMORY, CallEnd.CRASH):
        machine.grant_all()
        outcome = machine.device.call(function, *args, timeout_s=_NETWORK_TIMEOUT_S)
    if isinstance(outcome, CallFailure):
        memory = machine_memory()
        # The kernel kills the process that has most when memory runs out.
        short = outcome.end is CallEnd.MEMORY or outcome.text.endswith("SIGKILL")
        raise JobError(
            f"{what}: {outcome.text}",
            cure=f"{gib(memory.available)} of memory are free: end what else uses it, then give "
            "the same command again, which goes on from its records"
            if short
            else "try again, then report the network",
        )
    return outcome
