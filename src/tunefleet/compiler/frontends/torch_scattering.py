"""Conversions of torch operators that put elements at places, and sum up what comes together there.

Graph networks and embeddings of several words are made of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of, shape_of
from tunefleet.compiler.frontends.torch_selecting import MOST_PLACES
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op

#: Torch's name of what happens where elements meet: TVM's, and a number that changes nothing.
_MEETINGS = {
    "sum": ("add", 0.0),
    "prod": ("mul", 1.0),
    "amax": ("max", -math.inf),
    "amin": ("min", math.inf),
}
#: What an embedding does with the rows of a bag, by torch's number.
_OF_BAGS = (op.sum, op.mean, op.max)


def _operands(t: Any, node: Node) -> tuple[Any, int, Any, Any]:
    """What is scattered into, the axis, places, and as much of the source as they cover."""
    x, axis, index, source = t.retrieve_args(node)[:4]
    extents = [int(e) for e in index.ty.shape]
    if [int(e) for e in source.ty.shape] != extents:
        axes = list(range(len(extents)))
        source = t.block_builder.emit(op.strided_slice(source, axes, [0] * len(extents), extents))
    return x, axis, index, source


def _scatter(reduction: str) -> Callable[[Any, Node], Any]:
    def convert(t: Any, node: Node) -> Any:
        x, axis, index, source = _operands(t, node)
        return t.block_builder.emit(op.scatter_elements(x, index, source, axis, reduction))

    return convert


def _scatter_reduce(t: Any, node: Node) -> Any:
    """scatter_reduce: a sum, product, extreme or mean of what meets, with what was there or not."""
    x, axis, index, source = _operands(t, node)
    name, dtype = str(argument(node, 4, "reduce")), dtype_of(node)
    includes = bool(argument(node, 5, "include_self", True))
    if not dtype.startswith("float") and (name == "mean" or not includes):
        raise NotImplementedError(f"a {name} of whole numbers")
    meeting, neutral = _MEETINGS["sum" if name == "mean" else name]

    def scattered(into: Any, what: Any, how: str) -> Any:
        return t.block_builder.emit(op.scatter_elements(into, index, what, axis, how))

    def alike(number: float, like: Any) -> Any:
        extents = [int(e) for e in like.ty.shape]
        return t.block_builder.emit(op.broadcast_to(relax.const(number, dtype), extents))

    if not includes:
        x = scattered(x, alike(neutral, source), "update")
    total = scattered(x, source, meeting)
    if name != "mean":
        return total
    count = scattered(alike(float(includes), x), alike(1.0, source), "add")
    return t.block_builder.emit(op.divide(total, op.maximum(count, relax.const(1.0, dtype))))


def _bags(t: Any, node: Node) -> list[Any]:
    """embedding_bag whose bags are of one size: rows of a table, summed up by bags."""
    table, places, starts = t.retrieve_args(node)[:3]
    kind, weights = int(argument(node, 4, "mode", 0)), argument(node, 6, "per_sample_weights")
    if not hasattr(starts, "value"):
        raise NotImplementedError("bags that begin where values say")
    if int(argument(node, 8, "padding_idx", -1)) >= 0:
        raise NotImplementedError("places that do not count")
    begins, total = starts.value.numpy().tolist(), int(places.ty.shape[0])
    ends = begins[1:] if argument(node, 7, "include_last_offset", False) else [*begins[1:], total]
    bags = len(ends)
    size = total // bags if bags else 0
    if not size or begins[:bags] != list(range(0, total, size)) or ends[-1] != total:
        raise NotImplementedError("bags of several sizes")
    rows = t.block_builder.emit(op.take(table, places, 0))
    rows = t.block_builder.emit(op.reshape(rows, [bags, size, int(table.ty.shape[1])]))
    if weights is not None:
        rows = op.multiply(rows, op.reshape(t.env[weights], [bags, size, 1]))
    result = t.block_builder.emit(_OF_BAGS[kind](t.block_builder.emit(rows), 1))
    return [result, *[relax.const(np.zeros(0), "int64")] * 3]


def _put_on_diagonal(t: Any, node: Node) -> Any:
    """diagonal_scatter: a lookup of where torch itself puts what it is given."""
    x, source = t.env[node.args[0]], t.env[node.args[1]]
    shape, extents = shape_of(node), [int(e) for e in source.ty.shape]
    if math.prod(shape) > MOST_PLACES:
        raise NotImplementedError("a diagonal with more elements around it than are written out")
    numbers = torch.arange(math.prod(extents)).reshape(extents)
    rest = [
        argument(node, i, n, d) for i, n, d in ((2, "offset", 0), (3, "dim1", 0), (4, "dim2", 1))
    ]
    places = torch.diagonal_scatter(torch.full(shape, -1), numbers, *rest).numpy()
    flat = t.block_builder.emit(op.reshape(source, [-1]))
    taken = t.block_builder.emit(op.take(flat, relax.const(np.maximum(places, 0)), 0))
    return t.block_builder.emit(op.where(relax.const(places >= 0), taken, x))


#: By the name of the torch operator.
SCATTERING: dict[str, Callable[[Any, Node], Any]] = {
    "_embedding_bag.default": _bags,
    "_embedding_bag_forward_only.default": _bags,
    "diagonal_scatter.default": _put_on_diagonal,
    "scatter.src": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "scatter_reduce.two": _scatter_reduce,
}
