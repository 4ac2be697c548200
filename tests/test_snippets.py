"""What README and guide show works as pasted: `tests/snippets.py` says how a block is marked."""

from __future__ import annotations

import ast
import gzip
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import invoke  # noqa: F401 (a fixture)
from tests.dataset.lines import TVM_LINES
from tests.networks import write_small
from tests.snippets import PAGES, ROOT, Block, blocks, commands
from tunefleet.cli.outcome import USAGE_ERROR

PYTHON = [block for page in PAGES for block in blocks(page, "python")]
CONSOLE = [block for page in PAGES for block in blocks(page, "console")]
_ARTIFACT = "my-artifact"
#: It tunes networks at once.
_SEVERAL = "several.md"
#: Commands that end at once, by their first words.
_QUICK = (
    "--version", "--help", "networks", "jobs", "devices", "version", "dataset devices",
    "costmodel list", "costmodel show x86",
)  # fmt: skip


def lines(found: list[Block]) -> list[Any]:
    return [
        pytest.param(words, id=f"{block}: {' '.join(words)[:50]}")
        for block in found
        for words in commands(block)
    ]


def test_there_are_snippets() -> None:
    assert PYTHON
    assert lines(CONSOLE)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_python_block_is_python(block: Block) -> None:
    ast.parse(block.text)


def parse(words: list[str]) -> None:
    """What the command line does before it runs a command, up to looking for files."""
    import typer

    from tunefleet.cli.app import app

    command: Any = typer.main.get_command(app)
    context = command.make_context("tunefleet", ["--help"], resilient_parsing=True)
    context.resilient_parsing = False
    while hasattr(command, "resolve_command"):
        _, words, _ = command.make_parser(context).parse_args(list(words))
        if not words:
            return
        name, command, words = command.resolve_command(context, words)
        context = type(context)(command, parent=context, info_name=name)
    given, left, _ = command.make_parser(context).parse_args(list(words))
    assert left == []
    for parameter in command.params:
        parameter.callback = None  # it would look for files
        parameter.process_value(context, given.get(parameter.name))


@pytest.mark.parametrize("words", lines(CONSOLE))
def test_every_command_is_one_that_the_command_line_takes(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize(
    "command",
    ["tuna x", "tune", "tune x --trails 3", "tune x --trials many", "dataset shown x", "jobs x"],
)
def test_a_wrong_command_is_noticed(command: str) -> None:
    with pytest.raises((USAGE_ERROR, AssertionError)):
        parse(command.split())


@pytest.mark.slow
@pytest.mark.parametrize("words", lines([block for block in CONSOLE if block.is_run]))
def test_quick_commands_run(invoke, words: list[str], tmp_path: Path, monkeypatch) -> None:  # noqa: F811
    if not " ".join(words).startswith(_QUICK):
        pytest.skip("takes longer, or files that are not here")
    monkeypatch.chdir(tmp_path)
    done = invoke(*words)
    assert (done.code, done.err) == (0, "")


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.long] * (page.name == _SEVERAL))
        for page in PAGES
    ],
)
def test_python_blocks_run_as_pasted(page: Path, tmp_path: Path) -> None:
    found = [block for block in blocks(page, "python") if block.is_run]
    if not found:
        pytest.skip("no Python to run")
    ended = run_python(found, tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.frameworks
def test_later_blocks_use_the_names_of_earlier_ones_and_a_reader_s_files(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```python\nimport numpy as np\nx = np.load("x.npy")\n```\n'
        "```python\nprint(x.shape)\nassert not x.any()\n```\n"
    )
    (tmp_path / "run").mkdir()
    ended = run_python(blocks(page, "python"), tmp_path / "run")
    assert ended.stdout == "(1, 3, 16, 16)\n"
    assert 'File "page.md", line 7' in ended.stderr


def run_python(found: list[Block], folder: Path) -> subprocess.CompletedProcess[str]:
    """Blocks in their order, in one interpreter that starts where a reader's files are. Searches
    and measurements are shorter than a reader's."""
    found = [replace(block, text=_shortened(block.text)) for block in found]
    _reader_files(folder)
    if any(_ARTIFACT in block.text for block in found):
        _make_artifact(folder)
    # Each block keeps the lines that it has on the page, so that a traceback names them.
    text = "".join(
        f"exec(compile({chr(10) * (block.line - 1) + block.text!r}, {block.page!r}, 'exec'))\n"
        for block in found
    )
    script = folder / "page.py"
    script.write_text(f"if __name__ == '__main__':\n    {text.replace(chr(10), chr(10) + '    ')}")
    environment = os.environ | {"HOME": str(folder)}
    return subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip


def _shortened(text: str) -> str:
    return text.replace("trials=64", "trials=4").replace(".evaluate()", ".evaluate(rounds=2)")


def _make_artifact(folder: Path) -> None:
    """`my-artifact`, of `model.onnx`, without a search."""
    from tunefleet import BenchmarkContext, Session

    with Session(BenchmarkContext("cpu", threads=1, home=folder / "made")) as session:
        session.from_network(folder / "model.onnx").build().save()
        made = Path(str(session.result().artifact))
    made.rename(folder / _ARTIFACT)


def _reader_files(folder: Path) -> None:
    """Small networks, inputs of them and a log, as a reader may have them."""
    import numpy as np

    numbers = np.random.default_rng(0)
    for channels, name in ((8, "model"), (4, "a"), (6, "b")):
        write_small(folder / f"{name}.onnx", channels)
    x = numbers.standard_normal((1, 3, 16, 16), np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "data.npz", x=x)
    with gzip.open(folder / "resnet50.json.gz", "wt", encoding="utf-8") as log:
        log.writelines(f"{line}\n" for line in TVM_LINES)


def test_marks_and_lines_of_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n<!-- not run: needs a board -->\n```console\n"
        "$ A=1 .venv/bin/tunefleet tune a.onnx \\\n"
        "    --trials 3 && tunefleet jobs > out  # later\nout\npi$ pip install x\n```\n\n"
        "```python\nx = 1\n```\n"
    )
    [console], [python] = blocks(page, "console"), blocks(page, "python")
    assert list(commands(console)) == [["tune", "a.onnx", "--trials", "3"], ["jobs"]]
    assert (console.is_run, python.is_run, python.line, python.text) == (False, True, 12, "x = 1\n")


def test_the_pages_are_those_of_the_repository() -> None:
    assert ROOT / "README.md" in PAGES
