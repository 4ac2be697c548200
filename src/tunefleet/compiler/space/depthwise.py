"""Float32 depthwise convolutions with rows of pixels in registers.

    parallel over tiles of channels and rows
      tiles of a thread, with the padding of the data and the epilogue
        a register tile: sums of pixels x vectors of channels
          the window, unrolled: neighbours read the same data, which stay in registers

Each value of the data is used by as many sums as the window has taps; MetaSchedule's tilings load
it again for each. Weights are packed by vectors: those of many channels lie a page apart, where
they evict each other from the cache.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

from tunefleet.compiler.space.product_steps import (
    PACKED,
    finished,
    on_its_own,
    reached,
    vectorised,
)
from tunefleet.compiler.space.registers import Registers
from tunefleet.compiler.space.sketching import generator_of, open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import SPATIAL
from tunefleet.core.forms import DEPTHWISE_TILE, is_depthwise
from tunefleet.core.target import Target
from tunefleet.search.choices import Tile
from tunefleet.search.limits import Amount, Limit, TileExtent
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
tirx = tvm.tirx

#: Pixels of a register tile along a row, at most, and multiply-adds of one.
_LONGEST_ROW, _MOST_STEPS = 16, 512
#: Vectors of channels of a register tile.
_VECTORS = (1, 2)


@dataclass(frozen=True, slots=True)
class Window:
    """A depthwise convolution (NHWC): the block's iterators by number, and its window's taps."""

    block: str
    rows: tuple[int, ...]
    channel: int
    taps: tuple[int, ...]
    channels: int
    steps: int
    weight_read: int
    weight_axes: tuple[int, ...]


def window_of(module: Any, schedule: Any) -> Window | None:
    """The depthwise convolution of a task whose other blocks have no reduction, if any."""
    found = []
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        statement = schedule.get(block)
        if any(int(v.iter_type) != SPATIAL for v in statement.iter_vars):
            found.append(_window(module["main"], statement))
    return found[0] if len(found) == 1 else None


def _window(function: Any, block: Any) -> Window | None:
    variables = [v.var for v in block.iter_vars]
    extents = [int(v.dom.extent) for v in block.iter_vars]
    spatial = [n for n, v in enumerate(block.iter_vars) if int(v.iter_type) == SPATIAL]
    taps = [n for n in range(len(variables)) if n not in spatial]
    body = block.body
    if not isinstance(body, tirx.BufferStore) or not isinstance(body.value, tirx.Add):
        return None
    product = body.value.b
    if not isinstance(product, tirx.Mul) or len(spatial) < 3:
        return None
    data, weight = product.a, product.b
    loads = (data, weight)
    if not all(isinstance(load, tvm.ir.TensorLoad) for load in loads):
        return None
    if {str(load.source.dtype) for load in loads} != {"float32"}:
        return None
    *rows, channel = spatial

    def numbers(index: Any) -> set[int]:
        inside = list(tirx.analysis.undefined_vars(index))
        return {n for n, v in enumerate(variables) if any(v.same_as(u) for u in inside)}

    one = {n for n in taps if extents[n] == 1}
    in_data = [numbers(index) for index in data.indices]
    in_weight = [numbers(index) for index in weight.indices]
    last = [{channel}, {channel, *one}]
    if in_data[-1] not in last or in_weight[-1] != {channel}:
        return None
    if any(channel in each for each in (*in_data[:-1], *in_weight[:-1])):
        return None
    if any(len(each) != 1 or not each <= {*taps, channel} for each in in_weight):
        return None
    regions = [region.source for region in block.reads]
    read = next((n for n, b in enumerate(regions) if b.same_as(weight.source)), None)
    marked = function.attrs.get("layout_free_buffers", ()) if function.attrs else ()
    constant = any(function.params[int(n)].same_as(weight.source) for n in marked)
    if read is None or not constant:
        return None
    return Window(
        str(block.name_hint), tuple(rows), channel, tuple(taps), extents[channel],
        math.prod(extents[n] for n in taps), read, tuple(min(each) for each in in_weight),
    )  # fmt: skip


class CpuDepthwise:
    """Depthwise convolutions in register tiles; other tasks have no program in this family."""

    def generator(self, target: Target, module: Any) -> Any:
        return generator_of(lambda schedule: sketches(schedule.mod, target))

    def made(self, trace: str) -> bool:
        return is_depthwise(trace)

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        sketch = open_sketch(module, open_trace)
        registers = Registers.of(target)
        assert registers is not None
        return replace(sketch, limits=_limits(sketch, registers))


def _limits(sketch: Sketch, registers: Registers) -> tuple[Limit, ...]:
    """The sums of a register tile fit the registers."""
    text = [i for i in sketch.instructions if i[0] == "Annotate" and i[2] == [DEPTHWISE_TILE]]
    _, (_, (vectors, steps)), _, _ = text[0]
    tiles = [n for n, choice in enumerate(sketch.choices) if isinstance(choice, Tile)]
    sums = tuple(TileExtent(n, (sketch.choices[n].options.shape[1] - 1,)) for n in tiles[:2])
    return (
        Limit("registers", 0, registers.count - 4, (Amount(vectors, sums),)),
        Limit("unrolled", 0, _MOST_STEPS, (Amount(vectors * steps, sums),)),
    )


def sketches(module: Any, target: Target) -> list[Any]:
    """Schedules of a depthwise convolution by vectors of channels."""
    registers = Registers.of(target)
    if not module.functions or registers is None:
        return []
    plain = tvm.s_tir.Schedule(module, debug_mask="none", error_render_level="none")
    window = window_of(module, plain)
    if window is None or len(plain.get_output_blocks("root")) != 1:
        return []
    lanes = registers.lanes_of(window.channels)
    made = []
    for vectors in _VECTORS:
        if not lanes or window.channels % (lanes * vectors):
            continue
        for inline in (True, False):
            # The epilogue may have a form that cannot be computed in tiles.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                made.append(scheduled(plain.copy(), window, vectors, lanes, inline=inline))
    return [each for each in made if each is not None]


def scheduled(schedule: Any, window: Window, vectors: int, lanes: int, *, inline: bool) -> Any:
    """The open schedule of a depthwise convolution. `inline`: its padding is a condition of each
    read, else a copy of a thread's data."""
    block = schedule.get_sblock(window.block)
    finish = finished(schedule, block, on_its_own)
    wide = vectors * lanes
    weights = schedule.cache_read(block, window.weight_read, "global")
    place = window.weight_axes.index(window.channel)

    def packed(*index: Any) -> list[Any]:
        others = [each for number, each in enumerate(index) if number != place]
        return [index[place] // wide, *others, index[place] % wide]

    dtype = str(schedule.get(block).iter_vars[window.channel].var.ty.dtype)
    layout = tirx.IndexMap.from_func(packed, ndim=len(window.weight_axes), index_dtype=dtype)
    schedule.transform_layout(block, ("read", window.weight_read), layout)
    schedule.annotate(weights, PACKED, True)
    padding = [
        each
        for each in reached(schedule, block, schedule.get_producers)
        if PACKED not in schedule.get(each).annotations
    ]
    if not padding and not inline:
        return None
    if finish is None:
        finish = schedule.cache_write(block, 0, "global")
    loops = schedule.get_loops(block)
    *batch, y, x = (loops[number] for number in window.rows)
    rows = schedule.split(y, schedule.sample_perfect_tile(y, n=3, max_innermost_factor=4))
    pixels = schedule.split(
        x, schedule.sample_perfect_tile(x, n=2, max_innermost_factor=_LONGEST_ROW)
    )
    outer, vector, lane = schedule.split(loops[window.channel], [None, vectors, lanes])
    threads, channels = schedule.split(
        outer, schedule.sample_perfect_tile(outer, n=2, max_innermost_factor=64)
    )
    taps = [loops[number] for number in window.taps]
    schedule.reorder(
        *batch, rows[0], threads, channels, rows[1], pixels[0], *taps, rows[2], pixels[1], vector,
        lane,
    )  # fmt: skip
    schedule.reverse_compute_at(finish, pixels[0], preserve_unit_loops=True)
    parallel = schedule.fuse(*batch, rows[0], threads)
    schedule.parallel(parallel)
    around = 4
    vectorised(schedule, finish, lanes, around)
    for loop in (*taps, rows[2], pixels[1], vector):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, taps[0])
    schedule.annotate(block, DEPTHWISE_TILE, [vectors, window.steps])
    for each in padding:
        if inline:
            schedule.compute_inline(each)
        else:
            schedule.compute_at(each, channels)
            schedule.vectorize(schedule.get_loops(each)[-1])
    return schedule
