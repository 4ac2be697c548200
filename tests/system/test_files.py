"""What a file must be before it is opened."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from tunefleet.dataset import codecs, parquet
from tunefleet.errors import InputError, SetupError
from tunefleet.system.files import check_archive, check_regular, check_runs_code, read_small


def test_pipes_devices_and_folders_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(InputError, match="is no regular file"):
            check_regular(type(tmp_path)(path))
    check_regular(tmp_path / "missing")  # whoever opens it says so


def test_a_file_may_be_longer_than_it_can_be(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    check_regular(path, 5)
    os.truncate(path, 3 << 30)
    with pytest.raises(InputError, match="has 3,072 MiB"):
        check_regular(path, 5)


@pytest.mark.parametrize("read", [parquet.is_parquet, parquet.read_table, codecs.format_of])
def test_records_in_a_pipe_are_not_waited_for(read, tmp_path):
    os.mkfifo(tmp_path / "records.json")
    with pytest.raises(InputError, match="is no regular file"):
        read(tmp_path / "records.json")


@pytest.mark.slow
def test_an_archive_that_unpacks_to_far_more_than_it_is(tmp_path):
    path = tmp_path / "a.zip"
    check_archive(path)
    path.write_bytes(b"no archive")
    check_archive(path)
    for megabytes, fits in ((200, True), (400, False)):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zeros", bytes(megabytes << 20))
        if fits:
            check_archive(path)
        else:
            with pytest.raises(InputError, match="unpacks to 400 MiB"):
                check_archive(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights", bytes(300 << 20))
    check_archive(path)


def test_a_disk_that_no_code_runs_from_is_told(tmp_path, monkeypatch):
    check_runs_code(tmp_path / "not" / "there", "give another")
    mounted = os.statvfs_result((4096, 4096, 1, 1, 1, 1, 1, 1, os.ST_NOEXEC, 255))
    monkeypatch.setattr(os, "statvfs", {tmp_path: mounted}.__getitem__)
    with pytest.raises(SetupError) as raised:
        check_runs_code(tmp_path / "not" / "there", "give another")
    assert str(raised.value) == (
        f"code cannot be loaded from {tmp_path / 'not' / 'there'}: its disk is mounted noexec; "
        "give another"
    )


def test_a_small_file_may_be_a_pipe_and_has_an_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"key")
    os.close(writing)
    assert read_small(Path(f"/proc/self/fd/{reading}"), 8) == b"key"
    os.close(reading)
    (tmp_path / "key").write_bytes(b"x" * 9)
    for path in (tmp_path / "key", Path("/dev/zero")):
        with pytest.raises(InputError, match="which such a file cannot have"):
            read_small(path, 8)
