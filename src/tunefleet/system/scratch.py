"""Temporary folders that do not outlive their process for long, however it ends.

A process that is killed cannot remove its folders: the next one of tunefleet does. A folder's name
says whose it is.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

_NAME = re.compile(r"tunefleet-[a-z]+-(\d+)-(\d+)-(\d+)-\w+")


def scratch_folder(purpose: str, parent: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder of this process, below `parent` where what it holds will be renamed;
    `purpose` is a word for its name. Raises OSError."""
    parent = parent or Path(tempfile.gettempdir())
    _sweep_once(parent)
    return tempfile.TemporaryDirectory(prefix=f"tunefleet-{purpose}-{_owner()}-", dir=parent)


def remove_own() -> None:
    """Remove the temporary folders of this process, which is about to end itself at once."""
    for folder in Path(tempfile.gettempdir()).glob(f"tunefleet-*-{_owner()}-*"):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def torch_cache() -> Iterator[None]:
    """Keep PyTorch's cache of compiled programs in a scratch folder within the block. PyTorch makes
    it in the temporary folder as soon as an optimiser is used or a program is opened, and leaves it
    there. For processes of tunefleet alone: a user's own has its cache for `torch.compile`."""
    with scratch_folder("torch") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        yield


@lru_cache
def _sweep_once(parent: Path) -> None:
    """`sweep`, once in a process."""
    sweep(parent)


def sweep(parent: Path | None = None) -> None:
    """Remove what processes that are gone left in a folder, by default that of temporary files."""
    for folder in left_behind(parent or Path(tempfile.gettempdir())):
        shutil.rmtree(folder, ignore_errors=True)


def left_behind(parent: Path) -> Iterator[Path]:
    """The temporary folders below `parent` whose processes are gone; not those of a container that
    shares the folder, whose processes are not seen here."""
    for folder in parent.glob("tunefleet-*"):
        match = _NAME.fullmatch(folder.name)
        here = match is not None and match.group(1) == _namespace()
        if match is not None and here and _started(int(match.group(2))) != match.group(3):
            yield folder


def _owner() -> str:
    """This process in the names of its folders."""
    pid = os.getpid()
    return f"{_namespace()}-{pid}-{_started(pid)}"


def _namespace() -> str:
    """The number of this process's space of process numbers."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks: numbers of processes are used again. "0" of one
    that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19]
    except OSError:
        return "0"
