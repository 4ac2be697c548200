"""Trained cost models on disk, each version with its lineage.

An entry is a folder named by its id. It is published by one rename and never changes:

    card.json       lineage and metrics (`tunefleet.costmodel.card`)
    member-0.bin    the model of each seed, written by its `save`, without pickle
    member-1.bin

The registry of a home is writable; the models shipped with the package are read-only. A name means
the home's newest version of that name, or else the shipped one, so a new release does not change
the meaning of a user's names. Every InputError names the file, the cause and the cure.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from tunefleet.core.home import Home
from tunefleet.costmodel import MODELS, CostModel
from tunefleet.costmodel.card import Card
from tunefleet.errors import InputError, SetupError
from tunefleet.system.files import ARCHIVE_ERRORS, check_regular
from tunefleet.system.parsing import parsed

CARD = "card.json"
#: The models shipped with the package.
SHIPPED = Path(__file__).parent / "shipped"

#: Larger members are not read.
_LARGEST = 1 << 30
_SHORTEST_PREFIX = 4
_DAMAGED = "export it again from its original home, or train it again"


@dataclass(frozen=True)
class RegistryEntry:
    """One version: its card, and its folder or archive."""

    card: Card
    path: Path

    def data(self) -> tuple[bytes, ...]:
        """The members' bytes; raises InputError if they do not match the card."""
        members = []
        for number, expected in enumerate(self.card.files):
            name = _member(number)
            data = _read(self.path, name)
            if sha256(data).hexdigest() != expected:
                raise _damaged(self.path, name, "its content does not match the card")
            members.append(data)
        return tuple(members)

    def member(self, number: int) -> Path:
        """The file of a member, after checking all members against the card. Raises InputError,
        also for an archive."""
        self.data()
        if not self.path.is_dir():
            raise InputError(f"{self.path} is an archive", cure="extract it and give the folder")
        return self.path / _member(number)

    def load(self) -> list[CostModel]:
        """The members, in the order of the card's seeds. A separate process loads them first: an
        untrusted file may crash its library. Raises InputError."""
        size = sum(map(len, self.data()))
        parser = "tunefleet.costmodel.model_parser"
        with parsed(parser, [str(self.path)], what=str(self.path), size=size, cure=_DAMAGED):
            pass
        return self.load_here()

    def load_here(self) -> list[CostModel]:
        """The members, in this process. Raises InputError."""
        kind = self.card.kind
        if kind not in MODELS:
            raise InputError(
                f"cost model {self.card.name} is of the unknown kind {kind!r}",
                cure=f"use a version of tunefleet with it; this one has {', '.join(MODELS)}",
            )
        try:
            return [MODELS[kind].load(data) for data in self.data()]
        except ValueError as error:
            raise InputError(
                f"{self.path} cannot be loaded as {kind}: {error}", cure=_DAMAGED
            ) from error

    def export(self, path: Path) -> None:
        """Copy the entry to a folder, or to one file if `path` ends in .zip.

        Raises InputError, also for a path that exists.
        """
        if path.exists():
            raise InputError(f"{path} exists", cure="choose another path")
        files = {CARD: self.card.to_bytes()}
        files |= {_member(number): data for number, data in enumerate(self.data())}
        try:
            if path.suffix == ".zip":
                draft = path.with_name(f".{os.getpid()}-draft-{path.name}")
                _write_archive(files, draft)
                os.replace(draft, path)
            else:
                _publish(files, path)
        except OSError as error:
            raise InputError(
                f"cannot write {path}: {error.strerror or error}", cure="choose another path"
            ) from error


