from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.dataset.records import Record, table
from tunefleet.dataset import parquet
from tunefleet.errors import InputError
from tunefleet.learning.progress import paced
from tunefleet.learning.records import read_records

from .made import made_records, made_table, silent

LINE = (
    '{"i": [["[\\"f\\", [64, 64]]", "cuda", [-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0, '
    '[]], [[], [["CI", 1], ["SP", 2, 0, 64, [4], 1]]]], "r": [[0.001], 0, 2.5, 1637927264], '
    '"v": "v0.6"}\n'
)


def read(*paths: Path, device: str = ""):
    return read_records(paths, device=device, on_bad=lambda bad: None, progress=silent)


def test_parquet_and_logs_are_read_together(tmp_path: Path) -> None:
    parquet.write(made_table().to_batches(), tmp_path / "a.parquet")
    (tmp_path / "b.json").write_text(LINE)
    found = read(tmp_path / "a.parquet", tmp_path / "b.json", device="mine")
    assert sorted(file.name for file in found.files) == ["a.parquet", "b.json"]
    assert len(found.rows) == 121
    assert set(found.devices.names) == {"v100", "mine"}


def test_the_order_of_files_and_repetition_change_nothing(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for tasks, path in enumerate(paths, 2):
        parquet.write(made_table(tasks).to_batches(), path)
    one, other = read(*paths), read(*paths[::-1], paths[0])
    assert one.table.equals(other.table)
    assert one.files == other.files


def test_files_have_the_digest_of_their_content(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(LINE)
    (file,) = read(path).files
    assert file.sha256 == sha256(path.read_bytes()).hexdigest()


def test_files_without_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no records in"):
        read(tmp_path)


def test_a_device_of_several_processors_is_several() -> None:
    targets = ('{"kind":"llvm","mcpu":"haswell"}', '{"kind":"llvm","mcpu":"nehalem"}', "llvm")
    records = made_records(
        table([Record(device="epyc", target=target) for target in targets]
              + [Record(device="v100"), Record(device="", target=targets[0]), Record(device="")])
    )  # fmt: skip
    names = [records.devices.names[code] for code in records.devices.codes]
    assert names == [
        "epyc (haswell)", "epyc (nehalem)", "epyc (other)", "v100", "haswell", "(not named)"
    ]  # fmt: skip


def test_used_rows_are_told_by_file() -> None:
    records = made_records(made_table(1), made_table(2, devices=("a72",)), made_table(3))
    one, two, three = records.used(np.array([0, 5, 31]))
    assert (one.used, two.used, three.used) == (2, 1, 0)
    assert (one.devices, two.devices, three.devices) == (("v100",), ("a72",), ())
    assert (one.targets, one.formats) == (("cuda",), ("auto_scheduler",))


def test_progress_is_told_every_few_seconds() -> None:
    told: list[str] = []
    seconds = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    tell = paced(told.append, lambda: next(seconds))
    for text in "abc":
        tell(text)
    assert told == ["b"]
