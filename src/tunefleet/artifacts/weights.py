"""The file of weights beside a module, mapped into memory when it is loaded.

Inside the module they would be copied at each load, in each process, and a library takes no more
than 2 GB of them. The file is in the safetensors format, with every tensor aligned for vector
instructions by paddings between them. (`tunefleet.compiler.graph.weights` writes it.)
"""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.artifacts.tensors import ALIGNMENT, from_array, numpy_type
from tunefleet.errors import InputError

WEIGHTS_SUFFIX = ".safetensors"
FORMAT = "tunefleet-weights/1"
_METADATA = "__metadata__"

#: NumPy's names of types, and those of the format.
TYPE_NAMES = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
_DTYPES = {name: dtype for dtype, name in TYPE_NAMES.items()}


def weights_path(module: str | Path) -> Path:
    """Where the weights of a module lie: beside it."""
    return Path(module).with_suffix(WEIGHTS_SUFFIX)


class Weights:
    """The tensors of a file, mapped from it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header, length = _header(path)
        metadata = self._header[_METADATA]
        if metadata.get("format") != FORMAT:
            raise InputError(
                f"{path} has the format {metadata.get('format')!r}, this tunefleet reads "
                f"{FORMAT!r}",
                cure="use the tunefleet that wrote it, or tune again",
            )
        # Copied where somebody writes, which nobody does: DLPack has no read-only tensors.
        with path.open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._data = np.frombuffer(pages, "uint8", offset=8 + length)
        self.entries = _entries(path, metadata, self._header)
        for name, described in self._header.items():
            if name != _METADATA:
                wrong = _wrong(described, len(self._data), name.isdigit())
                if wrong:
                    raise _damaged(path, wrong)

    def of(self, entry: str) -> list[Any]:
        """The tensors that a function takes behind its inputs. Raises InputError."""
        if entry not in self.entries:
            raise _damaged(self._path, f"it has no weights of {entry}")
        return [self.tensor(number) for number in self.entries[entry]]

    def tensor(self, number: int) -> Any:
        described = self._header[str(number)]
        start, end = described["data_offsets"]
        array = self._data[start:end].view(numpy_type(_DTYPES[described["dtype"]]))
        return from_array(array.reshape(described["shape"]), ALIGNMENT)


def _entries(path: Path, metadata: dict[str, Any], header: dict[str, Any]) -> dict[str, list[int]]:
    """The tensors that each function takes, by their numbers. Raises InputError."""
    entries = _parsed(path, metadata.get("entries"))
    for numbers in entries.values():
        if not isinstance(numbers, list):
            raise _damaged(path, "a function has no list of tensors")
        for number in numbers:
            if type(number) is not int or str(number) not in header:
                raise _damaged(path, f"it has no tensor {number}")
    return entries


def _wrong(described: Any, size: int, is_aligned: bool) -> str:
    """Why a tensor does not lie within `size` bytes, or is not as long as its shape says; "" where
    it does. Kernels look no further."""
    if not isinstance(described, dict):
        return "a tensor has no description"
    offsets, shape = described.get("data_offsets"), described.get("shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not isinstance(shape, list):
        return "a tensor has no offsets or no shape"
    if any(type(number) is not int or number < 0 for number in (*offsets, *shape)):
        return "an offset or an extent is no number"
    dtype = described.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        return f"a tensor has the unknown type {dtype!r}"
    start, end = offsets
    length = math.prod(shape) * numpy_type(_DTYPES[dtype]).itemsize
    lies = start <= end <= size and end - start == length
    if not lies or (is_aligned and start % ALIGNMENT):
        return "a tensor does not lie where its shape fits"
    return ""


def _damaged(path: Path, why: object) -> InputError:
    return InputError(
        f"{path} is no file of weights: {why}", cure="copy the artifact again, or tune again"
    )


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What a file says of its tensors, and the bytes that it takes to say it. Raises InputError."""
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > path.stat().st_size:
            raise _damaged(path, "it ends in its header")
        header = _parsed(path, file.read(length))
    if not isinstance(header.get(_METADATA), dict):
        raise _damaged(path, "it has no metadata")
    return header, length


def _parsed(path: Path, text: Any) -> dict[str, Any]:
    """An object in JSON. Raises InputError."""
    if not isinstance(text, str | bytes):
        raise _damaged(path, "its metadata is no text")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(value, dict):
        raise _damaged(path, "its header is no object")
    return value


def read_weights(path: Path, entry: str) -> list[Any]:
    """The tensors that a function takes behind its inputs, mapped from the file.

    There are none where the module has no such file: its constants are inside.
    """
    if not path.is_file():
        return []
    return Weights(path).of(entry)
