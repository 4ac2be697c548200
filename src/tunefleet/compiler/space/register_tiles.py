"""Products in register tiles of a designed size: `height` rows by some vectors of columns, of
float32 or by a vector intrinsic.

    parallel over tiles of rows and columns
      tiles of a thread, with the epilogue
        sums over the window and the depth
          a register tile: sums of rows x vectors, that stay in registers

MetaSchedule's tilings divide each loop by its divisors, so the size of a register tile depends on
the shape of a task, and few of its random tilings suit the registers. Here the sizes are those that
can reach the peak (`registers.py`). Rows are padded (`padded_rows.py`), weights are packed in the
order of reading.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tunefleet.compiler.graph.winograd import schedule_transforms
from tunefleet.compiler.space.intrinsics import VectorIntrinsic, make_known
from tunefleet.compiler.space.padded_rows import own_rows, tiled_product, with_padded_rows
from tunefleet.compiler.space.product_steps import (
    IMPORTED,
    UNROLLED_CALLS,
    on_its_own,
    packed,
    prepared,
    sampled,
    vectorised,
)
from tunefleet.compiler.space.products import Product, product_of
from tunefleet.compiler.space.registers import Registers, RegisterTile, tiles_of
from tunefleet.compiler.space.sketching import generator_of, open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import SPATIAL, trace_text
from tunefleet.core.forms import REGISTER_TILE, WINOGRAD_BLOCK, tile_height, tile_of
from tunefleet.core.target import Target
from tunefleet.search.sketch import Sketch

tvm = load_tvm()

#: Rows of a float32 product below which it is bound by reading its weights.
_LEAST_ROWS = 4
#: Register tiles with sketches, of vectors that do not divide the columns.
_SKETCHED = 4


class CpuRegisterTiles:
    """Float32 products in register tiles; other tasks have no program in this family."""

    def generator(self, target: Target, module: Any) -> Any:
        return generator_of(lambda schedule: sketches(schedule.mod, target))

    def made(self, trace: str) -> bool:
        return bool(tile_height(trace))

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        height, lanes = tile_of(trace_text(open_trace))
        return open_sketch(with_padded_rows(module, height, lanes), open_trace)


def sketches(module: Any, target: Target) -> list[Any]:
    """Schedules of a float32 task in each suitable register tile."""
    registers = Registers.of(target)
    product = tiled_product(module) if module.functions and registers else None
    if product is None or registers is None or rows_of(product) < _LEAST_ROWS:
        return []
    if {product.data, product.weight, product.accumulator} != {"float32"}:
        return []
    rows, columns = rows_of(product), product.group
    covering = () if has_own_columns(product) else registers.covering(columns)
    made: list[Any] = []
    for lanes in covering:
        tiles = tiles_of(registers.count, rows, -(-columns // lanes))[: _SKETCHED // len(covering)]
        made += in_tiles(module, tiles, lanes, divided=False)
    if made:
        return made
    lanes = registers.lanes_of(columns)
    tiles = tiles_of(registers.count, rows, columns // lanes) if lanes else []
    return list(in_tiles(module, tiles, lanes))


def has_own_columns(product: Product) -> bool:
    """Whether the columns of a product belong to groups, or to Winograd's form."""
    return product.is_grouped or product.block.startswith(WINOGRAD_BLOCK)


def rows_of(product: Product) -> int:
    """The rows that register tiles divide."""
    return math.prod(product.extents[number] for number in own_rows(product))


def in_tiles(
    module: Any,
    tiles: Sequence[RegisterTile],
    lanes: int,
    intrinsic: VectorIntrinsic | None = None,
    *,
    divided: bool = True,
) -> Iterator[Any]:
    """Schedules in each of the tiles, with one order of rows and columns and the other. `divided`:
    the vectors divide the columns."""
    for tile in tiles:
        padded = with_padded_rows(module, tile.height, 0 if divided else lanes)
        if padded is None:
            return
        for rows_first in (True, False):
            # The epilogue may have a form that cannot be computed in tiles.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                yield scheduled(padded, tile, lanes, rows_first, intrinsic)


