from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tunefleet.dataset import codecs, formats

from .conftest import Invoke, Outcome

pytestmark = pytest.mark.slow

GOOD = (
    r'{"i": [["[\"matmul\", 1024]", "llvm -keys=cpu", [18, 64, 64, 0, 0, 0, 0, 0]], [[], [["CI", '
    r'1], ["AN", 4, 0, 3]]]], "r": [[0.0044742], 0, 0.335558, 1607112214], "v": "v0.3"}'
)
FAILED = GOOD.replace("[0.0044742], 0", "[1e+10], 6")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.json"
    path.write_text(f"{GOOD}\n{FAILED}\n{GOOD}\n")
    return path


@pytest.fixture
def records(invoke: Invoke, log: Path, tmp_path: Path) -> Path:
    path = tmp_path / "records.parquet"
    assert invoke("dataset", "import", str(log), "--device", "xeon", "-o", str(path)).code == 0
    return path


def figures(ended: Outcome) -> dict[str, Any]:
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


def test_an_import_says_what_it_found(invoke: Invoke, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    ended = invoke("dataset", "import", str(log), "--device", "xeon", "-o", str(out))
    assert (ended.code, ended.err) == (0, "")
    assert "3 records (3 auto_scheduler) from 1 logs, 1 of them failures; 0 bad lines" in ended.out
    assert out.is_file()


def test_an_import_as_json(invoke: Invoke, log: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    out = str(tmp_path / "a.parquet")
    found = figures(
        invoke("dataset", "import", str(tmp_path), "--device", "xeon", "-o", out, "--json", "-")
    )
    assert found["schema"] == "tunefleet-import/1"
    assert (found["records"], found["failed"], found["bad"]) == (3, 1, [])
    assert [Path(path).name for path in found["skipped_files"]] == ["notes.txt"]


def test_bad_lines_are_shown_and_counted(invoke: Invoke, log: Path, tmp_path: Path) -> None:
    log.write_text(f"{GOOD}\n" + "{\x1b[31m\n" * 30, encoding="utf-8")
    arguments = (
        "dataset",
        "import",
        str(log),
        "--device",
        "xeon",
        "-o",
        str(tmp_path / "a.parquet"),
    )
    ended = invoke(*arguments)
    assert ended.code == 0
    assert "30 bad lines" in ended.out
    assert f"bad line: {log}:2: not JSON" in ended.err
    assert ended.err.endswith("and 10 more bad lines\n")
    assert "\x1b" not in ended.out + ended.err
    strict = invoke(*arguments, "--strict", "--force")
    assert (strict.code, strict.out) == (2, "")
    assert f"error: {log}:2: not JSON" in strict.err


def test_records_go_back_to_a_log(invoke: Invoke, records: Path, log: Path) -> None:
    out = records.with_name("again.json")
    ended = invoke("dataset", "export", str(records), "-o", str(out), "--format", "auto_scheduler")
    assert (ended.code, ended.out) == (0, f"3 records written to {out}\n")
    assert [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] == [
        json.loads(line) for line in out.read_text().splitlines()
    ]


def test_a_merge_says_how_many_were_there_twice(invoke: Invoke, records: Path) -> None:
    out = str(records.with_name("merged.parquet"))
    found = figures(
        invoke("dataset", "merge", str(records), str(records), "-o", out, "--json", "-")
    )
    assert (found["read"], found["duplicates"], found["records"]) == (6, 4, 2)
    text = invoke("dataset", "merge", str(records), "-o", out, "--force").out
    assert text == f"2 records in {out}, 1 duplicates dropped\n"


def test_records_and_logs_are_shown_alike(invoke: Invoke, records: Path, log: Path) -> None:
    for file in (records, log):
        text = invoke("dataset", "show", str(file), "--head", "2").out
        assert ('["matmul", 1024]' in text, text.count("auto_scheduler v0.3")) == (True, 2)
        whole = invoke("dataset", "show", str(file), "--row", "2").out
        assert ('["AN",4,0,3]' in whole, "10000000000.0" in whole) == (True, True)
        row = figures(invoke("dataset", "show", str(file), "--row", "3", "--json", "-"))
        assert (row["line"], row["steps"]) == (3, ['["CI",1]', '["AN",4,0,3]'])


def test_what_is_there_is_not_written_over(invoke: Invoke, records: Path, log: Path) -> None:
    before = records.read_bytes()
    for command in (
        ("import", str(log), "--device", "xeon", "-o", str(records)),
        ("merge", str(records), "-o", str(records)),
        ("export", str(records), "-o", str(records), "--format", "auto_scheduler"),
    ):
        ended = invoke("dataset", *command)
        assert (ended.code, ended.out) == (2, "")
        assert "exists; choose another name, or add --force" in ended.err
    assert records.read_bytes() == before
    assert invoke("dataset", "merge", str(records), "-o", str(records), "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("import", "missing", "--device", "x", "-o", "a.parquet"), "missing does not exist"),
        (("import", ".", "--device", " ", "-o", "a.parquet"), "is not a valid device name"),
        (("import", ".", "--device", "x", "-o", "a.csv"), "does not end in .parquet"),
        (("import", ".", "--device", "x", "-o", "b/a.parquet"), "b does not exist"),
        (
            ("import", ".", "--device", "x", "-o", "a.parquet", "--format", "y"),
            "'y' is not a format",
        ),
        (("import", "empty", "--device", "x", "-o", "a.parquet"), "no tuning log in empty"),
        (
            ("import", "notes.txt", "--device", "x", "-o", "a.parquet"),
            "not a tuning log of a known",
        ),
        (("import", ".", "-o", "a.parquet"), "missing option '--device'"),
        (("merge", "notes.txt", "-o", "a.parquet"), "is not a Parquet file"),
        (("export", "notes.txt", "-o", "b", "--format", "auto_scheduler"), "not a Parquet file"),
        (
            ("export", "records.parquet", "-o", "b", "--format", "autotvm"),
            "'autotvm' is not a format that is written",
        ),
        (
            ("export", "records.parquet", "-o", "b", "--format", "metaschedule"),
            "records of auto_sch",
        ),
        (("export", "records.parquet", "-o", "c/b", "--format", "auto_scheduler"), "cannot write"),
        (("export", "records.parquet", "-o", "c/b", "--format", "metaschedule"), "cannot make the"),
        (("export", "records.parquet", "-o", "empty", "--format", "auto_scheduler"), "a directory"),
        (("collect", "--threads", "0"), "0 is not a positive number"),
        (("show", "notes.txt"), "not a tuning log of a known format"),
        (("show", "records.parquet", "--row", "4"), "has no row 4"),
        (("show", "records.parquet", "--head", "0"), "0 is not a positive number"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    invoke: Invoke,
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    cause: str,
) -> None:
    monkeypatch.chdir(records.parent)
    Path("notes.txt").write_text("hello", encoding="utf-8")
    Path("empty").mkdir()
    ended = invoke("dataset", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert cause in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("a.parquet").exists()


def test_every_format_has_its_codec() -> None:
    assert tuple(codecs.FORMATS) == formats.NAMES
    writing = {n for n, codec in codecs.FORMATS.items() if isinstance(codec, codecs.WritingCodec)}
    assert set(formats.WRITTEN) == writing


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from tunefleet.cli.app import run; run(['dataset', '--help']); "
        "heavy = {'tvm', 'torch', 'pyarrow', 'numpy', 'msgspec'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
