from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.dataset import codecs, parquet
from tunefleet.errors import InputError

from .conftest import Log, loaded, read_all

TARGET = {"kind": "metal", "keys": ["metal", "gpu"], "tag": ""}
INSTRUCTIONS = [
    ["GetBlock", [], ["T_take", "main"], ["b0"]],
    ["SampleCategorical", [], [[32, 64], [0.5, 0.5]], ["v4"]],
    ["EnterPostproc", [], [], []],
]


def record(index: int = 0, run_s: Any = (2.7e-05,), decisions: Any = ((1, 0),)) -> list[Any]:
    args = [["TENSOR", "float32", [1, 4096]]]
    run_s = None if run_s is None else list(run_s)
    return [index, [[INSTRUCTIONS, [list(d) for d in decisions]], run_s, TARGET, args]]


WORKLOADS = [["727506180805651697", "7DwAAA=="], ["5010897845704537200", "y3sAAA=="]]


def text(values: list[Any]) -> str:
    return "".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values)


def database(log: Log, records: list[Any], workloads: list[Any] | None = None) -> Path:
    if workloads is not None:
        log(text(workloads), "a__database_workload.json")
    return log(text(records), "a__database_tuning_record.json")


def test_a_record_is_a_row_with_its_workload(log: Log) -> None:
    (row,), bad = read_all(database(log, [record(1)], WORKLOADS), device="m1")
    assert bad == []
    assert (row["format"], row["workload"], row["definition"]) == ("metaschedule", *WORKLOADS[1])
    assert row["steps"] == [
        '["GetBlock",[],["T_take","main"],["b0"]]',
        '["SampleCategorical",[],[[32,64],[0.5,0.5]],["v4"],0]',
        '["EnterPostproc",[],[],[]]',
    ]
    assert (row["costs_s"], row["error_no"]) == ([2.7e-05], 0)
    assert json.loads(row["target"]) == TARGET


def test_without_workloads_a_workload_is_called_by_index_and_arguments(log: Log) -> None:
    (row,), _ = read_all(database(log, [record(7)]))
    assert (row["workload"], row["definition"]) == (
        '["workload 7",[["TENSOR","float32",[1,4096]]]]', None)  # fmt: skip


@pytest.mark.parametrize("run_s", [None, [], [1e10]])
def test_a_failure_has_the_number_of_an_unknown_error(log: Log, run_s: Any) -> None:
    (row,), _ = read_all(database(log, [record(0, run_s)]))
    assert (row["error_no"], row["costs_s"]) == (8, run_s or [])


@pytest.mark.parametrize("workloads", [None, WORKLOADS])
def test_a_database_comes_back_as_it_was(log: Log, tmp_path: Path, workloads: Any) -> None:
    records = [record(1), record(0, None), record(1, []), record(0, [1.5], [[0, [1]], [1, None]])]
    path = database(log, records, workloads)
    parquet.write(codecs.read(path), tmp_path / "a.parquet")
    count = codecs.write(parquet.read(tmp_path / "a.parquet"), tmp_path / "db", "metaschedule")
    assert count == len(records)
    assert records == loaded(tmp_path / "db" / "database_tuning_record.json")
    written = tmp_path / "db" / "database_workload.json"
    assert written.exists() == (workloads is not None)
    if workloads is not None:
        assert workloads == loaded(written)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
LISTS = st.lists(VALUES, max_size=3)


@st.composite
def tuning_records(draw: st.DrawFn) -> list[Any]:
    instructions = draw(st.lists(st.tuples(st.text("aB"), LISTS, LISTS, LISTS), max_size=4))
    decided = draw(st.sets(st.integers(0, 3)))
    decisions = [[i, draw(VALUES)] for i in range(len(instructions)) if i in decided]
    run_s = draw(st.none() | st.lists(st.floats(0, 1e10), max_size=3))
    trace = [[list(instruction) for instruction in instructions], decisions]
    return [draw(st.integers(0, 1)), [trace, run_s, draw(VALUES), draw(VALUES)]]


