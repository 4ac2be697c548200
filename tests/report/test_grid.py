from __future__ import annotations

import io

import pytest
from rich.console import Console

from tunefleet.report.grid import Grid


def shown(width: int) -> list[str]:
    table = Grid("Title", optional=("third", "second"))
    table.add_column("name", overflow="fold", min_width=10)
    for heading in ("first", "second", "third"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("a_rather_long_name_of_a_task", "1.25 ms", "22.5 %", "100.0 %")
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", range(27, 120, 7))
def test_a_number_is_whole_or_its_column_is_named_below(width: int) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "1.25 ms" in text
    for heading, value in (("second", "22.5 %"), ("third", "100.0 %")):
        left_out = heading in lines[-1]
        assert left_out != (value in text)


def test_names_fold_before_columns_are_left_out() -> None:
    lines = shown(40)
    assert "not shown" not in lines[-1]
    assert "a_rather_long_name_of_a_task" not in "\n".join(lines)


def test_the_last_optional_column_goes_last() -> None:
    assert shown(30)[-1] == "not shown: third"
