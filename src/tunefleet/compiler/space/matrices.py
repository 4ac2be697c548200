"""Rewrites products of any kind as matrix products, for tensor cores.

The rows of a convolution are its pixels, the depth is its window and channels. Inputs and outputs
become matrices only by index maps, in the blocks that fetch inputs and finish results. If fragments
do not divide an extent, the remainder is read as zeros and not written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from tunefleet.compiler.space.intrinsics import WarpProduct
from tunefleet.compiler.space.product_steps import finished, reached
from tunefleet.compiler.space.products import Product
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.target import CudaTarget

tvm = load_tvm()
tirx = tvm.tirx

#: Largest prime factor of the number of fragments on an axis: with a larger one the number is
#: increased, by at most an eighth.
_MOST_PRIME, _SURPLUS = 7, 8
#: Maximum ratio of executed to necessary multiplications.
_MOST_ZEROS = 4
#: Maximum bytes of a thread's memory access.
_MOST_BYTES = 16
#: Sizes in bytes of asynchronous copies to shared memory.
_COPIED_BYTES = (4, 8, 16)
#: Elements of a vector.
_VECTORS = (1, 2, 4, 8, 16)
#: TVM's CUDA code supports no longer vectors of 8-bit integers, except in copies.
_MOST_COMPUTED_BYTES = 4
#: Maximum threads per block in a plain schedule, or in a separate kernel.
_PLAIN_THREADS = 256


def plain_threads(target: CudaTarget) -> int:
    """Threads per block without a search."""
    return min(_PLAIN_THREADS, target.threads_per_block)


class NoFormError(Exception):
    """A product is not a matrix product, or its epilogue cannot be computed in its tiles."""


def data_width(product: Product) -> int:
    """The number of contiguous elements of the data."""
    return product.extents[product.depth]


def weight_width(product: Product) -> int:
    return product.extents[product.weight_axes[-1]]


def result_width(schedule: Any, finish: Any) -> int:
    return int(schedule.get(finish).writes[0].source.shape[-1])


def vectors(schedule: Any, block: Any, width: int) -> list[int]:
    """The vector widths with which a thread may read, compute and write, given `width` contiguous
    elements: the widest of their types is limited to 16 bytes."""
    most = most_of(schedule.get(block).body)
    return [n for n in _VECTORS if n <= most and width % n == 0]


def most_of(statement: Any) -> int:
    """The maximum vector width of a store."""
    number_bytes = list(_bytes(statement))
    copied = isinstance(statement.value, tvm.ir.TensorLoad)
    return most_at_once(max(number_bytes), min(number_bytes), copied=copied)


def narrowed(width: int, side_by_side: int, most: int) -> int:
    """The widest vectors, of at most `most` elements, that divide `width` and `side_by_side`, the
    common divisor of lengths and start addresses of contiguous elements."""
    return max(
        n for n in range(1, width + 1) if width % n == 0 == side_by_side % n and n <= max(1, most)
    )


def most_at_once(widest: float, narrowest: float, *, copied: bool) -> int:
    """The maximum vector width for types with these sizes in bytes; `copied`: without
    computation."""
    most = int(_MOST_BYTES / widest)
    return most if copied or narrowest > 1 else min(most, _MOST_COMPUTED_BYTES)


def copied(schedule: Any, block: Any, numbers: Iterable[int]) -> list[int]:
    """The widths with asynchronous copies, from sm_80 on: 4, 8 or 16 bytes. The GPU fills skipped
    elements with zeros; TVM supports this for floats only."""
    value = schedule.get(block).body.value
    if isinstance(value, tvm.ir.Call) and str(value.op.name).endswith(".if_then_else"):
        _, value, otherwise = value.args
        if not isinstance(otherwise, tirx.FloatImm) or otherwise.value != 0:
            return []
    if not isinstance(value, tvm.ir.TensorLoad):
        return []
    number = nbytes((), str(value.source.dtype))
    return [n for n in numbers if n * number in _COPIED_BYTES]


def _bytes(node: Any) -> Iterator[int]:
    """Sizes in bytes of the values in a statement, without indices and conditions."""
    dtype = str(getattr(getattr(node, "ty", None), "dtype", ""))
    if isinstance(node, tirx.BufferStore):
        dtype = str(node.buffer.dtype)
    if dtype:
        yield nbytes((), dtype)
    children = [
        getattr(node, name, None) for name in ("a", "b", "value", "true_value", "false_value")
    ]
    children += list(node.args)[-2:] if isinstance(node, tvm.ir.Call) else []
    for child in children:
        if isinstance(child, tirx.Expr):
            yield from _bytes(child)


def is_transposed(product: Product) -> bool:
    """Whether weights are columns first: [columns, depth]."""
    axes = product.weight_axes
    return axes.index(product.depth) > axes.index(product.column)


def fitting(product: Product, intrinsics: Iterable[WarpProduct]) -> list[WarpProduct]:
    """The intrinsics that read weights in their stored order, and with few more multiplications by
    zero than the best of them; empty if most multiplications would be by zero."""
    own = _extents(product)
    alike = [each for each in intrinsics if each.transposed == is_transposed(product)]
    computed = {each: math.prod(_padded(own, each)) for each in alike}
    least = min(computed.values(), default=0)
    if least > _MOST_ZEROS * math.prod(own) or min(own[:2]) == 1:
        return []
    return [each for each in alike if computed[each] * _SURPLUS <= least * (_SURPLUS + 1)]


def _padded(extents: tuple[int, int, int], intrinsic: WarpProduct) -> tuple[int, int, int]:
    """Rows, columns and depth of whole fragments."""
    rows, columns, depth = extents
    return (
        padded(rows, intrinsic.rows),
        padded(columns, intrinsic.columns),
        -(-depth // intrinsic.depth) * intrinsic.depth,
    )


def padded(extent: int, tile: int) -> int:
    """The extent rounded up to a multiple of a tile, so that warps and blocks get equal shares."""
    least = -(-extent // tile)
    tiles = range(least, least + least // _SURPLUS + 1)
    return tile * next((n for n in tiles if _largest_prime(n) <= _MOST_PRIME), least)


def _largest_prime(number: int) -> int:
    factor, largest = 2, 1
    while number > 1:
        while number % factor == 0:
            number, largest = number // factor, factor
        factor += 1
    return largest


def _groups(product: Product) -> tuple[list[int], list[int], list[int], list[int]]:
    """Iterators of batches, rows, columns and depth. Each batch has its own weights."""
    batch = [n for n in product.rows if n in product.weight_axes and product.extents[n] > 1]
    rows = [n for n in product.rows if n not in batch]
    return batch, rows, [product.column], [*product.sums, product.depth]


def _extents(product: Product) -> tuple[int, int, int]:
    _, *groups = _groups(product)
    rows, columns, depth = (math.prod(product.extents[n] for n in group) for group in groups)
    return rows, columns, depth


def prepared(
    schedule: Any,
    block: Any,
    product: Product,
    intrinsic: WarpProduct,
    target: CudaTarget,
    *,
    fused: bool,
) -> Any:
    """Turn `block` into a matrix product, [batch,] rows, columns, depth. Returns the block that
    finishes its results, with the loops [batch,] rows, columns.

    Each input is fetched by one block. `fused`: the epilogue is the finishing block, otherwise it
    is separate. Raises tvm.s_tir.ScheduleError or NoFormError if there is no such form.
    """
    alone = partial(_on_its_own, threads=plain_threads(target))
    after = finished(schedule, block, alone)
    if after is not None and not fused:
        alone(schedule, after)
        after = None
    result = _as_matrices(schedule, block, product)
    if after is not None:
        schedule.compute_inline(result)
        _along_results(schedule, after, block)
    _pad(schedule, block, product, intrinsic)
    finish = result if after is None else after
    for each in schedule.get_consumers(block):
        if schedule.get(each).name_hint != schedule.get(finish).name_hint:
            schedule.compute_inline(each)
    for read in (product.data_read, product.weight_read):
        for ancestor in reached(
            schedule, written_by(schedule, block, read), schedule.get_producers
        ):
            schedule.compute_inline(ancestor)
    return finish


def written_by(schedule: Any, block: Any, read: int) -> Any:
    """The producer block of a read."""
    buffer = schedule.get(block).reads[read].source
    return next(
        each
        for each in schedule.get_producers(block)
        if schedule.get(each).writes[0].source.same_as(buffer)
    )


def _as_matrices(schedule: Any, block: Any, product: Product) -> Any:
    """Add blocks that copy inputs and results as matrices; returns the one for results."""
    batch, rows, columns, depth = _groups(product)
    weight = [columns, depth] if is_transposed(product) else [depth, columns]
    lead = [batch] if batch else []
    read = {product.data_read: [rows, depth], product.weight_read: weight}
    copies = []
    for number, groups in read.items():
        copy = schedule.reindex(block, ("read", number))
        copies.append((copy, ("write", 0), schedule.get(block).reads[number], [*lead, *groups]))
    result = schedule.reindex(block, ("write", 0))
    copies.append((result, ("read", 0), schedule.get(block).writes[0], [*lead, rows, columns]))
    variables = [v.var for v in schedule.get(block).iter_vars]
    for copy, buffer, region, groups in copies:
        used = [_number(variables, each.min) for each in region.region]
        matrix = _map(product, used, groups)
        schedule.transform_layout(copy, buffer, matrix)
        # Also transform its own iterators, so that it copies in the matrix's order.
        schedule.transform_block_layout(copy, matrix)
    every = list(range(len(product.extents)))
    schedule.transform_block_layout(block, _map(product, every, [*lead, rows, columns, depth]))
    return result


def _number(variables: Sequence[Any], index: Any) -> int:
    return next(n for n, variable in enumerate(variables) if variable.same_as(index))


def _map(product: Product, used: Sequence[int], groups: Sequence[Sequence[int]]) -> Any:
    """An index map that fuses each group of iterators to one index."""

    def fused(*indices: Any) -> list[Any]:
        index = dict(zip(used, indices, strict=True))
        return [_fused(product, group, index) for group in groups]

    return tirx.IndexMap.from_func(fused, ndim=len(used), index_dtype=product.index_type)


def _fused(product: Product, group: Sequence[int], index: dict[int, Any]) -> Any:
    whole = tirx.const(0, product.index_type)
    for number in group:
        if product.extents[number] > 1:
            if number not in index:
                raise NoFormError("data or weights that several of a batch share")
            whole = whole * product.extents[number] + index[number]
    return whole


def _along_results(schedule: Any, finish: Any, block: Any) -> None:
    """Replace the iterators of a block by the indices of the results that it reads.

    Raises NoFormError if TVM does not detect their equality: it would then compute a larger region
    than the tile.
    """
    results = schedule.get(block).writes[0].source
    statement = schedule.get(finish)
    read = next(region for region in statement.reads if region.source.same_as(results))
    variables = [v.var for v in statement.iter_vars]
    schedule.transform_block_layout(
        finish, tirx.IndexMap(variables, [each.min for each in read.region], None)
    )
    statement = schedule.get(finish)
    read = next(region for region in statement.reads if region.source.same_as(results))
    pairs = zip(statement.iter_vars, read.region, strict=True)
    if not all(each.min.same_as(variable.var) for variable, each in pairs):
        raise NoFormError(str(read))


def _pad(schedule: Any, block: Any, product: Product, intrinsic: WarpProduct) -> None:
    own = _extents(product)
    wanted = _padded(own, intrinsic)
    if wanted != own:
        lead = len(schedule.get_loops(block)) - len(wanted)
        schedule.pad_einsum(block, [1] * lead + list(wanted))


def _on_its_own(schedule: Any, block: Any, threads: int) -> None:
    """Schedule a separate block with one element per thread."""
    together = schedule.fuse(*schedule.get_loops(block))
    outer, inner = schedule.split(together, [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
