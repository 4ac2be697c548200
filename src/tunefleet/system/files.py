"""What a file must be before it is opened."""

from __future__ import annotations

import lzma
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from tunefleet.errors import InputError, SetupError

#: What archives may unpack to: any of them, and for each of its bytes. Weights hardly shrink.
_UNPACKED_BYTES, _UNPACKED_FACTOR = 256 << 20, 8
#: Of the list of its files, which is read into memory whole.
_LIST_BYTES = 4 << 20

#: What `zipfile` raises for a damaged archive: its own error, those of what it unpacks with, and
#: what comes of places, names and numbers that are none.
ARCHIVE_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError,
    OverflowError, struct.error,
)  # fmt: skip
#: Fields of the end of an archive, as `zipfile` has them.
_LIST_COUNT, _LIST_SIZE = zipfile._ECD_ENTRIES_TOTAL, zipfile._ECD_SIZE  # type: ignore[attr-defined]


def check_runs_code(folder: Path, cure: str) -> None:
    """Raises SetupError for a folder on a disk that no library can be loaded from (`noexec`), as
    hardened machines mount /tmp; one that is not there yet is on the disk of its parent."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if os.statvfs(there).f_flag & os.ST_NOEXEC:
        raise SetupError(
            f"code cannot be loaded from {folder}: its disk is mounted noexec", cure=cure
        )


def check_regular(path: Path, most_bytes: int | None = None) -> None:
    """Raises InputError for what would be waited for or has no end, a pipe or a device, and for
    what is longer than it can be. A file that is not there, or may not be seen, is left to whoever
    opens it."""
    try:
        status = path.stat()
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is no regular file", cure="copy it to one")
    if most_bytes is not None and status.st_size > most_bytes:
        raise InputError(
            f"{path} has {status.st_size >> 20:,} MiB, which such a file cannot have",
            cure="take the file that tunefleet wrote",
        )


def read_small(path: Path, most_bytes: int) -> bytes:
    """What a small file holds, which may be a pipe. Raises InputError for what is longer, such as a
    device without an end, and what opening it does."""
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise InputError(
            f"{path} has more than {most_bytes >> 10:,} KiB, which such a file cannot have",
            cure="check its name",
        )
    return content


def check_archive(path: Path) -> None:
    """Raises InputError for a zip archive that unpacks to far more than it is, or lists more files
    than a network has. What is no archive is left to whoever opens it."""
    try:
        with path.open("rb") as file:
            # The library's own reading of the end: what it takes for the length of the list.
            end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
        if end is not None and end[_LIST_SIZE] > _LIST_BYTES:
            raise InputError(
                f"{path} lists {end[_LIST_COUNT]:,} files",
                cure="take the file that was first written",
            )
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except ARCHIVE_ERRORS:
        return
    if unpacked > _UNPACKED_BYTES + _UNPACKED_FACTOR * path.stat().st_size:
        raise InputError(
            f"{path} unpacks to {unpacked >> 20:,} MiB", cure="take the file that was first written"
        )
