"""Whose fault an exception is: a network that a library does not take, or our own bug."""

from __future__ import annotations


def gist(exc: BaseException, most: int = 120) -> str:
    """The kind of an exception and the first line that says something."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    line = next((line for line in lines if not line.startswith(("Traceback", "File "))), "")
    line = line if len(line) <= most else line[: most - 3] + "..."
    return f"{type(exc).__name__}: {line}" if line else type(exc).__name__
