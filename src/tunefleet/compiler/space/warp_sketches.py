"""Schedules of products on tensor cores, whose instructions run on warps of 32 threads.

    thread blocks over batches and tiles of rows and columns
      warps: zero the sums, in fragments
      steps of the depth: all threads fetch data and weights into shared memory
        steps of the instruction: a warp loads its weights
          fragments of rows: a warp loads its data
            fragments of columns: the instruction, unrolled
      fragments of rows: warps store sums into shared memory
        all threads apply the epilogue and write the results

Convolutions become matrix products through the indices of their fetches: rows are all pixels, the
depth is the window and its channels. Padding to whole fragments is fetched as zeros and not
written. Fragments of rows have a larger stride than warps, so that all warps store consecutive
rows, which needs little shared memory. On GPUs with asynchronous copies, inputs of the next steps
may be prefetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tunefleet.compiler.space import matrices
from tunefleet.compiler.space.intrinsics import WarpProduct, make_known
from tunefleet.compiler.space.intrinsics.wmma import (
    ALIGNED,
    DATA_SCOPE,
    FETCH_SCOPE,
    RESULT_SCOPE,
    SUMS_SCOPE,
    WARP,
    WEIGHT_SCOPE,
)
from tunefleet.compiler.space.matrices import NoFormError
from tunefleet.compiler.space.products import Product
from tunefleet.compiler.toolchain.programs import COPIED_STAGES, STAGES, nbytes
from tunefleet.core.target import CudaTarget
from tunefleet.search.choices import Tile
from tunefleet.search.limits import UNLIMITED, Aligned, Amount, Limit, TileExtent
from tunefleet.search.sketch import Sketch

#: Maximum number of unrolled instructions per step of the depth.
_WRITTEN_OUT = 64
#: Rows in shared memory are ALIGNED bytes longer than a multiple of this, so that the eight rows
#: loaded at once start in different banks.
_BANKS = 32
#: Parts of a tile of rows: blocks, fragments, warps; of columns: blocks, warps, fragments.
_ROW_PARTS, _ROW_WARPS = 1, 2
_COLUMN_WARPS, _COLUMN_PARTS = 1, 2
#: Maximum warps or fragments per axis.
_MOST_PARTS = 16
#: Registers per thread for addresses and temporaries.
_OTHER_REGISTERS, _MOST_REGISTERS = 40, 255


@dataclass(slots=True)
class _Nest:
    """The split loops of a product, and the factors of its warps.

    `block`: thread block; `step` of the depth; `loads` of weights in it; fragments of `rows`."""

    block: Any
    step: Any
    loads: Any
    rows: Any
    call: Any
    row_parts: list[Any]
    column_parts: list[Any]

    @property
    def warps(self) -> list[Any]:
        return [self.row_parts[_ROW_WARPS], self.column_parts[_COLUMN_WARPS]]


def scheduled(
    schedule: Any,
    product: Product,
    intrinsic: WarpProduct,
    target: CudaTarget,
    *,
    ahead: int,
    fused: bool,
) -> Any:
    """`ahead`: the number of prefetched steps of the depth. `fused`: the epilogue is computed with
    the sums, otherwise in a separate block. Raises tvm.s_tir.ScheduleError or NoFormError for a
    form that cannot be computed in tiles."""
    for name in intrinsic.trace_names:
        make_known(name)
    block = schedule.get_sblock(product.block)
    finish = matrices.prepared(schedule, block, product, intrinsic, target, fused=fused)
    nest = _split(schedule, block, intrinsic)
    data, weight = product.data_read, product.weight_read
    widths = {data: matrices.data_width(product), weight: matrices.weight_width(product)}
    copied = [
        _fetched(schedule, block, read, nest, width, by_itself=ahead > 0)
        for read, width in widths.items()
    ]
    if ahead and not any(copied):
        raise NoFormError("no input supports asynchronous copies")
    of_data = schedule.cache_read(block, data, DATA_SCOPE)
    schedule.compute_at(of_data, nest.rows, preserve_unit_loops=True)
    of_weight = schedule.cache_read(block, weight, WEIGHT_SCOPE)
    schedule.compute_at(of_weight, nest.loads, preserve_unit_loops=True)
    schedule.set_scope(block, 0, RESULT_SCOPE)
    store = schedule.cache_write(block, 0, SUMS_SCOPE)
    stored = _stored(schedule, store, nest, intrinsic)
    schedule.reverse_compute_at(finish, stored, preserve_unit_loops=True)
    numbers = matrices.vectors(schedule, finish, matrices.result_width(schedule, finish))
    _by_all_threads(schedule, finish, stored, nest, numbers)
    first = schedule.decompose_reduction(block, nest.step)
    # The product first: the first intrinsic in a trace identifies it.
    schedule.tensorize(nest.call, intrinsic.trace_name)
    schedule.tensorize(schedule.get_loops(first)[-2], intrinsic.fill)
    schedule.tensorize(schedule.get_loops(of_data)[-2], intrinsic.load_data)
    shape = (intrinsic.depth, intrinsic.columns)
    shape = shape[::-1] if intrinsic.transposed else shape
    schedule.tensorize(_fragments(schedule, of_weight, shape), intrinsic.load_weight)
    # Tensorisation drops annotations of a block, so annotate an outer block.
    fragment = schedule.blockize(schedule.get_loops(store)[-2])
    _apart(schedule, fragment)
    schedule.tensorize(fragment, intrinsic.store)
    if ahead:
        _fetch_ahead(schedule, nest.step, ahead)
    return schedule


def _split(schedule: Any, block: Any, intrinsic: WarpProduct) -> _Nest:
    *batch, row, column, depth = schedule.get_loops(block)
    row, call_row = schedule.split(row, [None, intrinsic.rows])
    column, call_column = schedule.split(column, [None, intrinsic.columns])
    depth, call_depth = schedule.split(depth, [None, intrinsic.depth])
    row_parts = _sampled(schedule, row, 3)
    column_parts = _sampled(schedule, column, 3)
    depth_parts = _sampled(schedule, depth, 2)
    block_row, rows, warp_row = schedule.split(row, row_parts)
    block_column, warp_column, columns = schedule.split(column, column_parts)
    step, loads = schedule.split(depth, depth_parts)
    schedule.reorder(
        *batch, block_row, block_column, warp_row, warp_column, step, loads, rows, columns,
        call_row, call_column, call_depth,
    )  # fmt: skip
    blocks = schedule.fuse(*batch, block_row, block_column)
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(schedule.fuse(warp_row, warp_column), "threadIdx.y")
    for loop in (loads, rows, columns):
        schedule.unroll(loop)
    return _Nest(blocks, step, loads, rows, call_row, row_parts, column_parts)


def _sampled(schedule: Any, loop: Any, parts: int) -> list[Any]:
    return list(schedule.sample_perfect_tile(loop, n=parts, max_innermost_factor=_MOST_PARTS))


def _fetched(
    schedule: Any, block: Any, read: int, nest: _Nest, width: int, *, by_itself: bool
) -> bool:
    """All threads fetch the inputs of a step of the depth into shared memory; `by_itself`: with
    asynchronous copies if possible. Returns whether they are asynchronous."""
    fetch = matrices.written_by(schedule, block, read)
    schedule.set_scope(fetch, 0, FETCH_SCOPE)
    schedule.compute_at(fetch, nest.step, preserve_unit_loops=True)
    numbers = matrices.vectors(schedule, fetch, width)
    copied = matrices.copied(schedule, fetch, numbers) if by_itself else []
    _by_all_threads(schedule, fetch, nest.step, nest, copied or numbers)
    _apart(schedule, fetch)
    return bool(copied)


def _fetch_ahead(schedule: Any, step: Any, ahead: int) -> None:
    """Pipeline a step, which fetches data, fetches weights and multiplies, in this order."""
    schedule.annotate(step, STAGES, [0, 0, ahead])
    schedule.annotate(step, "software_pipeline_order", [0, 1, 2])
    schedule.annotate(step, COPIED_STAGES, [0])


def _by_all_threads(
    schedule: Any, block: Any, outside: Any, nest: _Nest, numbers: Sequence[int]
) -> None:
    """Distribute the loops of a block inside a loop over all threads; `numbers` are the possible
    vector widths."""
    loops, variable = schedule.get_loops(block), schedule.get(outside).loop_var
    around = next(
        n for n, loop in enumerate(loops) if schedule.get(loop).loop_var.same_as(variable)
    )
    together = schedule.fuse(*loops[around + 1 :])
    vector = schedule.sample_categorical(numbers, [1 / len(numbers)] * len(numbers))
    factors = [None, *nest.warps, WARP, vector]
    _, warp_row, warp_column, lane, at_once = schedule.split(together, factors)
    schedule.bind(schedule.fuse(warp_row, warp_column), "threadIdx.y")
    schedule.bind(lane, "threadIdx.x")
    schedule.vectorize(at_once)


def _apart(schedule: Any, block: Any) -> None:
    """Pad rows in shared memory, so that they start in different banks."""
    number = nbytes((), str(schedule.get(block).writes[0].source.dtype))
    schedule.storage_align(block, 0, -2, _BANKS // number, ALIGNED // number)


def _stored(schedule: Any, store: Any, nest: _Nest, intrinsic: WarpProduct) -> Any:
    """Store sums to shared memory, one fragment of rows at a time; returns the loop."""
    schedule.reverse_compute_at(store, nest.block, preserve_unit_loops=True)
    row, column = schedule.get_loops(store)[-2:]
    _, *row_parts = nest.row_parts
    _, *column_parts = nest.column_parts
    rows, warp_row, call_row = schedule.split(row, [*row_parts, intrinsic.rows])
    warp_column, columns, call_column = schedule.split(column, [*column_parts, intrinsic.columns])
    schedule.reorder(rows, warp_row, warp_column, columns, call_row, call_column)
    schedule.bind(schedule.fuse(warp_row, warp_column), "threadIdx.y")
    for loop in (rows, columns):
        schedule.unroll(loop)
    return rows


def _fragments(schedule: Any, block: Any, shape: tuple[int, int]) -> Any:
    """The loop that loads one fragment; loops over fragments are unrolled."""
    outer, inner = schedule.get_loops(block)[-2:]
    upper, row = schedule.split(outer, [None, shape[0]])
    left, column = schedule.split(inner, [None, shape[1]])
    schedule.reorder(upper, left, row, column)
    for loop in (upper, left):
        schedule.unroll(loop)
    return row


def limits_of(sketch: Sketch, intrinsic: WarpProduct, target: CudaTarget) -> tuple[Limit, ...]:
    """The limits of a thread block: threads, shared memory for fetches and for stored sums,
    registers for fragments, and unrolled instructions."""
    rows, columns, depth = (
        n for n, choice in enumerate(sketch.choices) if isinstance(choice, Tile)
    )
    row_warps, column_warps = TileExtent(rows, (_ROW_WARPS,)), TileExtent(columns, (_COLUMN_WARPS,))
    row_fragments = TileExtent(rows, (_ROW_PARTS,))
    column_fragments = TileExtent(columns, (_COLUMN_PARTS,))
    loads = TileExtent(depth, (1,))
    high, wide = TileExtent(rows, (1, 2)), TileExtent(columns, (1, 2))

    def stage(dtype: str, high: TileExtent, each: int, wide: TileExtent, width: int) -> Amount:
        number = nbytes((), dtype)
        row = Aligned(wide, width, _BANKS // number, ALIGNED // number)
        return Amount(number * each, (high, row))

    data = stage(intrinsic.data, high, intrinsic.rows, loads, intrinsic.depth)
    weights = (
        stage(intrinsic.weight, wide, intrinsic.columns, loads, intrinsic.depth)
        if intrinsic.transposed
        else stage(intrinsic.weight, loads, intrinsic.depth, wide, intrinsic.columns)
    )
    sums = stage(intrinsic.accumulator, row_warps, intrinsic.rows, wide, intrinsic.columns)
    held = (
        Amount(intrinsic.sum_registers, (row_fragments, column_fragments)),
        Amount(intrinsic.weight_registers, (column_fragments,)),
        Amount(intrinsic.data_registers + _OTHER_REGISTERS, ()),
    )
    warps = (row_warps, column_warps)
    of_block = tuple(Amount(WARP * a.each, (*warps, *a.extents)) for a in held)
    calls = Amount(1, (row_fragments, column_fragments, loads))
    stages = _stages(sketch)
    fetched = tuple(replace(each, each=stages * each.each) for each in (data, weights))
    steps = Amount(1, (TileExtent(depth, (0,)),))
    overlapping = (Limit("steps to overlap", 2, UNLIMITED, (steps,)),) if stages > 1 else ()
    return (
        Limit("threads", WARP, target.threads_per_block, (Amount(WARP, warps),)),
        Limit("shared memory", 0, target.shared_memory_bytes, (*fetched, sums)),
        Limit("registers of a thread", 0, _MOST_REGISTERS, held),
        Limit("registers", 0, target.registers_per_block, of_block),
        Limit("unrolled", 0, _WRITTEN_OUT, (calls,)),
        *overlapping,
    )


def _stages(sketch: Sketch) -> int:
    """The number of pipeline stages kept in shared memory."""
    found = (
        max(inputs[1]) + 1
        for kind, inputs, attributes, _ in sketch.instructions
        if kind == "Annotate" and attributes[0] == STAGES
    )
    return next(found, 1)
