"""Files and folders named by their content: what travels between stages, steps and machines.

A name is the SHA-256 of a file with the suffix of its name, or of a folder's files with their
paths. No record holds a path: whoever has the objects of an owner finds them by name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from tunefleet.errors import SetupError
from tunefleet.system.scratch import scratch_folder

_IN_USE = ".in-use"
#: Where nobody can make it again.
_CURE = "leave the home folder as it is while a job runs, and run the command again"


class LostObjectError(SetupError):
    """An object is gone, or is not what its name says: it is to be made again."""


class Objects(Protocol):
    """The objects of one owner.

    **Threads and processes.** Any may call; equal content may be put by several.
    **Ownership.** `put` takes what it is given; what `path` gives is not to be changed.
    **Errors.** LostObjectError for what is not there or is damaged, SetupError where nothing can be
    written.
    """

    def draft(self) -> tempfile.TemporaryDirectory[str]:
        """A folder in which something is made that will be put."""

    def put(self, path: Path) -> str:
        """Keep a file or folder of a draft; its name."""

    def path(self, name: str) -> Path:
        """Where an object lies, verified when this process meets it first."""

    def has(self, name: str) -> bool:
        """Whether `path` would find it, unread."""

    def remove(self, name: str) -> None:
        """An object is not needed any more."""

    def in_use(self) -> AbstractContextManager[None]:
        """Nobody sweeps the objects meanwhile. May be held by many."""


class FolderObjects:
    """`Objects` in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._verified: set[str] = set()

    @property
    def root(self) -> Path:
        """The folder, made where it is missing."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"cannot create {self._root}: {error.strerror}", cure="use another home: --home DIR"
            ) from error
        return self._root

    def draft(self) -> tempfile.TemporaryDirectory[str]:
        return scratch_folder("object", self.root)

    def put(self, path: Path) -> str:
        name = name_of(path)
        place = self.root / name
        if place.exists():
            _remove(path)
        else:
            # Another process may put the same: then there is one, whoever was first.
            with suppress(OSError):
                os.rename(path, place)
            if not place.exists():
                raise LostObjectError(f"{path} cannot be kept in {self._root}", cure=_CURE)
        self._verified.add(name)
        return name

    def path(self, name: str) -> Path:
        place = self._root / name
        if not place.exists():
            raise LostObjectError(f"{name} is gone from {self._root}", cure=_CURE)
        if name not in self._verified:
            if name_of(place) != name:
                _remove(place)
                raise LostObjectError(f"{name} in {self._root} was damaged", cure=_CURE)
            self._verified.add(name)
        return place

    def has(self, name: str) -> bool:
        return (self._root / name).exists()

    def remove(self, name: str) -> None:
        self._verified.discard(name)
        _remove(self._root / name)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        while True:
            place = self.root / _IN_USE
            try:
                file = place.open("a")
            except FileNotFoundError:
                continue  # swept between making the folder and this
            with file:
                fcntl.flock(file, fcntl.LOCK_SH)
                if _lies_at(file, place):  # and was not swept while this waited
                    yield
                    return


def remove_unused(folder: Path) -> bool:
    """Remove the objects of one owner, unless somebody uses them, which is what it returns."""
    try:
        with (folder / _IN_USE).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # At once for whoever comes now; a kill leaves what the next sweep finds.
            gone = folder.rename(folder.with_name(f"{folder.name}.swept"))
            shutil.rmtree(gone, ignore_errors=True)
    except BlockingIOError:
        return True
    except OSError:
        pass  # there are none
    return False


def is_used(folder: Path) -> bool:
    """Whether somebody uses the objects of an owner now."""
    try:
        with (folder / _IN_USE).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # nobody has used them
    return False


def _lies_at(file: IO[str], place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except FileNotFoundError:
        return False


def name_of(path: Path) -> str:
    """The name of a file's or a folder's content."""
    if not path.is_dir():
        return _sha256(path) + path.suffix
    total = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        total.update(f"{file.relative_to(path)}\0{_sha256(file)}\n".encode())
    return total.hexdigest()


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise LostObjectError(f"{path} is gone", cure=_CURE) from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
