"""Serialises the features of one program to bytes for the store.

The bytes start with a mark, the name of the feature schema, and the shape. Earlier versions wrote
only the shape; there the number of columns determines the schema.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from tunefleet.features import per_store, tilings

_SHAPE = struct.Struct("<HH")
#: Zero rows of 1 column, which versions without the mark never wrote.
_MARK = _SHAPE.pack(0, 1)
#: Schemas of bytes without a name, by number of columns.
_BY_COLUMNS = {tilings.WIDTH: tilings.SCHEMA, per_store.COLUMNS: per_store.SCHEMA}


def pack(features: NDArray[np.float32], schema: str = tilings.SCHEMA) -> bytes:
    """Rows x columns float32 of a schema, compressed: most features are zero."""
    name = schema.encode("ascii")
    rows, columns = features.shape
    data = np.ascontiguousarray(features, dtype="<f4").tobytes()
    head = _MARK + bytes([len(name)]) + name + _SHAPE.pack(rows, columns)
    return head + zlib.compress(data, 1)


def unpack(data: bytes) -> NDArray[np.float32]:
    """The inverse of `pack`; raises ValueError, struct.error or zlib.error for other data."""
    _, at = _named(data)
    rows, columns = _SHAPE.unpack_from(data, at)
    values = np.frombuffer(zlib.decompress(data[at + _SHAPE.size :]), dtype="<f4")
    return values.reshape(rows, columns)


def schema_of(data: bytes) -> str:
    """The schema name of packed features; empty if unknown."""
    try:
        name, at = _named(data)
        return name if name is not None else _BY_COLUMNS.get(_SHAPE.unpack_from(data, at)[1], "")
    except (struct.error, ValueError):
        return ""


def is_of_schema(data: bytes, schema: str = tilings.SCHEMA) -> bool:
    """Whether packed features have a schema; the default is that of current cost models."""
    return schema_of(data) == schema


def _named(data: bytes) -> tuple[str | None, int]:
    """The schema's name, None in bytes of earlier versions, and the offset of the shape."""
    if not data.startswith(_MARK):
        return None, 0
    at = len(_MARK) + 1
    end = at + data[len(_MARK)] if len(data) >= at else at
    if len(data) < max(end, at):
        raise ValueError("packed features are truncated")
    return data[at:end].decode("ascii"), end
