"""Nothing that is printed steers the terminal, wherever its text comes from."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from tests.devices.test_registry import BOARD
from tunefleet.cli import artifacts, inspect, output
from tunefleet.cli.app import run
from tunefleet.cli.printable_console import PrintableConsole
from tunefleet.core.home import Home
from tunefleet.core.result import Evaluation, ResultNetwork, RunResult
from tunefleet.devices.registry import DeviceRegistry
from tunefleet.report.html import render_html
from tunefleet.report.text import evaluation_table

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\N{RIGHT-TO-LEFT OVERRIDE}\r"
STEERING = set(HOSTILE) - set("]0;owned[31mred2J")


def _listing() -> dict[str, Any]:
    task = {"name": HOSTILE, "shapes": HOSTILE, "weight": 1, "flops": 1.0, "share": 1.0}
    return {"network": HOSTILE, "target": "cpu", "tasks": [task], "notes": [HOSTILE],
            "outside": None}  # fmt: skip


@pytest.mark.parametrize(
    "show",
    [
        lambda: inspect._show_tasks(_listing()),
        lambda: artifacts._show_evaluation(Evaluation(network=HOSTILE, warnings=(HOSTILE,))),
        lambda: output.console().print(
            evaluation_table(Evaluation(network=HOSTILE, target=HOSTILE))
        ),
        lambda: typer.echo(HOSTILE),
        lambda: typer.echo(HOSTILE, err=True),
        lambda: print(HOSTILE, file=sys.stderr),
        lambda: sys.stdout.writelines([HOSTILE]),
        lambda: output.write_json("-", {"a": HOSTILE}),
    ],
)
def test_names_steer_no_terminal(
    show: Callable[[], Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    output.prepare_streams()
    show()
    text = "".join(capsys.readouterr())
    assert "red" in text
    assert set() == STEERING & set(text)


def test_a_device_cannot_steer_the_terminal_by_what_it_says_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    description = BOARD.description
    identity = replace(description.identity, name=HOSTILE, key=HOSTILE)
    board = replace(BOARD, description=replace(description, identity=identity, machine=HOSTILE))
    DeviceRegistry(Home(tmp_path).devices).add(board)
    assert run(["device", "remove", "board", "--home", str(tmp_path)]) == 0
    assert set() == STEERING & set(capsys.readouterr().out)


def test_colours_are_the_consoles_own() -> None:
    file = io.StringIO()
    console = PrintableConsole(file=file, force_terminal=True, color_system="standard")
    console.print(Text("name\x1b[32m", style="red"))
    assert file.getvalue() == "\x1b[31mname?[32m\x1b[0m\n"


def test_a_report_holds_no_control_characters() -> None:
    network = ResultNetwork(name=HOSTILE)
    page = render_html(RunResult(network=network, notes=(HOSTILE,), warnings=(HOSTILE,)))
    assert "[31mred" in page
    assert set() == STEERING & set(page)
