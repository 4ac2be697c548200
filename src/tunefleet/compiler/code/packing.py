"""How programs take weights in an order of their own: a network's are put into it once, when it is
compiled, and no program does so when it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import array_of
from tunefleet.compiler.graph.winograd import fitting
from tunefleet.compiler.space.product_steps import PACKED
from tunefleet.compiler.space.products import WIDE_WEIGHTS
from tunefleet.compiler.space.statements import (
    reading,
    realized,
    statements_of,
    with_statements,
)
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.trial import Built, WeightOrder

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx
_CALL_TIR = tvm.ir.Op.get("relax.call_tir")

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


def without_packing(module: Any) -> Any:
    """A scheduled module with the single function `main`, whose packed weights are arguments in
    their packed shape."""
    rewritten = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
    function = rewritten(_without_widening(module))["main"]
    # Made anew: TVM's pass leaves the type with the arguments before.
    made = tirx.PrimFunc(
        list(function.params), function.body, function.ret_type, attrs=function.attrs
    )
    return tvm.IRModule({"main": made})


def _without_widening(module: Any) -> Any:
    """The same of weights that overlapping vectors read, of which TVM's pass knows nothing: it
    takes packing for another order of the same weights."""
    function = module["main"]
    root = function.body.block
    statements = statements_of(root)
    found = [block for each in statements if (block := _widening(each)) is not None]
    if not found:
        return module
    (block,) = found
    wide, given = block.writes[0].source, block.reads[0].source
    argument = tirx.decl_buffer(wide.shape, str(wide.dtype), name=str(given.name))
    left = [reading(each, wide, argument) for each in statements if _widening(each) is None]
    allocated = [buffer for buffer in root.alloc_buffers if not buffer.same_as(wide)]
    new = with_statements(root, left, allocated)
    parameters = [argument if each.same_as(given) else each for each in function.params]
    realize = tvm.s_tir.SBlockRealize([], function.body.predicate, new)
    made = tirx.PrimFunc(parameters, realize, function.ret_type, attrs=function.attrs)
    return tvm.IRModule({"main": made})


def _widening(statement: Any) -> Any:
    """The block of a statement that is the packing of such weights."""
    found = realized(statement)
    if found is None or str(found.block.name_hint) != WIDE_WEIGHTS:
        return None
    return found.block if PACKED in found.block.annotations else None


def packings_of(function: Any) -> tuple[WeightOrder, ...]:
    """How a scheduled function packs its arguments. Raises UnknownOrderError."""
    blocks: list[Any] = []

    def visit(block: Any) -> None:
        if PACKED in block.annotations:
            blocks.append(block)

    tvm_ffi.structural_walk(function.body, [(tvm.s_tir.SBlock, visit)])
    return tuple(_packing(block, list(function.params)) for block in blocks)


#: Shapes of a program's arguments, and how it packs some of them.
Arguments = tuple[Sequence[Sequence[int]], Sequence[WeightOrder]]


def arguments_of(built: Built, arrays: Sequence[Array]) -> list[Array]:
    """A task's arguments as a built program takes them."""
    taken = [shape for shape, _ in built.args], built.packings
    return [_taken(taken, number, array) for number, array in enumerate(arrays)]


def with_weights_of(mod: Any, taken: Mapping[str, Arguments]) -> Any:
    """A module whose calls of the programs in `taken` have their weights as these take them:
    constants of the calls."""
    # A variable has the type of its function: those of functions of other types are others.
    builder = relax.BlockBuilder()
    named = {name: builder.add_func(mod[name], name) for name in taken}
    functions = {named.get(str(gvar.name_hint), gvar): f for gvar, f in mod.functions_items()}
    calls = _Calls(taken, named)
    made = {
        gvar: calls.visit_expr(function) if isinstance(function, relax.Function) else function
        for gvar, function in functions.items()
    }
    return tvm.IRModule(made, attrs=mod.attrs)


@relax.expr_functor.mutator
class _Calls(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, taken: Mapping[str, Arguments], named: Mapping[str, Any]) -> None:
        super().__init__()
        self._of_programs, self._named = taken, named
        self._known: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        taken = self._of_programs.get(str(call.args[0].name_hint)) if call.op == _CALL_TIR else None
        if taken is None:
            return call
        fields = list(call.args[1].fields)
        for number, field in enumerate(fields):
            if isinstance(field, tvm.ir.GenericConst):
                fields[number] = self._constant(field, taken, number)
        arguments = [self._named[str(call.args[0].name_hint)], relax.Tuple(fields)]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    def _constant(self, constant: Any, taken: Arguments, number: int) -> Any:
        shapes, packings = taken
        packing = next((p for p in packings if p.argument == number), None)
        key = constant, tuple(shapes[number]), replace(packing, argument=0) if packing else None
        if key not in self._known:
            array = array_of(constant.value)
            made = _taken(taken, number, array)
            # Without its type, numbers of 64 bits become those of 32.
            dtype = str(constant.value.dtype)
            self._known[key] = constant if made is array else relax.const(made, dtype)
        return self._known[key]


def _taken(taken: Arguments, number: int, array: Array) -> Array:
    """An argument as a program takes it: in Winograd's form, and packed."""
    shapes, packings = taken
    packing = next((p for p in packings if p.argument == number), None)
    given = fitting(array, packing.given if packing else tuple(shapes[number]))
    return given if packing is None else _packed(given, packing, shapes[number])


def _packed(array: Array, packing: WeightOrder, shape: Sequence[int]) -> Array:
    for axis, indices in packing.taken:
        array = array.take(indices, axis)
    if array.shape != packing.padded:
        longer = zip(packing.padded, array.shape, strict=True)
        array = np.pad(array, [(0, extent - given) for extent, given in longer])
    made = array.reshape(packing.digits).transpose(packing.order).reshape(shape)
    return np.ascontiguousarray(made)


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
