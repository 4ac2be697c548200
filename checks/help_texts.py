"""Whether the help of every command is whole at 80 columns.

No line is longer than that, a group lists the first sentence of each of its commands on one line,
and the page of a command has its whole description and the whole text of each option.

    python checks/help_texts.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import typer

COLUMNS = 80


def faults(command: Any, context: Any) -> Iterator[str]:
    """What is wrong with the page of a command, and with those of the commands below it."""
    path, page = context.command_path, command.get_help(context)
    lines = [" ".join(line.split()) for line in page.splitlines()]
    text = _packed(page)
    for line in page.splitlines():
        if len(line) > COLUMNS:
            yield f"{path}: more than {COLUMNS} columns: {line.strip()}"
    texts = [command.help, command.epilog, *(getattr(p, "help", None) for p in command.params)]
    for whole in texts:
        if whole and _packed(whole) not in text:
            yield f"{path}: cut: {whole}"
    for name, below in getattr(command, "commands", {}).items():
        if below.hidden:
            continue
        sentence = below.get_short_help_str(10_000)
        if not sentence:
            yield f"{path} {name}: no description"
        elif f"{name} {sentence}" not in lines:
            yield f"{path}: {name} is not on one line: {sentence}"
        yield from faults(below, below.make_context(name, [], context, resilient_parsing=True))


def _packed(text: str) -> str:
    """Without white space: a long word may be wrapped at a hyphen."""
    return "".join(text.split())


def main() -> int:
    os.environ["COLUMNS"] = str(COLUMNS)
    from tunefleet.cli.app import app

    command: Any = typer.main.get_command(app)
    context = command.make_context("tunefleet", [], resilient_parsing=True)
    found = list(faults(command, context))
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
