"""Files of several row groups, each with dictionaries of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tunefleet.dataset import parquet
from tunefleet.dataset.codecs.rows import Row, batch_of


def batch(workload: str, *steps: str) -> pa.RecordBatch:
    rows = [Row(1, "v0.6", "llvm", workload, steps, (1.0,), 0, 2.0, 3.0, "{}")]
    return batch_of(rows, "auto_scheduler", "a.json", "v100")


def test_batches_and_the_whole_are_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1)
    path = tmp_path / "r.parquet"
    written = [batch("a", '["CI",1]', '["CI",2]'), batch("b", '["CI",2]'), batch("c")]
    assert parquet.write(written, path) == 3
    expected = [row for b in written for row in b.to_pylist()]
    assert [row for b in parquet.read(path) for row in b.to_pylist()] == expected
    table = parquet.read_table(path)
    assert table.to_pylist() == expected
    assert table.schema.equals(written[0].schema)
    steps = table.column("steps").combine_chunks()
    assert sorted(steps.values.dictionary.to_pylist()) == ['["CI",1]', '["CI",2]']


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    parquet.write([batch("a", '["CI",1]')], path)
    assert parquet.read_table(path, ["workload"]).to_pylist() == [{"workload": "a"}]
