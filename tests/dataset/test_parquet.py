from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.schema import RECORDS
from tunefleet.errors import InputError

from .conftest import Log
from .lines import FAILED, TVM_LINES
from .test_autotvm import NEW


@pytest.fixture
def batches(log: Log) -> list[pa.RecordBatch]:
    logs = [log("\n".join((*TVM_LINES, FAILED))), log(NEW, "b.json")]
    return [batch for path in logs for batch in codecs.read(path, device="any")]


def rows(batches: list[pa.RecordBatch]) -> list[object]:
    return pa.Table.from_batches(batches, RECORDS).to_pylist()


def test_batches_come_back_as_they_were(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert parquet.write(batches, path) == 6
    again = list(parquet.read(path))
    assert rows(again) == rows(batches)
    assert all(batch.schema.equals(RECORDS, check_metadata=True) for batch in again)
    assert parquet.read_table(path).to_pylist() == rows(batches)


def test_groups_of_different_words_are_one_table(
    batches: list[pa.RecordBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1)
    path = tmp_path / "a.parquet"
    parquet.write(batches, path)
    assert pq.ParquetFile(path).num_row_groups == len(batches)
    assert rows(list(parquet.read(path))) == rows(batches)
    table = parquet.read_table(path)
    assert table.to_pylist() == rows(batches)
    assert table.combine_chunks().column("steps").num_chunks == 1


@pytest.mark.slow
def test_any_number_of_different_words_goes_into_one_group(tmp_path: Path, log: Log) -> None:
    line = TVM_LINES[1]
    lines = (line.replace("1024", str(100_000 + i)) for i in range(20_000))
    path, records = log("\n".join(lines)), tmp_path / "a.parquet"
    parquet.write(codecs.read(path), records)
    assert pq.ParquetFile(records).num_row_groups == 1
    steps = [row for batch in codecs.read(path) for row in batch.column("steps").to_pylist()]
    assert parquet.read_table(records, ["steps"]).column("steps").to_pylist() == steps


def test_some_columns_may_be_read(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write(batches, path)
    assert parquet.read_table(path, ["line", "steps"]).column_names == ["line", "steps"]
    assert [batch.schema.names for batch in parquet.read(path, ["costs_s"])] == [["costs_s"]]


def test_no_records_are_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert parquet.write([], path) == len(parquet.read_table(path)) == 0


def test_parquet_is_told_by_its_first_bytes(tmp_path: Path, log: Log) -> None:
    parquet.write([], tmp_path / "a")
    assert parquet.is_parquet(tmp_path / "a")
    assert not parquet.is_parquet(log("PAR"))
    assert not parquet.is_parquet(tmp_path / "missing")


@pytest.mark.slow
def test_foreign_files_are_refused_with_the_cause(
    batches: list[pa.RecordBatch], tmp_path: Path, log: Log
) -> None:
    foreign, older = tmp_path / "foreign.parquet", tmp_path / "older.parquet"
    pq.write_table(pa.table({"a": [1]}), foreign)
    metadata = {b"tunefleet": b"tunefleet-records/0"}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), older)
    for path, cause in (
        (tmp_path / "missing.parquet", "No such file"),
        (log("hello hello hello"), "is not a Parquet file"),
        (log(""), "is not a Parquet file"),
        (foreign, "contains no tuning records"),
        (older, "records of tunefleet-records/0, not tunefleet-records/1"),
    ):
        with pytest.raises(InputError, match=cause):
            parquet.read_table(path)
        with pytest.raises(InputError, match=cause):
            list(parquet.read(path))


def test_a_file_that_claims_our_schema_without_having_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(RECORDS.metadata), path)
    with pytest.raises(InputError, match="are not those of"):
        parquet.read_table(path)


@pytest.mark.parametrize("compliant", [False, True])
def test_records_that_another_program_wrote_again_are_read(
    batches: list[pa.RecordBatch], tmp_path: Path, compliant: bool
) -> None:
    path = tmp_path / "a.parquet"
    table = pa.Table.from_batches(batches)
    pq.write_table(table, path, use_compliant_nested_type=compliant, compression="snappy")
    assert parquet.read_table(path).to_pylist() == rows(batches)
    assert parquet.read_table(path).schema.equals(RECORDS)


def test_a_damaged_file_is_an_input_error(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write(batches, path)
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        parquet.read_table(path)


def test_names_of_columns_that_are_no_text_are_an_input_error(
    batches: list[pa.RecordBatch], tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    parquet.write(batches, path)
    path.write_bytes(path.read_bytes().replace(b"workload", b"\xff" * 8))
    with pytest.raises(InputError, match="is not a Parquet file"):
        parquet.read_table(path)


def test_words_that_are_no_text_are_an_input_error(
    batches: list[pa.RecordBatch], tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    table = pa.Table.from_batches(batches, RECORDS)
    number = RECORDS.get_field_index("source")
    field = RECORDS.field(number)
    assert pa.types.is_dictionary(field.type)
    word = pa.array([b"\xff"]).view(pa.string())
    words = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), field.type.index_type), word)
    pq.write_table(table.set_column(number, field, words), path)
    with pytest.raises(InputError, match=r"is damaged: .*UTF8"):
        parquet.read_table(path)
