"""Logs as they lie on disk: plain, .gz or .zst, read as chunks of whole lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from tunefleet.errors import InputError
from tunefleet.system.files import check_regular

#: Text that is held at once; what is made of it takes a few times as much.
CHUNK_BYTES = 4 << 20
#: No record is that long: whoever has no line break in so much text has no log.
LONGEST_LINE = 128 << 20
#: Where a file breaks off, reads become this much smaller, time and again.
_SMALLER = 64
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_BOM = b"\xef\xbb\xbf"


class BrokenFileError(Exception):
    """The file cannot be read to its end: `line` is the first that is lost."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line = line
        self.reason = reason


def compression(path: Path) -> str | None:
    """How Arrow calls the compression that the name of `path` tells."""
    return COMPRESSIONS.get(path.suffix)


def chunks(path: Path, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The decompressed bytes of a file.

    Raises InputError when it cannot be opened, OSError when it breaks off or is damaged, after all
    that comes before that place.
    """
    check_regular(path)
    done = 0
    while True:
        with _opened(path) as stream:
            for skipped in range(0, done, CHUNK_BYTES):
                stream.read(min(CHUNK_BYTES, done - skipped))
            try:
                while chunk := stream.read(size):
                    done += len(chunk)
                    yield chunk
            except OSError:
                # Arrow drops what it decompressed for a read that fails: smaller reads get it.
                if size == 1:
                    raise
                size = max(1, size // _SMALLER)
            else:
                return


def _opened(path: Path) -> pa.NativeFile:
    try:
        # The file is opened first: Arrow's own text about it names no cause.
        with path.open("rb"):
            return pa.input_stream(os.fspath(path), compression=compression(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", cure="give a log, plain, .gz or .zst"
        ) from error


def line_chunks(path: Path, size: int = CHUNK_BYTES) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines without their line feed, with the number of the first of them.

    Memory is bounded by `size` and the longest line. Raises InputError and BrokenFileError.
    """
    number, rest = 1, b""
    source = chunks(path, size)
    while True:
        try:
            chunk = next(source, b"")
        except OSError as error:
            raise BrokenFileError(number, f"the file breaks off: {error}") from error
        if not chunk:
            break
        if number == 1 and not rest:
            chunk = chunk.removeprefix(_BOM)
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if lines:
            yield number, lines
            number += len(lines)
        if len(rest) > LONGEST_LINE:
            raise BrokenFileError(number, f"longer than {LONGEST_LINE >> 20} MiB")
    if rest:
        yield number, [rest]


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, as many as a damaged one gives."""
    try:
        return next(chunks(path, size), b"")
    except OSError:
        return b""


class Draft:
    """A file that appears under its name only when it is complete.

    A context manager that gives the path to write to; an error, or the end of the process, leaves
    what was there before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # The suffix stays last: it says how the text is compressed.
        self._draft = path.with_name(f".{os.getpid()}-draft-{path.name}")

    def __enter__(self) -> Path:
        """Raises InputError, which names the file and not its draft, where it cannot be written."""
        try:
            self._draft.touch()
        except OSError as error:
            raise InputError(
                f"cannot write {self.path}: {error.strerror or error}", cure="choose another path"
            ) from error
        return self._draft

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            os.replace(self._draft, self.path)
        else:
            self._draft.unlink(missing_ok=True)


def open_output(path: Path) -> IO[Any]:
    """A binary file to write to, compressed as its name says."""
    try:
        return pa.output_stream(os.fspath(path), compression=compression(path))  # type: ignore[no-any-return]
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}", cure="choose another path"
        ) from error
