"""Tensorised programs of CPUs: a product's innermost steps are calls of a tensor intrinsic.

    parallel over tiles of rows and columns
      tiles of these, whose results are finished by what follows the product
        sums over the window and the depth
          a tile of rows and columns in registers: the intrinsic, unrolled

Weights are packed so that each call reads them side by side: when a network is compiled where they
are constant, else when it runs. Of two sketches for each intrinsic one goes through the rows of a
thread's part first, the other through its columns.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tunefleet.compiler.space.intrinsics import (
    Intrinsic,
    intrinsic_named,
    intrinsics_of,
    make_known,
)
from tunefleet.compiler.space.products import Product, product_of
from tunefleet.compiler.space.sketching import open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.forms import intrinsic_of
from tunefleet.core.target import Target
from tunefleet.search.choices import Tile
from tunefleet.search.limits import Amount, Limit, Steps
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule

#: Of rows and columns: parts of threads, of a thread, of registers; of the depth: steps, unrolled.
_SPATIAL_PARTS, _DEPTH_PARTS = 3, 2
_REGISTERS = _SPATIAL_PARTS - 1
#: Calls of an intrinsic that are written out in one step of the innermost loop, at most.
_UNROLLED_CALLS = 128
#: Iterations of a block besides the product below which threads cost more than they bring.
_LEAST_PARALLEL = 1 << 15
_LONGEST_VECTOR = 64

_PACKED = "meta_schedule.layout_rewrite_preproc"
_IMPORTED = "pragma_import_llvm"
_TENSORIZE = "Tensorize"


class CpuTensorised:
    """Products by the target's tensor intrinsics; tasks that are none have no program here."""

    def generator(self, target: Target, module: Any) -> Any:
        return ms.space_generator.ScheduleFn(
            lambda schedule: sketches(schedule, target),
            sch_rules=[],
            postprocs=[],
            mutator_probs={},
        )

    def made(self, trace: str) -> bool:
        return bool(intrinsic_of(trace))

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        sketch = open_sketch(module, open_trace)
        return replace(sketch, limits=_limits(sketch))


def sketches(schedule: Any, target: Target) -> list[Any]:
    """Schedules of a task with each intrinsic that fits it; `schedule` is the untouched task."""
    function = schedule.mod.functions_items()[0][1] if schedule.mod.functions else None
    product = product_of(function, schedule) if function is not None else None
    if product is None or len(schedule.get_output_blocks("root")) != 1:
        return []
    made = []
    for intrinsic in _fitting(product, target):
        for rows_first in (True, False):
            # What follows the product may have a form that no tile of it can be computed in.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                made.append(_scheduled(schedule.copy(), product, intrinsic, rows_first))
    return made


def _fitting(product: Product, target: Target) -> list[Intrinsic]:
    """The first intrinsic of the target that divides columns and depth, if any does."""
    types = (product.data, product.weight, product.accumulator)
    return [
        intrinsic
        for intrinsic in intrinsics_of(target.cpu)
        if (intrinsic.data, intrinsic.weight, intrinsic.accumulator) == types
        and product.extents[product.column] % intrinsic.lanes == 0
        and product.extents[product.depth] % intrinsic.depth == 0
    ][:1]


@dataclass(slots=True)
class _Loops:
    """The loops of a product after they were split, from the outermost group in."""

    threads: list[Any]
    tiles: list[Any]
    sums: list[Any]
    unrolled: list[Any]
    registers: list[Any]
    call: list[Any]


