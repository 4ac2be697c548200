"""What a home and the temporary folder hold, and which of it nobody needs any more.

Records, artifacts, cost models and what a job that goes on needs are never removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefleet.artifacts.blobs import is_used, open_blobs
from tunefleet.core.home import Home
from tunefleet.core.job import JobState
from tunefleet.runs.on_the_way import sweep_objects, unneeded_objects
from tunefleet.store import Store, each_job, open_store
from tunefleet.system.scratch import left_behind

#: Files of networks that are younger may belong to a command that has just begun.
_YOUNG_S = 3600.0
#: What an artifact says of itself, its source included.
_MANIFEST = "artifact.json"


@dataclass(frozen=True, slots=True)
class DiskPart:
    """One kind of content: its size in bytes, and the paths that can go."""

    name: str
    about: str
    size: int
    can_go: tuple[Path, ...] = ()
    can_go_size: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "about": self.about,
            "bytes": self.size,
            "can_go_bytes": self.can_go_size,
            "can_go": [str(path) for path in self.can_go],
        }


def disk_usage(root: Path) -> list[DiskPart]:
    """The parts of a home, with temporary files, the largest first. Changes nothing."""
    home = Home(root)
    if not root.is_dir():
        return [_temporary(home)]
    store = open_store(root)
    try:
        parts = _parts(store, home)
    finally:
        store.close()
    return sorted(parts, key=lambda part: -part.size)


def prune(root: Path) -> list[DiskPart]:
    """Remove what can go, and return the parts as they were before."""
    home, parts = Home(root), disk_usage(root)
    for part in parts:
        if part.name == _NETWORKS:
            for path in part.can_go:
                open_blobs(home.networks).remove(path.name)
        elif part.name != _OBJECTS:
            for path in part.can_go:
                shutil.rmtree(path, ignore_errors=True)
    if root.is_dir():
        store = open_store(root)
        try:
            sweep_objects(store, home)  # which looks again at who uses them
        finally:
            store.close()
    return parts


_OBJECTS, _NETWORKS = "modules on their way", "networks"


def _parts(store: Store, home: Home) -> list[DiskPart]:
    needed = _needed_texts(store, home)
    in_use = _folders(home.objects)
    busy = any(is_used(folder) for folder in in_use)
    objects = [f for f in unneeded_objects(store, home) if not is_used(f)]
    sources = [
        (home.networks, _NETWORKS, "copies of what jobs and artifacts were given"),
        (home.quantized, "quantised networks", "made by --precision int8"),
        (home.modules, "exported networks", "torch modules and inputs given from Python"),
    ]
    kept = {home.store.name, *(path.name for path in _known(home))}
    rest = [p for p in home.root.iterdir() if p.name not in kept and not _of_store(home, p)]
    stored = [p for p in home.root.iterdir() if _of_store(home, p)]
    return [
        DiskPart("artifacts", "tuned networks: remove one by its folder", _size([home.artifacts])),
        DiskPart("store", "jobs and records", _size(stored)),
        DiskPart("cost models", "versions that searches may name", _size([home.cost_models])),
        _part(_OBJECTS, "modules and libraries of jobs", home.objects, objects),
        *(
            _part(name, about, folder, () if busy else _unneeded(folder, needed))
            for folder, name, about in sources
        ),
        _part(
            "outputs", "of run jobs of a service", home.outputs, _outputs_without_job(store, home)
        ),
        DiskPart("bug reports", "what to send with a report", _size([home.bugs])),
        DiskPart("logs", "what runs did: tunefleet logs", _size([home.logs])),
        DiskPart("other", "named devices, files of others", _size(rest)),
        _temporary(home),
    ]


def _outputs_without_job(store: Store, home: Home) -> list[Path]:
    """Folders of jobs that are not in the store any more."""
    folders = [job for tenant in _folders(home.outputs) for job in _folders(tenant)]
    return [folder for folder in folders if not store.jobs.page(prefix=folder.name, limit=1)]


def _known(home: Home) -> list[Path]:
    return [
        home.artifacts,
        home.cost_models,
        home.objects,
        home.networks,
        home.quantized,
        home.modules,
        home.bugs,
        home.logs,
        home.outputs,
    ]


def _of_store(home: Home, path: Path) -> bool:
    """The store's file, its log, and damaged ones that `store repair` left."""
    return path.name.startswith(home.store.name)


def _needed_texts(store: Store, home: Home) -> list[str]:
    """What may name a file of a network that is still needed: jobs that go on, and artifacts,
    which are measured beside their source."""
    running = list(each_job(store.jobs, state=JobState.RUNNING))
    sources = [job.spec.source for job in running if job.spec.source is not None]
    kept = [file for folder in _folders(home.networks) for file in folder.iterdir()]
    places = [source.spec for source in sources]
    places += store.holdings.places([home.relative(str(file)) for file in kept])
    places += [file.path for source in sources for file in source.options.inputs]
    places += [path for job in running if job.spec.called for path in job.spec.called.inputs]
    for folder in _folders(home.artifacts):
        try:
            places.append((folder / _MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []  # one that cannot be read may need anything
    return places or [""]


def _unneeded(folder: Path, needed: list[str]) -> list[Path]:
    """Folders below `folder` that nothing needed names, and that are not new."""
    if not needed:
        return []
    return [
        path
        for path in _folders(folder)
        if not any(path.name in text for text in needed)
        and time.time() - path.stat().st_mtime > _YOUNG_S
    ]


def _temporary(home: Home) -> DiskPart:
    """Folders that killed processes left, here and below the home."""
    parents = [Path(tempfile.gettempdir()), home.artifacts]
    for folder in (home.objects, home.networks, home.quantized, home.modules):
        parents += [folder, *_folders(folder)]
    left = [path for parent in parents for path in left_behind(parent)]
    return DiskPart(
        "temporary files",
        "left by processes that were killed",
        _size(left),
        tuple(left),
        _size(left),
    )


def _part(name: str, about: str, folder: Path, can_go: Iterable[Path]) -> DiskPart:
    going = tuple(can_go)
    return DiskPart(name, about, _size([folder]), going, _size(going))


def _folders(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []


def _size(paths: Iterable[Path]) -> int:
    """Bytes of files and of what is below folders; linked files count once."""
    sizes = {
        (status.st_dev, status.st_ino): status.st_size
        for path in paths
        for status in _statuses(path)
    }
    return sum(sizes.values())


def _statuses(path: Path) -> Iterator[os.stat_result]:
    files = [path] if path.is_file() else path.rglob("*")
    for file in files:
        try:
            status = file.lstat()
        except OSError:
            continue  # gone since
        if not file.is_dir():
            yield status
