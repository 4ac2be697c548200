"""A schedule rule that MetaSchedule lacks: reductions vectorised over channels."""

from __future__ import annotations

import math
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import REDUCTION, SPATIAL

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule

#: Minimum channels for a vector.
_LEAST_CHANNELS = 8


@tvm.ir.utils.derived_object
class ChannelsInside(ms.schedule_rule.PyScheduleRule):  # type: ignore[misc, name-defined]
    """Splits the channels of global averages, and of other reductions over all other dimensions,
    and moves the inner part inside the reduction: it can be vectorised, and its results stay in
    registers.

    MetaSchedule tiles only blocks with data reuse. Without reuse the reduction stays innermost and
    accumulates single elements with the stride of a row of channels. LLVM vectorises it if it is
    unrolled, so a reduction of at most `unrolled` steps is not changed.
    """

    def __init__(self, vector_extent: int, unrolled: int) -> None:
        super().__init__()
        self._extent = vector_extent
        self._unrolled = unrolled

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, schedule: Any, block: Any) -> list[Any]:
        channel = _channel(schedule, block)
        if channel is None or _steps(schedule, block) <= self._unrolled:
            return [schedule]
        other = schedule.copy()
        loops = other.get_loops(block)
        kinds = [int(iterator.iter_type) for iterator in other.get(block).iter_vars]
        factors = other.sample_perfect_tile(loops[channel], 2, self._extent)
        outer, inner = other.split(loops[channel], factors)
        loops[channel] = outer
        order = sorted(range(len(loops)), key=lambda i: kinds[i])
        other.reorder(*(loops[i] for i in order), inner)
        return [schedule, other]

    def clone(self) -> ChannelsInside:
        return ChannelsInside(self._extent, self._unrolled)


def _steps(schedule: Any, block: Any) -> int:
    iterators = schedule.get(block).iter_vars
    return math.prod(int(i.dom.extent) for i in iterators if int(i.iter_type) == REDUCTION)


def _channel(schedule: Any, block_rv: Any) -> int | None:
    """The loop along which a reduction's results and all its inputs are contiguous.

    None for other blocks, for scheduled ones, and for blocks with an input shared by several
    results, for which tiling is better.
    """
    block = schedule.get(block_rv)
    loops = [schedule.get(loop) for loop in schedule.get_loops(block_rv)]
    iterators = block.iter_vars
    kinds = {int(iterator.iter_type) for iterator in iterators}
    if kinds != {SPATIAL, REDUCTION} or len(loops) != len(iterators):
        return None
    realize = loops[-1].body
    if not isinstance(realize, tvm.s_tir.SBlockRealize) or any(
        not value.same_as(loop.loop_var)
        for value, loop in zip(realize.iter_values, loops, strict=True)
    ):
        return None
    spatial = [i for i, each in enumerate(iterators) if int(each.iter_type) == SPATIAL]
    channel = iterators[spatial[-1]].var
    if int(loops[spatial[-1]].extent) < _LEAST_CHANNELS:
        return None
    long = [iterators[i].var for i in spatial if int(loops[i].extent) > 1]
    for access in [*block.reads, *block.writes]:
        if not access.region or not access.region[-1].min.same_as(channel):
            return None
        used = {v for each in access.region for v in tvm.tirx.analysis.undefined_vars(each.min)}
        if not used.issuperset(long):
            return None
    return spatial[-1]
