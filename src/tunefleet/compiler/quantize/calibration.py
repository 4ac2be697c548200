"""Inputs that a network is calibrated with, from files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.spec import listed, shown
from tunefleet.errors import InputError, foreign, raise_mistake
from tunefleet.system.files import ARCHIVE_ERRORS, check_archive, check_regular

Array = NDArray[Any]
SampleInputs = Mapping[str, Array]

_SUFFIXES = (".npy", ".npz")
_CURE = "give .npy or .npz files of inputs by name, or a folder of them"
#: More are read no further: calibration keeps the outputs of every layer for each.
MOST_SAMPLES = 512


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a network; a free extent is None."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        extents = ", ".join("?" if extent is None else str(extent) for extent in self.shape)
        return f"{self.name}: {self.dtype}[{extents}]"


def files_of(data: Path) -> list[Path]:
    """The files that `data` names: itself, or those of the folder, sorted. Raises InputError."""
    if data.is_dir():
        files = sorted(path for path in data.iterdir() if path.suffix in _SUFFIXES)
        if not files:
            raise InputError(f"{shown(data)} holds no calibration data", cure=_CURE)
        return files
    if data.suffix not in _SUFFIXES:
        raise InputError(f"{shown(data)} is no calibration data", cure=_CURE)
    if not data.exists():
        raise InputError(f"{shown(data)} does not exist", cure=_CURE)
    return [data]


def content_of(data: Path) -> str:
    """SHA-256 of the files and their names. Raises InputError."""
    digest = hashlib.sha256()
    for path in files_of(data):
        check_regular(path)
        digest.update(path.name.encode())
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot read {shown(path)}: {reason}", cure=_CURE) from error
    return digest.hexdigest()


def samples_of(data: Path, inputs: Sequence[Input]) -> list[SampleInputs]:
    """The inputs of each inference, by name; at most `MOST_SAMPLES`.

    An array of one axis more than the network's input holds a sample for each place of its first
    axis. One of as many axes holds a sample for each batch of the network, of which it has one or
    several; where the batch is free, a sample is one row. Raises InputError.
    """
    samples: list[SampleInputs] = []
    for path in files_of(data):
        arrays = _named(path, inputs)
        parts = {each.name: _split(arrays[each.name], each, path) for each in inputs}
        counts = {name: len(part) for name, part in parts.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} of {name}" for name, count in counts.items())
            raise InputError(
                f"{shown(path)} holds {told}", cure="give as many samples of each input"
            )
        samples += [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
        if len(samples) >= MOST_SAMPLES:
            break
    if not samples:
        raise InputError(f"{shown(data)} holds no sample", cure=_CURE)
    samples = samples[:MOST_SAMPLES]
    _check_ranges(samples, shown(data))
    return samples


def _check_ranges(samples: Sequence[SampleInputs], what: str) -> None:
    """Raises InputError where all inputs in floats are zero: every other number would lie beyond
    the ranges that are found. A mask alone may be."""
    floats = [name for name, array in samples[0].items() if array.dtype.kind == "f"]
    if floats and not any(sample[name].any() for sample in samples for name in floats):
        raise InputError(
            f"{what} holds nothing but zeros for {listed(floats)}, which have no range",
            cure="calibrate with inputs that the network is used with",
        )


def _named(path: Path, inputs: Sequence[Input]) -> dict[str, Array]:
    arrays = dict(_arrays(path))
    if path.suffix == ".npy":
        if len(inputs) > 1:
            names = listed([each.name for each in inputs])
            raise InputError(
                f"{shown(path)} holds one array, the network takes {names}",
                cure="give .npz files with all of them by name",
            )
        arrays = {inputs[0].name: next(iter(arrays.values()))}
    missing = [each.name for each in inputs if each.name not in arrays]
    if missing:
        raise InputError(
            f"{shown(path)} lacks {listed(missing)}, it holds "
            f"{listed(sorted(arrays)) or 'nothing'}",
            cure="give the inputs by the names that the network has for them",
        )
    return arrays


def _arrays(path: Path) -> Iterator[tuple[str, Array]]:
    check_regular(path)
    check_archive(path)
    try:
        # Opened here: of a file that it cannot read NumPy leaves it open.
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
        raise InputError(f"{shown(path)} holds no arrays of numbers", cure=_CURE) from error


def _split(array: Array, each: Input, path: Path) -> list[Array]:
    """The samples of one input."""
    rank = len(each.shape)
    if array.ndim == rank + 1:
        parts = list(array)
    elif array.ndim == rank and rank:
        batch = each.shape[0] or 1
        parts = [array[i : i + batch] for i in range(0, len(array) - batch + 1, batch)]
        if len(array) % batch:
            parts = []
    else:
        parts = [array] if array.ndim == rank else []
    fits = parts and all(
        extent is None or extent == found
        for extent, found in zip(each.shape, parts[0].shape, strict=True)
    )
    if not fits or not np.can_cast(array.dtype, each.dtype, "same_kind"):
        extents = ", ".join(map(str, array.shape))
        raise InputError(
            f"{shown(path)}: {array.dtype}[{extents}] is not what the network takes ({each})",
            cure="save it as the network takes it, with one more axis for several samples",
        )
    with np.errstate(over="ignore"):
        parts = [np.asarray(part, each.dtype, order="C") for part in parts]
    if np.dtype(each.dtype).kind == "f" and not all(np.isfinite(part).all() for part in parts):
        raise InputError(
            f"{shown(path)} holds NaN or infinite numbers for {each.name}, which have no range",
            cure="leave these samples out",
        )
    return parts
