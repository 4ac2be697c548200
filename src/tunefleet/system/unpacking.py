"""Unpacking archives of strangers: nothing is written before all that the archive says of itself is
within bounds, and no more than it says."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path, PurePosixPath

from tunefleet.errors import InputError
from tunefleet.system.files import ARCHIVE_ERRORS, check_archive

MOST_FILES, MOST_DEPTH, LONGEST_NAME = 2000, 8, 200
_BLOCK = 1 << 20
_CURE = "pack the folder of the network again, by zip -r"


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of a zip archive below an empty folder.

    Raises InputError for what is no such archive, holds links, devices or encrypted files, more
    than 2,000 files, names that lead out of the folder, stand for two files or cannot be printed,
    folders more than 8 deep, or unpacks to far more than it is.
    """
    check_archive(archive)
    try:
        with zipfile.ZipFile(archive) as packed:
            members = {_place(member): member for member in packed.infolist()}
            files = _files(members, len(packed.infolist()), archive)
            for place, member in files.items():
                target = folder / place
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(packed, member, target)
    except ARCHIVE_ERRORS as error:
        said = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{archive.name} is no zip archive: {said}", cure=_CURE) from error


def check_name(name: str) -> None:
    """Raises InputError for what is no plain name of a file: a path, a name that some system or
    terminal takes for something else, or one that is too long."""
    reason = ""
    if not name or name in (".", "..") or any(sign in name for sign in "/\\:"):
        reason = "is no name of a file"
    elif not name.isprintable():
        reason = "has characters that cannot be printed"
    elif name.startswith(("-", "~", ".")) or name != name.strip():
        reason = "begins or ends as no name of a network does"
    elif len(name.encode()) > LONGEST_NAME:
        reason = f"has more than {LONGEST_NAME} bytes"
    if reason:
        raise InputError(
            f"{name[:60]!a} {reason}", cure="give it a short name of letters and digits"
        )


def _place(member: zipfile.ZipInfo) -> PurePosixPath:
    place = PurePosixPath(member.filename)
    if member.filename.startswith("/") or ".." in place.parts or member.orig_filename == "":
        raise InputError(f"{member.filename[:60]!a} leads out of the archive", cure=_CURE)
    for part in place.parts:
        # Hidden files that archivers add are left out later, not refused.
        check_name(part.lstrip(".") or part)
    return place


def _files(
    members: dict[PurePosixPath, zipfile.ZipInfo], count: int, archive: Path
) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """Those to write."""
    files = {place: member for place, member in members.items() if not member.is_dir()}
    if count != len(members):
        raise InputError(f"{archive.name} holds two files of one name", cure=_CURE)
    if len(members) > MOST_FILES:
        raise InputError(
            f"{archive.name} holds {len(members):,} files, a network has at most {MOST_FILES:,}",
            cure="pack the network alone",
        )
    for place, member in files.items():
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise InputError(f"{place} in {archive.name} is a link or a device", cure=_CURE)
        if member.flag_bits & 1:
            raise InputError(f"{archive.name} is encrypted", cure=_CURE)
        if len(place.parts) > MOST_DEPTH:
            raise InputError(f"{archive.name} has folders {len(place.parts)} deep", cure=_CURE)
        if any(parent in files for parent in place.parents):
            raise InputError(f"{place} in {archive.name} lies below a file", cure=_CURE)
    return {
        place: member
        for place, member in files.items()
        if not any(part.startswith(".") or part == "__MACOSX" for part in place.parts)
    }


def _write(packed: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    left = member.file_size
    with packed.open(member) as source, target.open("xb") as file:
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise zipfile.BadZipFile(f"{member.filename} is longer than it says")
            file.write(block)
