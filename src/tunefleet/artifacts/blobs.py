"""Files and folders named by their content: networks of jobs, and what travels between stages,
steps and machines.

A name is the SHA-256 of a file with the suffix of its name, or of a folder's files with their
paths. No record holds a path: whoever has the blobs finds them by name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import unquote, urlsplit

from tunefleet.core.printing import quoted
from tunefleet.errors import InputError, SetupError, raise_disk_full
from tunefleet.system.scratch import scratch_folder

_IN_USE = ".in-use"
_NAME = re.compile(r"[0-9a-f]{64}(\.\w+)?")
#: Where nobody can make it again.
_CURE = "leave the home folder as it is while a job runs, and run the command again"


class LostBlobError(SetupError):
    """A blob is gone, or is not what its name says: it is to be made again."""


class Blobs(Protocol):
    """Files and folders by their content.

    **Threads and processes.** Any may call; equal content may be put by several. A blob is seen
    when it is complete, never before.
    **Ownership.** `put` takes what it is given; what `path` gives is not to be changed.
    **Errors.** LostBlobError for what is not there or is damaged, SetupError where nothing can be
    written.
    """

    def draft(self) -> tempfile.TemporaryDirectory[str]:
        """A folder in which something is made that will be put."""

    def put(self, path: Path) -> str:
        """Keep a file or folder of a draft; its name. A damaged blob of that name is replaced."""

    def path(self, name: str) -> Path:
        """Where a blob lies, verified when this process meets it first."""

    def has(self, name: str) -> bool:
        """Whether `path` would find it, unread."""

    def names(self, after: str = "", limit: int = 1000) -> list[str]:
        """A page of the names in their order, which begins behind `after`."""

    def remove(self, name: str) -> None:
        """A blob is not needed any more."""

    def in_use(self) -> AbstractContextManager[None]:
        """Nobody sweeps meanwhile. May be held by many."""

    def sweep(self, unneeded: Callable[[], Iterable[str]]) -> bool:
        """Remove the blobs that `unneeded` names, which is called when nobody uses any of them and
        nobody can begin to. Where somebody does, nothing is removed, and this is False."""


def is_blob(name: str) -> bool:
    """Whether a blob may have this name."""
    return _NAME.fullmatch(name) is not None


def open_blobs(place: str | Path) -> Blobs:
    """The blobs of a folder, by its path or its URL (`file:///...`). Raises InputError."""
    if isinstance(place, Path) or "://" not in place:
        return FolderBlobs(Path(place))
    url = urlsplit(place)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise InputError(
            f"blobs cannot be kept at {quoted(place)}", cure="give a path, or file:///PATH"
        )
    return FolderBlobs(Path(unquote(url.path)))


def keep(blobs: Blobs, files: Mapping[str, tuple[Path, str]]) -> str:
    """The name of a folder with copies of files, which are given by their paths in it, each with
    its SHA-256: made now, or found. Raises InputError for a file that has another content by now,
    and what the disk raises."""
    name = _folder_name({Path(place): content for place, (_, content) in files.items()})
    with suppress(LostBlobError, FileNotFoundError):
        os.utime(blobs.path(name))  # it is needed again, as if it were new
        return name
    with blobs.draft() as draft:
        for place, (file, _) in files.items():
            copy = Path(draft, name, place)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        if blobs.put(Path(draft, name)) != name:
            given = Path(next(iter(files))).parts[0]
            cure = "give the command again"
            raise InputError(f"{given} was changed while it was read", cure=cure)
    return name


class FolderBlobs:
    """`Blobs` in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._verified: set[str] = set()

    @property
    def root(self) -> Path:
        """The folder, made where it is missing."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise_disk_full(error)
            raise SetupError(
                f"cannot create {self._root}: {error.strerror}", cure="use another home: --home DIR"
            ) from error
        return self._root

    def draft(self) -> tempfile.TemporaryDirectory[str]:
        return scratch_folder("object", self.root)

    def put(self, path: Path) -> str:
        name = name_of(path)
        place = self.root / name
        if place.exists() and self._is_whole(name):
            _remove(path)
        else:
            # Another process may put the same: then there is one, whoever was first.
            with suppress(OSError):
                os.rename(path, place)
            if not place.exists():
                raise LostBlobError(f"{path} cannot be kept in {self._root}", cure=_CURE)
        self._verified.add(name)
        return name

    def path(self, name: str) -> Path:
        place = self._root / name
        if not place.exists():
            raise LostBlobError(f"{name} is gone from {self._root}", cure=_CURE)
        if not self._is_whole(name):
            raise LostBlobError(f"{name} in {self._root} was damaged", cure=_CURE)
        return place

    def _is_whole(self, name: str) -> bool:
        """Whether a blob is what its name says, as this process has seen once; what is not is
        removed."""
        if name in self._verified:
            return True
        place = self._root / name
        with suppress(LostBlobError, FileNotFoundError):  # removed by another process just now
            read = place.stat()
            if name_of(place) == name:
                self._verified.add(name)
                return True
            if os.path.samestat(read, place.stat()):  # else another one was put meanwhile
                self._discard(name)
        return False

    def has(self, name: str) -> bool:
        return (self._root / name).exists()

    def names(self, after: str = "", limit: int = 1000) -> list[str]:
        try:
            found = [name for name in os.listdir(self._root) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name > after)[:limit]

    def remove(self, name: str) -> None:
        self._verified.discard(name)
        self._discard(name)

    def _discard(self, name: str) -> None:
        """At once: half of a folder is never seen."""
        if self.has(name):
            with self.draft() as draft, suppress(FileNotFoundError):
                os.rename(self._root / name, Path(draft, name))

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

    def sweep(self, unneeded: Callable[[], Iterable[str]]) -> bool:
        with _unused(self._root, "a") as alone:
            if alone:
                for name in unneeded():
                    self.remove(name)
        return alone


def remove_unused(folder: Path) -> bool:
    """Remove the blobs of one owner with their folder, unless somebody uses them, which is what it
    returns."""
    with _unused(folder, "a") as alone:
        if alone:
            with suppress(OSError):  # there are none
                # At once for whoever comes now; a kill leaves what the next sweep finds.
                gone = folder.rename(folder.with_name(f"{folder.name}.swept"))
                shutil.rmtree(gone, ignore_errors=True)
    return not alone


def is_used(folder: Path) -> bool:
    """Whether somebody uses the blobs of a folder now."""
    with _unused(folder, "r") as alone:
        return not alone


@contextmanager
def _unused(folder: Path, mode: str) -> Iterator[bool]:
    """Whether nobody uses the blobs of a folder, nor begins to within the block. Mode "r" writes
    nothing: somebody may begin where nobody has before."""
    try:
        file = (folder / _IN_USE).open(mode)
    except OSError:
        yield True  # there are none, or nobody has used them
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _lies_at(file: IO[str], place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except FileNotFoundError:
        return False


def name_of(path: Path) -> str:
    """The name of a file's or a folder's content."""
    if not path.is_dir():
        return _sha256(path) + path.suffix
    files = [file for file in path.rglob("*") if file.is_file()]
    return _folder_name({file.relative_to(path): _sha256(file) for file in files})


def _folder_name(digests: Mapping[Path, str]) -> str:
    total = hashlib.sha256()
    for place in sorted(digests):
        total.update(f"{place}\0{digests[place]}\n".encode())
    return total.hexdigest()


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise LostBlobError(f"{path} is gone", cure=_CURE) from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
