"""Extracts the statements of schema `behaviours/1` from the loop nests of a scheduled program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.code.indices import evaluated
from tunefleet.compiler.code.packing import without_packing
from tunefleet.compiler.space.intrinsics import Tiles, tiles_called
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.features.behaviours import Access, Compute, Loop, Move, Run, Statement

tvm = load_tvm()
tirx = tvm.tirx

Load = TypeVar("Load")

#: In the order of TVM's own pipeline: unsimplified indices may cause errors.
_PASSES = (
    "LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque",
    "CompactBufferAllocation", "LowerMatchBuffer", "StmtSimplify", "LowerOpaqueBlock",
)  # fmt: skip

#: Of tirx.For.
_RUNS = {1: Run.PARALLEL, 2: Run.VECTORIZED, 3: Run.UNROLLED, 4: Run.BOUND}

#: How loops run that are bound to blocks, threads and virtual threads of a GPU.
_BOUND = ("thread_extent", "virtual_thread")

#: The number of evaluated iterations of a loop; the rest are assumed to continue equally.
LOOKED_AT = 256

#: Prefixes of the storage scopes of on-chip GPU memory.
CHIP = ("shared", "local", "wmma", "m16n8k8")


def statements_of(module: Any) -> list[Statement]:
    """The statements of a scheduled module with the single function `main`, in order; takes some
    milliseconds.

    Weights that a schedule packs count as packed, since packing happens when a network is compiled.
    """
    transform = tvm.s_tir.transform
    module = without_packing(module)
    for name in _PASSES:
        module = getattr(transform, name)()(module)
    module = transform.StmtSimplify()(tirx.transform.FlattenBuffer()(module))
    walk = _Walk()
    walk.visit(module["main"].body)
    return walk.found


@dataclass(frozen=True)
class _Around:
    """The loops around a statement, outermost first, with their variables."""

    loops: tuple[Loop, ...] = ()
    variables: tuple[Any, ...] = ()

    def inside(self, loop: Loop, variable: Any) -> _Around:
        return replace(self, loops=(*self.loops, loop), variables=(*self.variables, variable))


@dataclass
class _Walk:
    found: list[Statement] = field(default_factory=list)
    #: The program's internal buffers; all others are arguments.
    own: set[Any] = field(default_factory=set)

    def visit(self, node: Any, around: _Around = _Around()) -> None:
        if isinstance(node, tirx.For):
            extent = _number(node.extent)
            loop = Loop(extent, _RUNS.get(int(node.kind), Run.SERIAL))
            self.visit(node.body, around.inside(loop, node.loop_var) if extent > 1 else around)
        elif isinstance(node, tirx.SeqStmt):
            for each in node.seq:
                self.visit(each, around)
        elif isinstance(node, tirx.AllocBuffer):
            self.own.add(node.buffer)
        elif isinstance(node, tirx.BufferStore):
            self.found.append(self._statement(node, around))
        elif isinstance(node, tirx.Evaluate):
            self.found += self._called(node, around)
        elif isinstance(node, tirx.AttrStmt) and node.attr_key in _BOUND:
            loop = Loop(_number(node.value), Run.BOUND)
            self.visit(node.body, around.inside(loop, node.node.var))
        elif isinstance(node, tirx.IfThenElse):
            self.visit(node.then_case, around)
            if node.else_case is not None:
                self.visit(node.else_case, around)
        elif hasattr(node, "body"):
            self.visit(node.body, around)

    def _statement(self, node: Any, around: _Around) -> Statement:
        compute = Counting(partial(self.access, around))
        compute.visit(node.value)
        loads = compute.loads
        store = self.access(around, node.buffer, node.indices)
        return Statement(around.loops, tuple(loads), compute.counted(), store)

    def _called(self, node: Any, around: _Around) -> list[Statement]:
        """The statements of an instruction that writes memory, such as those of tensor cores."""
        compute = Counting(partial(self.access, around))
        compute.visit(node.value)
        loads = compute.loads
        tiles = tiles_called(compute.instruction)
        if tiles is not None:
            loads, compute.lanes = _of_tiles(tiles, loads), tiles.sums
        if not loads:
            return []
        store, *rest = loads
        return [Statement(around.loops, tuple(rest), compute.counted(), store)]

    def access(self, around: _Around, buffer: Any, indices: Sequence[Any]) -> Access:
        index = indices[-1]
        lanes = 1
        if isinstance(index, tirx.Ramp):
            lanes, index = _number(index.lanes), index.base
        type_ = buffer.ty
        return Access(
            moves=_moves(index, around),
            element_bytes=bits(str(type_.dtype)) / 8,
            buffer_elements=elements(type_.shape),
            lanes=lanes,
            argument=buffer not in self.own,
            on_chip=str(type_.storage_scope).startswith(CHIP),
        )


def operations_of(expression: Any) -> dict[str, int]:
    """The operations of an expression without loads, by their names in `Compute`."""
    counting = Counting(lambda *_: None)
    counting.visit(expression)
    return counting.counts


def loads_of(expression: Any) -> list[tuple[Any, Sequence[Any]]]:
    """The buffers and indices that an expression loads, in order."""
    reading = Counting(lambda buffer, indices: (buffer, indices))
    reading.visit(expression)
    return reading.loads


def _of_tiles(tiles: Tiles, addresses: Sequence[Access]) -> list[Access]:
    """The accesses of register tiles: sums are in registers, which have no address."""
    if not addresses:
        return []
    moves = tuple(Move(0, 1) for _ in addresses[0].moves)
    registers = Access(moves, 4, tiles.sums, tiles.sums, argument=False, on_chip=True)
    if len(addresses) == 1:
        return [replace(addresses[0], lanes=tiles.sums), registers]
    data, weights = addresses
    rows, columns = tiles.outer * tiles.rows, tiles.columns * tiles.lanes
    deep = tiles.words * tiles.intrinsic.word
    return [
        registers,
        replace(data, lanes=rows * deep),
        replace(weights, lanes=columns * deep),
    ]


@dataclass
class Counting(Generic[Load]):
    """Counts the operations of an expression, and collects the results of `access(buffer, indices)`
    for its loads."""

    access: Callable[[Any, Sequence[Any]], Load]
    loads: list[Load] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    instruction: str = ""
    lanes: int = 0

    def visit(self, node: Any) -> None:
        if isinstance(node, tvm.ir.expr.TensorLoad):
            self.loads.append(self.access(node.source, node.indices))
            return
        if isinstance(node, tvm.ir.expr.Call):
            self._call(node)
            return
        for kinds, name in _COUNTED:
            if isinstance(node, kinds):
                self.counts[name] = self.counts.get(name, 0) + 1
        for child in ("a", "b", "value", "condition", "true_value", "false_value"):
            below = getattr(node, child, None)
            if isinstance(below, tirx.Expr):
                self.visit(below)

    def _call(self, node: Any) -> None:
        name = str(getattr(node.op, "name", "")).rpartition(".")[2]
        arguments = list(node.args)
        if name in _NAMED:
            self.instruction, arguments = _instruction(name, arguments), arguments[1:]
            self.lanes = _lanes(str(node.ty.dtype))
        elif name not in _FREE:
            self.counts["functions"] = self.counts.get("functions", 0) + 1
        for argument in arguments:
            self.visit(argument)

    def counted(self) -> Compute:
        return Compute(**self.counts, instruction=self.instruction, instruction_lanes=self.lanes)


_COUNTED = (
    ((tirx.Add, tirx.Sub), "additions"),
    ((tirx.Mul,), "products"),
    ((tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod), "divisions"),
    ((tirx.Min, tirx.Max, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.Select),
     "comparisons"),
    ((tirx.Cast,), "casts"),
)  # fmt: skip
#: Calls whose first argument is the callee.
_NAMED = ("call_llvm_pure_intrin", "call_llvm_intrin", "call_extern", "call_pure_extern")
#: Calls without own cost.
_FREE = ("reinterpret", "if_then_else", "likely", "tvm_access_ptr")


def _instruction(name: str, arguments: Sequence[Any]) -> str:
    first = arguments[0]
    if name.endswith("extern"):
        return str(first.value)
    return str(tvm.target.codegen.llvm_get_intrinsic_name(int(first)))


def _moves(index: Any, around: _Around) -> tuple[Move, ...]:
    """The movement of an index along each loop, with all other loops at their start."""
    extents = [min(loop.extent, LOOKED_AT) for loop in around.loops]
    starts = np.cumsum([0, *extents])
    places: dict[Any, NDArray[np.int64]] = {}
    for variable, start, extent in zip(around.variables, starts[:-1], extents, strict=True):
        place = np.zeros(starts[-1], np.int64)
        place[start : start + extent] = np.arange(extent)
        places[variable] = place
    values = np.broadcast_to(evaluated(index, places), (int(starts[-1]),))
    found = []
    for loop, start, extent in zip(around.loops, starts[:-1], extents, strict=True):
        own = values[start : start + extent]
        elements = len(np.unique(own)) * loop.extent // extent
        found.append(Move(int(own[1] - own[0]) if extent > 1 else 0, elements))
    return tuple(found)


def _number(node: Any) -> int:
    return int(node) if isinstance(node, int | tirx.IntImm) else 1


def elements(shape: Sequence[Any]) -> int:
    return math.prod(map(_number, shape))


def bits(dtype: str) -> int:
    return int(tvm.DataType(dtype).bits)


def _lanes(dtype: str) -> int:
    return int(tvm.DataType(dtype).lanes)
