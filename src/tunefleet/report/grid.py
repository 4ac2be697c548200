"""The look of all tables in a terminal, narrow ones included."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

#: Wider than any cell: what one measures there is what it needs.
_UNBOUNDED = 10_000
#: Blanks between columns.
_BETWEEN = 2
#: What a column of text that folds needs, where it does not say.
_FOLDED = 8


class Grid(Table):
    """A table with one rule below its heading.

    Where the terminal is too narrow for all columns, `optional` ones are left out whole, in that
    order, and named below: numbers without their ends mislead, and whole columns lost at the right
    are the ones that matter.
    """

    def __init__(self, title: str = "", *, optional: Sequence[str] = ()) -> None:
        super().__init__(
            # As a text: whether markup counts is for whoever prints to say.
            title=Text(title, style="bold") if title else None,
            title_justify="left",
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            header_style="bold",
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        self._optional = tuple(optional)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = copy.copy(self)
        fitting.columns = list(self.columns)
        left_out: list[str] = []
        for heading in self._optional:
            if sum(_needed(c, console, options) for c in fitting.columns) <= options.max_width:
                break
            fitting.columns = [c for c in fitting.columns if str(c.header) != heading]
            left_out.append(heading)
        yield from Table.__rich_console__(fitting, console, options)
        if left_out:
            yield Text(f"not shown: {', '.join(left_out)}", style="dim")


def _needed(column: Column, console: Console, options: ConsoleOptions) -> int:
    """Characters, with the blanks behind it, below which a column says less than it should."""
    if not column.no_wrap:
        return (column.min_width or _FOLDED) + _BETWEEN
    wide = options.update(max_width=_UNBOUNDED)
    cells = [column.header, *column.cells]
    return max(Measurement.get(console, wide, cell).maximum for cell in cells) + _BETWEEN
