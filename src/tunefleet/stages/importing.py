"""The import step: a network becomes tasks and a plain module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.compiler.frontends import (
    ImportedNetwork,
    ImportRequest,
    check_precision,
    in_floats,
    load_network,
    load_networks,
    network_bytes,
    network_name,
    network_places,
    temporary_folder,
    wanted_precision,
)
from tunefleet.compiler.frontends.spec import is_zoo, named_as_given
from tunefleet.compiler.graph.footprint import footprint, segment_copies
from tunefleet.compiler.toolchain.linking import tools_of
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.ids import digest
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions, NetworkSource
from tunefleet.core.network import (
    SEGMENT_PREFIX,
    Footprint,
    IntegerRange,
    NetworkInfo,
    SegmentCopies,
    Signature,
)
from tunefleet.core.precision import FLOAT32, FLOATS, INT8
from tunefleet.core.result import Outside, OutsideSegment
from tunefleet.core.shapes import ShapeRequest
from tunefleet.core.step import Imported, Remark, SegmentInfo, SplitTasks
from tunefleet.core.target import CudaTarget, Target
from tunefleet.core.task import WeightedTask
from tunefleet.errors import InternalError
from tunefleet.stages.place import StepRequest, Workplace, source_here
from tunefleet.system.sandbox import Sandbox
from tunefleet.system.scratch import scratch_folder
from tunefleet.workers.apart import call_apart
from tunefleet.workers.memory import check_fits, give_back, machine_memory
from tunefleet.workers.space import check_space

#: Modules that lie in the objects at once, each with its weights: plain and tuned.
_MODULES = 2

#: What an import leaves in its folder: the folder of modules, with the program that is compiled
#: again and the plain module, and the example inputs of each signature.
MODULE, EXAMPLES = "module", "examples.npz"
PROGRAM, PLAIN = "program.json", "plain.so"


@dataclass(frozen=True, slots=True)
class TaskedNetwork:
    """A network after the graph pipeline: one module for all its shapes, split into tasks.

    `variants` are its imports, one for each signature of `info`, without their modules; they and
    `module` do not leave the process that imported it. `segments` is what stays in the source
    framework, at the first of its shapes. `float_type` is the one of fewest digits that it computes
    in. `notes`, `warnings` as in `ImportedNetwork`, `copies` as in `Imported`.
    """

    info: NetworkInfo
    variants: tuple[ImportedNetwork, ...]
    module: Any
    tasks: list[WeightedTask]
    footprint: Footprint
    float_type: str
    precision: str = FLOAT32
    copies: SegmentCopies | None = None
    segments: tuple[SegmentInfo, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        return sum(weighted.total_flops for weighted in self.tasks)


def outside(network: TaskedNetwork | Imported, kernels: Mapping[str, float]) -> Outside | None:
    """What of a network stays in the source framework, with its share of FLOPs and, where `kernels`
    were timed, of the time; None where nothing does."""
    segments = network.segments
    if not segments:
        return None
    own = sum(segment.flops for segment in segments)
    every, spent = own + network.flops, sum(kernels.values())
    in_segments = sum(s for name, s in kernels.items() if name.startswith(SEGMENT_PREFIX))
    return Outside(
        framework=segments[0].framework,
        segments=tuple(
            OutsideSegment(nodes=s.nodes, reason=s.reason, flops=s.flops) for s in segments
        ),
        share_of_flops=own / every if every else None,
        share_of_time=in_segments / spent if spent else None,
        copies=network.copies,
    )


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
    precision = wanted_precision(spec, options.precision)
    if precision in FLOATS:
        check_precision(precision, target)
        spec = in_floats(spec)
    check_fits(network_name(spec), Footprint(network_bytes(spec)), machine_memory())
    variants: list[ImportedNetwork] = []
    modules: list[Any] = []
    several, constants = len(options.shapes.variants()) > 1, SharedConstants()
    for each in load_networks(spec, place, options):
        float_type = coarsest_type(each.mod, FLOATS.get(precision, FLOAT32))
        with quiet():
            module = prepare(each.mod, to_tvm(target), precision)
        modules.append(constants.shared(module) if several else module)
        # What it was made of, its constants above all, is not needed any more.
        variants.append(replace(each, mod=None))
        del each, module
    with quiet():
        module = merged(modules)
        tasks = extract_tasks(module, target)
    give_back()
    info = _info(variants)
    if precision in FLOATS:
        info = replace(info, name=f"{info.name}-{precision}")
    size = footprint(module)
    copies = segment_copies(module["main"]) if isinstance(target, CudaTarget) else None
    return TaskedNetwork(
        info,
        tuple(variants),
        module,
        tasks,
        size,
        float_type,
        precision,
        copies,
        tuple(SegmentInfo(s.nodes, s.reason, s.framework, s.flops) for s in variants[0].segments),
        tuple(dict.fromkeys(note for each in variants for note in each.notes)),
        tuple(dict.fromkeys(warning for each in variants for warning in each.warnings)),
    )


def _info(variants: Sequence[ImportedNetwork]) -> NetworkInfo:
    first, *others = [each.info for each in variants]
    if not others:
        return first
    whole = digest([first.digest, *(info.digest for info in others)], len(first.digest))
    signatures = tuple(Signature(info.inputs, info.outputs) for info in others)
    ranges = tuple(
        map(_narrowest, zip(first.ranges, *(info.ranges for info in others), strict=True))
    )
    return replace(first, digest=whole, others=signatures, ranges=ranges)


def _narrowest(ranges: Sequence[IntegerRange | None]) -> IntegerRange | None:
    """The values that an input may have at all shapes: more may be indexed at one than at
    another."""
    known = [within for within in ranges if within is not None]
    if not known:
        return None
    least = max(within.least for within in known)
    return IntegerRange(least, max(least, min(within.most for within in known)))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What comes back from the worker that imported: all but the files, which lie in its folder."""

    info: NetworkInfo
    tasks: tuple[WeightedTask, ...]
    footprint: Footprint
    float_type: str
    framework: str
    references: tuple[dict[str, Any], ...]
    segments: tuple[SegmentInfo, ...]
    remarks: tuple[Remark, ...]
    quantised: bool
    copies: SegmentCopies | None
    lost: float


