"""Weights of a compiled network in a file beside its module, mapped into memory when it is loaded.

Inside the module they would be copied at each load, in each process, and a library takes no more
than 2 GB of them. The file is in the safetensors format, with every tensor aligned for vector
instructions by paddings between them.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import struct
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from tunefleet.compiler.constants import array_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.errors import InputError

tvm = load_tvm()
relax = tvm.relax

#: Smaller constants stay inside the module.
_LEAST_BYTES = 256
_ALIGNMENT = 64
_FORMAT = "tunefleet-weights/1"

_NAMES = {
    "bool": "BOOL",
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}

Array = np.ndarray[Any, Any]


class Lifted:
    """A module whose large constants have become parameters behind its inputs.

    `arrays` are the distinct constants, `entries` the numbers of those that each function takes.
    """

    def __init__(self, mod: Any) -> None:
        self.arrays: list[Array] = []
        self.entries: dict[str, list[int]] = {}
        self._of_content: dict[str, int] = {}
        self._of_place: dict[Any, int] = {}
        self.mod = mod.clone()
        for gvar, function in mod.functions_items():
            if isinstance(function, relax.Function):
                lifter = _Lifter(self)
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
class _Sharer(relax.PyExprMutator):  # type: ignore[name-defined]
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
    array = array_of(constant.value) if str(constant.value.dtype) in _NAMES else None
    return None if array is None or array.nbytes < _LEAST_BYTES else array


@relax.expr_functor.mutator
class _Lifter(relax.PyExprMutator):  # type: ignore[name-defined]
    def __init__(self, module: Lifted) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self._module = module
        self._params: dict[int, Any] = {}

    def lifted(self, function: Any) -> Any:
        body = self.visit_expr(function.body)
        params = [*function.params, *(self._params[number] for number in self.numbers)]
        return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)

    def visit_generic_const_(self, op: Any) -> Any:
        array = _large(op)
        if array is None:
            return op
        number = self._module.number(array)
        if number not in self._params:
            self.numbers.append(number)
            self._params[number] = relax.Var(f"weight{number}", op.ty)
        return self._params[number]


def on_file(mod: Any, lifted: Lifted, path: Path) -> Any:
    """`mod`, with the constants that `lifted` has of it taken from the file that they were written
    to: pages that processes share and that the kernel drops when it needs memory."""
    tensors = _Weights(path)
    mapped = mod.clone()
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function):
            mapped.update_func(gvar, _Mapper(lifted, tensors).visit_expr(function))
    return mapped


@relax.expr_functor.mutator
class _Mapper(relax.PyExprMutator):  # type: ignore[name-defined]
    def __init__(self, lifted: Lifted, tensors: _Weights) -> None:
        super().__init__()
        self._lifted = lifted
        self._tensors = tensors

    def visit_generic_const_(self, op: Any) -> Any:
        array = _large(op)
        number = None if array is None else self._lifted.known(array)
        return op if number is None else relax.const(self._tensors.tensor(number))


def write_weights(path: Path, lifted: Lifted) -> None:
    """Write the arrays of a lifted module, and which function takes which."""
    header: dict[str, Any] = {
        "__metadata__": {"format": _FORMAT, "entries": json.dumps(lifted.entries)}
    }
    end = 0
    pieces: list[Array] = []
    for number, array in enumerate(lifted.arrays):
        padding = -end % _ALIGNMENT
        if padding:
            header[f"padding{number}"] = _described("uint8", (padding,), end)
            pieces.append(np.zeros(padding, "uint8"))
            end += padding
        header[str(number)] = _described(array.dtype.name, array.shape, end)
        pieces.append(array)
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for piece in pieces:
            np.ascontiguousarray(piece).tofile(file)


def _described(dtype: str, shape: tuple[int, ...], start: int) -> dict[str, Any]:
    end = start + math.prod(shape) * np.dtype(dtype).itemsize
    return {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}


class _Weights:
    """The tensors of a file, mapped from it."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            self._header = json.loads(file.read(length))
        metadata = self._header["__metadata__"]
        if metadata.get("format") != _FORMAT:
            raise InputError(
                f"{path} has the format {metadata.get('format')!r}, this tunefleet reads "
                f"{_FORMAT!r}",
                cure="use the tunefleet that wrote it, or tune again",
            )
        self.entries: dict[str, list[int]] = json.loads(metadata["entries"])
        # Copied where somebody writes, which nobody does: DLPack has no read-only tensors.
        with path.open("rb") as file:
            self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        _mapped.setdefault(path, WeakSet()).add(self._pages)
        self._data = np.frombuffer(self._pages, "uint8", offset=8 + length)

    def tensor(self, number: int) -> Any:
        described = self._header[str(number)]
        start, end = described["data_offsets"]
        array = self._data[start:end].view(_DTYPES[described["dtype"]])
        return tvm.runtime.from_dlpack(array.reshape(described["shape"]))


#: What is mapped of each file in this process.
_mapped: dict[Path, WeakSet[mmap.mmap]] = {}


def drop_pages(path: Path) -> None:
    """Give back the memory in which this process looked at a file of weights; whoever looks again
    gets it again."""
    for pages in _mapped.get(path, ()):
        pages.madvise(mmap.MADV_DONTNEED)


def read_weights(path: Path, entry: str) -> list[Any]:
    """The tensors that a function takes behind its inputs, mapped from the file.

    There are none where the module has no such file: its constants are inside.
    """
    if not path.is_file():
        return []
    weights = _Weights(path)
    return [weights.tensor(number) for number in weights.entries[entry]]
