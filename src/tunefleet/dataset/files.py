"""Reads log files (plain, .gz or .zst) as chunks of whole lines, and writes files atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from tunefleet.errors import InputError
from tunefleet.system.files import check_regular

#: Text in memory at once; parsing needs a few times as much.
CHUNK_BYTES = 4 << 20
#: No record is longer: a file without a line break in so much text is not a log.
LONGEST_LINE = 128 << 20
#: Factor by which reads shrink repeatedly where a file is truncated.
_SMALLER = 64
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_BOM = b"\xef\xbb\xbf"


class BrokenFileError(Exception):
    """The file cannot be read to its end; `line` is the first lost line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line = line
        self.reason = reason


def compression(path: Path) -> str | None:
    """Arrow's name of the compression implied by the suffix of `path`."""
    return COMPRESSIONS.get(path.suffix)


def chunks(path: Path, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The decompressed bytes of a file.

    Raises InputError if it cannot be opened, and OSError if it is truncated or damaged, after
    yielding everything before that position.
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
                # Arrow drops decompressed data of a failed read; smaller reads recover it.
                if size == 1:
                    raise
                size = max(1, size // _SMALLER)
            else:
                return


def _opened(path: Path) -> pa.NativeFile:
    try:
        # Open the file first: Arrow's own error has no cause.
        with path.open("rb"):
            return pa.input_stream(os.fspath(path), compression=compression(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", cure="give a log, plain, .gz or .zst"
        ) from error


def line_chunks(path: Path, size: int = CHUNK_BYTES) -> Iterator[tuple[int, list[bytes]]]:
    """Chunks of whole lines without line feeds, each with the number of its first line.

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
    """The first bytes of a file; fewer if it is damaged."""
    try:
        return next(chunks(path, size), b"")
    except OSError:
        return b""


class Draft:
    """A file that appears under its name only when it is complete.

    A context manager that returns the path to write to. After an error, or a kill, the previous
    file is unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # The suffix stays last, since it determines the compression.
        self._draft = path.with_name(f".{os.getpid()}-draft-{path.name}")

    def __enter__(self) -> Path:
        """Raises InputError, with the name of the file and not of the draft."""
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
    """Open a binary file for writing, compressed according to its suffix."""
    try:
        return pa.output_stream(os.fspath(path), compression=compression(path))  # type: ignore[no-any-return]
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}", cure="choose another path"
        ) from error
