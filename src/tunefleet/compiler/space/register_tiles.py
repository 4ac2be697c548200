"""Float32 products in register tiles of a designed size: `height` rows by some vectors of columns.

    parallel over tiles of rows and columns
      tiles of a thread, with the epilogue
        sums over the window and the depth
          a register tile: sums of rows x vectors, that stay in registers

MetaSchedule's tilings divide each loop by its divisors, so the size of a register tile depends on
the shape of a task, and few of its random tilings suit the registers. Here the sizes are those that
can reach the peak: as many sums as the registers hold, and at least as many as hide the latency of
the multiply-add (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
Rows are padded (`padded_rows.py`), weights are packed in the order of reading.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.graph.winograd import schedule_transforms
from tunefleet.compiler.space.padded_rows import own_rows, tiled_product, with_padded_rows
from tunefleet.compiler.space.product_steps import (
    UNROLLED_CALLS,
    packed,
    prepared,
    sampled,
    vectorised,
)
from tunefleet.compiler.space.products import product_of
from tunefleet.compiler.space.registers import Registers
from tunefleet.compiler.space.sketching import generator_of, open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import trace_text
from tunefleet.core.forms import REGISTER_TILE, WINOGRAD_BLOCK, tile_height
from tunefleet.core.target import Target
from tunefleet.search.sketch import Sketch

tvm = load_tvm()

#: Register tiles with sketches per task.
_TILES = 3
#: Sums below which the latency of a multiply-add is not hidden: four cycles, two in each.
_LEAST_SUMS = 8
#: Registers besides the sums, at least: the weights of a step and a value of the data; LLVM spills
#: sums with fewer than four (29 sums of AVX-512, for one, take 1.3 times as long as 28).
_SPARE = 4
#: The cost of reading a value, in multiply-adds, where caches are not near.
_READ_COST = 0.1
#: Rows of a product below which it is bound by reading its weights.
_LEAST_ROWS = 4


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`height` rows by `vectors` vectors of columns."""

    height: int
    vectors: int

    @property
    def sums(self) -> int:
        return self.height * self.vectors

    def cost(self, rows: int, vectors: int) -> float:
        """Of a product, in multiply-adds of vectors per step of the depth. A cycle has as many
        loads as multiply-adds."""
        tiles = -(-rows // self.height) * (vectors // self.vectors)
        loads = self.height + self.vectors
        return tiles * (max(self.sums, loads, _LEAST_SUMS) + _READ_COST * loads)


def tiles_of(registers: Registers, rows: int, columns: int) -> list[RegisterTile]:
    """The cheapest register tiles of a product, the best first; none if no vectors divide the
    columns, which are those of a group."""
    lanes = registers.lanes_of(columns)
    if rows < _LEAST_ROWS or not lanes:
        return []
    vectors = columns // lanes
    fitting = [
        RegisterTile(height, wide)
        for wide in range(1, registers.count // 2)
        if vectors % wide == 0
        for height in range(2, min(rows, registers.count) + 1)
        if height * wide + max(wide + 1, _SPARE) <= registers.count
    ]
    return sorted(fitting, key=lambda tile: (tile.cost(rows, vectors), -tile.sums))[:_TILES]


class CpuRegisterTiles:
    """Float32 products in register tiles; other tasks have no program in this family."""

    def generator(self, target: Target, module: Any) -> Any:
        return generator_of(lambda schedule: sketches(schedule.mod, target))

    def made(self, trace: str) -> bool:
        return bool(tile_height(trace))

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        height = tile_height(trace_text(open_trace))
        return open_sketch(with_padded_rows(module, height), open_trace)


def sketches(module: Any, target: Target) -> list[Any]:
    """Schedules of a task in each suitable register tile."""
    registers = Registers.of(target)
    product = tiled_product(module) if module.functions and registers else None
    if product is None or registers is None:
        return []
    rows = math.prod(product.extents[number] for number in own_rows(product))
    made = []
    lanes = registers.lanes_of(product.group)
    for tile in tiles_of(registers, rows, product.group):
        padded = with_padded_rows(module, tile.height)
        for rows_first in (True, False):
            # The epilogue may have a form that cannot be computed in tiles.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                made.append(scheduled(padded, tile, lanes, rows_first))
    return made


def scheduled(padded: Any, tile: RegisterTile, lanes: int, rows_first: bool) -> Any:
    """The open schedule of a module with padded rows."""
    schedule = tvm.s_tir.Schedule(padded, debug_mask="none", error_render_level="none")
    product = product_of(padded["main"], schedule)
    assert product is not None
    block = schedule.get_sblock(product.block)
    wide = tile.vectors * lanes

    def layout(column: Any, depth: Any) -> tuple[Any, ...]:
        return column // wide, depth, column % wide

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
    steps = UNROLLED_CALLS // tile.sums
    depth, unrolled = sampled(schedule, loops[product.depth], 2, steps)
    (first, second), (third, fourth) = (
        zip(rows, columns, strict=True) if rows_first else zip(columns, rows, strict=True)
    )
    shared = [loops[number] for number in product.rows if number not in own_rows(product)]
    sums = [*(loops[number] for number in product.sums), depth]
    threads, tiles = [*shared, first, second], [third, fourth]
    schedule.reorder(*threads, *tiles, *sums, unrolled, height, vectors, lane)
    schedule.reverse_compute_at(finish, tiles[-1], preserve_unit_loops=True)
    schedule.parallel(schedule.fuse(*threads))
    around = len(tiles) + 1
    vectorised(schedule, finish, lanes, around)
    for loop in (unrolled, height, vectors):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, sums[0])
    schedule.annotate(block, REGISTER_TILE, [tile.height, wide])
    return schedule