class Registry:
    """Versions of cost models in a directory, and the shipped ones.

    Several processes may add entries at once; readers only see complete entries.
    """

    def __init__(self, directory: Path, shipped: Path | None = None) -> None:
        self.directory = directory
        self.shipped = shipped or SHIPPED

    def add(self, card: Card, members: Sequence[bytes]) -> RegistryEntry:
        """Publish a version and return it with its id; an existing entry is not changed.

        Raises ValueError if the card's files are not those of `members`, and SetupError if the
        directory cannot be written.
        """
        if tuple(sha256(data).hexdigest() for data in members) != card.files:
            raise ValueError("the card does not match these members")
        card = card.with_id()
        path = self.directory / card.id
        files = {CARD: card.to_bytes()} | {_member(i): data for i, data in enumerate(members)}
        try:
            if not path.exists():
                _publish(files, path)
        except OSError as error:
            raise SetupError(
                f"cannot write cost models to {self.directory}: {error.strerror or error}",
                cure="use --home DIR or TUNEFLEET_HOME",
            ) from error
        return RegistryEntry(card, path)

    def keep(self, entry: RegistryEntry) -> RegistryEntry:
        """Copy an entry that `get` found by its path to the registry; return other entries
        unchanged. Raises InputError and SetupError.
        """
        if entry.path.parent == self.directory or self.is_shipped(entry):
            return entry
        return self.add(entry.card, entry.data())

    def list(self) -> tuple[list[RegistryEntry], list[InputError]]:
        """All versions, newest first, and the errors of unreadable entries."""
        entries: dict[str, RegistryEntry] = {}
        damaged: list[InputError] = []
        for path in self._paths():
            try:
                entry = open_entry(path)
                entries.setdefault(entry.card.id, entry)
            except InputError as error:
                damaged.append(error)
        return sorted(entries.values(), key=lambda e: (-e.card.created, e.card.id)), damaged

    def called(self, name: str, entries: Sequence[RegistryEntry]) -> RegistryEntry | None:
        """The entry of `list` for a name: the newest of the home, else the shipped one."""
        named = [entry for entry in entries if entry.card.name == name]
        return min(named, key=self.is_shipped, default=None)

    def get(self, wanted: str) -> RegistryEntry:
        """The version with an id or a prefix of one, else the one that is `called` so.

        The path of an exported entry is accepted too. A folder name without a slash is tried last,
        so that it hides no model. Raises InputError.
        """
        if os.sep in wanted or wanted.endswith(".zip"):
            return open_entry(Path(wanted))
        if len(wanted) >= _SHORTEST_PREFIX:
            matches = {path.name: path for path in self._paths() if path.name.startswith(wanted)}
            if len(matches) == 1:
                return open_entry(*matches.values())
            if matches:
                raise InputError(
                    f"{len(matches)} cost models have ids that start with {wanted}",
                    cure="give more of the id",
                )
        entries, damaged = self.list()
        named = self.called(wanted, entries)
        if named is not None:
            return named
        if (Path(wanted) / CARD).exists():
            return open_entry(Path(wanted))
        known = ", ".join(dict.fromkeys(entry.card.name for entry in entries))
        unread = f" ({len(damaged)} cannot be read)" if damaged else ""
        raise InputError(
            f"no cost model {wanted!r} in {self.directory}{unread}",
            cure=f"choose of {known}" if known else "train one with `tunefleet costmodel train`",
        )

    def is_shipped(self, entry: RegistryEntry) -> bool:
        """Whether a version is shipped with the package, also for a copy in the home."""
        return (self.shipped / entry.card.id).is_dir()

    def shipped_of(self, name: str) -> RegistryEntry | None:
        """The shipped version of a name that a version of the home hides. Raises InputError."""
        entries = map(open_entry, _entries(self.shipped))
        return next((entry for entry in entries if entry.card.name == name), None)

    def _paths(self) -> Iterator[Path]:
        for directory in dict.fromkeys((self.directory, self.shipped)):
            yield from _entries(directory)


def registry_of(home: Path | None) -> Registry:
    """The registry of a home; without a home only the shipped models."""
    return Registry(SHIPPED if home is None else Home(home).cost_models)


def _entries(directory: Path) -> list[Path]:
    """The entries of a directory; names with a leading dot are unfinished drafts."""
    return sorted(p for p in directory.glob("[!._]*") if p.is_dir()) if directory.is_dir() else []


def open_entry(path: Path) -> RegistryEntry:
    """The entry in a folder or in a .zip file. Raises InputError."""
    data = _read(path, CARD)
    try:
        return RegistryEntry(Card.from_bytes(data), path)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, CARD, str(error)) from error


def _member(number: int) -> str:
    return f"member-{number}.bin"


def _read(path: Path, name: str) -> bytes:
    """A file of an entry."""
    if not path.exists():
        raise InputError(f"no cost model at {path}", cure="see `tunefleet costmodel list`")
    try:
        if path.is_dir():
            check_regular(path / name, _LARGEST)
            return (path / name).read_bytes()
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(name).file_size > _LARGEST:
                raise _damaged(path, name, f"it is larger than {_LARGEST >> 20} MiB")
            return archive.read(name)
    except (FileNotFoundError, KeyError) as error:
        raise _damaged(path, name, "it is missing") from error
    except ARCHIVE_ERRORS as error:
        raise _damaged(path, name, getattr(error, "strerror", None) or str(error)) from error


def _damaged(path: Path, name: str, cause: str) -> InputError:
    return InputError(f"cost model {path} has no usable {name}: {cause}", cure=_DAMAGED)


def _publish(files: dict[str, bytes], path: Path) -> None:
    """Write a folder atomically; another process may have published it first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=path.parent))
    try:
        for name, data in files.items():
            (draft / name).write_bytes(data)
        draft.chmod(0o755)
        try:
            draft.rename(path)
        except OSError:
            if not (path / CARD).exists():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_archive(files: dict[str, bytes], path: Path) -> None:
    """Write a reproducible archive: its entries have no timestamps."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
