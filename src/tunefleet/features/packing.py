"""The features of one program as bytes: what a stage commits and a cost model reads back.

The bytes begin with a mark, the name of the schema that the rows are of, and their shape. Earlier
versions wrote the shape alone: of these the schema follows from the number of columns.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from tunefleet.features import per_store, tilings

_SHAPE = struct.Struct("<HH")
#: No rows of 1 column: what no version wrote that knew of no mark.
_MARK = _SHAPE.pack(0, 1)
#: Schemas of bytes without a name, by columns.
_BY_COLUMNS = {tilings.WIDTH: tilings.SCHEMA, per_store.COLUMNS: per_store.SCHEMA}


def pack(features: NDArray[np.float32], schema: str = tilings.SCHEMA) -> bytes:
    """Rows x columns float32 of a schema, compressed: most features are zero."""
    name = schema.encode("ascii")
    rows, columns = features.shape
    data = np.ascontiguousarray(features, dtype="<f4").tobytes()
    head = _MARK + bytes([len(name)]) + name + _SHAPE.pack(rows, columns)
    return head + zlib.compress(data, 1)


def unpack(data: bytes) -> NDArray[np.float32]:
    """The array given to `pack`; raises ValueError, struct.error or zlib.error on anything else."""
    _, at = _named(data)
    rows, columns = _SHAPE.unpack_from(data, at)
    values = np.frombuffer(zlib.decompress(data[at + _SHAPE.size :]), dtype="<f4")
    return values.reshape(rows, columns)


def schema_of(data: bytes) -> str:
    """The name of the schema that packed features are of; empty where it is not told."""
    try:
        name, at = _named(data)
        return name if name is not None else _BY_COLUMNS.get(_SHAPE.unpack_from(data, at)[1], "")
    except (struct.error, ValueError):
        return ""


def is_of_schema(data: bytes, schema: str = tilings.SCHEMA) -> bool:
    """Whether these are features of a schema: that of today's cost models unless told."""
    return schema_of(data) == schema


def _named(data: bytes) -> tuple[str | None, int]:
    """The schema's name, None in bytes of earlier versions, and where the shape stands."""
    if not data.startswith(_MARK):
        return None, 0
    at = len(_MARK) + 1
    end = at + data[len(_MARK)] if len(data) >= at else at
    if len(data) < max(end, at):
        raise ValueError("packed features that are cut short")
    return data[at:end].decode("ascii"), end
