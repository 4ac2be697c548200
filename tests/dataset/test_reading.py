from __future__ import annotations

from pathlib import Path

import pytest

from tunefleet.dataset import parquet, reading
from tunefleet.errors import InputError

from .tables import a_batch, a_record

LOG = '{"i": [["[\\"f\\"]", "cuda", [-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0, []],' \
    ' [[], [["CI", 1]]]], "r": [[0.001], 0, 2.5, 1637927264], "v": "v0.6"}\n'  # fmt: skip


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """A file of records of a v100, and a folder with a log and something else."""
    parquet.write([a_batch([a_record()])], tmp_path / "a.parquet")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "b.json").write_text(LOG)
    (tmp_path / "logs" / "readme").write_text("hello")
    return [tmp_path / "a.parquet", tmp_path / "logs"]


def test_files_of_both_kinds_are_found(paths: list[Path]) -> None:
    found = [(path.name, format) for path, format in reading.find_files(paths)]
    assert found == [("a.parquet", reading.PARQUET), ("b.json", "auto_scheduler")]


def test_logs_were_measured_on_what_the_user_says(paths: list[Path]) -> None:
    devices = [
        row["device"]
        for path, format in reading.find_files(paths)
        for batch in reading.read(
            path, format, device="t4", on_bad=lambda bad: pytest.fail(str(bad))
        )
        for row in batch.to_pylist()
    ]
    assert devices == ["v100", "t4"]


def test_a_file_that_is_neither_is_refused(paths: list[Path]) -> None:
    with pytest.raises(InputError, match="is not a tuning log"):
        list(reading.find_files([paths[1] / "readme"]))
