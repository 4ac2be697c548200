"""Whether what a stranger sent is a network: unpacked and imported in a sandbox."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tunefleet.compiler.frontends import temporary_folder
from tunefleet.compiler.frontends.spec import FILE_SUFFIXES, is_huggingface, is_saved_model
from tunefleet.core.importing import ImportOptions
from tunefleet.core.network import Footprint, NetworkInfo
from tunefleet.core.step import SegmentInfo
from tunefleet.core.target import Target
from tunefleet.errors import InputError
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


@dataclass(frozen=True, slots=True)
class ReadNetwork:
    """A network that was imported once, to see whether it can be: `path` lies below the folder of
    its upload. `flops` of one inference, `segments` stay in the source framework."""

    path: str
    info: NetworkInfo
    tasks: int
    flops: float
    footprint: Footprint
    segments: tuple[SegmentInfo, ...]
    notes: tuple[str, ...]


def read_apart(folder: Path, name: str, target: Target, options: ImportOptions) -> ReadNetwork:
    """Import `folder / GIVEN / name`, a file of a network or a zip archive of one, in a process
    that reaches nothing else, starts no program, and writes to `folder / MADE` alone.

    Raises InputError and JobError with the reason why it is no network that can be tuned.
    """
    size = (folder / GIVEN / name).stat().st_size
    limits = Limits(
        memory_bytes=_MEMORY_BYTES + _MEMORY_FACTOR * size,
        cpu_s=_CPU_S + size // _BYTES_PER_S,
    )
    inputs = (Path(file.path) for file in options.inputs)
    return call_apart(
        f"{name} cannot be imported",
        read_upload,
        folder,
        name,
        target,
        options,
        network_bytes=size,
        sandbox=Sandbox((folder / GIVEN, *inputs), (folder / MADE,)),
        limits=limits,
    )


def read_upload(folder: Path, name: str, target: Target, options: ImportOptions) -> ReadNetwork:
    """`read_apart` in that process."""
    os.chdir(folder)  # errors name files from here on
    path = Path(GIVEN, name)
    if path.suffix.lower() == ARCHIVE_SUFFIX:
        unpacked = Path(MADE, path.stem)
        unpacked.mkdir()
        unpack(path, unpacked)
        path = _network_in(unpacked, name)
    tasked = import_network(str(path), target, temporary_folder(), options)
    return ReadNetwork(
        str(path),
        tasked.info,
        len(tasked.tasks),
        tasked.flops,
        tasked.footprint,
        tasked.segments,
        (*tasked.notes, *tasked.warnings),
    )


def _network_in(folder: Path, archive: str) -> Path:
    """The network of an unpacked archive: a folder of a format, or a file with what lies beside
    it; archivers often pack the folder itself."""
    for _ in range(MOST_DEPTH):
        if is_saved_model(folder) or is_huggingface(folder):
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
