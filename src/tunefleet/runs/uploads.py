"""Networks that strangers send: taken after an import in a sandbox, or refused with the reason."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tunefleet.artifacts.blobs import keep, open_blobs
from tunefleet.core.home import Home
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions
from tunefleet.errors import InputError, InternalError, JobError, SetupError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.request import source_of
from tunefleet.system.scratch import scratch_folder
from tunefleet.system.unpacking import check_name

#: Endings of files that hold a network, and of those with arrays to calibrate and measure with.
NETWORK_SUFFIXES = (".onnx", ".pt2", ".tflite", ".keras", ".zip")
ARRAY_SUFFIXES = (".npz", ".npy")
#: Where uploads are read, as errors name their files.
_PLACE = re.compile(r"(?:[^\s'\"]*/)?(?:given|made)/")


@dataclass(frozen=True, slots=True)
class Admitted:
    """What was taken: its files are kept by their content, at `place` below home. `size` in bytes.
    `tasks` of its import; none of arrays. `needs`: what a job has to say of a network, which can be
    imported only then."""

    place: str
    size: int
    tasks: int = 0
    needs: str = ""


def admit(
    upload: Path, name: str, context: BenchmarkContext, options: ImportOptions = DEFAULT_IMPORT
) -> Admitted:
    """Take a file that a stranger sent under a name: an ONNX, `.pt2`, TFLite or Keras file, one of
    arrays, or a zip archive of a network of several files or of arrays. A network is imported once,
    for the target of the context.

    Nothing of the file is read in this process before that import, which reaches nothing else
    (`stages.admitting`); how long the file may be is for whoever receives it to say. Raises
    InputError or JobError in one line with cause and cure for what is refused.
    """
    from tunefleet.stages.admitting import GIVEN, MADE, read_apart

    check_name(name)
    _check_trust(options)
    status = upload.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{name} is no regular file", cure="send the file itself")
    if not status.st_size:
        raise InputError(f"{name} is empty", cure="export or copy the network again")
    with scratch_folder("upload") as folder, _named(name):
        place = Path(folder)
        (place / GIVEN).mkdir()
        (place / MADE).mkdir()
        _put(upload, place / GIVEN / name)
        read = read_apart(place, name, context.target, options)
        found = _checked(place, read.path, name)
        kept = _kept_arrays(found, context) or source_of(found, options, context).spec
        blob = Path(context.home, *Path(kept).parts[:2])
        size = sum(file.stat().st_size for file in blob.rglob("*") if file.is_file())
        return Admitted(kept, size, read.tasks, read.needs)


def check_import(
    network: Path, context: BenchmarkContext, options: ImportOptions = DEFAULT_IMPORT
) -> None:
    """Import a network that was admitted once more, with other options, as `admit` does. Raises as
    that does, also where the options are not enough."""
    from tunefleet.stages.admitting import import_apart

    _check_trust(options)
    import_apart(network, context.target, options)


def _check_trust(options: ImportOptions) -> None:
    if options.trust:
        raise InputError(
            "code of networks that are sent is not run", cure="send one that needs no trust"
        )


def _kept_arrays(found: Path, context: BenchmarkContext) -> str:
    """Where arrays are kept below home; "" for a network."""
    from tunefleet.stages.admitting import array_files

    home, files = Home(context.home), {}
    for file in array_files(found):
        with file.open("rb") as opened:
            sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        files[str(file.relative_to(found.parent))] = (file, sha256)
    if not files:
        return ""
    return str(Path(home.networks.name, keep(open_blobs(home.networks), files), found.name))


def _put(upload: Path, place: Path) -> None:
    try:
        os.link(upload, place)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(upload, place)


def _checked(folder: Path, path: str, name: str) -> Path:
    """The network that the process in the sandbox named, if it lies where it may and consists of
    regular files: a fault of a parser may have had other things in mind."""
    from tunefleet.stages.admitting import GIVEN, MADE

    parts = Path(path).parts
    if path != f"{GIVEN}/{name}" and (not parts or parts[0] != MADE or ".." in parts):
        raise InternalError(f"{path!r} is not where an upload is read")
    for parent, folders, files in os.walk(folder / MADE):
        for each in (*folders, *files):
            mode = os.lstat(os.path.join(parent, each)).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise InputError(f"{each} is a link or a device", cure="send the files themselves")
    return folder / path


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors name files as they were sent."""
    try:
        yield
    except (InputError, JobError, SetupError) as error:
        what, cure = (_PLACE.sub("", text) for text in (error.what, error.cure))
        if what == error.what and cure == error.cure:
            raise
        raise type(error)(what, cure=cure) from error
