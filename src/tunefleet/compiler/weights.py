"""Weights of a compiled network in a file beside its module, mapped into memory when it is loaded.

Inside the module they would be copied at each load, in each process, and a library takes no more
than 2 GB of them. The file is in the safetensors format, with every tensor aligned for vector
instructions by paddings between them.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

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
        self._numbers: dict[str, int] = {}
        self.mod = mod.clone()
        for gvar, function in mod.functions_items():
            if isinstance(function, relax.Function):
                lifter = _Lifter(self)
                self.mod.update_func(gvar, lifter.lifted(function))
                self.entries[str(gvar.name_hint)] = lifter.numbers

    def number(self, array: Array) -> int:
        """The place of an array among those that differ."""
        content = hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view("uint8").data)
        key = f"{array.dtype.name} {array.shape} {content.hexdigest()}"
        if key not in self._numbers:
            self._numbers[key] = len(self.arrays)
            self.arrays.append(array)
        return self._numbers[key]


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
        array = op.value.numpy() if str(op.value.dtype) in _NAMES else None
        if array is None or array.nbytes < _LEAST_BYTES:
            return op
        number = self._module.number(array)
        if number not in self._params:
            self.numbers.append(number)
            self._params[number] = relax.Var(f"weight{number}", op.ty)
        return self._params[number]


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


def read_weights(path: Path, entry: str) -> list[Any]:
    """The tensors that a function takes behind its inputs, mapped from the file.

    There are none where the module has no such file: its constants are inside.
    """
    if not path.is_file():
        return []
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    metadata = header["__metadata__"]
    if metadata.get("format") != _FORMAT:
        raise InputError(
            f"{path} has the format {metadata.get('format')!r}, this tunefleet reads {_FORMAT!r}",
            cure="use the tunefleet that wrote it, or tune again",
        )
    # Copied where somebody writes, which nobody does: DLPack has no read-only tensors.
    data = np.memmap(path, "uint8", "c", offset=8 + length) if len(header) > 1 else None
    found = []
    for number in json.loads(metadata["entries"])[entry]:
        described = header[str(number)]
        start, end = described["data_offsets"]
        assert data is not None
        array = data[start:end].view(_DTYPES[described["dtype"]]).reshape(described["shape"])
        found.append(tvm.runtime.from_dlpack(array))
    return found
