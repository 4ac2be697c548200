"""Which values the integer inputs of a network may have, from what it computes with them.

An index is limited by the extent of what it indexes, a divisor is not zero, and an integer that is
compared with constants (a length, a position) is interesting up to the largest of them. Values are
followed through what moves, casts or shifts them, and no further: where an input comes to an index
in another way, or to a part that stays in its source framework, nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.core.network import IntegerRange, TensorSpec

if TYPE_CHECKING:
    import tvm
    from tvm import relax

#: Zero and one are valid nearly everywhere; masks that are computed with are nothing else.
UNKNOWN_RANGE = IntegerRange(0, 1)
#: Of integers that divide or are divided.
_NUMBERS = IntegerRange(0, 9)
#: Of integers up to this many bits a network takes all: images, quantised numbers.
_DATA_BITS = 16
#: Constants with more elements are not looked through.
_MOST_ELEMENTS = 1 << 16

#: They move elements.
_MOVES = frozenset((
    "astype", "broadcast_to", "expand_dims", "flatten", "flip", "permute_dims", "repeat", "reshape",
    "split", "squeeze", "strided_slice", "tile", "wrap_param",
))  # fmt: skip
_COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
_DIVISIONS = ("divide", "floor_divide", "floor_mod", "mod", "trunc_divide")
_SHIFTS = ("left_shift", "right_shift")
#: The value decides about shapes or addresses.
_ADDRESSES = frozenset(("dynamic_strided_slice", "tensor_to_shape", "arange"))


@dataclass(frozen=True, slots=True)
class _Affine:
    """The elements of one input, times `scale`, plus `offset`."""

    index: int
    scale: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _Mixed:
    """What was computed from some inputs in any way."""

    indices: frozenset[int] = frozenset()


_Value = _Affine | _Mixed | tuple[Any, ...]
_NOTHING = _Mixed()


@dataclass(slots=True)
class _Use:
    """What is known of an input: the largest index, the largest constant it is compared with."""

    most: int | None = None
    compared: int | None = None
    least: int = 0
    divides: bool = False
    unknown: bool = False


def integer_ranges(
    mod: tvm.IRModule, specs: Sequence[TensorSpec]
) -> tuple[IntegerRange | None, ...]:
    """The range of each input of `main`; None of floats and booleans."""
    kinds = [np.dtype(spec.dtype).kind for spec in specs]
    integers = {i for i, kind in enumerate(kinds) if kind in "iu"}
    if not integers:
        return tuple(None for _ in specs)
    walk = _Walk(mod["main"], integers)
    return tuple(
        _range(walk.uses[i], np.dtype(spec.dtype)) if i in integers else None
        for i, spec in enumerate(specs)
    )


def _range(use: _Use, dtype: np.dtype[Any]) -> IntegerRange:
    info = np.iinfo(dtype)
    if use.unknown:
        found = UNKNOWN_RANGE
    elif use.most is not None:
        found = IntegerRange(0, use.most)
    elif use.compared is not None and use.compared > UNKNOWN_RANGE.most:
        found = IntegerRange(0, use.compared + 1)
    elif use.divides:
        found = _NUMBERS
    elif info.bits <= _DATA_BITS and use.compared is None:
        found = IntegerRange(info.min, info.max)
    else:
        found = UNKNOWN_RANGE
    least = max(found.least, use.least, int(info.min))
    return IntegerRange(least, max(least, min(found.most, int(info.max))))


class _Walk:
    """Follows the integer inputs of a function through its bindings."""

    def __init__(self, function: relax.Function, integers: set[int]) -> None:
        self.uses = {index: _Use() for index in integers}
        self._values: dict[Any, _Value] = {
            param: _Affine(index)
            for index, param in enumerate(function.params)
            if index in integers
        }
        for block in function.body.blocks:
            for binding in block.bindings:
                self._values[binding.var] = self._value(binding.value)

    def _value(self, expr: Any) -> _Value:
        from tvm import relax

        if isinstance(expr, relax.Var):
            return self._values.get(expr, _NOTHING)
        if isinstance(expr, relax.Tuple):
            return tuple(self._value(field) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            of = self._value(expr.tuple_value)
            return of[expr.index] if isinstance(of, tuple) else of
        if isinstance(expr, relax.Call):
            return self._called(expr)
        return _NOTHING

    def _called(self, call: Any) -> _Value:
        from tvm import ir

        values = [self._value(argument) for argument in call.args]
        if not any(map(_indices, values)):
            return _NOTHING
        if not isinstance(call.op, ir.Op) or not call.op.name.startswith("relax."):
            return self._unknown(values)
        name = call.op.name.removeprefix("relax.").rpartition(".")[2]
        if name in _MOVES:
            return values[0]
        rule = _RULES.get(name)
        if rule is not None:
            return rule(self, call, values)
        if name.startswith("call_") or name in _ADDRESSES:
            return self._unknown(values)
        return _mixed(values)

    def _unknown(self, values: Sequence[_Value]) -> _Mixed:
        indices = frozenset().union(*map(_indices, values))
        for index in indices:
            self.uses[index].unknown = True
        return _Mixed(indices)

    def indexed(self, value: _Value, extent: int | None) -> None:
        """The value is an index of an axis with this extent, if it is known."""
        if isinstance(value, _Affine) and extent is not None:
            use = self.uses[value.index]
            # The first and the last input whose index is within.
            least = -(value.offset // value.scale)
            most = (extent - 1 - value.offset) // value.scale
            use.least = max(use.least, least)
            use.most = most if use.most is None else min(use.most, most)
        else:
            self._unknown([value])

    def compared(self, value: _Value, constant: np.ndarray) -> None:
        if isinstance(value, _Affine) and constant.size and constant.dtype.kind in "iu":
            use = self.uses[value.index]
            most = (int(constant.max()) - value.offset) // value.scale
            use.compared = most if use.compared is None else max(use.compared, most)

    def divided(self, value: _Value, by: _Value) -> None:
        for index in _indices(value) | _indices(by):
            self.uses[index].divides = True
        for index in _indices(by):
            # The first input at which the divisor is positive.
            least = -((by.offset - 1) // by.scale) if isinstance(by, _Affine) else 1
            self.uses[index].least = max(self.uses[index].least, least)

    def at_most(self, value: _Value, most: int) -> None:
        for index in _indices(value):
            use = self.uses[index]
            use.most = most if use.most is None else min(use.most, most)


def _indices(value: _Value) -> frozenset[int]:
    if isinstance(value, _Affine):
        return frozenset((value.index,))
    if isinstance(value, _Mixed):
        return value.indices
    return frozenset().union(*map(_indices, value))


def _constant(expr: Any) -> np.ndarray | None:
    """A small constant of numbers."""
    from tvm import ir

    if not isinstance(expr, ir.GenericConst) or str(expr.value.dtype) == "bfloat16":
        return None
    if prod(map(int, expr.value.shape)) > _MOST_ELEMENTS:
        return None
    array: np.ndarray = expr.value.numpy()
    return array


def _scalar(expr: Any) -> int | None:
    """A constant of one integer."""
    array = _constant(expr)
    if array is None or array.size != 1 or array.dtype.kind not in "iu":
        return None
    return int(array.reshape(()))


def _extents(expr: Any) -> list[int | None]:
    """Of a tensor; None of one that depends on values, and nothing where no rank is known."""
    shape = expr.ty.shape
    if shape is None:
        return []
    from tvm import tirx

    return [int(each) if isinstance(each, tirx.IntImm) else None for each in shape.values]


def _mixed(values: Sequence[_Value]) -> _Mixed:
    return _Mixed(frozenset().union(*map(_indices, values)))


def _sum(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    sign = -1 if call.op.name.endswith("subtract") else 1
    left, right = values[0], values[1]
    if isinstance(left, _Affine) and (by := _scalar(call.args[1])) is not None:
        return _Affine(left.index, left.scale, left.offset + sign * by)
    if isinstance(right, _Affine) and sign > 0 and (by := _scalar(call.args[0])) is not None:
        return _Affine(right.index, right.scale, right.offset + by)
    return _mixed(values)


def _product(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    for value, other in (values[0], call.args[1]), (values[1], call.args[0]):
        if isinstance(value, _Affine) and (by := _scalar(other)) is not None and by > 0:
            return _Affine(value.index, value.scale * by, value.offset * by)
    return _mixed(values)


def _chosen(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    """`where`: an index that is counted from the end where it is negative is itself."""
    then, otherwise = values[1], values[2]
    if isinstance(then, _Affine) and isinstance(otherwise, _Affine):
        if (then.index, then.scale) == (otherwise.index, otherwise.scale):
            return otherwise
    elif isinstance(then, _Affine) and not _indices(otherwise):
        return then
    elif isinstance(otherwise, _Affine) and not _indices(then):
        return otherwise
    return _mixed(values)


def _bounded(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    """`clip`, `minimum`, `maximum`: within its bounds a value is itself."""
    for value in values:
        if isinstance(value, _Affine) and len(_mixed(values).indices) == 1:
            return value
    return _mixed(values)


def _compared(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    for value, other in (values[0], call.args[1]), (values[1], call.args[0]):
        constant = _constant(other)
        if constant is not None:
            walk.compared(value, constant)
    return _mixed(values)


def _divided(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    walk.divided(values[0], values[1])
    return _mixed(values)


def _shifted(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    walk.at_most(values[1], 7)
    return _mixed(values)


def _taken(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    """Operators with an axis: of the first argument, which the second indexes."""
    if _indices(values[1]):
        extents, axis = _extents(call.args[0]), call.attrs.axis
        walk.indexed(values[1], extents[int(axis or 0)] if extents else None)
    return _mixed(values) if len(values) > 2 else _moved(values[0], values[1])


def _moved(data: _Value, index: _Value) -> _Value:
    """Elements of the data, chosen by the index."""
    return data if _indices(data) else _mixed([data, index])


def _placed(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    """Operators whose indices have several coordinates."""
    if _indices(values[1]):
        extents = _extents(call.args[0]) or [None]
        coordinates = values[1] if isinstance(values[1], tuple) else (values[1],) * len(extents)
        for value, extent in zip_longest(coordinates, extents[: len(coordinates)]):
            if _indices(value):
                walk.indexed(value, extent)
    return _mixed(values)


def _joined(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    """`concat`, `stack`: the parts are one input, and constants."""
    joined = values[0] if isinstance(values[0], tuple) else (values[0],)
    parts = {value for value in joined if _indices(value)}
    return parts.pop() if len(parts) == 1 else _mixed(values)


def _one_hot(walk: _Walk, call: Any, values: Sequence[_Value]) -> _Value:
    walk.indexed(values[0], int(call.attrs.depth))
    return _mixed(values)


_Rule = Callable[[_Walk, Any, Sequence[_Value]], _Value]
_RULES: dict[str, _Rule] = {
    "add": _sum,
    "subtract": _sum,
    "multiply": _product,
    "where": _chosen,
    "concat": _joined,
    "stack": _joined,
    "clip": _bounded,
    "minimum": _bounded,
    "maximum": _bounded,
    "take": _taken,
    "gather_elements": _taken,
    "scatter_elements": _taken,
    "gather_nd": _placed,
    "scatter_nd": _placed,
    "index_tensor": _placed,
    "index_put": _placed,
    "one_hot": _one_hot,
    **dict.fromkeys(_COMPARISONS, _compared),
    **dict.fromkeys(_DIVISIONS, _divided),
    **dict.fromkeys(_SHIFTS, _shifted),
}
