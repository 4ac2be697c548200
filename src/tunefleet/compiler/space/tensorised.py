"""Tensorised CPU programs: a product's innermost steps are calls of a tensor intrinsic.

Weights are packed so that each call reads them contiguously: at compile time if they are constant,
otherwise at run time. Each intrinsic has two sketches: one iterates over the rows of a thread's
part first, the other over its columns. On a processor with tile registers, vector intrinsics are
available too, since a product of few rows fills no tile.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from tunefleet.compiler.space import tile_sketches, vector_sketches
from tunefleet.compiler.space.intrinsics import (
    Tiles,
    VectorIntrinsic,
    intrinsic_named,
    intrinsics_of,
)
from tunefleet.compiler.space.products import Product, product_of
from tunefleet.compiler.space.sketching import generator_of, open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.forms import INTRINSIC_PREFIX, intrinsic_of
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
        sketch = open_sketch(module, open_trace)
        name = INTRINSIC_PREFIX + intrinsic_of(canonical_json(sketch.instructions))
        intrinsic = intrinsic_named(name)
        if isinstance(intrinsic, VectorIntrinsic):
            return replace(sketch, limits=vector_sketches.limits_of(sketch, intrinsic))
        return replace(sketch, limits=tile_sketches.limits_of(sketch, intrinsic))


def sketches(schedule: Any, target: Target) -> list[Any]:
    """Schedules of a task with each suitable intrinsic; `schedule` is the unscheduled task."""
    function = schedule.mod.functions_items()[0][1] if schedule.mod.functions else None
    product = product_of(function, schedule) if function is not None else None
    if product is None or product.is_grouped or len(schedule.get_output_blocks("root")) != 1:
        return []
    made = []
    for intrinsic in _fitting(product, target):
        scheduled = tile_sketches if isinstance(intrinsic, Tiles) else vector_sketches
        for rows_first in (True, False):
            # The epilogue may have a form that cannot be computed in tiles.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                made.append(scheduled.scheduled(schedule.copy(), product, intrinsic, rows_first))
    return [each for each in made if each is not None]


def _fitting(product: Product, target: Target) -> list[Tiles | VectorIntrinsic]:
    """The register tiles and intrinsics for a product on a target, in the order of sketches."""
    types = (product.data, product.weight, product.accumulator)
    known = [
        intrinsic
        for intrinsic in intrinsics_of(target.cpu)
        if (intrinsic.data, intrinsic.weight, intrinsic.accumulator) == types
    ]
    return [*tile_sketches.fitting(product, known), *vector_sketches.fitting(product, known)]
