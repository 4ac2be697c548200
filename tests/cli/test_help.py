"""What `-h` shows, and that `--version` and completion are there."""

from __future__ import annotations

import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer

import tunefleet
from tunefleet.cli import help
from tunefleet.cli.app import app
from tunefleet.cli.help import Commands

from .conftest import Invoke

CHECK = Path(__file__).parents[2] / "checks" / "help_texts.py"


def test_no_page_is_cut_at_80_columns() -> None:
    shown = subprocess.run([sys.executable, str(CHECK)], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")


def test_the_check_finds_what_plain_typer_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    application = typer.Typer(rich_markup_mode=None)
    for name in ("one", "two"):
        application.command(name, help="Say " + "a great many words " * 5)(lambda: None)
    command: Any = typer.main.get_command(application)
    context = command.make_context("x", [], resilient_parsing=True)
    assert len(list(runpy.run_path(str(CHECK))["faults"](command, context))) == 2


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_short_and_the_long_flag_show_the_same(invoke: Invoke, flag: str) -> None:
    for path in ([], ["tune"], ["dataset"], ["dataset", "stats"], ["store", "check"]):
        shown = invoke(*path, flag)
        assert (shown.code, shown.err) == (0, "")
        assert shown.out.startswith(f"Usage: {' '.join(['tunefleet', *path])} ")


SECTIONS = (help.TUNE, help.LOOK, help.RECORDS, help.DEVICES, help.SERVICE, help.UPKEEP)


def test_commands_are_in_sections(invoke: Invoke) -> None:
    lines = invoke("-h").out.splitlines()
    headings = [line.removesuffix(":") for line in lines if line[:1].isalpha() and line[-1] == ":"]
    assert headings == ["Options", *SECTIONS]


def test_every_command_has_a_section() -> None:
    command: Any = typer.main.get_command(app)
    assert set(SECTIONS) == {below.rich_help_panel for below in command.commands.values()}


def test_the_options_of_tune_are_in_sections(invoke: Invoke) -> None:
    page = invoke("tune", "-h").out
    order = [help.BUDGET, help.NETWORK, help.PLACE, help.SEARCH, help.OUTPUT]
    places = [page.index(f"\n{heading}:") for heading in order]
    assert sorted(places) == places
    assert places[0] < page.index("--trials") < places[1] < page.index("--shape") < places[2]
    assert "\nOptions:" not in page


def test_few_options_are_one_list(invoke: Invoke) -> None:
    assert "\nOptions:" in invoke("resume", "-h").out


def test_usage_names_arguments_plainly(invoke: Invoke) -> None:
    assert "tune [OPTIONS] NETWORK...\n" in invoke("tune", "-h").out
    assert "resume [OPTIONS] JOB\n" in invoke("resume", "-h").out


def test_an_option_without_a_section_stands_last() -> None:
    application = Commands("x", "Does x.")

    def run(a: str = typer.Option("", rich_help_panel=help.SEARCH), b: str = "") -> None: ...

    application.command("run")(run)
    application.command("walk")(run)
    command: Any = typer.main.get_command(application)
    page = command.commands["run"].get_help(command.make_context("x", [], resilient_parsing=True))
    assert page.index("--a") < page.index("--b")


def test_version(invoke: Invoke) -> None:
    assert f"tunefleet {metadata.version('tunefleet')}\n" == invoke("--version").out
    assert metadata.version("tunefleet") == tunefleet.__version__


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_by_a_script(shell: str) -> None:
    program = "from tunefleet.cli import main; main()"
    command = [sys.executable, "-c", program]
    environment = {"_TUNEFLEET_COMPLETE": f"source_{shell}", "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "_TUNEFLEET_COMPLETE" in shown.stdout


def test_bash_completes_commands_and_networks() -> None:
    def completed(words: str) -> list[str]:
        environment = {
            "_TUNEFLEET_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
            "PATH": "/usr/bin:/bin",
        }
        program = "from tunefleet.cli import main; main()"
        command = [sys.executable, "-c", program]
        shown = subprocess.run(command, env=environment, capture_output=True, text=True)
        return shown.stdout.split()

    assert completed("tunefleet pau") == ["pause"]
    assert completed("tunefleet tune --min") == ["--minutes"]
    assert completed("tunefleet tune zoo:vgg") == ["zoo:vgg11", "zoo:vgg16"]
