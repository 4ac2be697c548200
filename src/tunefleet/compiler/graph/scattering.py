"""Scattering of elements where fewer of an axis are scattered than there are.

TVM's own definition counts rows of what is scattered as if they were rows of what it goes into.
"""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, te, topi = tvm.relax, tvm.te, tvm.topi


def scatter_elements(builder: Any, call: Any) -> Any:
    """The definition of relax.scatter_elements: TVM's, of the part that is scattered into."""
    data, indices, updates = call.args
    whole, part = ints(data.ty.shape), ints(indices.ty.shape)
    axis = int(call.attrs.axis) % len(whole)
    # Rows of these lie one after another all the same.
    right = {0, axis, axis + 1}
    cut = [n if i in right else m for i, (n, m) in enumerate(zip(whole, part, strict=True))]
    define = call.op.get_attr("FLegalize")
    if cut == whole:
        return define(builder, call)
    ends = cut, [1] * len(cut)
    taken = builder.emit_te(topi.strided_slice, data, [0] * len(cut), *ends)
    inner = builder.normalize(relax.Call(call.op, [taken, indices, updates], call.attrs))
    scattered = builder.emit(define(builder, inner))

    def put_back(data: Any, scattered: Any) -> Any:
        def element(*place: Any) -> Any:
            inside = tvm.tirx.all(*(i < extent for i, extent in zip(place, cut, strict=True)))
            return tvm.tirx.if_then_else(inside, scattered(*place), data(*place))

        return te.compute(data.shape, element, name="put_back")

    return builder.call_te(put_back, data, scattered, primfunc_name_hint="where")
