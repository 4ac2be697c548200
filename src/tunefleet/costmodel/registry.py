"""Trained cost models on disk, each version with its lineage.

An entry is a folder called by its id, published by one rename, which never changes again:

    card.json       what it is (`tunefleet.costmodel.card`)
    member-0.bin    the model of each seed, as its `save` wrote it, without pickle
    member-1.bin

The registry of a home is written; models that come with the package are read beside it. A name is
the home's newest version of it, and one that comes with the package where the home has none:
another release changes nothing that a user named. Every InputError names the file, the cause and
the cure.
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
#: Models that come with the package.
SHIPPED = Path(__file__).parent / "shipped"

#: No member is that large: what is larger is not read.
_LARGEST = 1 << 30
_SHORTEST_PREFIX = 4
_DAMAGED = "export it again from where it was trained, or train it again"


@dataclass(frozen=True)
class RegistryEntry:
    """One version: its card, and the folder or archive that holds it."""

    card: Card
    path: Path

    def data(self) -> tuple[bytes, ...]:
        """The members' bytes; raises InputError where they are not those of the card."""
        members = []
        for number, expected in enumerate(self.card.files):
            name = _member(number)
            data = _read(self.path, name)
            if sha256(data).hexdigest() != expected:
                raise _damaged(self.path, name, "its content does not fit the card")
            members.append(data)
        return tuple(members)

    def member(self, number: int) -> Path:
        """The file of a member, once all are found to be those of the card. Raises InputError, also
        for an archive."""
        self.data()
        if not self.path.is_dir():
            raise InputError(f"{self.path} is an archive", cure="extract it and name the folder")
        return self.path / _member(number)

    def load(self) -> list[CostModel]:
        """The members, in the order of the card's seeds, once a process of its own has loaded them
        as well: a file of a stranger may crash its library. Raises InputError."""
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
                f"cost model {self.card.name} is of the kind {kind!r}, which is not known here",
                cure=f"use a tunefleet that has it; this one has {', '.join(MODELS)}",
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
    """Versions of cost models in a directory, with those of the package beside them.

    Processes may add at the same time; whoever reads sees whole entries only.
    """

    def __init__(self, directory: Path, shipped: Path | None = None) -> None:
        self.directory = directory
        self.shipped = shipped or SHIPPED

    def add(self, card: Card, members: Sequence[bytes]) -> RegistryEntry:
        """Publish a version and return it with its id; what is there already stays as it is.

        The card's files are those of `members`, otherwise ValueError. Raises SetupError when the
        directory cannot be written.
        """
        if tuple(sha256(data).hexdigest() for data in members) != card.files:
            raise ValueError("the card is not that of these members")
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
        """An entry that `get` found elsewhere, by its path, added to the registry; any other as it
        is. Raises InputError and SetupError.
        """
        if entry.path.parent == self.directory or self.is_shipped(entry):
            return entry
        return self.add(entry.card, entry.data())

    def list(self) -> tuple[list[RegistryEntry], list[InputError]]:
        """All versions, newest first, and what is wrong with entries that cannot be read."""
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
        """The one of `list` that a name means: the newest of the home, else of the package."""
        named = [entry for entry in entries if entry.card.name == name]
        return min(named, key=self.is_shipped, default=None)

    def get(self, wanted: str) -> RegistryEntry:
        """The version of an id or the beginning of one, else the one that is `called` so.

        The path of an exported entry is taken as well; a folder here, without a slash, only where
        nothing else is meant, so that what lies here hides no model. Raises InputError.
        """
        if os.sep in wanted or wanted.endswith(".zip"):
            return open_entry(Path(wanted))
        if len(wanted) >= _SHORTEST_PREFIX:
            matches = {path.name: path for path in self._paths() if path.name.startswith(wanted)}
            if len(matches) == 1:
                return open_entry(*matches.values())
            if matches:
                raise InputError(
                    f"{len(matches)} cost models have ids that begin with {wanted}",
                    cure="give more of the id",
                )
        entries, damaged = self.list()
        named = self.called(wanted, entries)
        if named is not None:
            return named
        if (Path(wanted) / CARD).exists():
            return open_entry(Path(wanted))
        known = ", ".join(dict.fromkeys(entry.card.name for entry in entries))
        unread = f" ({len(damaged)} that cannot be read)" if damaged else ""
        raise InputError(
            f"no cost model {wanted!r} in {self.directory}{unread}",
            cure=f"choose of {known}" if known else "train one with `tunefleet costmodel train`",
        )

    def is_shipped(self, entry: RegistryEntry) -> bool:
        """Whether a version comes with the package; a copy of one in the home does too."""
        return (self.shipped / entry.card.id).is_dir()

    def shipped_of(self, name: str) -> RegistryEntry | None:
        """The version that comes with the package under a name, which one of the home hides.
        Raises InputError."""
        entries = map(open_entry, _entries(self.shipped))
        return next((entry for entry in entries if entry.card.name == name), None)

    def _paths(self) -> Iterator[Path]:
        for directory in dict.fromkeys((self.directory, self.shipped)):
            yield from _entries(directory)


def registry_of(home: Path | None) -> Registry:
    """The registry of a home; without one the shipped models alone."""
    return Registry(SHIPPED if home is None else Home(home).cost_models)


def _entries(directory: Path) -> list[Path]:
    """What starts with a dot is a draft, of a process that works or was killed."""
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
    """Write a folder that appears when it is complete; another process may have been first."""
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
    """The same bytes for the same files: entries of an archive have no time here."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
