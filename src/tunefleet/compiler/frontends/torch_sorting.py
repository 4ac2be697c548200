"""Conversions of torch operators that order elements, look through what is in order, or sum
elements up along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of, shape_of
from tunefleet.compiler.graph import scans, searching
from tunefleet.compiler.graph.loops import sum_type
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op


def _first(t: Any, x: Any, axis: Any, count: int | None, *, largest: bool) -> list[Any]:
    """The first `count` values in order, all where it is None, and where they were; equal ones
    stay in their order."""
    extents = [int(extent) for extent in x.ty.shape]
    if not extents:
        return [x, relax.const(0, "int64")]
    k = extents[int(axis)] if count is None else count
    both = t.block_builder.emit(op.topk(x, k, int(axis), "both", largest, "int64"))
    return [t.block_builder.emit(relax.TupleGetItem(both, i)) for i in range(2)]


def _top(t: Any, node: Node) -> list[Any]:
    """topk (x, k, dim, largest): in order, whether that is asked for or not."""
    count: Any = node.args[1]
    largest = bool(argument(node, 3, "largest", True))
    return _first(t, t.env[node.args[0]], argument(node, 2, "dim", -1), int(count), largest=largest)


def _sort(place: int) -> Callable[[Any, Node], list[Any]]:
    """sort and argsort: `place` is where the axis stands, which says whether `stable` is named."""

    def convert(t: Any, node: Node) -> list[Any]:
        largest = bool(argument(node, place + 1, "descending", False))
        x = t.env[node.args[0]]
        return _first(t, x, argument(node, place, "dim", -1), None, largest=largest)

    return convert


def _indices(convert: Callable[[Any, Node], list[Any]]) -> Callable[[Any, Node], Any]:
    return lambda t, node: convert(t, node)[1]


def _cumulative(operator: Any) -> Callable[[Any, Node], Any]:
    """In the type that torch gives the result: that of integers is int64."""

    def convert(t: Any, node: Node) -> Any:
        x, dtype = t.env[node.args[0]], dtype_of(node)
        if not x.ty.ndim:
            return t.block_builder.emit(op.astype(x, dtype))
        return t.block_builder.emit(operator(x, int(argument(node, 1, "dim")), dtype))

    return convert


def _running(*, largest: bool) -> Callable[[Any, Node], list[Any]]:
    """cummax and cummin."""

    def convert(t: Any, node: Node) -> list[Any]:
        x = t.env[node.args[0]]
        if not x.ty.ndim:
            return [x, relax.const(0, "int64")]
        axis = int(argument(node, 1, "dim")) % x.ty.ndim
        both = scans.running_extreme(t.block_builder, x, axis, largest=largest)
        return _parts(t, both)

    return convert


def _log_of_sums(t: Any, node: Node) -> Any:
    x = t.env[node.args[0]]
    if not x.ty.ndim:
        return x
    axis = int(argument(node, 1, "dim"))
    return t.block_builder.emit(scans.logcumsumexp(t.block_builder, x, axis))


def _parts(t: Any, pair: Any) -> list[Any]:
    both = t.block_builder.emit(pair)
    return [t.block_builder.emit(relax.TupleGetItem(both, i)) for i in range(2)]


def _search(rows_at: int, x_at: int) -> Callable[[Any, Node], Any]:
    """searchsorted and bucketize: where the rows in order stand among the arguments, and what is
    looked for, a tensor or a number."""

    def convert(t: Any, node: Node) -> Any:
        rows, x = t.env[node.args[rows_at]], node.args[x_at]
        dtype = str(rows.ty.dtype)
        x = t.env[x] if isinstance(x, Node) else relax.const(x, dtype)
        if str(x.ty.dtype) != dtype:
            raise NotImplementedError("rows of one type and numbers of another")
        right = bool(node.kwargs.get("right", False)) or node.kwargs.get("side") == "right"
        if (order := node.kwargs.get("sorter")) is not None:
            rows = t.block_builder.emit(op.gather_elements(rows, t.env[order], rows.ty.ndim - 1))
        return t.block_builder.emit(
            searching.searchsorted(t.block_builder, rows, x, dtype_of(node), right=right)
        )

    return convert


def _known(t: Any, x: Any, axis: int) -> Any:
    """How many elements of an axis are numbers; the axis has one element then."""
    extents = [int(extent) for extent in x.ty.shape]
    if not str(x.ty.dtype).startswith("float"):
        counts = [1 if i == axis else extent for i, extent in enumerate(extents)]
        return t.block_builder.emit(op.full(counts, relax.const(extents[axis], "int64"), "int64"))
    unknown = t.block_builder.emit(op.isnan(op.astype(x, sum_type(str(x.ty.dtype)))))
    known = t.block_builder.emit(op.astype(op.logical_not(unknown), "int64"))
    return t.block_builder.emit(op.sum(known, axis, True))


def _median(*, skips: bool) -> Callable[[Any, Node], list[Any]]:
    """median and nanmedian of an axis, the lower of two: what is not a number is the median, or
    does not count where it `skips` them."""

    def convert(t: Any, node: Node) -> list[Any]:
        emit, x = t.block_builder.emit, t.env[node.args[0]]
        axis = int(argument(node, 1, "dim")) % max(x.ty.ndim, 1)
        ordered = _first(t, x, axis, None, largest=False)
        if not x.ty.ndim:
            return ordered
        length = int(x.ty.shape[axis])
        known = _known(t, x, axis)
        if skips:
            one, two = relax.const(1, "int64"), relax.const(2, "int64")
            place = op.floor_divide(op.subtract(op.maximum(known, one), one), two)
        else:
            whole = op.equal(known, relax.const(length, "int64"))
            place = op.where(whole, relax.const((length - 1) // 2, "int64"), known)
        place = emit(place)
        chosen = (op.gather_elements(each, place, axis) for each in ordered)
        return [emit(op.reshape(emit(each), shape_of(node))) for each in chosen]

    return convert


def _of_all(convert: Callable[[Any, Node], list[Any]]) -> Callable[[Any, Node], Any]:
    """The value alone, of all elements in one row."""

    def single(t: Any, node: Node) -> Any:
        x, own = t.env[node.args[0]], node.args
        t.env[own[0]] = t.block_builder.emit(op.reshape(x, [-1]))
        node.args = (own[0], 0)
        try:
            return convert(t, node)[0]
        finally:
            node.args, t.env[own[0]] = own, x

    return single


def _mode(t: Any, node: Node) -> list[Any]:
    x = t.env[node.args[0]]
    if not x.ty.ndim:
        return [x, relax.const(0, "int64")]
    axis = int(argument(node, 1, "dim", -1)) % x.ty.ndim
    values, indices = _first(t, x, axis, None, largest=False)
    both = _parts(t, searching.mode(t.block_builder, values, indices, axis))
    return [t.block_builder.emit(op.reshape(each, shape_of(node))) for each in both]


#: By the name of the torch operator.
SORTING: dict[str, Callable[[Any, Node], Any]] = {
    "argsort.default": _indices(_sort(1)),
    "argsort.stable": _indices(_sort(2)),
    "bucketize.Scalar": _search(1, 0),
    "bucketize.Tensor": _search(1, 0),
    "cummax.default": _running(largest=True),
    "cummin.default": _running(largest=False),
    "cumprod.default": _cumulative(op.cumprod),
    "cumsum.default": _cumulative(op.cumsum),
    "logcumsumexp.default": _log_of_sums,
    "median.default": _of_all(_median(skips=False)),
    "median.dim": _median(skips=False),
    "mode.default": _mode,
    "nanmedian.default": _of_all(_median(skips=True)),
    "nanmedian.dim": _median(skips=True),
    "searchsorted.Scalar": _search(0, 1),
    "searchsorted.Tensor": _search(0, 1),
    "sort.default": _sort(1),
    "sort.stable": _sort(2),
    "topk.default": _top,
}