def prepare_network(tasked: TaskedNetwork, target: Target, folder: Path) -> None:
    """Compile a network's plain module into `folder`; the program stays there."""
    from tunefleet.compiler.code.executable import compile_to
    from tunefleet.compiler.graph.weights import save_program

    lifted = compile_to(folder / PLAIN, tasked.module, target, {})
    save_program(tasked.module, lifted, folder / PROGRAM)


def tasks_of(spec: str, target: Target, folder: Path, options: ImportOptions) -> TaskedNetwork:
    """What of a network travels between processes: all but its module and its imports."""
    return replace(import_network(spec, target, folder, options), module=None, variants=())


def import_sandbox(
    spec: str,
    folder: Path,
    options: ImportOptions = DEFAULT_IMPORT,
    programs: tuple[Path, ...] = (),
) -> Sandbox:
    """What the import of a network reaches: its files, and `folder`, which it writes."""
    given = (Path(file.path) for file in options.inputs)
    return Sandbox((*network_places(spec), *given), (folder,), programs)


def import_and_prepare(spec: str, target: Target, folder: Path, options: ImportOptions) -> _Outcome:
    """Import a network, compile its plain module into `folder / MODULE`, write its example inputs
    to `folder / EXAMPLES`."""
    from tunefleet.artifacts.arrays import save_arrays
    from tunefleet.compiler.graph.tasks import multiplies_bytes

    module = folder / MODULE
    module.mkdir()
    tasked = import_network(spec, target, module, options)
    prepare_network(tasked, target, module)
    save_arrays(folder / EXAMPLES, [v.example_inputs for v in tasked.variants])
    return _Outcome(
        tasked.info,
        tuple(tasked.tasks),
        tasked.footprint,
        tasked.float_type,
        tasked.variants[0].reference.framework,
        tuple(v.reference.describe() for v in tasked.variants),
        tasked.segments,
        _remarks(tasked, target),
        any(map(multiplies_bytes, tasked.tasks)),
        tasked.copies,
        max(variant.lost for variant in tasked.variants),
    )


def _remarks(tasked: TaskedNetwork, target: Target) -> tuple[Remark, ...]:
    found = [Remark(text) for text in [*tasked.notes, *_on_precision(tasked, target)]]
    found += [Remark(text, warning=True) for text in tasked.warnings]
    return tuple(dict.fromkeys(found))


