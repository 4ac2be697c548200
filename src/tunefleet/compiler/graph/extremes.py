"""The least and the largest number of a tensor, found together.

Both are asked for where a network quantises its activations as it runs. As two reductions they read
the tensor twice, and the search leaves a reduction to a single number to one thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.loops import T, allocated, call_program, parallel
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

_PLACES = {tvm.ir.Op.get("relax.min"): 0, tvm.ir.Op.get("relax.max"): 1}
_FUNCTIONS = ((tirx.min, math.inf), (tirx.max, -math.inf))
#: Numbers that are looked at side by side, in half of the registers of AVX2.
_LANES = 32
#: Numbers for which it pays to wake a thread: half a megabyte.
_PART = 2**17


def with_extremes(mod: Any) -> Any:
    """`mod` (Relax, one function `main`, for a CPU) with one program for both extremes of a tensor
    of float32, over all of its axes."""
    asked: dict[Any, set[int]] = {}
    for call in _calls(mod["main"]):
        if _is_whole(call):
            asked.setdefault(call.args[0], set()).add(_PLACES[call.op])
    both = {x for x, places in asked.items() if len(places) == len(_FUNCTIONS)}
    if not both:
        return mod
    writer = _Together(mod, both)
    function = writer.visit_expr(mod["main"])
    written = writer.builder_.get()
    written.update_func(written.get_global_var("main"), function)
    return written


def _calls(function: Any) -> Iterator[Any]:
    for block in function.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, relax.Call):
                yield value


def _is_whole(call: Any) -> bool:
    """Whether it asks for an extreme of a whole tensor."""
    if call.op not in _PLACES or call.attrs.keepdims or not isinstance(call.args[0], relax.Var):
        return False
    kind = call.args[0].ty
    axes = range(kind.ndim) if call.attrs.axis is None else ints(call.attrs.axis)
    every = {axis % kind.ndim for axis in axes} == set(range(kind.ndim))
    return every and kind.ndim > 0 and str(kind.dtype) == "float32"


@relax.expr_functor.mutator
class _Together(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, mod: Any, both: set[Any]) -> None:
        super().__init__(mod)
        self._both = both
        self._found: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        x = call.args[0] if call.args else None
        if not (_is_whole(call) and x in self._both):
            return super().visit_call_(call)
        if x not in self._found:
            types = [relax.TensorType((), "float32")] * len(_FUNCTIONS)
            inputs = [self.visit_expr(x)]
            called = call_program(self.builder_, "extremes", inputs, types, _write)
            self._found[x] = self.builder_.emit(called)
        return relax.TupleGetItem(self._found[x], _PLACES[call.op])


def _write(inputs: list[Any], outputs: list[Any]) -> None:
    (x,) = inputs
    count = math.prod(int(extent) for extent in x.shape)
    vectors = count // _LANES
    parts = max(1, count // _PART)
    each = -(-vectors // parts)
    found = allocated([len(_FUNCTIONS), parts], "float32")
    with parallel(parts) as part:
        seen = allocated([len(_FUNCTIONS), _LANES], "float32")
        for place, (_, start) in enumerate(_FUNCTIONS):
            with T.vectorized(0, _LANES) as lane:
                seen[place, lane] = tirx.const(start, "float32")
        with T.serial(0, tirx.min(each, vectors - part * each)) as vector:
            for place, (of_two, _) in enumerate(_FUNCTIONS):
                with T.vectorized(0, _LANES) as lane:
                    number = x[(part * each + vector) * _LANES + lane]
                    seen[place, lane] = of_two(seen[place, lane], number)
        for place, (of_two, start) in enumerate(_FUNCTIONS):
            found[place, part] = tirx.const(start, "float32")
            with T.serial(0, _LANES) as lane:
                found[place, part] = of_two(found[place, part], seen[place, lane])
    for place, (of_two, start) in enumerate(_FUNCTIONS):
        outputs[place][()] = tirx.const(start, "float32")
        with T.serial(0, parts) as part:
            outputs[place][()] = of_two(outputs[place][()], found[place, part])
        with T.serial(vectors * _LANES, count) as rest:
            outputs[place][()] = of_two(outputs[place][()], x[rest])
