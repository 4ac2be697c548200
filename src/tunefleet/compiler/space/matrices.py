"""A product of any kind as a product of matrices, which is what tensor cores multiply.

Rows of a convolution are all its pixels, the depth is its window and channels. What is read and
what is written becomes a matrix by its indices alone, in the steps that fetch and finish it. Of
extents that fragments do not divide the rest is read as zeros and not written.
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

#: Fragments of an axis are some more where their number has a larger prime, if it is an eighth of
#: it at most.
_MOST_PRIME, _SURPLUS = 7, 8
#: So much is multiplied at most for what has to be.
_MOST_ZEROS = 4
#: Bytes that a thread moves at once.
_MOST_BYTES = 16
#: That a GPU copies to shared memory on its own.
_COPIED_BYTES = (4, 8, 16)
#: Elements of a vector.
_VECTORS = (1, 2, 4, 8, 16)
#: TVM's code for CUDA has no more 8-bit numbers at once than these, but where it copies them.
_MOST_COMPUTED_BYTES = 4
#: Threads of a block of a plain schedule, or of a kernel that runs by itself, at most.
_PLAIN_THREADS = 256


def plain_threads(target: CudaTarget) -> int:
    """Threads of a block that no search has chosen."""
    return min(_PLAIN_THREADS, target.threads_per_block)


class NoFormError(Exception):
    """A product is none of matrices, or what follows it cannot be computed in its tiles."""


def data_width(product: Product) -> int:
    """Numbers of the data that lie side by side, as do those of the following."""
    return product.extents[product.depth]


def weight_width(product: Product) -> int:
    return product.extents[product.weight_axes[-1]]


def result_width(schedule: Any, finish: Any) -> int:
    return int(schedule.get(finish).writes[0].source.shape[-1])


def vectors(schedule: Any, block: Any, width: int) -> list[int]:
    """How many numbers a thread may read, compute and write at once, where `width` of them lie side
    by side: the widest of their types goes by 16 bytes."""
    most = most_of(schedule.get(block).body)
    return [n for n in _VECTORS if n <= most and width % n == 0]


def most_of(statement: Any) -> int:
    """How many of the numbers of a store a thread may have at once."""
    number_bytes = list(_bytes(statement))
    copied = isinstance(statement.value, tvm.ir.TensorLoad)
    return most_at_once(max(number_bytes), min(number_bytes), copied=copied)


def narrowed(width: int, side_by_side: int, most: int) -> int:
    """The widest vectors that divide those of `width` numbers and `side_by_side`, which numbers one
    after another come and begin by; with no more than `most` numbers."""
    return max(
        n for n in range(1, width + 1) if width % n == 0 == side_by_side % n and n <= max(1, most)
    )


def most_at_once(widest: float, narrowest: float, *, copied: bool) -> int:
    """How many numbers a thread may have at once of types with so many bytes; `copied`: it computes
    nothing of them."""
    most = int(_MOST_BYTES / widest)
    return most if copied or narrowest > 1 else min(most, _MOST_COMPUTED_BYTES)


def copied(schedule: Any, block: Any, numbers: Iterable[int]) -> list[int]:
    """Which of so many numbers at once a GPU copies on its own, from sm_80 on: 4, 8 or 16 bytes. It
    puts zeros in place of what is not read, and TVM has it do so for floats alone."""
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
    """Of the numbers that a statement makes, but not of indices and conditions."""
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
    """Those of some intrinsics that read weights as they are stored and that multiply few zeros
    more than the best of them; none where most of what is multiplied would be zeros."""
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
    """A multiple of a tile, such that warps and blocks have equal shares of the tiles."""
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
    """Iterators of batches, rows, columns and depth. A batch has weights of its own."""
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
    """`block` becomes a product of matrices, [batch,] rows, columns, depth, whose results another
    block finishes, which this returns; its loops are [batch,] rows, columns.

    Each read is brought by one block. `fused`: what follows the product is the block that finishes
    results, else it is on its own. Raises tvm.s_tir.ScheduleError or NoFormError where that has no
    such form.
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
    """The block that writes what a block reads."""
    buffer = schedule.get(block).reads[read].source
    return next(
        each
        for each in schedule.get_producers(block)
        if schedule.get(each).writes[0].source.same_as(buffer)
    )


def _as_matrices(schedule: Any, block: Any, product: Product) -> Any:
    """Blocks that copy what is read and written, as matrices; the one that copies results."""
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
        # Its own iterators too, so that it goes through what it copies in the matrix's order.
        schedule.transform_block_layout(copy, matrix)
    every = list(range(len(product.extents)))
    schedule.transform_block_layout(block, _map(product, every, [*lead, rows, columns, depth]))
    return result


def _number(variables: Sequence[Any], index: Any) -> int:
    return next(n for n, variable in enumerate(variables) if variable.same_as(index))


def _map(product: Product, used: Sequence[int], groups: Sequence[Sequence[int]]) -> Any:
    """Of indices by some iterators: each group becomes one."""

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
    """The iterators of a block become the indices of the results that it reads.

    Raises NoFormError where TVM does not see that they are: what a tile reads is then more to it
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
    """A block that runs by itself, an element for each thread."""
    together = schedule.fuse(*schedule.get_loops(block))
    outer, inner = schedule.split(together, [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