def scheduled(
    padded: Any,
    tile: RegisterTile,
    lanes: int,
    rows_first: bool,
    intrinsic: VectorIntrinsic | None = None,
) -> Any:
    """The open schedule of a module with padded rows. `lanes` are those of the intrinsic."""
    schedule = tvm.s_tir.Schedule(padded, debug_mask="none", error_render_level="none")
    product = product_of(padded["main"], schedule)
    assert product is not None
    block = schedule.get_sblock(product.block)
    wide, step = tile.vectors * lanes, intrinsic.depth if intrinsic else 1

    def layout(column: Any, depth: Any) -> tuple[Any, ...]:
        if intrinsic is None:
            return column // wide, depth, column % wide
        return (
            column // wide,
            depth // step,
            column // lanes % tile.vectors,
            column % lanes,
            depth % step,
        )

    if product.block.startswith(WINOGRAD_BLOCK):
        packed(schedule, block, product, layout)
        schedule_transforms(schedule, lanes)
        finish = schedule.cache_write(block, 0, "global")
    else:
        finish = prepared(schedule, block, product, layout)
    loops = schedule.get_loops(block)
    (row,) = (loops[number] for number in own_rows(product))
    outer_rows, height = schedule.split(row, [None, tile.height])
    outer_columns, vectors, lane = schedule.split(
        loops[product.column], [None, tile.vectors, lanes]
    )
    rows, columns = sampled(schedule, outer_rows, 2), sampled(schedule, outer_columns, 2)
    whole, called = loops[product.depth], []
    if intrinsic is not None:
        whole, inside = schedule.split(whole, [None, step])
        called = [inside]
    depth, unrolled = sampled(schedule, whole, 2, UNROLLED_CALLS // tile.sums)
    (first, second), (third, fourth) = (
        zip(rows, columns, strict=True) if rows_first else zip(columns, rows, strict=True)
    )
    shared = [loops[number] for number in product.rows if number not in own_rows(product)]
    sums = [*(loops[number] for number in product.sums), depth]
    threads, tiles = [*shared, first, second], [third, fourth]
    schedule.reorder(*threads, *tiles, *sums, unrolled, height, vectors, lane, *called)
    with_tiles = _finished_in_tiles(schedule, block, finish, tiles[-1])
    if with_tiles:
        schedule.reverse_compute_at(finish, tiles[-1], preserve_unit_loops=True)
    else:
        on_its_own(schedule, finish)
    parallel = schedule.fuse(*threads)
    schedule.parallel(parallel)
    around = len(tiles) + 1
    if with_tiles:
        vectorised(schedule, finish, lanes, around)
    for loop in (unrolled, height, vectors):
        schedule.unroll(loop)
    if intrinsic is None:
        schedule.vectorize(lane)
    first = schedule.decompose_reduction(block, sums[0])
    schedule.annotate(block, REGISTER_TILE, [tile.height, wide])
    if intrinsic is not None:
        make_known(intrinsic.trace_name)
        if intrinsic.llvm:
            schedule.annotate(parallel, IMPORTED, intrinsic.llvm)
        vectorised(schedule, first, lanes, around)
        schedule.tensorize(lane, intrinsic.trace_name)
    return schedule


def _finished_in_tiles(schedule: Any, block: Any, finish: Any, tile: Any) -> bool:
    """Whether the results that a tile finishes are those of its own sums. Of results whose rows
    are every second one, or of parts of a row, TVM takes all that lie between them too: other
    threads' sums, which may not be there yet."""
    tried = schedule.copy()
    try:
        tried.reverse_compute_at(finish, tile, preserve_unit_loops=True)
    except ValueError:
        return False  # of pixels that are picked from the rows by one index, TVM knows no part
    finished = [tried.get(loop).extent for loop in tried.get_loops(finish)]
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in finished):
        return False  # as many as lie between, by the tile
    sums = [int(v.dom.extent) for v in tried.get(block).iter_vars if int(v.iter_type) == SPATIAL]
    return math.prod(map(int, finished)) <= math.prod(sums)
