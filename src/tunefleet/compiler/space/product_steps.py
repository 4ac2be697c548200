"""Shared scheduling steps of products: packing of weights, prologue, and epilogue in tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tunefleet.compiler.space.plain import LEAST_PARALLEL
from tunefleet.compiler.space.products import WIDE_WEIGHTS, Product
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

#: Maximum number of unrolled intrinsic calls in one step of the innermost loop.
UNROLLED_CALLS = 128
_LEAST_VECTOR, _LONGEST_VECTOR = 8, 64

#: The annotation of a block that packs weights, which is done when a network is compiled.
PACKED = "meta_schedule.layout_rewrite_preproc"
#: A loop annotation: LLVM IR of functions that its code calls.
IMPORTED = "pragma_import_llvm"


def prepared(
    schedule: Any,
    block: Any,
    product: Product,
    layout: Callable[..., Sequence[Any]],
    inside: Sequence[int] = (),
) -> Any | None:
    """Pack weights, and compute the product's inputs in separate blocks. Returns the block that
    finishes results, None if there is no epilogue.

    `layout(column, depth, *inside)` defines the order of packed weights: its first index, all other
    axes of the weights, its remaining indices.
    """
    finish = finished(schedule, block, on_its_own)
    packed(schedule, block, product, layout, inside)
    for ancestor in reached(schedule, block, schedule.get_producers):
        statement = schedule.get(ancestor)
        if PACKED in statement.annotations:
            continue
        if _is_copy(statement):
            schedule.compute_inline(ancestor)
        else:
            on_its_own(schedule, ancestor)
    return finish


def sampled(schedule: Any, loop: Any, parts: int, innermost: int = UNROLLED_CALLS) -> list[Any]:
    """The parts of a loop, as the search divides it; the last has at most `innermost` steps."""
    factors = schedule.sample_perfect_tile(loop, n=parts, max_innermost_factor=innermost)
    return list(schedule.split(loop, factors))


def finished(schedule: Any, block: Any, on_its_own: Callable[[Any, Any], None]) -> Any | None:
    """The epilogue that does not expand the product's results, as one block; None without one.

    Blocks that expand the results (such as a product of one row that scales an image) stay
    separate and are scheduled by `on_its_own(schedule, block)`.
    """
    size = _size(schedule, block)
    near = [each for each in _descendants(schedule, block) if _size(schedule, each) <= size]
    last = near[-1] if near else block
    _inlined(schedule, near[:-1])
    _inlined(schedule, _others(schedule, last, block))
    after = _descendants(schedule, last)
    if after:
        _inlined(schedule, after[:-1])
        _inlined(schedule, _others(schedule, after[-1], last))
        on_its_own(schedule, after[-1])
    return last if near else None


def _inlined(schedule: Any, blocks: Iterable[Any]) -> None:
    for each in blocks:
        schedule.compute_inline(each)


def _size(schedule: Any, block: Any) -> int:
    """The number of elements that a block writes."""
    return math.prod(int(extent) for extent in schedule.get(block).writes[0].source.shape)


def _descendants(schedule: Any, block: Any) -> list[Any]:
    """All consumers of a block, in topological order."""
    order = {
        str(schedule.get(each).name_hint): number
        for number, each in enumerate(schedule.get_child_blocks(schedule.get_sblock("root")))
    }
    return sorted(
        reached(schedule, block, schedule.get_consumers),
        key=lambda each: order[str(schedule.get(each).name_hint)],
    )


def _others(schedule: Any, block: Any, known: Any) -> Iterator[Any]:
    """Other producers of a block's inputs (such as a residual) than `known`, until they are
    inlined."""
    name = schedule.get(known).name_hint
    while others := [p for p in schedule.get_producers(block) if schedule.get(p).name_hint != name]:
        yield others[0]


def reached(schedule: Any, block: Any, neighbours: Callable[[Any], Any]) -> list[Any]:
    """All blocks reachable from a block through neighbours, nearest first."""
    found: dict[str, Any] = {}
    waiting = list(neighbours(block))
    while waiting:
        each = waiting.pop(0)
        if found.setdefault(str(schedule.get(each).name_hint), each) is each:
            waiting += neighbours(each)
    return list(found.values())


def packed(
    schedule: Any,
    block: Any,
    product: Product,
    layout: Callable[..., Sequence[Any]],
    inside: Sequence[int] = (),
) -> None:
    """Pack the weights of a product in a block of its own, with a layout as for `prepared`."""
    laid = [product.weight_axes.index(n) for n in (product.column, product.depth, *inside)]

    def placed(*index: Any) -> list[Any]:
        first, *last = layout(*(index[number] for number in laid))
        others = [axis for number, axis in enumerate(index) if number not in laid]
        return [first, *others, *last]

    wide = [p for p in schedule.get_producers(block)
            if schedule.get(p).name_hint == WIDE_WEIGHTS]  # fmt: skip
    weights = wide[0] if wide else schedule.cache_read(block, product.weight_read, "global")
    schedule.transform_layout(
        block,
        ("read", product.weight_read),
        tvm.tirx.IndexMap.from_func(
            placed, ndim=len(product.weight_axes), index_dtype=product.index_type
        ),
    )
    if product.constant_weight and not wide:
        schedule.annotate(weights, PACKED, True)


def _is_copy(block: Any) -> bool:
    """Whether a block is a copy, such as the pad of a convolution without borders."""
    store = block.body
    if not isinstance(store, tvm.tirx.BufferStore) or not isinstance(
        store.value, tvm.ir.TensorLoad
    ):
        return False
    pairs = zip(store.indices, store.value.indices, strict=False)
    same_rank = len(store.indices) == len(store.value.indices)
    return same_rank and all(one.same_as(other) for one, other in pairs)


def on_its_own(schedule: Any, block: Any) -> None:
    """Schedule a block before the product, vectorised and parallel."""
    loops = schedule.get_loops(block)
    if not loops:
        return
    extents = [int(schedule.get(loop).extent) for loop in loops]
    longest = _vector_extent(extents[-1])
    *outer, last = loops
    rest, vector = schedule.split(last, [None, longest])
    if longest < _LEAST_VECTOR:
        # Unrolled over image channels, the border condition is known.
        schedule.unroll(vector)
    else:
        schedule.vectorize(vector)
    if math.prod(extents) >= LEAST_PARALLEL:
        schedule.parallel(schedule.fuse(*outer, rest))


def _vector_extent(extent: int) -> int:
    """The longest vector that divides an extent."""
    return next(n for n in range(min(extent, _LONGEST_VECTOR), 0, -1) if extent % n == 0)


def vectorised(schedule: Any, block: Any, lanes: int, outside: int) -> None:
    """Vectorise the last loop of a block inside a thread's tile, and unroll the others."""
    *outer, last = schedule.get_loops(block)
    rest, vector = schedule.split(last, [None, lanes])
    schedule.vectorize(vector)
    for loop in [*outer, rest][outside:]:
        schedule.unroll(loop)
