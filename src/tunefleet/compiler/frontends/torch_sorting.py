"""Conversions of torch operators that order elements or sum them up along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of
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


#: By the name of the torch operator.
SORTING: dict[str, Callable[[Any, Node], Any]] = {
    "argsort.default": _indices(_sort(1)),
    "argsort.stable": _indices(_sort(2)),
    "cumprod.default": _cumulative(op.cumprod),
    "cumsum.default": _cumulative(op.cumsum),
    "sort.default": _sort(1),
    "sort.stable": _sort(2),
    "topk.default": _top,
}
