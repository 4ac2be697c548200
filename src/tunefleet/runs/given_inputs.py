"""Inputs that a user gives to check and measure with: files, or arrays, saved below home."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunefleet.core.importing import InputFile
from tunefleet.core.printing import quoted
from tunefleet.errors import InputError
from tunefleet.system.files import check_regular
from tunefleet.system.scratch import scratch_folder

#: A file, or arrays by the names of a network's inputs; several for several shapes.
GivenInputs = str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]]

_CURE = "give a .npz file, or a dictionary of arrays, by the names of the network's inputs"


def input_files(inputs: GivenInputs | None, folder: Callable[[], Path]) -> tuple[InputFile, ...]:
    """The files of given inputs. Arrays are saved below `folder`, in a place named by their
    content. Raises InputError."""
    if inputs is None:
        return ()
    if isinstance(inputs, str | os.PathLike | Mapping):
        inputs = [inputs]
    if not isinstance(inputs, Iterable):
        raise InputError(f"inputs are {type(inputs).__name__}", cure=_CURE)
    files = []
    for each in inputs:
        if isinstance(each, Mapping):
            path = _saved(each, folder())
        elif isinstance(each, str | os.PathLike):
            path = Path(each).resolve()
        else:
            raise InputError(f"inputs are {type(each).__name__}", cure=_CURE)
        files.append(InputFile(str(path), _content(path)))
    return tuple(files)


def _content(path: Path) -> str:
    if path.suffix not in (".npz", ".npy"):
        raise InputError(f"{quoted(str(path))} is no file of inputs", cure=_CURE)
    check_regular(path)
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot read {quoted(str(path))}: {reason}", cure=_CURE) from error


def _saved(arrays: Mapping[str, Any], folder: Path) -> Path:
    import numpy as np

    converted = {}
    for name, value in arrays.items():
        # A tensor of torch that is on its way to a gradient has to be detached.
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
        if not isinstance(name, str) or array.dtype.kind not in "biuf":
            raise InputError(f"input {name!r} is no array of numbers", cure=_CURE)
        converted[name] = array
    digest = sha256()
    for name, array in sorted(converted.items()):
        digest.update(f"{name}/{array.dtype.str}/{array.shape}/".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    path = folder / digest.hexdigest()[:32] / "inputs.npz"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder("inputs", path.parent) as draft:
            written = Path(draft) / path.name
            with written.open("wb") as file:
                np.savez(file, **converted)  # type: ignore[arg-type]
            written.rename(path)
    return path
