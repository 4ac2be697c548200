"""What memory a network takes: its weights, the tensors that live at once as it runs, and those
that are copied between a GPU and the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.network import SEGMENT_PREFIX, Footprint, SegmentCopies

tvm = load_tvm()
relax = tvm.relax


def footprint(mod: Any) -> Footprint:
    """Of a prepared module; where it has several shapes, of the one that takes most."""
    weights: dict[int, int] = {}
    most = 0
    for _, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        for value in _values(function):
            for constant in _of_kind(value, tvm.ir.GenericConst):
                tensor = constant.value
                # By address: functions of several shapes share their constants.
                weights[tensor.data_ptr()] = nbytes(tensor.shape, str(tensor.dtype))
        most = max(most, _most_alive(function))
    return Footprint(sum(weights.values()), most)


def segment_copies(function: Any) -> SegmentCopies:
    """Of a prepared function for a GPU: what its segments read is copied to the CPU, and what they
    give is copied back."""
    read: list[Any] = []
    given: list[Any] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if _is_segment(value):
                read += [part for argument in value.args[1:] for part in _tensors(argument.ty)]
                given += _tensors(binding.var.ty)
    return SegmentCopies(len(read), _size_of(read), len(given), _size_of(given))


def _is_segment(value: Any) -> bool:
    """Whether a bound value is what a segment gives."""
    called = value.args[0] if isinstance(value, relax.Call) and value.args else None
    name = getattr(called, "global_symbol", "")
    return isinstance(called, relax.ExternFunc) and name.startswith(SEGMENT_PREFIX)


def _tensors(kind: Any) -> list[Any]:
    """The types of the tensors in a value of a type."""
    if isinstance(kind, relax.TupleType):
        return [part for field in kind.fields for part in _tensors(field)]
    return [kind] if isinstance(kind, relax.TensorType) else []


def _size_of(tensors: Iterable[Any]) -> int | None:
    """Their bytes; None where the shape of one is not known."""
    if not all(isinstance(kind.shape, relax.ShapeExpr) for kind in tensors):
        return None
    return sum(map(_bytes_of, tensors))


def _values(function: Any) -> list[Any]:
    """What is computed, in order, and what is returned."""
    bound = [binding.value for block in function.body.blocks for binding in block.bindings]
    return [*bound, function.body.body]


def _most_alive(function: Any) -> int:
    """Bytes of inputs and results that live at once, each from where it is made to its last use."""
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    last = {
        var: index
        for index, value in enumerate(_values(function))
        for var in _of_kind(value, relax.Var)
    }
    alive = {var: _bytes_of(var.ty) for var in function.params}
    most = sum(alive.values())
    for index, binding in enumerate(bindings):
        alive[binding.var] = _bytes_of(binding.var.ty)
        most = max(most, sum(alive.values()))
        for var in [v for v in alive if last.get(v, index) <= index]:
            del alive[var]
    return most


def _bytes_of(kind: Any) -> int:
    """Bytes of a value of a type; 0 where its shape is not known."""
    if isinstance(kind, relax.TupleType):
        return sum(_bytes_of(field) for field in kind.fields)
    shape = getattr(kind, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return 0
    extents = list(shape.values)
    if not all(isinstance(extent, int | tvm.tirx.IntImm) for extent in extents):
        return 0
    return nbytes([int(extent) for extent in extents], str(kind.dtype))


def _of_kind(value: Any, kind: type) -> Iterator[Any]:
    """The expressions of a kind that a bound value is made of."""
    if isinstance(value, kind):
        yield value
    parts: Iterable[Any] = ()
    if isinstance(value, relax.Call):
        parts = value.args
    elif isinstance(value, relax.Tuple):
        parts = value.fields
    elif isinstance(value, relax.TupleGetItem):
        parts = [value.tuple_value]
    for part in parts:
        yield from _of_kind(part, kind)
