"""Arrays and a text header in one safetensors file: the file format of neural models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

#: The header key of the format name.
FORMAT = "format"

#: The size in bytes of the length field at the start of a safetensors file.
_LENGTH = 8


def dumps(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, str]) -> bytes:
    """A safetensors file; `header` names its format under `FORMAT`, the rest is the caller's.

    Raises ValueError for a header without a format.
    """
    if not header.get(FORMAT):
        raise ValueError("a header without a format")
    # The library writes the raw memory of an array and ignores its strides.
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return _sorted(bytes(save(whole, dict(header))))


def loads(data: bytes, *formats: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The inverse of `dumps`; the newest of the formats comes first.

    Raises ValueError for other files and other formats.
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
        raise ValueError(f"not a {formats[0]} file: its format is {said!r}")
    return arrays, header


def _header(data: bytes) -> dict[str, str]:
    """The header; the library returns only the arrays, after checking the file."""
    metadata = json.loads(data[_LENGTH : _end(data)]).get("__metadata__", {})
    return {str(name): str(value) for name, value in metadata.items()}


def _end(data: bytes) -> int:
    """The end offset of the header."""
    return _LENGTH + int.from_bytes(data[:_LENGTH], "little")


def _sorted(data: bytes) -> bytes:
    """The file with a sorted header: the library's order varies, and a model version is identified
    by its bytes."""
    end = _end(data)
    text = json.dumps(json.loads(data[_LENGTH:end]), sort_keys=True, separators=(",", ":"))
    header = text.encode()
    # The format requires arrays to start at a multiple of the length field's size.
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
