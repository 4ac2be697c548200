"""The file of weights beside a module, mapped into memory when it is loaded.

Inside the module they would be copied at each load, in each process, and a library takes no more
than 2 GB of them. The file is in the safetensors format, with every tensor aligned for vector
instructions by paddings between them. (`tunefleet.compiler.graph.weights` writes it.)
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.artifacts.runtime import load_runtime
from tunefleet.errors import InputError

WEIGHTS_SUFFIX = ".safetensors"
FORMAT = "tunefleet-weights/1"
#: Kernels read whole vectors.
ALIGNMENT = 64
_METADATA = "__metadata__"

#: NumPy's names of types, and those of the format.
TYPE_NAMES = {
    "bool": "BOOL",
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
        try:
            self.entries = _entries(metadata["entries"], self._header)
            for name, described in self._header.items():
                if name != _METADATA:
                    _check(described, len(self._data), name.isdigit())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged(path, error) from error

    def of(self, entry: str) -> list[Any]:
        """The tensors that a function takes behind its inputs. Raises InputError."""
        if entry not in self.entries:
            raise _damaged(self._path, ValueError(f"it has no weights of {entry}"))
        return [self.tensor(number) for number in self.entries[entry]]

    def tensor(self, number: int) -> Any:
        described = self._header[str(number)]
        start, end = described["data_offsets"]
        array = self._data[start:end].view(_DTYPES[described["dtype"]])
        return load_runtime().from_dlpack(
            array.reshape(described["shape"]), require_alignment=ALIGNMENT
        )


def _entries(text: str, header: dict[str, Any]) -> dict[str, list[int]]:
    """The tensors that each function takes, by their numbers. Raises ValueError."""
    entries = json.loads(text)
    for numbers in entries.values():
        for number in numbers:
            if type(number) is not int or str(number) not in header:
                raise ValueError(f"it has no tensor {number}")
    found: dict[str, list[int]] = entries
    return found


def _check(described: dict[str, Any], size: int, is_aligned: bool) -> None:
    """Whether a tensor lies within `size` bytes, and is as long as its shape says: kernels look no
    further. Raises ValueError, and LookupError or TypeError for what is no description."""
    start, end = described["data_offsets"]
    shape = described["shape"]
    if any(type(number) is not int or number < 0 for number in (start, end, *shape)):
        raise ValueError("an offset or an extent is no number")
    length = math.prod(shape) * np.dtype(_DTYPES[described["dtype"]]).itemsize
    lies = start <= end <= size and end - start == length
    if not lies or (is_aligned and start % ALIGNMENT):
        raise ValueError("a tensor does not lie where its shape fits")


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} is no file of weights: {error}", cure="copy the artifact again, or tune again"
    )


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What a file says of its tensors, and the bytes that it takes to say it."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > path.stat().st_size:
                raise ValueError("it ends in its header")
            header = json.loads(file.read(length))
        header[_METADATA].get("format")
    except (
        struct.error,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise _damaged(path, error) from error
    return header, length


def read_weights(path: Path, entry: str) -> list[Any]:
    """The tensors that a function takes behind its inputs, mapped from the file.

    There are none where the module has no such file: its constants are inside.
    """
    if not path.is_file():
        return []
    return Weights(path).of(entry)
