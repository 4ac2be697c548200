from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from tests.dataset.records import Record, table
from tunefleet.dataset import parquet
from tunefleet.dataset.rows import Rows

from .conftest import Invoke, Outcome

pytestmark = pytest.mark.slow


@pytest.fixture
def records(tmp_path: Path) -> str:
    """Three contractions on two devices, 24 programs each, the last of which failed."""
    path = tmp_path / "records.parquet"
    made = table(
        [
            Record(
                workload=f'["dense",[{size},{size}],[{size},{size}]]',
                device=device,
                steps=(f'["SP",0,0,{size},[{program + 1}],1]', '["CI",0]'),
                costs_s=(1.0 + program,),
                error_no=4 if program == 23 else 0,
                source=f"logs/net{size}.json",
            )
            for device in ("v100", "a72")
            for size in (16, 64, 256)
            for program in range(24)
        ]
    )
    parquet.write(made.to_batches(), path)
    return str(path)


def figures(ended: Outcome) -> dict[str, Any]:
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


@pytest.mark.parametrize("method", ["flops", "random", "diversity"])
def test_a_sample_holds_valid_records_up_to_the_rate(
    invoke: Invoke, records: str, tmp_path: Path, method: str
) -> None:
    out = tmp_path / "sample.parquet"
    ended = invoke("dataset", "sample", records, "-o", str(out), "--method", method,
                   "--rate", "0.5", "--json", "-")  # fmt: skip
    found = figures(ended)
    rows = Rows.of(parquet.read_table(out))
    assert (found["read"], found["valid"], found["tasks_read"]) == (144, 138, 6)
    assert found["min_records"] == 16
    assert found["records"] == len(rows) <= 72
    assert found["tasks"] == len(set(rows.task.tolist()))
    assert rows.valid.all()


def test_the_same_seed_gives_the_same_sample(invoke: Invoke, records: str, tmp_path: Path) -> None:
    tables = []
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        out = tmp_path / f"{name}.parquet"
        invoke("dataset", "sample", records, "-o", str(out), "--rate", "0.3", "--seed", seed)
        tables.append(parquet.read_table(out).to_pylist())
    assert tables[0] == tables[1] != tables[2]


