"""Steps that schedules of products share: packing weights, what runs before a product, and what
follows it in its tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tunefleet.compiler.space.plain import LEAST_PARALLEL
from tunefleet.compiler.space.products import Product
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

#: Calls of an intrinsic that are written out in one step of the innermost loop, at most.
UNROLLED_CALLS = 128
_LEAST_VECTOR, _LONGEST_VECTOR = 8, 64

_PACKED = "meta_schedule.layout_rewrite_preproc"
#: On a loop: functions that its code calls, as text of LLVM's.
IMPORTED = "pragma_import_llvm"


def prepared(
    schedule: Any,
    block: Any,
    product: Product,
    layout: Callable[..., Sequence[Any]],
    inside: Sequence[int] = (),
) -> Any | None:
    """Pack weights, bring what is read before the product into blocks of their own. The block in
    which results are finished, None where they are the sums.

    Weights lie as `layout(column, depth, *inside)` says, of the iterators `inside`: its first
    index, all their other axes, its others.
    """
    finish = finished(schedule, block, _on_its_own)
    _pack(schedule, block, product, layout, inside)
    for ancestor in reached(schedule, block, schedule.get_producers):
        statement = schedule.get(ancestor)
        if _PACKED in statement.annotations:
            continue
        if _is_copy(statement):
            schedule.compute_inline(ancestor)
        else:
            _on_its_own(schedule, ancestor)
    return finish


def sampled(schedule: Any, loop: Any, parts: int) -> list[Any]:
    factors = schedule.sample_perfect_tile(loop, n=parts, max_innermost_factor=UNROLLED_CALLS)
    return list(schedule.split(loop, factors))


def finished(schedule: Any, block: Any, on_its_own: Callable[[Any, Any], None]) -> Any | None:
    """What makes no more results of the product than it has, as one block; None where nothing does.

    What makes more of them (a product of one row, say, that scales a picture) is another block,
    which runs by itself: `on_its_own(schedule, block)` says how.
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
    """Elements of what a block writes."""
    return math.prod(int(extent) for extent in schedule.get(block).writes[0].source.shape)


def _descendants(schedule: Any, block: Any) -> list[Any]:
    """All that reads what a block computed, each before what reads it."""
    order = {
        str(schedule.get(each).name_hint): number
        for number, each in enumerate(schedule.get_child_blocks(schedule.get_sblock("root")))
    }
    return sorted(
        reached(schedule, block, schedule.get_consumers),
        key=lambda each: order[str(schedule.get(each).name_hint)],
    )


def _others(schedule: Any, block: Any, known: Any) -> Iterator[Any]:
    """What is read by a block besides what `known` computes (a residual, say), until it is
    inlined."""
    name = schedule.get(known).name_hint
    while others := [p for p in schedule.get_producers(block) if schedule.get(p).name_hint != name]:
        yield others[0]


def reached(schedule: Any, block: Any, neighbours: Callable[[Any], Any]) -> list[Any]:
    """All that is reached from a block by going to neighbours, nearest first."""
    found: dict[str, Any] = {}
    waiting = list(neighbours(block))
    while waiting:
        each = waiting.pop(0)
        if found.setdefault(str(schedule.get(each).name_hint), each) is each:
            waiting += neighbours(each)
    return list(found.values())


def _pack(
    schedule: Any,
    block: Any,
    product: Product,
    layout: Callable[..., Sequence[Any]],
    inside: Sequence[int],
) -> None:
    laid = [product.weight_axes.index(n) for n in (product.column, product.depth, *inside)]

    def placed(*index: Any) -> list[Any]:
        first, *last = layout(*(index[number] for number in laid))
        others = [axis for number, axis in enumerate(index) if number not in laid]
        return [first, *others, *last]

    packed = schedule.cache_read(block, product.weight_read, "global")
    schedule.transform_layout(
        block,
        ("read", product.weight_read),
        tvm.tirx.IndexMap.from_func(
            placed, ndim=len(product.weight_axes), index_dtype=product.index_type
        ),
    )
    if product.constant_weight:
        schedule.annotate(packed, _PACKED, True)


def _is_copy(block: Any) -> bool:
    """Whether a block writes what it reads, as the pad of a convolution without borders does."""
    store = block.body
    if not isinstance(store, tvm.tirx.BufferStore) or not isinstance(
        store.value, tvm.ir.TensorLoad
    ):
        return False
    pairs = zip(store.indices, store.value.indices, strict=False)
    same_rank = len(store.indices) == len(store.value.indices)
    return same_rank and all(one.same_as(other) for one, other in pairs)


def _on_its_own(schedule: Any, block: Any) -> None:
    """A block that runs before the product, in vectors and by all threads."""
    loops = schedule.get_loops(block)
    if not loops:
        return
    extents = [int(schedule.get(loop).extent) for loop in loops]
    longest = _vector_extent(extents[-1])
    *outer, last = loops
    rest, vector = schedule.split(last, [None, longest])
    if longest < _LEAST_VECTOR:
        # Of the channels of a picture each is a number or a border: written out, that is known.
        schedule.unroll(vector)
    else:
        schedule.vectorize(vector)
    if math.prod(extents) >= LEAST_PARALLEL:
        schedule.parallel(schedule.fuse(*outer, rest))


def _vector_extent(extent: int) -> int:
    """The longest vector that divides an extent."""
    return next(n for n in range(min(extent, _LONGEST_VECTOR), 0, -1) if extent % n == 0)


def vectorised(schedule: Any, block: Any, lanes: int, outside: int) -> None:
    """The loops of a block inside the tile of a thread that others brought it to: its last one in
    vectors, the others written out."""
    *outer, last = schedule.get_loops(block)
    rest, vector = schedule.split(last, [None, lanes])
    schedule.vectorize(vector)
    for loop in [*outer, rest][outside:]:
        schedule.unroll(loop)
