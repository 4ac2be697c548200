from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from tunefleet.dataset import files
from tunefleet.errors import InputError

TEXT = "".join(f"line {i}\n" for i in range(10_000)).encode()


def numbered(path: Path, size: int = 1 << 12) -> list[tuple[int, bytes]]:
    return [
        (number, line)
        for first, lines in files.line_chunks(path, size)
        for number, line in enumerate(lines, first)
    ]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.json.zst"])
def test_lines_are_numbered_through_all_chunks(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with files.open_output(path) as out:
        out.write(TEXT)
    assert numbered(path) == list(enumerate(TEXT.split(b"\n")[:-1], 1))


def test_a_last_line_without_an_end_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n\ntwo")
    assert numbered(path) == [(1, b"one"), (2, b""), (3, b"two")]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbfone\n")
    assert numbered(path) == [(1, b"one")]


def test_a_file_of_several_compressed_parts_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\nt") + gzip.compress(b"wo\n"))
    compress = zstandard.ZstdCompressor().compress
    (tmp_path / "a.zst").write_bytes(compress(b"one\nt") + compress(b"wo\n"))
    assert numbered(tmp_path / "a.gz") == numbered(tmp_path / "a.zst") == [(1, b"one"), (2, b"two")]


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_what_was_written_before_a_file_breaks_off_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with files.open_output(path) as out:
        out.write(TEXT)
    path.write_bytes(path.read_bytes()[:-200])
    read: list[bytes] = []
    chunks = (lines for _, lines in files.line_chunks(path, 1 << 12))
    with pytest.raises(files.BrokenFileError, match="breaks off") as raised:
        read.extend(line for lines in chunks for line in lines)
    assert raised.value.line == len(read) + 1
    assert TEXT.split(b"\n")[: len(read)] == read


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("size", [1, 100, files.CHUNK_BYTES])
def test_all_that_is_whole_before_a_break_is_read(tmp_path: Path, suffix: str, size: int) -> None:
    path = tmp_path / f"a{suffix}"
    compress = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    text = TEXT[: 1 << 16]
    path.write_bytes(compress(text) + compress(TEXT)[:10])
    lines, broken = [], 0
    try:
        for _, some in files.line_chunks(path, size):
            lines += some
    except files.BrokenFileError as error:
        broken = error.line
    assert text.split(b"\n")[:-1] == lines
    assert broken == len(lines) + 1
    assert files.head(path) == text


def test_what_is_not_compressed_as_its_name_says_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(TEXT)
    with pytest.raises(files.BrokenFileError, match="breaks off"):
        numbered(path)


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "a"
    path.write_bytes(b"one\n" + b"x" * (1 << 21))
    for size in (1 << 18, 1 << 21):
        lines: list[bytes] = []
        with pytest.raises(files.BrokenFileError, match="longer than 1 MiB") as raised:
            lines.extend(line for _, some in files.line_chunks(path, size) for line in some)
        assert (raised.value.line, lines) == (2, [b"one"])


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        numbered(tmp_path / "missing.gz")


def test_a_draft_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("before")
    with files.Draft(path) as draft:
        draft.write_text("after")
        assert path.read_text() == "before"
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == ("after", 1)


def test_a_draft_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), files.Draft(path) as draft:
        draft.write_text(str(1 / 0))
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == ("before", 1)


def test_a_file_that_cannot_be_written_is_called_by_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.json"
    with pytest.raises(InputError, match=f"^cannot write {path}: No such file"), files.Draft(path):
        pass


def test_a_process_that_is_killed_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("before")
    code = (
        "import os, signal, sys; from pathlib import Path; from tunefleet.dataset import files\n"
        "with files.Draft(Path(sys.argv[1])) as draft:\n"
        "    draft.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert (done.returncode, path.read_text()) == (-signal.SIGKILL, "before")
