"""In which order a scheduled program takes its weights, read from the blocks that pack them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from tunefleet.compiler.space.product_steps import PACKED
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.trial import WeightOrder

tvm = load_tvm()
tirx = tvm.tirx

Array = NDArray[Any]

#: What an index of a weight is computed by, of one variable's values.
_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
}


class UnknownOrderError(Exception):
    """A program packs weights in another way than by taking, dividing and reordering axes."""


def packings_of(function: Any) -> tuple[WeightOrder, ...]:
    """How a scheduled function packs its arguments. Raises UnknownOrderError."""
    blocks: list[Any] = []

    def visit(block: Any) -> None:
        if PACKED in block.annotations:
            blocks.append(block)

    tvm_ffi.structural_walk(function.body, [(tvm.s_tir.SBlock, visit)])
    return tuple(_packing(block, list(function.params)) for block in blocks)


def _packing(block: Any, parameters: Sequence[Any]) -> WeightOrder:
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tvm.ir.TensorLoad):
        raise UnknownOrderError(f"{block.name_hint} is no copy")
    given = store.value.source
    numbers = [n for n, each in enumerate(parameters) if each.same_as(given)]
    if not numbers:
        raise UnknownOrderError(f"{block.name_hint} copies no argument")
    variables = {each.var: number for number, each in enumerate(block.iter_vars)}
    extents = [int(each.dom.extent) for each in block.iter_vars]
    shape = tuple(int(extent) for extent in given.shape)
    axes, taken = [], []
    for axis, index in enumerate(store.value.indices):
        variable = _variable(index, variables)
        count = 1 if variable is None else extents[variable]
        values = np.broadcast_to(_values(index, np.arange(count)), count)
        if not np.array_equal(values, np.arange(shape[axis])):
            taken.append((axis, tuple(int(value) for value in values)))
        axes.append(variable)
    written, extents = _written(store.indices, variables, extents)
    # The digits of each axis, from the most significant one, and which place each is written to.
    digits = [(written.index(d), d) for variable in axes for d in _of(variable, written)]
    padded = tuple(1 if variable is None else extents[variable] for variable in axes)
    for variable, extent in zip(axes, padded, strict=True):
        own = _of(variable, written)
        uppers, lowers = [upper for _, _, upper in own], [lower for _, lower, _ in own]
        if [extent, *lowers] != [*uppers, 1]:
            raise UnknownOrderError(f"{block.name_hint} divides an axis unevenly")
    places = [place for place, _ in digits]
    if sorted(places) != list(range(len(written))):
        raise UnknownOrderError(f"{block.name_hint} is no order of its argument")
    sizes = tuple(map(_size, (digit for _, digit in digits)))
    order = tuple(places.index(place) for place in range(len(written)))
    return WeightOrder(numbers[0], shape, tuple(taken), padded, sizes, order)


#: Of a variable v: (v % upper) // lower.
_Digit = tuple[int, int, int]


def _size(digit: _Digit) -> int:
    _, lower, upper = digit
    return upper // lower


def _of(variable: int | None, written: Sequence[_Digit]) -> list[_Digit]:
    """The digits of a variable, the most significant one first."""
    return sorted((d for d in written if d[0] == variable), key=lambda d: -d[1])


class _TooShortError(Exception):
    """A variable is divided by what does not divide it: its axis is padded."""

    def __init__(self, variable: int, extent: int) -> None:
        super().__init__()
        self.variable, self.extent = variable, extent


def _written(
    indices: Sequence[Any], variables: Mapping[Any, int], extents: Sequence[int]
) -> tuple[list[_Digit], list[int]]:
    """The digits of all indices, and the extents of the variables with their padding."""
    longer = list(extents)
    while True:
        try:
            return [d for index in indices for d in _digits(index, variables, longer)], longer
        except _TooShortError as error:
            longer[error.variable] = error.extent


def _digits(index: Any, variables: Mapping[Any, int], extents: Sequence[int]) -> list[_Digit]:
    """The digits that an index is made of, the most significant one first; none where it is always
    0. Raises UnknownOrderError."""
    if isinstance(index, tirx.IntImm) and int(index) == 0:
        return []
    if isinstance(index, tirx.Var):
        variable = variables[index]
        return [(variable, 1, extents[variable])]
    if isinstance(index, tirx.FloorDiv | tirx.FloorMod) and isinstance(index.b, tirx.IntImm):
        high, low = _cut(_digits(index.a, variables, extents), int(index.b), extents)
        return high if isinstance(index, tirx.FloorDiv) else low
    if isinstance(index, tirx.Add) and isinstance(index.a, tirx.Mul):
        low = _digits(index.b, variables, extents)
        if isinstance(index.a.b, tirx.IntImm) and int(index.a.b) == math.prod(map(_size, low)):
            return _digits(index.a.a, variables, extents) + low
    raise UnknownOrderError(f"{index} is made of no digits")


def _cut(
    digits: list[_Digit], size: int, extents: Sequence[int]
) -> tuple[list[_Digit], list[_Digit]]:
    """The digits of a number divided by a size, and of what remains."""
    high, low = list(digits), list[_Digit]()
    while size > 1 and high:
        variable, lower, upper = high.pop()
        own = upper // lower
        if size % own == 0:
            size //= own
            low.insert(0, (variable, lower, upper))
            continue
        bound = lower * size
        if upper % bound:
            if upper != extents[variable] or high:
                raise UnknownOrderError(f"{digits} cannot be divided by {size}")
            raise _TooShortError(variable, -(-upper // bound) * bound)
        high.append((variable, bound, upper))
        low.insert(0, (variable, lower, bound))
        size = 1
    return high, low


def _variable(index: Any, variables: Mapping[Any, int]) -> int | None:
    """The only variable of an index; None for a constant one."""
    found: set[int] = set()
    tvm_ffi.structural_walk(index, [(tirx.Var, lambda each: found.add(variables[each]))])
    if len(found) > 1:
        raise UnknownOrderError(f"{index} follows several variables")
    return found.pop() if found else None


def _values(index: Any, values: Array) -> Array:
    """An index for each of the values of its variable."""
    if isinstance(index, tirx.Var):
        return values
    if isinstance(index, tirx.IntImm):
        return np.array(int(index))
    operation = _OPERATIONS.get(type(index))
    if operation is None:
        raise UnknownOrderError(f"{index} is no known index")
    result: Array = operation(_values(index.a, values), _values(index.b, values))
    return result
