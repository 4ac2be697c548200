"""Networks of several files as one file for upload."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tunefleet.compiler.frontends.array_files import SUFFIXES
from tunefleet.compiler.frontends.spec import network_files
from tunefleet.errors import InputError
from tunefleet.system.scratch import scratch_folder

_READ_BYTES = 1 << 20


@contextmanager
def as_one_file(path: Path) -> Iterator[Path]:
    """A network or arrays as one file: itself, or a zip archive of its files, which exists
    within the block; equal content makes equal archives. Raises InputError."""
    files = _files(path)
    if len(files) == 1 and not path.is_dir():
        yield path
        return
    with scratch_folder("packed") as folder:
        archive = Path(folder, f"{path.resolve().name if path.is_dir() else path.stem}.zip")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            for name, file in sorted(files.items()):
                info = zipfile.ZipInfo(name)  # of no time
                info.compress_type = zipfile.ZIP_DEFLATED
                info.file_size = file.stat().st_size
                with file.open("rb") as source, packed.open(info, "w") as member:
                    shutil.copyfileobj(source, member, _READ_BYTES)
        yield archive


def _files(path: Path) -> Mapping[str, Path]:
    """What belongs to it, by the paths in an archive."""
    if path.suffix in (*SUFFIXES, ".zip") and path.is_file():
        return {path.name: path}
    if path.is_dir() and (arrays := [file for file in path.iterdir() if file.suffix in SUFFIXES]):
        return {f"{path.resolve().name}/{file.name}": file for file in arrays}
    if not path.exists():
        raise InputError(f"{path} is not there", cure="name a file or a folder of a network")
    return {name: file for name, (file, _) in network_files(path)[1].items()}
