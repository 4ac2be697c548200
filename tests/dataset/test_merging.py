from __future__ import annotations

from pathlib import Path

import pytest

from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.merging import merge

from .conftest import Log
from .lines import TVM_LINES

GOOD = TVM_LINES[1]


@pytest.fixture
def records(log: Log, tmp_path: Path) -> Log:
    def write(text: str, name: str = "a", device: str = "any") -> Path:
        path = tmp_path / f"{name}.parquet"
        parquet.write(codecs.read(log(text, name), device=device), path)
        return path

    return write


def lines_of(path: Path) -> list[int]:
    return parquet.read_table(path).column("line").to_pylist()


def test_the_first_of_each_alike_is_kept(records: Log, tmp_path: Path) -> None:
    one = records("\n".join([*TVM_LINES, GOOD]), "a")
    other = records("\n".join(["", GOOD, GOOD.replace("0.0044742", "0.5")]), "b")
    merged = merge([one, other], tmp_path / "c.parquet")
    assert (merged.rows, merged.duplicates) == (7, 2)
    assert lines_of(tmp_path / "c.parquet") == [1, 2, 3, 4, 3]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("llvm", "cuda"),
        ("matmul_add", "matmul"),
        ('["FSP", 4, 0, 0, 2], ', ""),
        ("[0.0044742]", "[0.0044742, 0.0044742]"),
        ("[0.0044742]", "[]"),
    ],
)
def test_what_differs_in_one_of_them_is_no_duplicate(
    records: Log, tmp_path: Path, old: str, new: str
) -> None:
    path = records(f"{GOOD}\n{GOOD.replace(old, new)}\n")
    assert merge([path], tmp_path / "c.parquet").duplicates == 0


def test_the_same_record_of_another_device_is_no_duplicate(records: Log, tmp_path: Path) -> None:
    files = [records(GOOD, name, device=name) for name in ("k80", "v100")]
    assert merge(files, tmp_path / "c.parquet").duplicates == 0


def test_time_and_place_make_no_difference(records: Log, tmp_path: Path) -> None:
    path = records(f"{GOOD}\n{GOOD.replace('1607112214', '1607112215')}\n")
    assert merge([path], tmp_path / "c.parquet").duplicates == 1


def test_a_file_may_be_merged_into_itself(records: Log) -> None:
    path = records(f"{GOOD}\n{GOOD}\n")
    assert merge([path, path], path).duplicates == 3
    assert lines_of(path) == [1]
