"""Sorting of torch in the forms that TVM does not know."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op


def _sort(t: Any, node: Node) -> list[Any]:
    """Values and indices: all of them, in order, is what the first of all are."""
    x = t.env[node.args[0]]
    form = dict(zip(("self", "stable", "dim", "descending"), node.args, strict=False))
    form |= node.kwargs
    extents = [int(extent) for extent in x.ty.shape]
    axis: Any = form.get("dim", -1)
    largest = bool(form.get("descending", False))
    found = t.block_builder.emit(op.topk(x, extents[axis], axis, "both", largest, "int64"))
    return [t.block_builder.emit(relax.TupleGetItem(found, i)) for i in range(2)]


#: By the name of the torch operator.
SORTING: dict[str, Any] = {
    "argsort.stable": lambda t, node: _sort(t, node)[1],
    "sort.stable": _sort,
}
