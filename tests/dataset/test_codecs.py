from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from tunefleet.dataset import codecs
from tunefleet.errors import InputError

from .conftest import Log, read_all
from .lines import TVM_LINES
from .records import Record, table
from .test_autotvm import NEW, OLD
from .test_kernel_tuner import cache, entry, t4
from .test_metaschedule import record, text

GOOD = TVM_LINES[1]


@pytest.mark.parametrize(
    ("content", "format"),
    [
        *((line, "auto_scheduler") for line in TVM_LINES),
        ("# a comment\n\n" + GOOD[:60], "auto_scheduler"),
        ("no record\n" + GOOD, "auto_scheduler"),
        (NEW, "autotvm"),
        (OLD, "autotvm"),
        (text([record()]), "metaschedule"),
        (cache(entry(1)), "kernel_tuner"),
        (t4("correct"), "kernel_tuner"),
        ("", None),
        ("hello", None),
        ("{}", None),
        ('["727506180805651697","7DwAAA=="]', None),
        ("\0" * 100, None),
    ],
)
def test_the_format_is_told_by_the_content(log: Log, content: str, format: str | None) -> None:
    assert format == codecs.format_of(log(content))
    assert format == codecs.format_of(log(content, "a.log.gz"))


def test_every_codec_has_its_name_and_two_write() -> None:
    assert {name: codec.name for name, codec in codecs.FORMATS.items()} == {
        name: name for name in codecs.FORMATS
    }
    writing = [n for n, codec in codecs.FORMATS.items() if isinstance(codec, codecs.WritingCodec)]
    assert writing == ["auto_scheduler", "metaschedule"]


def test_an_empty_file_has_no_records(log: Log) -> None:
    assert read_all(log("")) == ([], [])


def test_an_unknown_log_is_an_input_error(log: Log) -> None:
    with pytest.raises(InputError, match="not a tuning log of a known format"):
        read_all(log("hello"))


def test_an_unknown_format_is_an_input_error(log: Log) -> None:
    with pytest.raises(InputError, match="'tenset' is no format"):
        read_all(log(GOOD), format="tenset")


def test_strict_stops_at_the_first_bad_line(log: Log) -> None:
    path = log(f"{GOOD}\nhello\n\0\n{GOOD}\n")
    with pytest.raises(InputError, match=r"a\.json:2: not JSON"):
        read_all(path, strict=True)


def test_a_log_that_breaks_off_is_read_so_far_and_has_one_bad_line(log: Log) -> None:
    lines = "".join(f"{line}\n" for line in TVM_LINES) * 2000
    path = log(lines, "a.json.gz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    rows, bad = read_all(path)
    assert [row["line"] for row in rows] == list(range(1, len(rows) + 1))
    assert [number for number, _ in bad] == [len(rows) + 1]
    with pytest.raises(InputError, match="the file breaks off"):
        read_all(path, strict=True)


@pytest.mark.parametrize("depth", [300, 900, 950, 980, 990, 995, 1000, 5000, 100_000])
@pytest.mark.parametrize(
    ("line", "place"),
    [
        (GOOD, '"llvm -keys=cpu"'),
        (GOOD, "[0, 1]"),
        (GOOD, '["AN", 4, 0, 3]'),
        (NEW, '"NCHW"'),
        (NEW, "[1, 3]"),
        (NEW, "{}"),
        (OLD, '"r"'),
        (text([record()]).strip(), "[32,64]"),
        (text([record()]).strip(), '"metal"'),
    ],
)
def test_whatever_is_nested_deeply_ends_no_import(
    log: Log, line: str, place: str, depth: int
) -> None:
    deep = line.replace(place, "[" * depth + "]" * depth, 1)
    assert deep != line
    rows, bad = read_all(log(f"{line}\n{deep}\n{line}\n"))
    assert len(rows) + len(bad) == 3
    assert {row["line"] for row in rows} >= {1, 3}


def test_numbers_beyond_doubles_are_nowhere_taken(log: Log) -> None:
    for line, place in ((NEW, "[2, 2]"), (OLD, '"sp"'), (text([record()]), "0.5")):
        rows, bad = read_all(log(line.replace(place, "1e999")))
        assert (rows, [number for number, _ in bad]) == ([], [1])


@pytest.mark.parametrize("format", ["auto_scheduler", "metaschedule"])
def test_records_that_are_none_of_their_format_are_not_written(format: str, tmp_path: Path) -> None:
    records = table([Record(steps=("no JSON",))])
    place = records.schema.get_field_index("format")
    field = records.schema.field(place)
    said = pa.array([format]).dictionary_encode().cast(field.type)
    batches = records.set_column(place, field, said).to_batches()
    with pytest.raises(InputError, match=f"a record is none of {format}"):
        codecs.write(batches, tmp_path / "out", format)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_records_of_another_format_are_not_written(log: Log, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    with pytest.raises(InputError, match="records of autotvm, not only of auto_scheduler"):
        codecs.write(codecs.read(log(NEW)), out, "auto_scheduler")
    with pytest.raises(InputError, match="autotvm is not written"):
        codecs.write(codecs.read(log(NEW)), out, "autotvm")
    assert not out.exists()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Batches are bounded, and none is kept."""
    path = tmp_path / "a.json.gz"
    line = f"{GOOD}\n".encode()
    with gzip.open(path, "wb", compresslevel=1) as out:
        for _ in range(60):
            out.write(line * 1000)
    sizes = [batch.num_rows for batch in codecs.read(path)]
    assert sum(sizes) == 60_000
    assert max(sizes) * len(line) <= 9 << 20