def test_workloads_of_unknown_flops_are_told_of(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    known = [
        Record('["dense",[64,64],[64,64]]', steps=(f'["SP",0,0,64,[{i + 1}],1]',))
        for i in range(20)
    ]
    unknown = [Record("mystery") for _ in range(20)]
    parquet.write(table(known + unknown).to_batches(), path)
    ended = invoke("dataset", "sample", str(path), "-o", str(tmp_path / "o.parquet"), "--rate", "1")
    assert ended.code == 0
    assert ended.err.startswith("skipped 1 of 2 workloads with unknown FLOPs")
    assert ended.out.startswith("20 of 40 records")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rate", "1.5"), "1.5 is not a share"),
        (("--rate", "nan"), "nan is not a share"),
        (("--rate", "0.5", "--method", "best"), "'best' is not a method"),
        (("--rate", "0.5", "--min-records", "0"), "0 is not a positive number"),
        (("--rate", "0.5", "--min-records", "100"), "no task has 100 valid records"),
        (("--rate", "0.5", "--seed", "-1"), "-1 is negative"),
    ],
)
def test_bad_input_is_explained_in_one_line(
    invoke: Invoke, records: str, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    out = tmp_path / "sample.parquet"
    ended = invoke("dataset", "sample", records, "-o", str(out), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.err
    assert not out.exists()


def test_a_sample_is_not_written_over(invoke: Invoke, records: str) -> None:
    ended = invoke("dataset", "sample", records, "-o", records, "--rate", "0.5")
    assert ended.code == 2
    assert "exists" in ended.err
    assert invoke("dataset", "sample", records, "-o", records, "--rate", "0.5", "--force").code == 0


@pytest.mark.parametrize("command", ["sample", "split"])
def test_what_cannot_be_written_to_its_end_leaves_what_was_there(
    invoke: Invoke, records: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def cut_short(batches: object, path: Path) -> int:
        path.write_text("half", encoding="utf-8")
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path if command == "split" else tmp_path / "train.parquet"
    (tmp_path / "train.parquet").write_text("before")
    monkeypatch.setattr(parquet, "write", cut_short)
    rate = ("--rate", "0.5") if command == "sample" else ()
    ended = invoke("dataset", command, records, "-o", str(out), "--force", *rate)
    assert (ended.code, (tmp_path / "train.parquet").read_text()) == (3, "before")


@pytest.mark.parametrize(
    "arguments",
    [
        ("within_task",),
        ("within_task_in_order",),
        ("by_task",),
        ("by_target", "--hold-out", "a72"),
        ("by_network", "--hold-out", "net64"),
        ("by_network", "--hold-out", "net64,net16"),
    ],
)
def test_a_split_writes_three_parts_that_make_the_whole(
    invoke: Invoke, records: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    out = tmp_path / "made" / "split"
    ended = invoke(
        "dataset", "split", records, "-o", str(out), "--split", *arguments, "--json", "-"
    )
    parts = figures(ended)["parts"]
    written = {part: parquet.read_table(out / f"{part}.parquet") for part in parts}
    assert {part: t.num_rows for part, t in written.items()} == {
        part: counts["records"] for part, counts in parts.items()
    }
    assert sum(t.num_rows for t in written.values()) == 144
    assert min(t.num_rows for t in written.values()) > 0


def test_a_held_out_network_may_be_listed_in_a_file(
    invoke: Invoke, records: str, tmp_path: Path
) -> None:
    listed = tmp_path / "networks.json"
    listed.write_text(json.dumps({"mine": ['["dense",[16,16],[16,16]]']}))
    asked = ("-o", str(tmp_path / "split"), "--split", "by_network", "--hold-out", "mine")
    ended = invoke("dataset", "split", records, *asked, "--networks", str(listed), "--json", "-")
    assert figures(ended)["parts"]["test"] == {"records": 48, "tasks": 2}


def test_listed_networks_go_with_no_other_split(
    invoke: Invoke, records: str, tmp_path: Path
) -> None:
    listed = tmp_path / "networks.json"
    listed.write_text(json.dumps({"mine": ["w"]}))
    asked = ("-o", str(tmp_path / "split"), "--split", "by_target", "--hold-out", "a72")
    ended = invoke("dataset", "split", records, *asked, "--networks", str(listed))
    assert (ended.code, ended.out) == (2, "")
    assert "leave --networks out" in ended.err


def test_a_split_may_be_smaller_than_its_records(
    invoke: Invoke, records: str, tmp_path: Path
) -> None:
    asked = ("dataset", "split", records, "-o", str(tmp_path), "--max-records", "20", "--json", "-")
    parts = figures(invoke(*asked))["parts"]
    assert [counts["records"] for counts in parts.values()] == [20, 5, 10]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("by_target",), "by_target needs a test device"),
        (("by_network",), "by_network needs a test network"),
        (("by_task", "--hold-out", "a72"), "the split by_task holds nothing out by name"),
        (("by_network", "--hold-out", "a", "--networks", "x"), "cannot read x: No such file"),
        (("by_target", "--hold-out", "t4"), "hold out one of 'a72', 'v100'"),
        (("by_network", "--hold-out", "vgg"), "hold out one of 'net16', 'net256', 'net64'"),
        (("operator",), "'operator' is not a split, choose within_task"),
        (("by_task", "--test", "0.6", "--validation", "0.5"), "leave no split"),
        (("by_task", "--test", "1"), "1 is not a share"),
    ],
)
def test_a_split_that_cannot_be_is_explained(
    invoke: Invoke, records: str, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    out = tmp_path / "split"
    ended = invoke("dataset", "split", records, "-o", str(out), "--split", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.err
    assert not out.exists()
