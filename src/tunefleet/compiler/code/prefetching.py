"""A product that computes with a panel of packed weights prefetches the next one.

A network's weights pass through the caches once an inference, so the first tile of rows that reads
a panel waits for memory, and hardware follows a stream only some lines ahead. Where several tiles
of rows read the same panel in turn, each asks for its part of the next one, line by line between
its multiply-adds (`space/register_tiles.py` has the loops). What is asked for beyond the last panel
is read by nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi

from tunefleet.compiler.space.statements import replaced
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import REDUCTION
from tunefleet.core.forms import is_tiled
from tunefleet.core.trial import WeightOrder

tvm = load_tvm()
tirx = tvm.tirx

_LINE_BYTES = 64
#: Of `llvm.prefetch`: for reading, into the second level, of data.
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1


def with_prefetches(module: Any, packings: Sequence[WeightOrder]) -> Any:
    """A scheduled module with the single function `main`, whose weights are arguments; `packings`
    names those that are packed."""
    function = module["main"]
    weights = [function.params[packing.argument] for packing in packings]
    found = _tile_of(function.body, [])
    prefetch = None if found is None else _prefetch(*found, weights)
    if prefetch is None:
        return module

    def with_calls(loop: Any) -> Any:
        if not loop.loop_var.same_as(prefetch.loop.loop_var):
            return loop
        body = tirx.SeqStmt([*prefetch.calls, loop.body])
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations
        )

    body = tvm_ffi.structural_map(function.body, [(tirx.For, with_calls)])
    return tvm.IRModule({"main": function.with_body(body)})


@dataclass(frozen=True, slots=True)
class _Prefetch:
    """The innermost loop over what is summed, and what is called in each of its steps."""

    loop: Any
    calls: list[Any]


def _tile_of(statement: Any, loops: list[Any]) -> tuple[list[Any], Any] | None:
    """The loops around the sums of a register tile, and the realization of their block."""
    if isinstance(statement, tirx.For):
        return _tile_of(statement.body, [*loops, statement])
    if isinstance(statement, tirx.SeqStmt):
        return next((f for each in statement.seq if (f := _tile_of(each, loops))), None)
    if isinstance(statement, tvm.s_tir.SBlockRealize):
        block = statement.block
        if any(int(axis.iter_type) == REDUCTION for axis in block.iter_vars):
            return (loops, statement) if is_tiled(str(block.name_hint)) else None
        return None if block.iter_vars else _tile_of(block.body, loops)
    return None


def _prefetch(loops: Sequence[Any], realize: Any, weights: Sequence[Any]) -> _Prefetch | None:
    """None for a block whose weights are not packed, or where no two tiles of rows read a panel in
    turn."""
    regions = [r for r in realize.block.reads if any(r.source.same_as(w) for w in weights)]
    kinds = [int(loop.kind) for loop in loops]
    if len(regions) != 1 or not {tirx.ForKind.PARALLEL, tirx.ForKind.UNROLLED} <= set(kinds):
        return None
    region = regions[0]
    threads, inside = kinds.index(tirx.ForKind.PARALLEL), kinds.index(tirx.ForKind.UNROLLED)
    if inside < threads + 4:
        return None
    outer, inner, *sums = loops[threads + 1 : inside]
    axes = (axis.var for axis in realize.block.iter_vars)
    values = list(zip(axes, realize.iter_values, strict=True))
    # Where a tile begins: at the first step of each unrolled loop.
    variables = (loop.loop_var for loop in loops[inside:])
    zeros = [(variable, tirx.IntImm(str(variable.ty.dtype), 0)) for variable in variables]
    first = [replaced(replaced(each.min, values), zeros) for each in region.region]
    # Tiles of rows around those of columns, or inside.
    rows, columns = (outer, inner) if _depends(first[0], [inner]) else (inner, outer)
    parts = int(rows.extent)
    shape = [int(extent) for extent in region.source.shape]
    summed = [extent > 1 and _depends(at, sums) for at, extent in zip(first, shape, strict=True)]
    panel_axes = summed.index(True) if True in summed else len(shape)
    if parts < 2 or not 0 < panel_axes < len(shape) or _depends(first[0], [rows]):
        return None
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    panel = math.prod(shape[panel_axes:])
    steps = math.prod(int(loop.extent) for loop in sums)
    each = -(-panel // (parts * steps))
    next_one = strides[0] * (int(columns.extent) if rows.same_as(outer) else 1)
    begins = sum(at * stride for at, stride in zip(first[:panel_axes], strides, strict=False))
    step = tirx.IntImm("int64", 0)
    for loop in sums:
        step = step * int(loop.extent) + loop.loop_var
    offset = begins + next_one + (rows.loop_var * steps + step) * each
    line = _LINE_BYTES * 8 // tvm.DataType(str(region.source.dtype)).bits
    calls = [_call(region.source, offset + ahead) for ahead in range(0, each, line)]
    return _Prefetch(sums[-1], calls)


def _call(weight: Any, offset: Any) -> Any:
    numbers = (tirx.IntImm("int32", each) for each in (_READ, _SECOND_LEVEL, _DATA))
    pointer = weight.access_ptr("r", offset=offset)
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", pointer, *numbers))


def _depends(expression: Any, loops: Sequence[Any]) -> bool:
    """Whether an expression has a loop's variable."""
    used = tirx.analysis.undefined_vars(expression)
    return any(loop.loop_var.same_as(variable) for loop in loops for variable in used)
