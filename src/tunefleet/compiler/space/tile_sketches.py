"""Schedules of products with tile registers (AMX).

    parallel over tiles of rows and columns
      configure registers
      inner tiles, with the epilogue
        sums over the window and the depth
          a register tile: one step of the intrinsic
        store sums for the epilogue
      release registers

Consecutive rows of an image in the data, including borders between them, are one axis
(`graph/padded_products.py`). The epilogue separates them again, so it runs after all rows of some
columns.

The intrinsic fixes the rows and columns of a register tile, so each sketch has one. The few
register tiles with the lowest ratio of loads to multiplications are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tunefleet.compiler.space.intrinsics import Intrinsic, TileIntrinsic, Tiles, make_known
from tunefleet.compiler.space.intrinsics.amx import MOST_LANES, MOST_ROWS, STORE, ZERO
from tunefleet.compiler.space.product_steps import (
    UNROLLED_CALLS,
    prepared,
    sampled,
    vectorised,
)
from tunefleet.compiler.space.products import DataAxis, Product
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.search.choices import Tile
from tunefleet.search.limits import Amount, Limit, TileExtent
from tunefleet.search.sketch import Sketch

tvm = load_tvm()

#: Annotation of a parallel loop: the name of the register tile that each iteration configures and
#: releases. Its code is inserted when a program is built; it is not a decision.
TILES = "tunefleet.tiles"
#: Maximum number of register tiles with sketches per task.
_FORMS = 3
#: Minimum rows or lanes of a useful tile, and maximum tiles per side.
_LEAST, _MOST_TILES = 4, 6


def fitting(product: Product, intrinsics: Iterable[Intrinsic]) -> list[Tiles]:
    """Register tiles that divide a product, fastest per sum first; empty if rows of the product are
    not rows of a matrix in memory."""
    pair = _following(product)
    whole = product if pair is None else _joined(product, pair)
    found = {
        tiles.name: tiles
        for intrinsic in intrinsics
        if isinstance(intrinsic, TileIntrinsic)
        for tiles in _forms(whole, intrinsic)
    }
    return sorted(found.values(), key=lambda t: (t.cycles / t.sums, -t.sums, t.name))[:_FORMS]


def _forms(product: Product, intrinsic: TileIntrinsic) -> Iterator[Tiles]:
    """The register tiles of an intrinsic. Rows are on the last row axis; outer tiles may be on the
    axis before it."""
    rank = len(product.data_shape)
    axes = {
        axis.dimension: (axis, product.extents[number])
        for number in product.rows
        if (axis := product.data_axes[number]) and number not in product.weight_axes
    }
    if rank - 2 not in axes or product.extents[product.depth] % intrinsic.word:
        return
    (row, extent), (before, more) = axes[rank - 2], axes.get(rank - 3, (None, 1))
    wide, words = product.extents[product.column], product.extents[product.depth] // intrinsic.word
    rows, lanes = _largest(extent, MOST_ROWS), _largest(wide, MOST_LANES)
    if min(rows, lanes) < _LEAST:
        return
    depth = _largest(words, intrinsic.depth // intrinsic.word) * intrinsic.word
    taps = _window(product, intrinsic)
    window = 1 if taps is None else product.extents[taps]
    apart = before.step if before else 0
    for columns in _few(wide // lanes):
        placed = [(outer, 0) for outer in _few(extent // rows)]
        placed += [(outer, apart) for outer in _few(more) if outer > 1]
        for outer, from_one in placed:
            if Tiles.fit(outer, columns):
                sizes = (outer, rows, columns, lanes, depth)
                yield Tiles(intrinsic.data, *sizes, row.step, from_one, window)


def _window(product: Product, intrinsic: TileIntrinsic) -> int | None:
    """The window iterator along a row if all its channels fit into one step, where they are
    contiguous in the data."""
    rank, channels = len(product.data_shape), product.data_shape[-1]
    if product.extents[product.depth] != channels:
        return None
    fitting = [
        number
        for number in product.sums
        if product.data_axes[number] == DataAxis(rank - 2, 1)
        and 1 < product.extents[number] <= intrinsic.depth // channels
    ]
    return fitting[0] if fitting else None


def _few(extent: int) -> list[int]:
    return [n for n in range(1, _MOST_TILES + 1) if extent % n == 0]


def _largest(extent: int, most: int) -> int:
    """The largest divisor up to a limit."""
    return next(n for n in range(min(extent, most), 0, -1) if extent % n == 0)


@dataclass(slots=True)
class _Loops:
    """The split loops of a product, outermost group first."""

    threads: list[Any] = field(default_factory=list)
    tiles: list[Any] = field(default_factory=list)
    call: list[Any] = field(default_factory=list)


def scheduled(schedule: Any, product: Product, tiles: Tiles, rows_first: bool) -> Any:
    """A schedule; None if it equals that of the other order."""
    for part in ("", ZERO, STORE):
        make_known(tiles.trace_name + part)
    block = schedule.get_sblock(product.block)
    own, pair = product, _following(product)
    if pair is not None:
        if rows_first:
            return None
        product = _joined(own, pair)
        schedule.transform_block_layout(block, _one_axis(own, pair, len(own.extents)))
    wide, lanes = tiles.columns * tiles.lanes, tiles.lanes
    deep, word = tiles.depth, tiles.intrinsic.word
    taps = _window(product, tiles.intrinsic) if tiles.window > 1 else None
    finish = prepared(
        schedule,
        block,
        product,
        lambda column, depth, *tap: (
            column // wide,
            depth // deep,
            column // lanes % tiles.columns,
            *tap,
            depth // word % (deep // word),
            column % lanes,
            depth % word,
        ),
        () if taps is None else (taps,),
    )
    if pair is None:
        stored = schedule.cache_write(block, 0, "global")
        outer = _split(schedule, block, product, tiles, taps, rows_first, whole=False)
        for each in (stored, *([finish] if finish is not None else [])):
            schedule.reverse_compute_at(each, outer.tiles[-1], preserve_unit_loops=True)
    else:
        outer = _split(schedule, block, product, tiles, taps, rows_first, whole=True)
        if finish is not None:
            # The innermost loop iterates over rows.
            schedule.reverse_compute_at(finish, outer.tiles[-2], preserve_unit_loops=True)
        schedule.transform_layout(block, ("write", 0), _one_axis(own, pair, len(own.rows) + 1))
        stored = schedule.cache_write(block, 0, "global")
        schedule.reverse_compute_at(stored, outer.tiles[-1], preserve_unit_loops=True)
    threads = schedule.fuse(*outer.threads)
    schedule.parallel(threads)
    schedule.annotate(threads, TILES, tiles.name)
    inside = 1 + len(outer.tiles)
    if finish is not None:
        # Rows stay a loop: unrolled, they would dominate LLVM's time.
        vectorised(schedule, finish, lanes, len(schedule.get_loops(finish)) - 1)
    sums = schedule.get_loops(block)[inside]
    first = schedule.decompose_reduction(block, sums)
    called = 2 + bool(tiles.apart)
    schedule.tensorize(outer.call[0], tiles.trace_name)
    schedule.tensorize(schedule.get_loops(first)[-called], tiles.trace_name + ZERO)
    schedule.tensorize(schedule.get_loops(stored)[-called], tiles.trace_name + STORE)
    return schedule


def _following(product: Product) -> tuple[int, int] | None:
    """Two row axes that are contiguous with each other in data and result; None if there are
    none."""
    for outer, inner in pairwise(product.rows):
        first, second = product.data_axes[outer], product.data_axes[inner]
        if first is None or second is None or first.dimension != second.dimension:
            continue
        if inner == outer + 1 and first.step == second.step * product.extents[inner]:
            return outer, inner
    return None


def _joined(product: Product, pair: tuple[int, int]) -> Product:
    """The product with two row axes fused."""
    outer, inner = pair

    def number(old: int) -> int:
        return old - (old >= inner)

    extents, axes = list(product.extents), list(product.data_axes)
    extents[outer : inner + 1] = [extents[outer] * extents[inner]]
    del axes[outer]
    return replace(
        product,
        extents=tuple(extents),
        rows=tuple(number(row) for row in product.rows if row != inner),
        column=number(product.column),
        sums=tuple(map(number, product.sums)),
        depth=number(product.depth),
        weight_axes=tuple(map(number, product.weight_axes)),
        data_axes=tuple(axes),
    )


def _one_axis(product: Product, pair: tuple[int, int], rank: int) -> Any:
    """The index map that fuses the two axes `pair` out of `rank` axes."""
    outer, inner = pair
    extent = product.extents[inner]

    def joined(*index: Any) -> list[Any]:
        return [*index[:outer], index[outer] * extent + index[inner], *index[inner + 1 :]]

    return tvm.tirx.IndexMap.from_func(joined, ndim=rank, index_dtype=product.index_type)


def _split(
    schedule: Any,
    block: Any,
    product: Product,
    tiles: Tiles,
    taps: int | None,
    rows_first: bool,
    *,
    whole: bool,
) -> _Loops:
    loops = schedule.get_loops(block)
    rows, columns = _Loops(), _Loops()
    for number in product.rows:
        axis = product.data_axes[number]
        if product.extents[number] == 1 or number in product.weight_axes or axis is None:
            rows.threads.append(loops[number])
            continue
        dimension = axis.dimension - len(product.data_shape)
        _tiled(schedule, loops[number], rows, tiles.rows_of(dimension), whole=whole)
    _tiled(schedule, loops[product.column], columns, tiles.columns * tiles.lanes)
    depth, step = schedule.split(loops[product.depth], [None, tiles.depth])
    steps, unrolled = sampled(schedule, depth, 2)
    order = (rows, columns) if rows_first else (columns, rows)
    within = [] if taps is None else [loops[taps]]
    made = _Loops(
        threads=[loop for part in order for loop in part.threads],
        tiles=[loop for part in order for loop in part.tiles],
        call=[*rows.call, *columns.call, *within, step],
    )
    sums = [loops[number] for number in product.sums if number != taps]
    schedule.reorder(*made.threads, *made.tiles, *sums, steps, unrolled, *made.call)
    schedule.unroll(unrolled)
    return made


def _tiled(schedule: Any, loop: Any, into: _Loops, fixed: int, *, whole: bool = False) -> None:
    """Split a loop into parts over threads, within a thread, and of a register tile if any.
    `whole`: one thread has all of it."""
    if fixed > 1:
        loop, call = schedule.split(loop, [None, fixed])
        into.call.append(call)
    if whole and fixed > 1:
        into.tiles.append(loop)
        return
    threads, tile = sampled(schedule, loop, 2)
    into.threads.append(threads)
    into.tiles.append(tile)


def limits_of(sketch: Sketch, tiles: Tiles) -> tuple[Limit, ...]:
    """The limit on unrolled calls."""
    *_, depth = (n for n, choice in enumerate(sketch.choices) if isinstance(choice, Tile))
    products = tiles.outer * tiles.columns
    return (Limit("unrolled", 0, UNROLLED_CALLS, (Amount(products, (TileExtent(depth, (1,)),)),)),)
