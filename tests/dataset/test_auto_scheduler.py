from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.codecs.auto_scheduler import AutoScheduler
from tunefleet.dataset.schema import RECORDS

from .conftest import Log, loaded, read_all, read_line_by_line
from .lines import FAILED, LINES, TVM_LINES, records

GOOD = TVM_LINES[1]


def test_a_record_is_a_row(log: Log) -> None:
    path = log(f"# made by TVM\n{TVM_LINES[1]}\n", "a.json.gz")
    (row,), bad = read_all(path, device="xeon")
    assert bad == []
    assert row == {
        "source": str(path),
        "line": 2,
        "format": "auto_scheduler",
        "version": "v0.3",
        "device": "xeon",
        "target": "llvm -keys=cpu",
        "workload": '["matmul_add", 1024, 1024, 1024, "float32"]',
        "steps": [
            '["SP",2,0,1024,[2,1,4],1]',
            '["RE",2,[0,4,1,5,8,2]]',
            '["FSP",4,0,0,2]',
            '["CA",2,4,3]',
            '["FU",4,[0,1]]',
            '["AN",4,0,3]',
        ],
        "costs_s": [0.0044742],
        "error_no": 0,
        "all_cost_s": 0.335558,
        "timestamp": 1607112214.0,
        "extra": '{"hardware":[18,64,64,0,0,0,0,0]}',
        "definition": None,
    }


def test_every_version_and_length_of_task_is_read(log: Log) -> None:
    rows, bad = read_all(log("\n".join(TVM_LINES)))
    assert bad == []
    assert [row["version"] for row in rows] == ["v0.2", "v0.3", "v0.5", "v0.6"]
    assert [len(json.loads(row["extra"])) for row in rows] == [0, 1, 3, 4]


def test_a_failure_is_a_record(log: Log) -> None:
    (row,), bad = read_all(log(FAILED))
    assert (row["error_no"], row["costs_s"], bad) == (6, [1e10], [])


def test_comments_and_empty_lines_are_skipped_and_counted_as_lines(log: Log) -> None:
    rows, bad = read_all(log(f"# one\n\n two\n{GOOD}\r\n\r\n{GOOD}"))
    assert ([row["line"] for row in rows], bad) == ([4, 6], [])


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (GOOD[:200], "not JSON"),
        (GOOD + "}", "more than one value"),
        (GOOD.replace('["CA", 2, 4, 3]', '["CP", 2]'), "Invalid value 'CP'"),
        (GOOD.replace('["CA", 2, 4, 3]', '["CA", 2, 4]'), "at least length 4"),
        (GOOD.replace('["CA", 2, 4, 3]', '"CA"'), "Expected `array`"),
        (GOOD.replace("[[], [[", "[[1], [["), "length <= 0"),
        (GOOD.replace("0.335558", '"0.335558"'), "Expected `float`"),
        (GOOD.replace("0.335558", "NaN"), "not JSON: NaN"),
        (GOOD.replace("0.335558", "Infinity"), "not JSON: Infinity"),
        (GOOD.replace("0.335558", "1e999"), "out of range"),
        (GOOD.replace("0.0044742", "-1e999"), "out of range"),
        (GOOD.replace("0.335558", "9" * 5000), "not JSON"),
        (GOOD.replace("1607112214", "9" * 30), "<= 9007199254740992"),
        (GOOD.replace("1607112214", "1607112214.5"), "Expected `int`"),
        (GOOD.replace("0, 0.335558", "40000, 0.335558"), "<= 32767"),
        (GOOD.replace("v0.3", "v0.7"), "v0.7"),
        (GOOD.replace(', "v": "v0.3"', ""), "missing required field `v`"),
        (GOOD.replace('"v"', '"r"'), "'r' is there twice"),
        (GOOD.replace('"v"', '"w": 1, "v"'), "unknown field `w`"),
        (GOOD.replace(', "llvm -keys=cpu", [18, 64, 64, 0, 0, 0, 0, 0]', ""), "a task of 1 items"),
        (GOOD.replace("[18, 64, 64, ", "[64, "), "length >= 8"),
        (GOOD.replace("llvm", "\\ud800"), "surrogate"),
        (GOOD.replace("llvm", "ll\0vm"), "a NUL byte at"),
        ("\0" * 100, "a NUL byte at 0"),
        (GOOD.encode().replace(b"llvm", b"ll\xffvm"), "not UTF-8 at byte"),
        ("[" * 100_000, "nested too deeply"),
        ("[1, 2]", "Expected `object`"),
        (GOOD[GOOD.index("], [[], [[") :], "not JSON"),
        ("null", "Expected `object`"),
    ],
)
def test_a_bad_line_is_reported_and_the_others_are_read(
    log: Log, spoilt: str | bytes, reason: str
) -> None:
    line = spoilt.encode() if isinstance(spoilt, str) else spoilt
    path = log(b"\n".join([GOOD.encode(), line, GOOD.encode()]))
    rows, bad = read_all(path)
    assert [row["line"] for row in rows] == [1, 3]
    assert [number for number, _ in bad] == [2]
    assert reason in bad[0][1]


@given(lines=st.lists(LINES, max_size=8))
def test_the_short_cut_gives_what_the_parser_gives(
    lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "a.json"
    path.write_bytes(b"\n".join(lines))
    bad: list[list[tuple[int, str]]] = [[], []]
    one, other = (
        pa.Table.from_batches(
            list(read(path, "any", lambda *line, i=i: bad[i].append(line))), RECORDS
        )
        for i, read in enumerate((AutoScheduler().read, read_line_by_line))
    )
    assert one.to_pylist() == other.to_pylist()
    assert bad[0] == bad[1]


# Each example starts a process that parses.
@settings(max_examples=min(25, settings().max_examples))
@given(written=st.lists(records(), max_size=5), suffix=st.sampled_from(["", ".gz", ".zst"]))
def test_what_is_written_is_what_was_read(
    written: list[object], suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log, again = folder / "a.json", folder / f"b.json{suffix}"
    log.write_text("".join(json.dumps(record) + "\n" for record in written))
    records_file = folder / "a.parquet"
    parquet.write(codecs.read(log, format="auto_scheduler"), records_file)
    assert len(written) == codecs.write(parquet.read(records_file), again, "auto_scheduler")
    codecs.write(codecs.read(again, format="auto_scheduler"), folder / "c.json", "auto_scheduler")
    assert written == loaded(folder / "c.json")


def test_a_slice_of_a_batch_is_written_as_it_is(log: Log, tmp_path: Path) -> None:
    (batch,) = codecs.read(log("\n".join((*TVM_LINES, ""))))
    codecs.write([batch.slice(1, 2), batch.slice(3)], tmp_path / "b.json", "auto_scheduler")
    assert [json.loads(line) for line in TVM_LINES[1:]] == loaded(tmp_path / "b.json")
