"""Schedules of products with intrinsics that multiply one data vector with packed weights.

parallel over tiles of rows and columns
  inner tiles, with the epilogue
    sums over the window and the depth
      a tile of rows and columns in registers: the intrinsic, unrolled
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.space.intrinsics import Intrinsic, VectorIntrinsic, make_known
from tunefleet.compiler.space.product_steps import (
    IMPORTED,
    UNROLLED_CALLS,
    prepared,
    sampled,
    vectorised,
)
from tunefleet.compiler.space.products import Product
from tunefleet.search.choices import Tile
from tunefleet.search.limits import Amount, Limit, TileExtent
from tunefleet.search.sketch import Sketch

#: Parts of rows and columns: over threads, within a thread, in registers; of the depth: steps and
#: unrolled steps.
_SPATIAL_PARTS, _DEPTH_PARTS = 3, 2
_REGISTERS = _SPATIAL_PARTS - 1


def fitting(product: Product, intrinsics: Iterable[Intrinsic]) -> list[VectorIntrinsic]:
    """The first intrinsic that divides columns and depth, if any."""
    return [
        intrinsic
        for intrinsic in intrinsics
        if isinstance(intrinsic, VectorIntrinsic)
        and product.extents[product.column] % intrinsic.lanes == 0
        and product.extents[product.depth] % intrinsic.depth == 0
    ][:1]


@dataclass(slots=True)
class _Loops:
    """The split loops of a product, outermost group first."""

    threads: list[Any]
    tiles: list[Any]
    sums: list[Any]
    unrolled: list[Any]
    registers: list[Any]
    call: list[Any]


def scheduled(schedule: Any, product: Product, intrinsic: VectorIntrinsic, rows_first: bool) -> Any:
    make_known(intrinsic.trace_name)
    block = schedule.get_sblock(product.block)
    lanes, steps = intrinsic.lanes, intrinsic.depth
    finish = prepared(
        schedule,
        block,
        product,
        lambda column, depth: (column // lanes, depth // steps, column % lanes, depth % steps),
    )
    if finish is None:
        finish = schedule.cache_write(block, 0, "global")
    loops = _split(schedule, block, product, intrinsic, rows_first)
    schedule.reverse_compute_at(finish, loops.tiles[-1], preserve_unit_loops=True)
    threads = schedule.fuse(*loops.threads)
    schedule.parallel(threads)
    if intrinsic.llvm:
        schedule.annotate(threads, IMPORTED, intrinsic.llvm)
    vectorised(schedule, finish, intrinsic.lanes, len(loops.tiles) + 1)
    first = schedule.decompose_reduction(block, loops.sums[0])
    vectorised(schedule, first, intrinsic.lanes, len(loops.tiles) + 1)
    for loop in (*loops.unrolled, *loops.registers):
        schedule.unroll(loop)
    schedule.tensorize(loops.call[0], intrinsic.trace_name)
    return schedule


def _split(
    schedule: Any, block: Any, product: Product, intrinsic: VectorIntrinsic, rows_first: bool
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
    outer, inner = sampled(schedule, depth, _DEPTH_PARTS)
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
    threads, tile, registers = sampled(schedule, loop, _SPATIAL_PARTS)
    into.threads.append(threads)
    into.tiles.append(tile)
    into.registers.append(registers)


def limits_of(sketch: Sketch, intrinsic: VectorIntrinsic) -> tuple[Limit, ...]:
    """Sums, a row of weights and a data vector must fit the registers; unrolled calls are
    limited."""
    tiles = [number for number, choice in enumerate(sketch.choices) if isinstance(choice, Tile)]
    *spatial, depth = tiles
    registers = tuple(TileExtent(number, (_REGISTERS,)) for number in spatial)
    columns = registers[-1:]
    return (
        Limit(
            "registers",
            0,
            intrinsic.registers - 1,
            (Amount(1, registers), Amount(1, columns)),
        ),
        Limit("unrolled", 0, UNROLLED_CALLS, (Amount(1, (*registers, TileExtent(depth, (1,)))),)),
    )