def _scheduled(schedule: Any, product: Product, intrinsic: Intrinsic, rows_first: bool) -> Any:
    make_known(intrinsic.trace_name)
    block = schedule.get_sblock(product.block)
    finish = _finish(schedule, block)
    _pack(schedule, block, product, intrinsic)
    for ancestor in _reached(schedule, block, schedule.get_producers):
        if _PACKED not in schedule.get(ancestor).annotations:
            _on_its_own(schedule, ancestor)
    if finish is None:
        finish = schedule.cache_write(block, 0, "global")
    loops = _split(schedule, block, product, intrinsic, rows_first)
    schedule.reverse_compute_at(finish, loops.tiles[-1], preserve_unit_loops=True)
    threads = schedule.fuse(*loops.threads)
    schedule.parallel(threads)
    if intrinsic.llvm:
        schedule.annotate(threads, _IMPORTED, intrinsic.llvm)
    _vectorised(schedule, finish, intrinsic.lanes, len(loops.tiles) + 1)
    first = schedule.decompose_reduction(block, loops.sums[0])
    _vectorised(schedule, first, intrinsic.lanes, len(loops.tiles) + 1)
    for loop in (*loops.unrolled, *loops.registers):
        schedule.unroll(loop)
    schedule.tensorize(loops.call[0], intrinsic.trace_name)
    return schedule


def _finish(schedule: Any, block: Any) -> Any | None:
    """What makes no more results of the product than it has, as one block; None where nothing does.

    What makes more of them (a product of one row, say, that scales a picture) is another block,
    which runs by itself.
    """
    size = _size(schedule, block)
    near = [each for each in _descendants(schedule, block) if _size(schedule, each) <= size]
    last = near[-1] if near else block
    _inlined(schedule, near[:-1])
    _inlined(schedule, _others(schedule, last, block))
    after = _descendants(schedule, last)
    if after:
        _inlined(schedule, after[:-1])
        _inlined(schedule, _others(schedule, after[-1], last))
        _on_its_own(schedule, after[-1])
    return last if near else None


def _inlined(schedule: Any, blocks: Iterable[Any]) -> None:
    for each in blocks:
        schedule.compute_inline(each)


def _size(schedule: Any, block: Any) -> int:
    """Elements of what a block writes."""
    return math.prod(int(extent) for extent in schedule.get(block).writes[0].source.shape)


def _descendants(schedule: Any, block: Any) -> list[Any]:
    """All that reads what a block computed, each before what reads it."""
    order = {
        str(schedule.get(each).name_hint): number
        for number, each in enumerate(schedule.get_child_blocks(schedule.get_sblock("root")))
    }
    return sorted(
        _reached(schedule, block, schedule.get_consumers),
        key=lambda each: order[str(schedule.get(each).name_hint)],
    )


def _others(schedule: Any, block: Any, known: Any) -> Iterator[Any]:
    """What is read by a block besides what `known` computes (a residual, say), until it is
    inlined."""
    name = schedule.get(known).name_hint
    while others := [p for p in schedule.get_producers(block) if schedule.get(p).name_hint != name]:
        yield others[0]


def _reached(schedule: Any, block: Any, neighbours: Callable[[Any], Any]) -> list[Any]:
    """All that is reached from a block by going to neighbours, nearest first."""
    found: dict[str, Any] = {}
    waiting = list(neighbours(block))
    while waiting:
        each = waiting.pop(0)
        if found.setdefault(str(schedule.get(each).name_hint), each) is each:
            waiting += neighbours(each)
    return list(found.values())


