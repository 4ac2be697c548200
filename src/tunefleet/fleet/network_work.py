"""Work on a whole network around the loop: import and check before, compile and verify after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from tunefleet.compiler.footprint import footprint
from tunefleet.compiler.frontends import (
    ImportedNetwork,
    load_networks,
    network_bytes,
    network_name,
    temporary_folder,
)
from tunefleet.compiler.quiet import quiet
from tunefleet.core.ids import digest
from tunefleet.core.network import SEGMENT_PREFIX, Footprint, NetworkInfo, Signature
from tunefleet.core.shapes import ShapeRequest
from tunefleet.core.target import Target
from tunefleet.core.task import WeightedTask
from tunefleet.errors import JobError
from tunefleet.fleet import work
from tunefleet.fleet.machine import Machine
from tunefleet.fleet.memory import check_fits, gib, give_back, machine_memory
from tunefleet.fleet.pool import CallEnd, CallFailure

if TYPE_CHECKING:
    from tunefleet.compiler.weights import Lifted

T = TypeVar("T")

#: Largest accepted difference from the source framework, relative to the largest output: float32
#: sums in another order through hundreds of layers.
TOLERANCE = 1e-3
#: Where the source framework's own outputs move by more than that when the last bit of its inputs
#: does, so many times that movement is accepted,
_TIMES_OWN = 4.0
#: but never more than this.
_MOST_TOLERANCE = 0.1

_NETWORK_TIMEOUT_S = 900.0

#: A network with more work than this is not run as TVM alone compiles it: at half a GFLOP/s one
#: inference would take longer than a few seconds, and tells a user nothing.
MOST_UNTUNED_FLOPS = 2e9


@dataclass(frozen=True, slots=True)
class TaskedNetwork:
    """A network after the graph pipeline: one module for all its shapes, split into tasks.

    `variants` are its imports, one for each signature of `info`, without their modules.
    `float_type` is the one of fewest digits that it computes in.
    """

    info: NetworkInfo
    variants: tuple[ImportedNetwork, ...]
    module: Any
    tasks: list[WeightedTask]
    footprint: Footprint
    float_type: str

    @property
    def flops(self) -> float:
        return sum(weighted.total_flops for weighted in self.tasks)

    def outside(self, kernels: Mapping[str, float]) -> dict[str, Any] | None:
        """What stays in the source framework, with its share of FLOPs and, where `kernels` were
        timed, of the time; None where nothing does."""
        segments = self.variants[0].segments
        if not segments:
            return None
        flops = sum(segment.flops for segment in segments)
        every, spent = flops + self.flops, sum(kernels.values())
        in_segments = sum(s for name, s in kernels.items() if name.startswith(SEGMENT_PREFIX))
        return {
            "framework": segments[0].framework,
            "segments": [
                {"nodes": list(s.nodes), "reason": s.reason, "flops": s.flops} for s in segments
            ],
            "share_of_flops": flops / every if every else None,
            "share_of_time": in_segments / spent if spent else None,
        }


@dataclass(frozen=True, slots=True)
class PreparedNetwork:
    """A network with its plain module compiled: scheduled without a search.

    `untuned` is the module as TVM alone would make it, for comparison; None where running it would
    take too long. `difference` of the plain module's outputs from the source framework's
    (`expected`, for each signature) is what `check` finds, and `tolerance` what it accepts.
    """

    tasked: TaskedNetwork
    plain: Path
    untuned: Path | None
    expected: tuple[list[Any], ...] = ()
    difference: float = math.nan
    tolerance: float = TOLERANCE

    @property
    def info(self) -> NetworkInfo:
        return self.tasked.info

    @property
    def caveats(self) -> tuple[str, ...]:
        """Why its verification says less than that of other networks, for the user to know."""
        from tunefleet.compiler.executable import LEAST_SCALE

        told = []
        if self.tolerance > TOLERANCE:
            told.append(
                "the source framework's own outputs move with the last bit of the inputs: a "
                f"difference of {self.tolerance:.1e} of the largest output is accepted"
            )
        floats = (a for each in self.expected for a in each if a.size and a.dtype.kind == "f")
        if any(abs(array).max() < LEAST_SCALE for array in floats):
            told.append(
                f"an output stays below {LEAST_SCALE:g} on the example inputs: differences from "
                f"the source framework of {LEAST_SCALE * TOLERANCE:g} are not seen"
            )
        return tuple(told)


def import_network(
    spec: str,
    target: Target,
    folder: Path | None = None,
    shapes: ShapeRequest | None = None,
    *,
    whole: bool = False,
) -> TaskedNetwork:
    """Import, optimise the graph, extract the tasks. Files of segments go below `folder`.

    Raises JobError for a network whose weights alone are too large for this machine.
    """
    from tunefleet.compiler.graph import prepare
    from tunefleet.compiler.host import to_tvm
    from tunefleet.compiler.sensitivity import coarsest_type
    from tunefleet.compiler.tasks import extract_tasks
    from tunefleet.compiler.variants import merged
    from tunefleet.compiler.weights import SharedConstants

    place = folder or temporary_folder()
    check_fits(network_name(spec), Footprint(network_bytes(spec)), machine_memory())
    variants: list[ImportedNetwork] = []
    modules: list[Any] = []
    request = shapes or ShapeRequest()
    several, constants = len(request.variants()) > 1, SharedConstants()
    for each in load_networks(spec, place, request, whole=whole):
        float_type = coarsest_type(each.mod)
        with quiet():
            module = prepare(each.mod, to_tvm(target))
        modules.append(constants.shared(module) if several else module)
        # What it was made of, its constants above all, is not needed any more.
        variants.append(replace(each, mod=None))
        del each, module
    with quiet():
        module = merged(modules)
        tasks = extract_tasks(module, target)
    give_back()
    info = _info(variants)
    return TaskedNetwork(info, tuple(variants), module, tasks, footprint(module), float_type)


def _info(variants: Sequence[ImportedNetwork]) -> NetworkInfo:
    first, *others = [each.info for each in variants]
    if not others:
        return first
    whole = digest([first.digest, *(info.digest for info in others)], len(first.digest))
    signatures = tuple(Signature(info.inputs, info.outputs) for info in others)
    return replace(first, digest=whole, others=signatures)


def prepare_network(tasked: TaskedNetwork, target: Target, folder: Path) -> PreparedNetwork:
    """Compile a network's plain module into `folder`, and the untuned one if it can be run."""
    from tunefleet.artifacts.weights import weights_path
    from tunefleet.compiler.weights import on_file

    plain, untuned = folder / "plain.so", None
    lifted = compile_to(plain, tasked.module, target, {})
    # What the process holds of the weights from here on are pages of the file.
    module = on_file(tasked.module, lifted, weights_path(plain))
    tasked = replace(tasked, module=module)
    if tasked.flops <= MOST_UNTUNED_FLOPS:
        untuned = folder / "untuned.so"
        compile_to(untuned, tasked.module, target, {}, plain=False)
    return PreparedNetwork(tasked, plain, untuned)


