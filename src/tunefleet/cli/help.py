"""Help pages: commands and options in sections, and no description cut short.

Typer has sections only in pages that rich draws, which start in twice the time. Plain pages cut
the description of a command at the width of the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

#: Sections of the list of commands.
TUNE = "Tune"
LOOK = "Look"
RECORDS = "Records and cost models"
DEVICES = "Devices"
SERVICE = "A service elsewhere"
UPKEEP = "Upkeep"

#: Sections of options.
NETWORK = "Network"
BUDGET = "Budget"
SEARCH = "Search"
PLACE = "Where it runs"
OUTPUT = "Output"

#: Options from which a page has sections: fewer are one list.
_MANY = 12
#: Names in the first column; the text of a longer one begins on the next line.
_WIDEST = 30
#: What newer versions of typer append to the name of an argument: ` <list[str]>`.
_TYPE = re.compile(r" <[\w\[\]]+>$")
#: Longer than any description.
_NO_LIMIT = 10_000

Rows = list[tuple[str, str]]
F = TypeVar("F", bound=Callable[..., Any])


class SectionedCommand(TyperCommand):
    """A command whose options are in the sections that they name as `rich_help_panel`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self.get_params(ctx), ctx, formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return _usage(self, super().collect_usage_pieces(ctx))


class SectionedGroup(TyperGroup):
    """A group whose commands are in the sections that they name, each with its first sentence."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self.get_params(ctx), ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, Rows] = {
            name: [] for name in (TUNE, LOOK, RECORDS, DEVICES, SERVICE, UPKEEP)
        }
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            section = getattr(command, "rich_help_panel", None)
            row = (name, command.get_short_help_str(_NO_LIMIT))
            sections.setdefault(section if isinstance(section, str) else "Commands", []).append(row)
        _write_sections(sections, formatter)


class Commands(typer.Typer):
    """A Typer application whose pages are as this module makes them."""

    def __init__(self, name: str, help: str, **settings: Any) -> None:
        super().__init__(
            name=name, help=help, cls=SectionedGroup, rich_markup_mode=None, **settings
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        return super().command(name, cls=SectionedCommand, **settings)


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    arguments: Rows = []
    sections: dict[str, Rows] = {BUDGET: [], NETWORK: [], PLACE: [], SEARCH: [], OUTPUT: []}
    for parameter in parameters:
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append((_TYPE.sub("", record[0]), record[1]))
        else:
            section = getattr(parameter, "rich_help_panel", None) or OUTPUT
            sections.setdefault(section, []).append(record)
    if sum(map(len, sections.values())) < _MANY:
        sections = {"Options": [row for rows in sections.values() for row in rows]}
    _write_sections({"Arguments": arguments}, formatter)
    _write_sections(sections, formatter)


def _write_sections(sections: dict[str, Rows], formatter: Any) -> None:
    """Sections that are not empty, with their second columns below each other."""
    names = [len(name) for rows in sections.values() for name, _ in rows]
    width = max((length for length in names if length <= _WIDEST), default=0)
    for section, rows in sections.items():
        if rows:
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])


def _usage(command: Any, pieces: list[str]) -> list[str]:
    """`NETWORK...` where newer versions of typer write `{NETWORK}...`."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = pieces[: len(pieces) - len(arguments)]
    return options + [re.sub(r"[{}]", "", piece) for piece in pieces[len(options) :]]
