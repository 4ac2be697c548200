"""Arrays with a header of texts as one safetensors file: how neural models are saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

#: The key of the header under which its format stands.
FORMAT = "format"

#: A safetensors file starts with the length of its JSON header, in as many bytes.
_LENGTH = 8


def dumps(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, str]) -> bytes:
    """A safetensors file; `header` names its format under `FORMAT`, the rest is the caller's.

    Raises ValueError for a header without a format.
    """
    if not header.get(FORMAT):
        raise ValueError("a header without a format")
    # The library writes the bytes of an array as they lie in memory, whatever its strides are.
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return _sorted(bytes(save(whole, dict(header))))


def loads(data: bytes, *formats: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays and the header that `dumps` was given; the newest of the formats comes first.

    Raises ValueError for what is no safetensors file, or one of another format.
    """
    try:
        arrays = load(data)
        header = _header(data)
    except (
        SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError
    ) as error:  # fmt: skip
        raise ValueError(f"not a safetensors file: {error}") from error
    said = header.get(FORMAT)
    if said not in formats:
        raise ValueError(f"not a file of {formats[0]}: it says {said!r}")
    return arrays, header


def _header(data: bytes) -> dict[str, str]:
    """The library's reader of bytes gives the arrays only, once it has checked the file."""
    metadata = json.loads(data[_LENGTH : _end(data)]).get("__metadata__", {})
    return {str(name): str(value) for name, value in metadata.items()}


def _end(data: bytes) -> int:
    """Where the header ends."""
    return _LENGTH + int.from_bytes(data[:_LENGTH], "little")


def _sorted(data: bytes) -> bytes:
    """The file with its header in order: the library's is another each time, and versions of a
    model are told apart by their bytes."""
    end = _end(data)
    text = json.dumps(json.loads(data[_LENGTH:end]), sort_keys=True, separators=(",", ":"))
    header = text.encode()
    # The format wants arrays to start at a multiple of the length's own size.
    header += b" " * (-len(header) % _LENGTH)
    return len(header).to_bytes(_LENGTH, "little") + header + data[end:]


def arrays_in(folder: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{folder}/{name}": value for name, value in arrays.items()}


def arrays_below(arrays: Mapping[str, NDArray[Any]], folder: str) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(f"{folder}/"): value
        for name, value in arrays.items()
        if name.startswith(f"{folder}/")
    }