def _pack(schedule: Any, block: Any, product: Product, intrinsic: Intrinsic) -> None:
    """Weights as [columns / lanes][other axes][depth / its steps][lanes][steps]."""
    lanes, steps = intrinsic.lanes, intrinsic.depth
    column = product.weight_axes.index(product.column)
    depth = product.weight_axes.index(product.depth)

    def layout(*index: Any) -> list[Any]:
        others = [axis for number, axis in enumerate(index) if number not in (column, depth)]
        last = [index[column] % lanes, index[depth] % steps]
        return [index[column] // lanes, *others, index[depth] // steps, *last]

    packed = schedule.cache_read(block, product.weight_read, "global")
    schedule.transform_layout(
        block,
        ("read", product.weight_read),
        tvm.tirx.IndexMap.from_func(
            layout, ndim=len(product.weight_axes), index_dtype=product.index_type
        ),
    )
    if product.constant_weight:
        schedule.annotate(packed, _PACKED, True)


def _on_its_own(schedule: Any, block: Any) -> None:
    """A block that runs before the product, in vectors and by all threads."""
    loops = schedule.get_loops(block)
    if not loops:
        return
    extents = [int(schedule.get(loop).extent) for loop in loops]
    longest = _vector_extent(extents[-1])
    *outer, last = loops
    rest, vector = schedule.split(last, [None, longest])
    schedule.vectorize(vector)
    if math.prod(extents) >= _LEAST_PARALLEL:
        schedule.parallel(schedule.fuse(*outer, rest))


def _vector_extent(extent: int) -> int:
    """The longest vector that divides an extent."""
    return next(n for n in range(min(extent, _LONGEST_VECTOR), 0, -1) if extent % n == 0)


def _split(
    schedule: Any, block: Any, product: Product, intrinsic: Intrinsic, rows_first: bool
) -> _Loops:
    loops = schedule.get_loops(block)
    rows, columns = _Loops([], [], [], [], [], []), _Loops([], [], [], [], [], [])
    sums: list[Any] = [loops[number] for number in product.sums]
    for number in product.rows:
        if product.extents[number] == 1 or number in product.weight_axes:
            rows.threads.append(loops[number])
            continue
        _tiled(schedule, loops[number], rows)
    column, lane = schedule.split(loops[product.column], [None, intrinsic.lanes])
    _tiled(schedule, column, columns)
    depth, step = schedule.split(loops[product.depth], [None, intrinsic.depth])
    outer, inner = _sampled(schedule, depth, _DEPTH_PARTS)
    order = (rows, columns) if rows_first else (columns, rows)
    made = _Loops(
        threads=[loop for part in order for loop in part.threads],
        tiles=[loop for part in order for loop in part.tiles],
        sums=[*sums, outer],
        unrolled=[inner],
        registers=[*rows.registers, *columns.registers],
        call=[lane, step],
    )
    schedule.reorder(
        *made.threads, *made.tiles, *made.sums, *made.unrolled, *made.registers, *made.call
    )
    return made


def _tiled(schedule: Any, loop: Any, into: _Loops) -> None:
    threads, tile, registers = _sampled(schedule, loop, _SPATIAL_PARTS)
    into.threads.append(threads)
    into.tiles.append(tile)
    into.registers.append(registers)


def _sampled(schedule: Any, loop: Any, parts: int) -> list[Any]:
    factors = schedule.sample_perfect_tile(loop, n=parts, max_innermost_factor=_UNROLLED_CALLS)
    return list(schedule.split(loop, factors))


def _vectorised(schedule: Any, block: Any, lanes: int, outside: int) -> None:
    """The loops of a block inside the tile of a thread that others brought it to: its last one in
    vectors, the others written out."""
    *outer, last = schedule.get_loops(block)
    rest, vector = schedule.split(last, [None, lanes])
    schedule.vectorize(vector)
    for loop in [*outer, rest][outside:]:
        schedule.unroll(loop)


def _limits(sketch: Sketch) -> tuple[Limit, ...]:
    """Sums, a row of weights and a data vector fit the registers; not too much is written out."""
    name = next(
        str(instruction[2][0])
        for instruction in sketch.instructions
        if instruction[0] == _TENSORIZE
    )
    intrinsic = intrinsic_named(name)
    tiles = [number for number, choice in enumerate(sketch.choices) if isinstance(choice, Tile)]
    *spatial, depth = tiles
    registers = tuple(Steps(number, (_REGISTERS,)) for number in spatial)
    columns = registers[-1:]
    return (
        Limit(
            "registers",
            0,
            intrinsic.registers - 1,
            (Amount(1, registers), Amount(1, columns)),
        ),
        Limit("unrolled", 0, _UNROLLED_CALLS, (Amount(1, (*registers, Steps(depth, (1,)))),)),
    )