# Each example starts a process that parses.
@settings(max_examples=min(25, settings().max_examples))
@given(records=st.lists(tuning_records(), max_size=4))
def test_what_is_written_is_what_was_read(
    records: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = folder / "database_tuning_record.json"
    path.write_text(text(records))
    (folder / "database_workload.json").write_text(text(WORKLOADS))
    parquet.write(codecs.read(path, format="metaschedule", strict=True), folder / "a.parquet")
    codecs.write(parquet.read(folder / "a.parquet"), folder / "db", "metaschedule")
    again = loaded(folder / "db" / "database_tuning_record.json")
    used = sorted({index for index, _ in records})
    assert [[used.index(index), rest] for index, rest in records] == again


def test_workloads_without_records_are_gone_and_the_others_are_numbered_anew(
    log: Log, tmp_path: Path
) -> None:
    path = database(log, [record(1)], WORKLOADS)
    out = tmp_path / "b__database_tuning_record.json.gz"
    codecs.write(codecs.read(path), out, "metaschedule")
    (row,), _ = read_all(out)
    assert (row["workload"], row["definition"]) == tuple(WORKLOADS[1])


def test_two_databases_become_one(log: Log, tmp_path: Path) -> None:
    batches: list[Any] = []
    for workload in WORKLOADS:
        batches += codecs.read(database(log, [record(0)], [workload]))
    codecs.write(batches, tmp_path / "db", "metaschedule")
    rows, _ = read_all(tmp_path / "db" / "database_tuning_record.json")
    assert [[row["workload"], row["definition"]] for row in rows] == WORKLOADS


def test_records_with_and_without_workloads_do_not_mix(log: Log, tmp_path: Path) -> None:
    batches = [*codecs.read(database(log, [record(0)]))]
    batches += codecs.read(database(log, [record(0)], WORKLOADS))
    with pytest.raises(InputError, match="some of the records come with"):
        codecs.write(batches, tmp_path / "db", "metaschedule")
    assert list((tmp_path / "db").iterdir()) == []


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ("[0,", "not JSON"),
        (text([record(5)]), "workload 5 is not in the file of workloads"),
        (text([record(0, decisions=[[1, 0], [0, 0]])]), "not in the order"),
        (text([record(0, decisions=[[1, 0], [1, 0]])]), "not in the order"),
        (text([record(0, decisions=[[3, 0]])]), "instruction 3, which is none"),
        (text([record(0, ["1"])]), "Expected `float`"),
        (text([[0, 1]]), "Expected `array`"),
        (text([record(0)]).replace("2.7e-05", "1e999"), "out of range"),
        (text([record(0)]).replace('"tag"', '"kind"'), "'kind' is there twice"),
        ("\0\0\0", "a NUL byte"),
    ],
)
def test_a_bad_line_is_reported_and_the_others_are_read(log: Log, spoilt: str, reason: str) -> None:
    log(text(WORKLOADS), "database_workload.json")
    good = text([record(0)])
    path = log(good + spoilt.strip() + "\n" + good, "database_tuning_record.json")
    rows, bad = read_all(path)
    assert [row["line"] for row in rows] == [1, 3]
    assert [number for number, _ in bad] == [2]
    assert reason in bad[0][1]


def test_a_broken_file_of_workloads_is_named(log: Log) -> None:
    with pytest.raises(InputError, match=r"a__database_workload\.json:2: not a workload"):
        read_all(database(log, [record(0)], [WORKLOADS[0], ["one"]]))


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_what_a_kill_leaves_of_the_workloads_is_used(log: Log, cut: int) -> None:
    path = database(log, [record(0), record(1), record(0)])
    log(text(WORKLOADS)[:-cut], "a__database_workload.json")
    rows, bad = read_all(path)
    whole = 2 if cut == 1 else 1
    assert {row["workload"] for row in rows} == {name for name, _ in WORKLOADS[:whole]}
    lost = [(2, "workload 1 is not in the file of workloads")]
    assert bad == ([] if whole == 2 else lost)


def test_what_is_cut_within_the_workloads_is_named(log: Log) -> None:
    path = database(log, [record(0)])
    log('["727506180805651697", "7DwA\n' + text(WORKLOADS[1:]), "a__database_workload.json")
    with pytest.raises(InputError, match=r"a__database_workload\.json:1: not a workload: not JSON"):
        read_all(path)
