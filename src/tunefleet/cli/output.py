"""Where text goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.cli.parsing import STDOUT
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

#: Width of a table that is not shown in a terminal: a file has no width of its own.
_FILE_WIDTH = 120


def console(*, stderr: bool = False) -> Console:
    """A console for results (stdout) or for progress and notes (stderr)."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    return Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


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
