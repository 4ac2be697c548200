"""What workers do with a whole network: import it before the search, compile it after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.compiler.frontends import (
    ImportedNetwork,
    ImportRequest,
    Reference,
    load_network,
    load_networks,
    network_bytes,
    network_name,
    temporary_folder,
)
from tunefleet.compiler.graph.footprint import footprint
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.ids import digest
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions
from tunefleet.core.network import SEGMENT_PREFIX, Footprint, NetworkInfo, Signature
from tunefleet.core.shapes import ShapeRequest
from tunefleet.core.target import Target
from tunefleet.core.task import WeightedTask
from tunefleet.stages.agreement import TOLERANCE
from tunefleet.workers.memory import check_fits, give_back, machine_memory

if TYPE_CHECKING:
    from tunefleet.compiler.graph.weights import Lifted

#: A network with more work than this is not run as TVM alone compiles it: at half a GFLOP/s one
#: inference would take longer than a few seconds, and tells a user nothing.
MOST_UNTUNED_FLOPS = 2e9


@dataclass(frozen=True, slots=True)
class TaskedNetwork:
    """A network after the graph pipeline: one module for all its shapes, split into tasks.

    `variants` are its imports, one for each signature of `info`, without their modules. `module`
    is None outside of the process that imported it. `float_type` is the one of fewest digits that
    it computes in.
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

    `program` is the file of what it was compiled from, beside its weights: what `compile_program`
    reads. `untuned` is the module as TVM alone would make it, for comparison; None where running
    it would take too long. `difference` of the plain module's outputs from the source framework's
    (`expected`, for each signature) is what `check` finds, and `tolerance` what it accepts;
    `ordered` as in `agreement.Agreement`.
    """

    tasked: TaskedNetwork
    program: Path
    plain: Path
    untuned: Path | None
    expected: tuple[list[Any], ...] = ()
    difference: float = math.nan
    tolerance: float = TOLERANCE
    ordered: bool = True

    @property
    def info(self) -> NetworkInfo:
        return self.tasked.info

    @property
    def caveats(self) -> tuple[str, ...]:
        """Why its verification says less than that of other networks, for the user to know."""
        from tunefleet.compiler.code.executable import LEAST_SCALE

        told = []
        if not self.ordered:
            told.append(
                "in the source framework the order of what the network puts out is decided by the "
                "last bits of the inputs: the numbers of each output are compared by size"
            )
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
    options: ImportOptions = DEFAULT_IMPORT,
) -> TaskedNetwork:
    """Import, optimise the graph, extract the tasks. Files of segments go below `folder`.

    Raises JobError for a network whose weights alone are too large for this machine.
    """
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.sensitivity import coarsest_type
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.graph.variants import merged
    from tunefleet.compiler.graph.weights import SharedConstants
    from tunefleet.compiler.toolchain.host import to_tvm

    place = folder or temporary_folder()
    check_fits(network_name(spec), Footprint(network_bytes(spec)), machine_memory())
    variants: list[ImportedNetwork] = []
    modules: list[Any] = []
    several, constants = len(options.shapes.variants()) > 1, SharedConstants()
    for each in load_networks(spec, place, options):
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
    """Compile a network's plain module into `folder`, and the untuned one if it can be run; its
    program stays there."""
    from tunefleet.compiler.graph.weights import save_program

    program, plain, untuned = folder / "program.json", folder / "plain.so", None
    lifted = compile_to(plain, tasked.module, target, {})
    save_program(tasked.module, lifted, program)
    if tasked.flops <= MOST_UNTUNED_FLOPS:
        untuned = folder / "untuned.so"
        compile_to(untuned, tasked.module, target, {}, plain=False)
    return PreparedNetwork(replace(tasked, module=None), program, plain, untuned)


def tasks_of(spec: str, target: Target, folder: Path, options: ImportOptions) -> TaskedNetwork:
    """What of a network travels between processes: all but its module."""
    return replace(import_network(spec, target, folder, options), module=None)


def import_and_prepare(
    spec: str, target: Target, folder: Path, options: ImportOptions
) -> PreparedNetwork:
    """Import a network and compile its plain module."""
    return prepare_network(import_network(spec, target, folder, options), target, folder)


def references_of(spec: str, folder: Path, requests: Sequence[ShapeRequest]) -> list[Reference]:
    """The source framework's network at each of the shapes."""
    return [load_network(spec, ImportRequest(folder, each)).reference for each in requests]


def compile_program(
    program: Path, plain: Path, path: Path, target: Target, traces: Mapping[str, str]
) -> None:
    """Compile a program that `prepare_network` wrote with the given traces, into a library."""
    from tunefleet.artifacts.weights import weights_path
    from tunefleet.compiler.graph.weights import load_program

    compile_to(path, load_program(program, weights_path(plain)), target, traces)


def compile_to(
    path: Path, module: Any, target: Target, traces: Mapping[str, str], *, plain: bool = True
) -> Lifted:
    """Compile a prepared module with the given traces into one shared library; its weights."""
    from tunefleet.compiler.code.executable import compile_network, save_network

    with quiet():
        network = compile_network(module, target, traces, plain=plain)
        save_network(network, path)
    return network.weights