def _on_precision(tasked: TaskedNetwork, target: Target) -> tuple[str, ...]:
    """What whoever tunes a network in other numbers than float32 should know before it takes their
    time."""
    from tunefleet.compiler.graph.tasks import multiplies_bytes
    from tunefleet.compiler.space.intrinsics import remark_on

    gpu = isinstance(target, CudaTarget)
    if tasked.precision in FLOATS:
        which = "products" if gpu else "products by weights"
        made = f"{which} are computed in {FLOATS[tasked.precision]} and summed in {FLOAT32}"
        return (made,) if gpu else (made, *remark_on(target.cpu, tasked.precision))
    if gpu or not any(map(multiplies_bytes, tasked.tasks)):
        return ()
    return remark_on(target.cpu, INT8)


@named_as_given()
def run(place: Workplace, request: StepRequest) -> tuple[Imported, tuple[Remark, ...]]:
    """The import step: a network is imported and its plain module compiled, in a process of its
    own."""
    source = source_here(place.home, request.preparation.source)
    objects = place.objects(request.key.owner)
    size = network_bytes(source.spec)
    with objects.draft() as draft:
        check_space(source.name, Path(draft), _MODULES * size)
        outcome = call_apart(
            f"{source.name}: its import failed",
            import_and_prepare,
            source.spec,
            request.preparation.target,
            Path(draft),
            source.options,
            cores=place.machine.layout.host_cores,
            network_bytes=size,
            sandbox=import_sandbox(
                source.spec,
                Path(draft),
                source.options,
                tools_of(request.preparation.target),
            ),
        )
        _check_references(outcome.references, source)
        module = objects.put(Path(draft, MODULE))
        examples = objects.put(Path(draft, EXAMPLES))
    imported = Imported(
        outcome.info,
        outcome.tasks,
        outcome.footprint,
        outcome.float_type,
        outcome.framework,
        tuple(place.home.relative_reference(each) for each in outcome.references),
        outcome.segments,
        module,
        examples,
        outcome.quantised,
        outcome.copies,
        outcome.lost,
    )
    return imported, outcome.remarks


def _check_references(references: Sequence[Mapping[str, Any]], source: NetworkSource) -> None:
    """The source framework is opened outside of the sandbox, which says how: it must not name
    another file, nor trust this one. Raises InternalError."""
    own = Path(source.spec).absolute()
    for reference in references:
        named = (Path(reference[key]).absolute() for key in ("path", "spec") if key in reference)
        others = [path for path in named if path != own and not is_zoo(source.spec)]
        if others or (reference.get("trust") and not source.options.trust):
            raise InternalError(f"{source.name}: its import names what it was not given")


def run_split(place: Workplace, request: StepRequest) -> tuple[SplitTasks, tuple[Remark, ...]]:
    """The split step: the tasks of a network, and nothing else of it."""
    source = source_here(place.home, request.preparation.source)
    target = request.preparation.target
    with scratch_folder("tasks") as folder:
        tasked = tasked_network(source.spec, target, Path(folder), source.options)
    return SplitTasks(tuple(tasked.tasks)), ()


@named_as_given()
def tasked_network(
    spec: str, target: Target, folder: Path, options: ImportOptions = DEFAULT_IMPORT
) -> TaskedNetwork:
    """`import_network` in a process of its own, and without the module."""
    name, size = network_name(spec), network_bytes(spec)
    check_space(name, folder, _MODULES * size)
    what = f"{name}: its import failed"
    sandbox = import_sandbox(spec, folder, options)
    return call_apart(
        what, tasks_of, spec, target, folder, options, network_bytes=size, sandbox=sandbox
    )


@named_as_given()
def source_networks(
    spec: str, folder: Path, requests: Sequence[ShapeRequest]
) -> list[dict[str, Any]]:
    """How a network is opened in its source framework at each of the shapes; imported in a process
    of its own."""
    what = f"{network_name(spec)}: its import failed"
    size = network_bytes(spec)
    return call_apart(
        what,
        references_of,
        spec,
        folder,
        list(requests),
        network_bytes=size,
        sandbox=import_sandbox(spec, folder),
    )


def references_of(
    spec: str, folder: Path, requests: Sequence[ShapeRequest]
) -> list[dict[str, Any]]:
    """The source framework's network at each of the shapes."""
    imported = (load_network(spec, ImportRequest(folder, each)) for each in requests)
    return [each.reference.describe() for each in imported]