def check(prepared: PreparedNetwork, machine: Machine) -> PreparedNetwork:
    """Compare the plain module with the source framework, on the device.

    Raises JobError when they disagree, whatever tuning made of it would be wrong too, and before
    when this machine has not the memory for it.
    """
    from tunefleet.compiler.sensitivity import nudged

    name, variants = prepared.info.name, prepared.tasked.variants
    check_fits(name, prepared.tasked.footprint, machine_memory())
    machine.grant(prepared.tasked.footprint)
    expected = tuple(_reference(each, each.example_inputs, machine) for each in variants)
    prepared = replace(prepared, expected=expected)
    difference = difference_of(prepared, prepared.plain, machine)
    if difference > TOLERANCE:
        kind = prepared.tasked.float_type
        moved = (nudged(each.example_inputs, kind) for each in variants)
        again = [_reference(e, inputs, machine) for e, inputs in zip(variants, moved, strict=True)]
        prepared = replace(prepared, tolerance=accepted_difference(expected, again))
    if not difference <= prepared.tolerance:
        raise JobError(
            f"{name}: the imported network differs from its source framework by "
            f"{difference:.1e} of the largest output",
            cure="report the network; its import is wrong and tuning it would be too",
        )
    return replace(prepared, difference=difference)


def _reference(
    network: ImportedNetwork, inputs: Sequence[Any], machine: Machine
) -> list[NDArray[Any]]:
    what = f"{network.info.name}: the source framework failed"
    threads = machine.target.threads
    return on_device(machine, what, work.run_reference, network.reference, list(inputs), threads)


def accepted_difference(expected: Sequence[list[Any]], moved: Sequence[list[Any]]) -> float:
    """What may lie between two right implementations, by how far the outputs of one, `expected`,
    move when the last bit of its inputs does."""
    from tunefleet.compiler.executable import worst_difference

    own = max(worst_difference(e, m) for e, m in zip(expected, moved, strict=True))
    return min(max(TOLERANCE, _TIMES_OWN * own), _MOST_TOLERANCE)


def compile_to(
    path: Path, module: Any, target: Target, traces: Mapping[str, str], *, plain: bool = True
) -> Lifted:
    """Compile a prepared module with the given traces into one shared library; its weights."""
    from tunefleet.compiler.executable import compile_network, save_network

    with quiet():
        network = compile_network(module, target, traces, plain=plain)
        save_network(network, path)
    return network.weights


def difference_of(prepared: PreparedNetwork, path: Path, machine: Machine) -> float:
    """How far a module's outputs are from the source framework's at any of its shapes; it runs in
    the device worker."""
    from tunefleet.artifacts.network import entry_name
    from tunefleet.compiler.executable import worst_difference

    worst = 0.0
    for index, (each, expected) in enumerate(
        zip(prepared.tasked.variants, prepared.expected, strict=True)
    ):
        actual = on_device(
            machine,
            f"{prepared.info.name}: the compiled module failed",
            work.run_network,
            str(path),
            entry_name(index),
            list(each.example_inputs),
        )
        worst = max(worst, worst_difference(expected, actual))
    return worst


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
