"""Whether what a stranger sent is a network, or arrays: unpacked and read in a sandbox."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tunefleet.compiler.frontends import temporary_folder
from tunefleet.compiler.frontends.array_files import SUFFIXES, named_arrays
from tunefleet.compiler.frontends.spec import (
    FILE_SUFFIXES,
    is_huggingface,
    is_saved_model,
    network_bytes,
    network_places,
)
from tunefleet.core.importing import ImportOptions
from tunefleet.core.target import Target
from tunefleet.errors import InputError, OptionsNeededError
from tunefleet.stages.importing import import_network
from tunefleet.system.limits import Limits
from tunefleet.system.sandbox import Sandbox
from tunefleet.system.unpacking import MOST_DEPTH, unpack
from tunefleet.workers.apart import call_apart

#: Folders of an upload: what was sent, which stays as it is, and what is unpacked.
GIVEN, MADE = "given", "made"
ARCHIVE_SUFFIX = ".zip"

#: Of processor time and of address space, of which libraries take most: for any upload, and for
#: each of its bytes.
_CPU_S, _BYTES_PER_S = 25, 1 << 20
_MEMORY_BYTES, _MEMORY_FACTOR = 5 << 30, 10
_ARRAYS_CURE = "write them by numpy.savez, numbers alone"


@dataclass(frozen=True, slots=True)
class ReadUpload:
    """What was read once, to see whether it can be: `path` lies below the folder of its upload.
    `tasks` of its import; none of arrays. `needs`: what has to be said before a network can be
    imported."""

    path: str
    tasks: int = 0
    needs: str = ""


def read_apart(folder: Path, name: str, target: Target, options: ImportOptions) -> ReadUpload:
    """Read `folder / GIVEN / name`, a file of a network, of arrays, or a zip archive of either, in
    a process that reaches nothing else, starts no program, and writes to `folder / MADE` alone.

    Raises InputError and JobError with the reason why it is nothing that can be used.
    """
    size = (folder / GIVEN / name).stat().st_size
    sandbox = Sandbox((folder / GIVEN, *_inputs(options)), (folder / MADE,))
    return call_apart(
        f"{name} cannot be imported",
        read_upload,
        folder,
        name,
        target,
        options,
        network_bytes=size,
        sandbox=sandbox,
        limits=_limits(size),
    )


def import_apart(network: Path, target: Target, options: ImportOptions) -> None:
    """Import a network that was admitted with other options, in a sandbox as that of `read_apart`.
    Raises as that does, and OptionsNeededError where these options are not enough."""
    size = network_bytes(network)
    call_apart(
        f"{network.name} cannot be imported",
        _imported_there,
        network.absolute(),
        target,
        options,
        network_bytes=size,
        sandbox=Sandbox((*network_places(network), *_inputs(options))),
        limits=_limits(size),
    )


def _inputs(options: ImportOptions) -> Sequence[Path]:
    return [Path(file.path) for file in options.inputs]


def _limits(size: int) -> Limits:
    return Limits(
        memory_bytes=_MEMORY_BYTES + _MEMORY_FACTOR * size,
        cpu_s=_CPU_S + size // _BYTES_PER_S,
    )


def _imported_there(network: Path, target: Target, options: ImportOptions) -> int:
    os.chdir(network.parent)  # errors name it as it was sent
    return _imported(network.name, target, options)


def _imported(network: str, target: Target, options: ImportOptions) -> int:
    """The number of its tasks."""
    return len(import_network(network, target, temporary_folder(), options).tasks)


def read_upload(folder: Path, name: str, target: Target, options: ImportOptions) -> ReadUpload:
    """`read_apart` in that process."""
    os.chdir(folder)  # errors name files from here on
    path = Path(GIVEN, name)
    if path.suffix.lower() == ARCHIVE_SUFFIX:
        unpacked = Path(MADE, path.stem)
        unpacked.mkdir()
        unpack(path, unpacked)
        path = _content_of(unpacked, name)
    if arrays := array_files(path):
        for file in arrays:
            for array in named_arrays(file, (), _ARRAYS_CURE).values():
                if array.dtype.kind not in "biuf":
                    raise InputError(f"{file} holds {array.dtype}", cure=_ARRAYS_CURE)
        return ReadUpload(str(path))
    try:
        return ReadUpload(str(path), _imported(str(path), target, options))
    except OptionsNeededError as error:
        return ReadUpload(str(path), needs=str(error))


def array_files(path: Path) -> list[Path]:
    """The files of arrays that a file or a folder is; none for a network."""
    if not path.is_dir():
        return [path] if path.suffix in SUFFIXES else []
    below = sorted(path.iterdir())
    return below if all(file.suffix in SUFFIXES for file in below) else []


def _content_of(folder: Path, archive: str) -> Path:
    """The network of an unpacked archive: a folder of a format, or a file with what lies beside
    it, or a folder of arrays; archivers often pack the folder itself."""
    for _ in range(MOST_DEPTH):
        if is_saved_model(folder) or is_huggingface(folder) or array_files(folder):
            return folder
        below = sorted(folder.iterdir())
        networks = [path for path in below if path.suffix.lower() in FILE_SUFFIXES]
        if len(networks) == 1:
            return networks[0]
        if networks:
            raise InputError(
                f"{archive} holds {len(networks)} networks", cure="send them one by one"
            )
        if len(below) != 1 or not below[0].is_dir():
            break
        folder = below[0]
    raise InputError(
        f"{archive} holds no network",
        cure="pack an ONNX file with its weights, a SavedModel or a Hugging Face folder",
    )
