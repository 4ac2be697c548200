"""Tensorised CPU programs: a product's innermost steps are calls of a tensor intrinsic.

Weights are packed so that each call reads them contiguously: at compile time if they are constant,
otherwise at run time. Each size of tile has two sketches: one iterates over the rows of a thread's
part first, the other over its columns. On a processor with tile registers, vector intrinsics are
available too, since a product of few rows fills no tile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tunefleet.compiler.space import tile_sketches
from tunefleet.compiler.space.intrinsics import (
    Intrinsic,
    Tiles,
    VectorIntrinsic,
    intrinsic_named,
    intrinsics_of,
)
from tunefleet.compiler.space.padded_rows import tiled_product, with_padded_rows
from tunefleet.compiler.space.products import Product, product_of
from tunefleet.compiler.space.register_tiles import in_tiles, rows_of
from tunefleet.compiler.space.registers import SHORT_LANES, tiles_of
from tunefleet.compiler.space.sketching import generator_of, open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import trace_text
from tunefleet.core.forms import INTRINSIC_PREFIX, intrinsic_of, tile_of
from tunefleet.core.ids import canonical_json
from tunefleet.core.target import Target
from tunefleet.search.sketch import Sketch

tvm = load_tvm()


class CpuTensorised:
    """Products with the target's tensor intrinsics; other tasks have no program in this family."""

    def generator(self, target: Target, module: Any) -> Any:
        return generator_of(lambda schedule: sketches(schedule, target))

    def made(self, trace: str) -> bool:
        return bool(intrinsic_of(trace))

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        height, lanes = tile_of(trace_text(open_trace))
        if height:
            return open_sketch(with_padded_rows(module, height, lanes), open_trace)
        sketch = open_sketch(module, open_trace)
        name = INTRINSIC_PREFIX + intrinsic_of(canonical_json(sketch.instructions))
        tiles = intrinsic_named(name)
        assert isinstance(tiles, Tiles)
        return replace(sketch, limits=tile_sketches.limits_of(sketch, tiles))


def sketches(schedule: Any, target: Target) -> list[Any]:
    """Schedules of a task with each suitable intrinsic; `schedule` is the unscheduled task."""
    function = schedule.mod.functions_items()[0][1] if schedule.mod.functions else None
    product = product_of(function, schedule) if function is not None else None
    if product is None or product.is_grouped or len(schedule.get_output_blocks("root")) != 1:
        return []
    types = (product.data, product.weight, product.accumulator)
    known = [
        intrinsic
        for intrinsic in intrinsics_of(target.cpu)
        if (intrinsic.data, intrinsic.weight, intrinsic.accumulator) == types
    ]
    made = []
    for tiles in tile_sketches.fitting(product, known):
        for rows_first in (True, False):
            # The epilogue may have a form that cannot be computed in tiles.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                made.append(tile_sketches.scheduled(schedule.copy(), product, tiles, rows_first))
    by_vectors = _by_vectors(schedule.mod, product, known)
    return [*(each for each in made if each is not None), *by_vectors]


def _by_vectors(module: Any, product: Product, known: Sequence[Intrinsic]) -> Iterator[Any]:
    """Schedules with the first vector intrinsic that divides columns and depth; where only a short
    one divides the columns, with the widest besides, whose vectors overlap."""
    columns, depth = product.extents[product.column], product.extents[product.depth]
    fitting = [
        intrinsic
        for intrinsic in known
        if isinstance(intrinsic, VectorIntrinsic) and depth % intrinsic.depth == 0
    ]
    if not fitting or tiled_product(module) is None:
        return
    dividing = [each for each in fitting if columns % each.lanes == 0][:1]
    chosen = [(each, True) for each in dividing]
    if not any(each.lanes >= SHORT_LANES for each in dividing):
        chosen += [(each, False) for each in fitting if SHORT_LANES <= each.lanes <= columns][:1]
    for intrinsic, divided in chosen:
        tiles = tiles_of(intrinsic.registers, rows_of(product), -(-columns // intrinsic.lanes))
        yield from in_tiles(module, tiles, intrinsic.lanes, intrinsic, divided=divided)
