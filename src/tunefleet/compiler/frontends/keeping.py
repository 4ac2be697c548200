"""Copies of networks' files in places named by their content, which jobs read from then on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tunefleet.compiler.frontends.spec import network_digest, network_parts, shown, source_path
from tunefleet.core.ids import digest
from tunefleet.errors import InputError
from tunefleet.system.scratch import scratch_folder

#: Bytes of the largest file that is kept with the parts of a model's folder: configurations, which
#: a framework may read.
_SMALL = 1 << 24


def kept_network(spec: str | os.PathLike[str], content: str, folder: Callable[[], Path]) -> Path:
    """The copy below `folder` of the file or model's folder `spec`, whose digest is `content`:
    made now, or found. Raises InputError where it is not what the digest says any more, and what
    the disk raises."""
    path = source_path(spec)
    place = folder() / digest([content, path.name])[:32]
    kept = place / (path.resolve().name if path.is_dir() else path.name)
    if kept.exists() and network_digest(kept) == content:
        os.utime(place)  # it is needed again, as if it were new
        return kept
    with scratch_folder("network", folder()) as draft:
        made = Path(draft) / place.name
        copy = made / kept.name
        _copy(path, copy)
        if network_digest(copy) != content:
            raise InputError(
                f"{shown(path)} was changed while it was read", cure="give the command again"
            )
        shutil.rmtree(place, ignore_errors=True)  # damaged
        try:
            made.rename(place)
        except OSError:  # another process has made it meanwhile
            if not kept.exists():
                raise
    return kept


def kept_file(path: Path, content: str, folder: Callable[[], Path]) -> Path:
    """The copy of one file, whose digest is `content`."""
    kept = folder() / content[:32] / path.name
    if not kept.is_file():
        with scratch_folder("file", folder()) as draft:
            made = Path(draft) / kept.parent.name
            made.mkdir()
            shutil.copyfile(path, made / path.name)
            shutil.rmtree(kept.parent, ignore_errors=True)
            made.rename(kept.parent)
    return kept


def _copy(path: Path, to: Path) -> None:
    parts = network_parts(path)
    base = path if path.is_dir() else path.parent.resolve()
    if path.is_dir():
        beside = (p for p in path.iterdir() if p.is_file() and p.stat().st_size <= _SMALL)
        parts = list(dict.fromkeys([*parts, *beside]))
    for part in parts:
        if not path.is_dir() and part == path:
            target = to
        else:
            target = (to if path.is_dir() else to.parent) / part.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(part, target)
