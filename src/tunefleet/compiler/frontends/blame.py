"""Whose fault an exception is: a network that a library does not take, or our own bug."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import tunefleet

_ROOT = str(Path(tunefleet.__file__).parent)
#: Kinds that our own mistakes raise, and that we never raise about a network.
_BUGS = (AttributeError, TypeError, LookupError, AssertionError, NameError)


def is_ours(exc: BaseException) -> bool:
    """Whether `exc` comes from our own code and is a bug there.

    A library that our code calls is not ours: its frames, those of C++ included, lie deeper.
    """
    if not isinstance(exc, _BUGS):
        return False
    last: TracebackType | None = exc.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_filename.startswith(_ROOT)


def gist(exc: BaseException, most: int = 120) -> str:
    """The kind of an exception and the first line that says something."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    line = next((line for line in lines if not line.startswith(("Traceback", "File "))), "")
    line = line if len(line) <= most else line[: most - 3] + "..."
    return f"{type(exc).__name__}: {line}" if line else type(exc).__name__
