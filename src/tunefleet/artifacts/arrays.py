"""Lists of arrays in a file: without pickle, and with the types that NumPy lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import numpy_type

Array = NDArray[Any]


def save_arrays(path: Path, lists: Sequence[Sequence[Array]]) -> None:
    """Write lists of arrays, to be read by `load_arrays`."""
    entries: dict[str, Array] = {}
    for index, arrays in enumerate(lists):
        for number, array in enumerate(arrays):
            shape = "x".join(map(str, array.shape))
            name = f"{index}/{number}/{array.dtype.name}/{shape}"
            entries[name] = np.ascontiguousarray(array.reshape(-1)).view(np.uint8)
    with path.open("wb") as file:
        np.savez(file, **entries)  # type: ignore[arg-type]


def load_arrays(path: Path, count: int) -> list[list[Array]]:
    """The `count` lists of arrays of a file."""
    lists: list[list[Array]] = [[] for _ in range(count)]
    with np.load(path, allow_pickle=False) as entries:
        for name in sorted(entries.files, key=lambda n: tuple(map(int, n.split("/")[:2]))):
            index, _, dtype, shape = name.split("/")
            extents = tuple(map(int, shape.split("x"))) if shape else ()
            lists[int(index)].append(entries[name].view(numpy_type(dtype)).reshape(extents))
    return lists
