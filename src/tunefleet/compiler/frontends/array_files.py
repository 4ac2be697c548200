"""Reads inputs of a network from .npz and .npy files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.spec import listed, shown
from tunefleet.errors import InputError, foreign, raise_mistake
from tunefleet.system.files import ARCHIVE_ERRORS, check_archive, check_regular

Array = NDArray[Any]

#: What `named_arrays` reads.
SUFFIXES = (".npy", ".npz")


def named_arrays(path: Path, names: Sequence[str], cure: str) -> dict[str, Array]:
    """The arrays of a file by name, of which `names` are needed; a .npy file has one, without a
    name. Nothing is unpickled. Raises InputError, with `cure` where it is no such file."""
    arrays = dict(_arrays(path, cure))
    if path.suffix == ".npy":
        if len(names) > 1:
            raise InputError(
                f"{shown(path)} contains one array, but the network takes {listed(names)}",
                cure="give .npz files with all of them by name",
            )
        arrays = dict(zip(names, arrays.values(), strict=False))
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError(
            f"{shown(path)} lacks {listed(missing)}; it contains "
            f"{listed(sorted(arrays)) or 'nothing'}",
            cure="name the inputs as the network does",
        )
    return arrays


def _arrays(path: Path, cure: str) -> Iterator[tuple[str, Array]]:
    check_regular(path)
    check_archive(path)
    try:
        # Opened here: NumPy does not close a file that it cannot read.
        with path.open("rb") as file:
            with foreign():
                loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                yield "", loaded
                return
            for name in loaded.files:
                with foreign():
                    array = loaded[name]
                yield name, array
    except (*ARCHIVE_ERRORS, SyntaxError) as error:  # NumPy reads the header as Python source
        raise_mistake(error)
        raise InputError(f"{shown(path)} contains no arrays of numbers", cure=cure) from error
