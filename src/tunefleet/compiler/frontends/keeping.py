"""Copies of networks' files in places named by their content, which jobs read from then on."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tunefleet.compiler.frontends.spec import network_digest, network_parts, shown, source_path
from tunefleet.core.ids import digest
from tunefleet.errors import InputError, JobError
from tunefleet.system.scratch import scratch_folder

#: Where one is kept, as errors name it, which may leave out the beginning of a long path.
_PLACE = re.compile(r"[^\s']*networks/[0-9a-f]{32}/")


def kept_network(spec: str | os.PathLike[str], content: str, folder: Callable[[], Path]) -> Path:
    """The copy below `folder` of the file or model's folder `spec`, whose digest is `content`:
    made now, or found. Raises InputError where it is not what the digest says any more, and what
    the disk raises."""
    path = source_path(spec)
    place = folder() / digest([content, path.name])[:32]
    kept = place / (path.resolve().name if path.is_dir() else path.name)
    if not (kept.exists() and network_digest(kept) == content):
        with scratch_folder("network", folder()) as draft:
            made = Path(draft) / place.name
            _copy(path, made / kept.name)
            _put(made, path, kept, network_digest(made / kept.name) == content)
    os.utime(place)  # it is needed again, as if it were new
    return kept


@contextmanager
def named_as_given() -> Iterator[None]:
    """Errors name a network that is kept by the name of its file, as its user knows it."""
    try:
        yield
    except (InputError, JobError) as error:
        what, cure = (_PLACE.sub("", text) for text in (error.what, error.cure))
        if what == error.what:
            raise
        raise type(error)(what, cure=cure) from error


def kept_file(path: Path, content: str, folder: Callable[[], Path]) -> Path:
    """The copy of one file, whose SHA-256 is `content`. Raises as `kept_network`."""
    kept = folder() / digest([content, path.name])[:32] / path.name
    if not (kept.is_file() and _sha256(kept) == content):
        with scratch_folder("file", folder()) as draft:
            made = Path(draft) / kept.parent.name
            made.mkdir()
            shutil.copyfile(path, made / path.name)
            _put(made, path, kept, _sha256(made / path.name) == content)
    os.utime(kept.parent)  # it is needed again, as if it were new
    return kept


def _put(made: Path, path: Path, kept: Path, is_whole: bool) -> None:
    """A copy of `path` takes its place. Raises InputError."""
    if not is_whole:
        raise InputError(
            f"{shown(path)} was changed while it was read", cure="give the command again"
        )
    shutil.rmtree(kept.parent, ignore_errors=True)  # damaged
    try:
        made.rename(kept.parent)
    except OSError:  # another process has made it meanwhile
        if not kept.exists():
            raise


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(path: Path, to: Path) -> None:
    parts = network_parts(path)
    base = path if path.is_dir() else path.parent.resolve()
    if path.is_dir():
        # What a link leads to may be no part of the model.
        beside = (p for p in path.glob("*.json") if p.is_file() and not p.is_symlink())
        parts = list(dict.fromkeys([*parts, *beside]))
    for part in parts:
        if not path.is_dir() and part == path:
            target = to
        else:
            target = (to if path.is_dir() else to.parent) / part.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(part, target)
