"""GPU programs with tensor-core products: a family in addition to the tilings.

A product has a sketch per instruction shape that fits about as well as the best. The shapes differ
in the numbers of result rows and columns. From sm_80 on each has a second sketch that prefetches.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from tunefleet.compiler.space import warp_sketches
from tunefleet.compiler.space.intrinsics import (
    WarpProduct,
    warp_product_named,
    warp_products_of,
)
from tunefleet.compiler.space.matrices import NoFormError, fitting
from tunefleet.compiler.space.products import Product, product_of
from tunefleet.compiler.space.sketching import generator_of, open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.forms import INTRINSIC_PREFIX, intrinsic_of
from tunefleet.core.ids import canonical_json
from tunefleet.core.target import CudaTarget, Target
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule

#: Number of prefetched steps; the minimum of MetaSchedule's tilings.
_AHEAD = 2


class CudaTensorCores:
    """Products on the GPU's tensor cores; other tasks have no program in this family."""

    def generator(self, target: Target, module: Any) -> Any:
        assert isinstance(target, CudaTarget)
        checks = [ms.postproc.VerifyGPUCode()]
        return generator_of(lambda schedule: sketches(schedule, target), checks)

    def made(self, trace: str) -> bool:
        return bool(intrinsic_of(trace))

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        assert isinstance(target, CudaTarget)
        sketch = open_sketch(module, open_trace)
        name = INTRINSIC_PREFIX + intrinsic_of(canonical_json(sketch.instructions))
        limits = warp_sketches.limits_of(sketch, warp_product_named(name), target)
        return replace(sketch, limits=limits)


def sketches(schedule: Any, target: CudaTarget) -> list[Any]:
    """Schedules of a task with each suitable intrinsic; `schedule` is the unscheduled task."""
    function = schedule.mod.functions_items()[0][1] if schedule.mod.functions else None
    product = product_of(function, schedule) if function is not None else None
    if product is None or product.is_grouped or len(schedule.get_output_blocks("root")) != 1:
        return []
    ahead = (0, _AHEAD) if target.copies_ahead else (0,)
    made = (
        _sketch(schedule, product, each, target, steps)
        for each in _fitting(product, target)
        for steps in ahead
    )
    return [each for each in made if each is not None]


def _fitting(product: Product, target: CudaTarget) -> list[WarpProduct]:
    types = (product.data, product.weight, product.accumulator)
    known = warp_products_of(target)
    return fitting(product, [i for i in known if (i.data, i.weight, i.accumulator) == types])


def _sketch(
    schedule: Any, product: Product, intrinsic: WarpProduct, target: CudaTarget, ahead: int
) -> Any | None:
    """A schedule with the epilogue in the product's tiles if possible. None if the product has no
    matrix form, such as one with a row in several places of its input."""
    for fused in (True, False):
        with contextlib.suppress(tvm.s_tir.ScheduleError, NoFormError):
            return warp_sketches.scheduled(
                schedule.copy(), product, intrinsic, target, ahead=ahead, fused=fused
            )
    return None
