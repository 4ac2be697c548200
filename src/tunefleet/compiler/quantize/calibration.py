"""Reads calibration inputs from files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.array_files import SUFFIXES, named_arrays
from tunefleet.compiler.frontends.spec import listed, shown
from tunefleet.errors import InputError
from tunefleet.system.files import check_regular

Array = NDArray[Any]
SampleInputs = Mapping[str, Array]

_CURE = "give .npy or .npz files of inputs by name, or a folder of them"
#: Further samples are not read: calibration keeps the outputs of every layer for each.
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
    """The files of `data`: itself, or those in the folder, sorted. Raises InputError."""
    if data.is_dir():
        files = sorted(path for path in data.iterdir() if path.suffix in SUFFIXES)
        if not files:
            raise InputError(f"{shown(data)} contains no calibration data", cure=_CURE)
        return files
    if data.suffix not in SUFFIXES:
        raise InputError(f"{shown(data)} is not calibration data", cure=_CURE)
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

    An array with one axis more than the network's input has a sample per index of its first axis.
    An array with as many axes consists of batches of the network, each a sample; if the batch is
    free, each row is a sample. Raises InputError.
    """
    samples: list[SampleInputs] = []
    for path in files_of(data):
        arrays = named_arrays(path, [each.name for each in inputs], _CURE)
        parts = {each.name: _split(arrays[each.name], each, path) for each in inputs}
        counts = {name: len(part) for name, part in parts.items()}
        if len(set(counts.values())) > 1:
            contents = ", ".join(f"{count} of {name}" for name, count in counts.items())
            raise InputError(
                f"{shown(path)} contains {contents}", cure="give as many samples of each input"
            )
        samples += [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
        if len(samples) >= MOST_SAMPLES:
            break
    if not samples:
        raise InputError(f"{shown(data)} contains no sample", cure=_CURE)
    samples = samples[:MOST_SAMPLES]
    _check_ranges(samples, shown(data))
    return samples


def _check_ranges(samples: Sequence[SampleInputs], what: str) -> None:
    """Raises InputError if all float inputs are zero: every other number would be out of the
    calibrated ranges. A single mask may be zero."""
    floats = [name for name, array in samples[0].items() if array.dtype.kind == "f"]
    if floats and not any(sample[name].any() for sample in samples for name in floats):
        raise InputError(
            f"{what} contains only zeros for {listed(floats)}, which have no range",
            cure="calibrate with realistic inputs of the network",
        )


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
            f"{shown(path)}: {array.dtype}[{extents}] does not fit the network's input ({each})",
            cure="save it in the input's form, with one more axis for several samples",
        )
    with np.errstate(over="ignore"):
        parts = [np.asarray(part, each.dtype, order="C") for part in parts]
    if np.dtype(each.dtype).kind == "f" and not all(np.isfinite(part).all() for part in parts):
        raise InputError(
            f"{shown(path)} contains NaN or infinite numbers for {each.name}, which have no range",
            cure="leave these samples out",
        )
    return parts
