"""Products of experts: rows that are sorted by expert, each by the weights of its own.

Mixtures of experts of transformers are exported as these, by an operator of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from tunefleet.compiler.frontends.experts import rows_by_expert
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax
op = relax.op


def _by_expert(t: Any, node: Node) -> Any:
    """grouped_mm_fallback (rows, weights of experts, where the rows of each expert end)."""
    rows, weights, ends = t.retrieve_args(node)
    emit, dtype = t.block_builder.emit, str(ends.ty.dtype)
    count, experts = int(rows.ty.shape[0]), int(weights.ty.shape[0])
    places = op.reshape(op.arange(0, count, 1, dtype), [count, 1])
    ended = emit(op.less_equal(op.reshape(ends, [1, experts]), emit(places)))
    # Rows beyond the last end are of no expert, and nothing is computed of them.
    of_row = emit(op.sum(op.astype(ended, "int32"), [1]))
    known = emit(op.minimum(of_row, relax.const(experts - 1, "int32")))
    product = t.block_builder.emit_te(
        rows_by_expert, rows, weights, known, primfunc_name_hint="grouped_matmul"
    )
    within = op.reshape(op.less(of_row, relax.const(experts, "int32")), [count, 1])
    return emit(op.where(within, product, relax.const(0, str(rows.ty.dtype))))


#: By the name of the operator, with that of its package.
EXPERTS: dict[str, Callable[[Any, Node], Any]] = {
    "transformers.grouped_mm_fallback.default": _by_expert,
}
