from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunefleet.dataset import parquet
from tunefleet.hardware import shipped_table

from ..dataset.tables import a_batch, a_record
from .conftest import Invoke

LINE = (
    '{"i": [["[\\"f\\", [64, 64]]", "cuda", [-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0, '
    '[]], [[], [["CI", 1], ["SP", 2, 0, 64, [4], 1]]]], "r": [[%s], %s, 2.5, 1637927264], '
    '"v": "v0.6"}\n'
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "a.json"
    path.write_text(LINE % ("0.001", 0) + "no record\n" + LINE % ("1e+10", 6))
    return str(path)


@pytest.fixture
def records(tmp_path: Path) -> str:
    path = tmp_path / "a.parquet"
    rows = [a_record(), a_record(device="k80", error_no=4, costs_s=[1e10])]
    parquet.write([a_batch(rows)], path)
    return str(path)


def test_a_log_has_tables(invoke: Invoke, log: str) -> None:
    ended = invoke("dataset", "stats", log, "--device", "v100")
    assert ended.code == 0
    for text in ("v100", "compute inline", "build timeout", "2 records of 1 task on 1 device"):
        assert text in ended.out
    assert "bad line" in ended.err


def test_parquet_and_logs_go_together_as_json(invoke: Invoke, log: str, records: str) -> None:
    ended = invoke("dataset", "stats", log, records, "--device", "mine", "--json", "-")
    found = json.loads(ended.out)
    assert (found["schema"], found["records"], found["bad_lines"]) == (
        "tunefleet-dataset-stats/1",
        4,
        1,
    )
    assert {device["device"]: device["records"] for device in found["devices"]} == {
        "mine": 2,
        "v100": 1,
        "k80": 1,
    }


def test_a_page_is_written(invoke: Invoke, records: str, tmp_path: Path) -> None:
    ended = invoke("dataset", "stats", records, "--html", str(tmp_path / "a.html"))
    assert (ended.code, ended.err) == (0, "")
    assert "runtime error" in (tmp_path / "a.html").read_text()


def test_a_page_of_another_name_is_refused(invoke: Invoke, records: str, tmp_path: Path) -> None:
    assert invoke("dataset", "stats", records, "--html", str(tmp_path / "a.pdf")).code == 2


def test_no_records_are_an_error(invoke: Invoke, tmp_path: Path) -> None:
    ended = invoke("dataset", "stats", str(tmp_path))
    assert ended.code == 2
    assert "no records" in ended.err


def test_the_device_table_is_listed(invoke: Invoke) -> None:
    ended = invoke("dataset", "devices")
    assert all(row.key in ended.out for row in shipped_table())


def test_one_device_is_shown_with_its_source(invoke: Invoke) -> None:
    ended = invoke("dataset", "devices", "Tesla V100")
    assert all(text in ended.out for text in ("sm_70", "15,667*", "900 GB/s", "WP-08608"))
    found = json.loads(invoke("dataset", "devices", "v100", "--json", "-").out)
    assert found["devices"][0]["units"] == 80


def test_an_unknown_device_tells_names_like_it(invoke: Invoke) -> None:
    ended = invoke("dataset", "devices", "2080")
    assert ended.code == 0
    ended = invoke("dataset", "devices", "titanx")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean titanx-maxwell" in ended.err


def test_the_users_own_devices_are_known(invoke: Invoke, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'schema = "tunefleet-devices/1"\n[[device]]\nkey = "mine"\nname = "Mine"\nkind = "cpu"\n'
        'vendor = "me"\narchitecture = "new"\nunits = 2\nsource = "I know"\n'
    )
    assert "I know" in invoke("dataset", "devices", "mine", "--devices", str(own)).out
    assert invoke("dataset", "devices", "mine").code == 2
