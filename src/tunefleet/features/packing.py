"""The features of one program as bytes: what a stage commits and a cost model reads back.

Rows are those of schema `tilings/1`; records of earlier versions have others.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from tunefleet.features.tilings import WIDTH

_HEADER = struct.Struct("<HH")


def pack(features: NDArray[np.float32]) -> bytes:
    """Rows x columns float32, compressed: most per-store features are zero."""
    rows, columns = features.shape
    data = np.ascontiguousarray(features, dtype="<f4").tobytes()
    return _HEADER.pack(rows, columns) + zlib.compress(data, 1)


def unpack(data: bytes) -> NDArray[np.float32]:
    """The array given to `pack`; raises ValueError on anything else."""
    rows, columns = _HEADER.unpack_from(data)
    values = np.frombuffer(zlib.decompress(data[_HEADER.size :]), dtype="<f4")
    return values.reshape(rows, columns)


def is_of_schema(data: bytes) -> bool:
    """Whether these are features that today's cost models take."""
    return len(data) > _HEADER.size and _HEADER.unpack_from(data)[1] == WIDTH
