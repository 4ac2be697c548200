from __future__ import annotations

from pathlib import Path

import pytest

from tunefleet.dataset import parquet
from tunefleet.dataset.codecs import BadLine
from tunefleet.dataset.importing import find_logs, import_logs
from tunefleet.errors import InputError

from .conftest import Log
from .lines import FAILED, TVM_LINES
from .test_autotvm import NEW
from .test_metaschedule import WORKLOADS, database, record

GOOD = TVM_LINES[1]


def test_a_folder_is_searched_for_logs(log: Log, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name, text in (
        ("b.json", GOOD),
        ("deep/er/a.log.gz", NEW),
        ("README.md", "hello"),
        (".draft", NEW),
    ):
        log(text, name)
    database(log, [record()], WORKLOADS)
    found = find_logs([tmp_path])
    assert [(path.name, format) for path, format in found.found] == [
        ("a__database_tuning_record.json", "metaschedule"),
        ("b.json", "auto_scheduler"),
        ("a.log.gz", "autotvm"),
    ]
    assert [path.name for path in found.skipped] == ["README.md", "a__database_workload.json"]


def test_with_a_format_others_in_a_folder_are_skipped(log: Log, tmp_path: Path) -> None:
    log(GOOD, "a")
    log(NEW, "b")
    found = find_logs([tmp_path], "autotvm")
    assert ([p.name for p, _ in found.found], [p.name for p in found.skipped]) == (["b"], ["a"])


def test_a_log_that_is_named_twice_is_read_once(log: Log, tmp_path: Path) -> None:
    path = log(GOOD)
    assert find_logs([path, tmp_path, path]).found == ((path, "auto_scheduler"),)


def test_a_file_that_is_named_must_be_a_log(log: Log) -> None:
    with pytest.raises(InputError, match="not a tuning log of a known format"):
        find_logs([log("hello")])


def test_an_import_counts_what_it_reads(log: Log, tmp_path: Path) -> None:
    logs = find_logs([log(f"{GOOD}\n{FAILED}\nhello\n"), log(NEW, "b.log")])
    bad: list[BadLine] = []
    done = import_logs(logs, "any", tmp_path / "a.parquet", on_bad=bad.append)
    assert (done.logs, done.records, done.failed, done.bad_lines) == (
        2, {"auto_scheduler": 2, "autotvm": 1}, 1, 1)  # fmt: skip
    assert [line.line for line in bad] == [3]
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column("device").to_pylist() == ["any"] * 3
    assert table.column("format").to_pylist() == ["auto_scheduler"] * 2 + ["autotvm"]


@pytest.mark.parametrize("strict", [True, False])
def test_an_import_that_fails_leaves_nothing(log: Log, tmp_path: Path, strict: bool) -> None:
    path = log((GOOD if strict else "") + '\n{"i": [[\n')
    with pytest.raises(InputError, match="not JSON" if strict else "no records in 1 logs, 1 bad"):
        import_logs(find_logs([path]), "any", tmp_path / "a.parquet", strict=strict)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
