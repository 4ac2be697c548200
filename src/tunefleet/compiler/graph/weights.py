"""Takes the weights out of a compiled network, into a file beside its module
(`tunefleet.artifacts.weights`)."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.artifacts.tensors import ALIGNMENT, array_of
from tunefleet.artifacts.weights import FORMAT, TYPE_NAMES, Weights
from tunefleet.compiler.graph.rewriting import bindings_of
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

#: Smaller constants stay inside the module.
_LEAST_BYTES = 256
Array = np.ndarray[Any, Any]


class Lifted:
    """A module whose large constants have become parameters behind its inputs.

    `arrays` are the distinct constants, `entries` the numbers of those that each function takes.
    With `inside` constants stay in the module, but for those that a function returns.
    """

    def __init__(self, mod: Any, *, inside: bool = False) -> None:
        self.arrays: list[Array] = []
        self.entries: dict[str, list[int]] = {}
        self._of_content: dict[str, int] = {}
        self._of_place: dict[Any, int] = {}
        self.mod = mod.clone()
        for gvar, function in mod.functions_items():
            if isinstance(function, relax.Function):
                lifter = _Lifter(self.number, inside=inside)
                self.mod.update_func(gvar, lifter.lifted(function))
                self.entries[str(gvar.name_hint)] = lifter.numbers

    def number(self, array: Array) -> int:
        """The place of an array among those that differ."""
        place = _place(array)
        if place not in self._of_place:
            number = self._of_content.setdefault(_content(array), len(self.arrays))
            if number == len(self.arrays):
                self.arrays.append(array)
            self._of_place[place] = number
        return self._of_place[place]

    def known(self, array: Array) -> int | None:
        """As `number`, of an array that was in the module and still is where it was."""
        return self._of_place.get(_place(array))


class SharedConstants:
    """Makes modules of one network hold equal constants once."""

    def __init__(self) -> None:
        self.of_content: dict[str, Any] = {}

    def shared(self, mod: Any) -> Any:
        """`mod`, with constants of the modules before it where they are equal."""
        result = mod.clone()
        for gvar, function in mod.functions_items():
            if isinstance(function, relax.Function):
                result.update_func(gvar, _Sharer(self).visit_expr(function))
        return result


@relax.expr_functor.mutator
class _Sharer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, constants: SharedConstants) -> None:
        super().__init__()
        self._constants = constants

    def visit_generic_const_(self, op: Any) -> Any:
        array = _large(op)
        return op if array is None else self._constants.of_content.setdefault(_content(array), op)


def _content(array: Array) -> str:
    """Equal for equal arrays alone."""
    values = np.ascontiguousarray(array).reshape(-1).view("uint8").data
    return f"{array.dtype.name} {array.shape} {hashlib.sha256(values).hexdigest()}"


def _place(array: Array) -> Any:
    return array.ctypes.data, array.dtype, array.shape


def _large(constant: Any) -> Array | None:
    """The values of a constant that does not stay inside a module."""
    array = _values(constant)
    return None if array is None or array.nbytes < _LEAST_BYTES else array


def _values(constant: Any) -> Array | None:
    return array_of(constant.value) if str(constant.value.dtype) in TYPE_NAMES else None


def _returned(function: Any) -> list[Any]:
    """The constants that a function returns."""
    values = {binding.var: binding.value for binding in bindings_of(function) or []}
    found, pending = [], [function.body.body]
    while pending:
        expr = pending.pop()
        while isinstance(expr, relax.Var) and expr in values:
            expr = values[expr]
        if isinstance(expr, relax.Tuple):
            pending.extend(expr.fields)
        elif isinstance(expr, tvm.ir.GenericConst):
            found.append(expr)
    return found


@relax.expr_functor.mutator
class _Lifter(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    """`number` says which constant an array is, or None of one that stays inside. With `inside`
    it is asked about constants that are returned only."""

    def __init__(self, number: Callable[[Array], int | None], *, inside: bool = False) -> None:
        super().__init__()
        self._inside = inside
        self.numbers: list[int] = []
        self._number = number
        self._params: dict[int, Any] = {}
        self._returned: list[Any] = []

    def lifted(self, function: Any) -> Any:
        self._returned = _returned(function)
        body = self.visit_expr(function.body)
        params = [*function.params, *(self._params[number] for number in self.numbers)]
        return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)

    def visit_generic_const_(self, op: Any) -> Any:
        # Whoever runs a module knows its weights, and gives out copies of them.
        is_returned = any(op.same_as(each) for each in self._returned)
        array = _values(op) if is_returned else None if self._inside else _large(op)
        number = None if array is None else self._number(array)
        if number is None:
            return op
        if number not in self._params:
            self.numbers.append(number)
            self._params[number] = relax.Var(f"weight{number}", op.ty)
        return self._params[number]


def save_program(mod: Any, known: Lifted, path: Path) -> None:
    """Write a module for another process, less the constants that `known` has: those lie in its
    file of weights already."""
    without = mod.clone()
    numbers: dict[str, list[int]] = {}
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function):
            lifter = _Lifter(known.known)
            without.update_func(gvar, lifter.lifted(function))
            numbers[str(gvar.name_hint)] = lifter.numbers
    program = {"numbers": numbers, "module": str(tvm.ir.save_json(without))}
    path.write_text(json.dumps(program), encoding="utf-8")


def load_program(path: Path, weights: Path) -> Any:
    """The module of `save_program`. Its constants are pages of the file of weights, which processes
    share and which the kernel drops when it needs memory."""
    program = json.loads(path.read_text(encoding="utf-8"))
    mod, tensors = tvm.ir.load_json(program["module"]), Weights(weights)
    for name, numbers in program["numbers"].items():
        if numbers:
            taken = mod[name].params[-len(numbers) :]
            values = {p: tensors.tensor(n) for p, n in zip(taken, numbers, strict=True)}
            mod = relax.transform.BindParams(name, values)(mod)
    return mod


def write_weights(path: Path, lifted: Lifted) -> None:
    """Write the arrays of a lifted module, and which function takes which."""
    header: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "entries": json.dumps(lifted.entries)}
    }
    end = 0
    pieces: list[Array] = []
    for number, array in enumerate(lifted.arrays):
        padding = -end % ALIGNMENT
        if padding:
            header[f"padding{number}"] = _described("uint8", (padding,), end)
            pieces.append(np.zeros(padding, "uint8"))
            end += padding
        header[str(number)] = _described(array.dtype.name, array.shape, end)
        pieces.append(array)
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for piece in pieces:
            np.ascontiguousarray(piece).tofile(file)


def _described(dtype: str, shape: tuple[int, ...], start: int) -> dict[str, Any]:
    end = start + math.prod(shape) * np.dtype(dtype).itemsize
    return {"dtype": TYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
