"""Where text goes: results to stdout, everything else to stderr; nothing steers the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tunefleet.cli.parsing import STDOUT
from tunefleet.core.printing import printable
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

#: Width of a table that is not shown in a terminal: a file has no width of its own.
_FILE_WIDTH = 120


def prepare_streams() -> None:
    """Whatever is printed from now on is free of what steers a terminal. Output that a terminal
    cannot show, or that nobody reads, ends no command."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, PrintedStream):
            continue
        if stream is None:  # closed by whoever called
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
        setattr(sys, name, PrintedStream(_Notes(stream) if name == "stderr" else stream))


class PrintedStream:
    """A stream that everything but consoles writes to; they write to its `terminal`, since colours
    and the live view are made of what steers one."""

    #: Others would write past this to what lies below (click does where that has another one).
    encoding = "utf-8"

    def __init__(self, terminal: Any) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        self.terminal.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


class _Notes:
    """A stream of what is told of a run. That its disk is full, or its reader gone, must not end
    the run: the results go elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(*, stderr: bool = False) -> Console:
    """A console for results (stdout) or for progress and notes (stderr); what is printed on it may
    hold anybody's names."""
    from tunefleet.cli.printable_console import PrintableConsole

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    file = stream.terminal if isinstance(stream, PrintedStream) else stream
    return PrintableConsole(file=file, width=width, highlight=False, emoji=False, markup=False)


def tell(json: str | None, value: Any, show: Callable[[], None]) -> None:
    """A result: by `show`, unless its JSON goes to stdout, and as JSON where that is asked."""
    if json != STDOUT:
        show()
    if json is not None:
        write_json(json, value)


def write_json(path: str, value: Any) -> None:
    """`value` as indented JSON in a file, or on stdout for `-`."""
    text = json.dumps(value, indent=2, default=str) + "\n"
    if path == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", cure="choose another path for --json"
        ) from error
