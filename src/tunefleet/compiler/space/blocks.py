"""Resource limits of thread blocks as functions of the decisions of a CUDA sketch.

Tile parts are bound to thread blocks, virtual threads and threads; inputs are fetched into shared
memory at some loop. Their size follows from the indices of the reads and from the tile parts inside
that loop. MetaSchedule needs to lower a program for this check, and rejects nineteen of twenty
random ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import STAGES, nbytes
from tunefleet.core.target import CudaTarget
from tunefleet.search.limits import (
    UNLIMITED,
    Amount,
    AtMost,
    Extent,
    FixedExtent,
    Limit,
    Quotient,
    Sum,
    TileExtent,
)
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
prim = tvm.tirx

_LEAST_THREADS = "meta_schedule.thread_extent_low_inclusive"
_MOST_THREADS = "meta_schedule.thread_extent_high_inclusive"
#: Thread axes within a block.
_OF_BLOCK = ("vthread.x", "threadIdx.x", "threadIdx.y", "threadIdx.z")
_PARALLEL = _OF_BLOCK[1:]

#: A part of a tile: (choice, part).
AxisPart = tuple[int, int]


def limits_of(
    module: Any, open_trace: Any, sketch: Sketch, target: CudaTarget
) -> tuple[Limit, ...]:
    """The thread block limits for programs of a sketch of `module`.

    A sketch without tiles has none: its numbers of threads come from a list that ends at the
    target's limit.
    """
    nests = _Nests.read(sketch)
    blocks = _blocks(module, open_trace, sketch)
    limits: list[Limit] = []
    shared: list[Amount] = []
    for nest in nests:
        threads = Amount(1, tuple(TileExtent(c, (p,)) for c, p in nest.bound(_PARALLEL)))
        most = min(nest.most_threads, target.threads_per_block)
        limits.append(Limit("threads", nest.least_threads, most, (threads,)))
        if nest.pipelined:
            steps = Amount(1, tuple(TileExtent(c, (p,)) for c, p in nest.pipelined))
            limits.append(Limit("steps to overlap", 2, UNLIMITED, (steps,)))
        block = blocks.get(nest.block)
        if block is not None:
            shared += [
                block.fetched(read, nest.inside(loop), nest.copies)
                for read, loop in nest.fetches.items()
            ]
    if shared:
        limits.append(Limit("shared memory", 0, target.shared_memory_bytes, tuple(shared)))
    return tuple(limits)


@dataclass
class _Nest:
    """A tiled block of a sketch: `order` are its tile parts, outermost loop first, `axes` the parts
    of each thread axis, `fetches` the loop at which each read is fetched into shared memory,
    `copies` the number of pipeline stages kept at once."""

    block: str
    order: list[AxisPart] = field(default_factory=list)
    axes: dict[AxisPart, str] = field(default_factory=dict)
    fetches: dict[int, AxisPart] = field(default_factory=dict)
    least_threads: int = 1
    most_threads: int = UNLIMITED
    copies: int = 1
    #: The pipelined loop, which prefetches.
    pipelined: list[AxisPart] = field(default_factory=list)

    def bound(self, axes: Sequence[str]) -> list[AxisPart]:
        return [part for part, axis in self.axes.items() if axis in axes]

    def inside(self, loop: AxisPart) -> set[AxisPart]:
        """The parts covered by a fetch at `loop`: the loops inside, and all threads."""
        return {*self.order[self.order.index(loop) + 1 :], *self.bound(_OF_BLOCK)}


class _Nests:
    """Derives the nests of a sketch from its instructions."""

    def __init__(self, sketch: Sketch) -> None:
        self._choices = {position: i for i, position in enumerate(sketch.positions)}
        self._nests: dict[str, _Nest] = {}
        self._factors: dict[str, AxisPart] = {}
        self._parts: dict[str, list[AxisPart]] = {}
        self._cached: dict[str, tuple[_Nest, int]] = {}

    @classmethod
    def read(cls, sketch: Sketch) -> list[_Nest]:
        reader = cls(sketch)
        for position, (kind, inputs, attributes, outputs) in enumerate(sketch.instructions):
            reader._add(position, kind, inputs, attributes, outputs)
        return [nest for nest in reader._nests.values() if nest.axes]

    def _add(
        self, position: int, kind: str, inputs: list[Any], attributes: list[Any], outputs: list[Any]
    ) -> None:
        if kind == "Annotate":
            self._annotate(*inputs, *attributes)
        elif kind == "SamplePerfectTile":
            choice = self._choices[position]
            self._factors.update((name, (choice, part)) for part, name in enumerate(outputs))
        elif kind == "Split":
            parts = [self._factors.get(str(factor)) for factor in inputs[1:]]
            for loop, part in zip(outputs, parts, strict=False):
                self._parts[loop] = [part] if part else []
        elif kind == "Fuse":
            self._parts[outputs[0]] = [p for loop in inputs for p in self._parts.get(loop, ())]
        elif kind == "Reorder" and self._nests:
            last = list(self._nests.values())[-1]
            last.order = last.order or [p for i in inputs for p in self._parts.get(i, ())]
        elif kind == "Bind":
            for part in self._parts.get(inputs[0], ()):
                if (nest := self._of(part)) is not None:
                    nest.axes[part] = attributes[0]
        elif kind == "CacheRead" and attributes[1] == "shared" and inputs[0] in self._nests:
            self._cached[outputs[0]] = self._nests[inputs[0]], int(attributes[0])
        elif kind == "ComputeAt" and inputs[0] in self._cached and self._parts.get(inputs[1]):
            nest, read = self._cached[inputs[0]]
            nest.fetches[read] = self._parts[inputs[1]][-1]

    def _annotate(self, block: str, value: Any, key: str) -> None:
        if key == "meta_schedule.tiling_structure":
            self._nests[block] = _Nest(block)
        elif key == _LEAST_THREADS and block in self._nests:
            self._nests[block].least_threads = int(value)
        elif key == _MOST_THREADS and block in self._nests:
            self._nests[block].most_threads = int(value)
        elif key == STAGES:
            parts = self._parts.get(block, [])
            for nest in self._nests.values():
                if parts and parts[-1] in nest.order:
                    nest.copies, nest.pipelined = max(value) + 1, parts

    def _of(self, part: AxisPart) -> _Nest | None:
        return next((nest for nest in self._nests.values() if part in nest.order), None)


@dataclass(frozen=True)
class _Block:
    """A block before tiling: the tile of each surrounding loop, and its reads."""

    reads: Sequence[Any]
    iterators: Mapping[Any, Any]
    tiles: Mapping[Any, int]

    def fetched(self, read: int, inside: set[AxisPart], copies: int) -> Amount:
        """Bytes of shared memory for a read of the block."""
        region = self.reads[read]
        extents = [
            AtMost(self._extent(each, inside), int(size))
            for each, size in zip(region.region, region.source.ty.shape, strict=True)
        ]
        return Amount(copies * nbytes((), str(region.source.ty.dtype)), tuple(extents))

    def _extent(self, each: Any, inside: set[AxisPart]) -> Extent:
        own = FixedExtent(int(each.extent) if isinstance(each.extent, prim.IntImm) else 1)
        return Sum(((1, own), *self._terms(each.min, inside)))

    def _terms(self, index: Any, inside: set[AxisPart]) -> list[tuple[int, Extent]]:
        """The terms of an index; unsupported expressions count as constant."""
        match type(index).__name__:
            case "Add" | "Sub":
                return [*self._terms(index.a, inside), *self._terms(index.b, inside)]
            case "Mul" if isinstance(index.b, prim.IntImm):
                return [(int(index.b) * c, e) for c, e in self._terms(index.a, inside)]
            case "FloorDiv" if isinstance(index.b, prim.IntImm):
                whole = Sum(tuple(self._terms(index.a, inside)))
                return [(1, Quotient(whole, int(index.b)))]
            case "FloorMod" if isinstance(index.b, prim.IntImm):
                whole = Sum(tuple(self._terms(index.a, inside)))
                return [(1, AtMost(whole, int(index.b)))]
            case "Cast":
                return self._terms(index.value, inside)
        loop = self.iterators.get(index) if isinstance(index, prim.Var) else None
        if loop is None or loop not in self.tiles:
            return []
        choice = self.tiles[loop]
        return [(1, TileExtent(choice, tuple(sorted(part for c, part in inside if c == choice))))]


def _blocks(module: Any, open_trace: Any, sketch: Sketch) -> dict[str, _Block]:
    """The tiled blocks of a sketch, found by a replay, by nest name."""
    if not any(kind == "SamplePerfectTile" for kind, *_ in sketch.instructions):
        return {}
    choices = {position: i for i, position in enumerate(sketch.positions)}
    loops_of = {
        loop: inputs[0]
        for kind, inputs, _, outputs in sketch.instructions
        if kind == "GetLoops"
        for loop in outputs
    }
    owner = {
        position: loops_of.get(sketch.instructions[position][1][0])
        for position in sketch.positions
        if sketch.instructions[position][0] == "SamplePerfectTile"
    }
    schedule = tvm.s_tir.Schedule(module, error_render_level="none")
    realizes: dict[str, Any] = {}
    tiles: dict[str, dict[Any, int]] = {}

    def look(instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
        position = len(schedule.trace.insts)
        name = owner.get(position)
        if name is not None:
            loop = schedule.get(inputs[0])
            if name not in realizes:
                realizes[name] = _leaf(loop)
            tiles.setdefault(name, {})[loop.loop_var] = choices[position]
        return decision

    open_trace.apply_to_schedule(schedule, True, look)
    return {
        name: _Block(realize.block.reads, _iterators(realize), tiles[name])
        for name, realize in realizes.items()
        if realize is not None
    }


def _leaf(loop: Any) -> Any | None:
    body = loop
    while isinstance(body, prim.For):
        body = body.body
    return body if isinstance(body, tvm.s_tir.SBlockRealize) else None


def _iterators(realize: Any) -> dict[Any, Any]:
    """The loop of each iterator that is bound directly to one."""
    return {
        iterator.var: value
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if isinstance(value, prim.Var)
    }
