"""The contract of blobs, run over every implementation."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tunefleet.artifacts.blobs import Blobs, LostBlobError, keep, name_of, open_blobs
from tunefleet.errors import InputError

#: Puts one folder of 20 files again and again, removing it in between, until its input ends.
_PUTTER = """
import select, sys
from pathlib import Path
from tunefleet.artifacts.blobs import open_blobs
blobs = open_blobs(sys.argv[1])
while not select.select([sys.stdin], [], [], 0)[0]:
    with blobs.draft() as draft:
        folder = Path(draft, "folder")
        folder.mkdir()
        for i in range(20):
            (folder / str(i)).write_bytes(bytes([i]) * 100)
        name = blobs.put(folder)
    print(name, flush=True)
"""


def put(blobs: Blobs, content: bytes = b"code", name: str = "a.so") -> str:
    with blobs.draft() as draft:
        Path(draft, name).write_bytes(content)
        return blobs.put(Path(draft, name))


def put_folder(blobs: Blobs, content: bytes = b"code") -> str:
    with blobs.draft() as draft:
        Path(draft, "folder", "below").mkdir(parents=True)
        Path(draft, "folder", "below", "a.so").write_bytes(content)
        return blobs.put(Path(draft, "folder"))


class BlobsContract:
    """A subclass has a fixture `url`, which opens the same blobs each time and in any process."""

    @pytest.fixture
    def blobs(self, url: str) -> Blobs:
        return open_blobs(url)

    def test_a_blob_is_found_by_its_content(self, blobs: Blobs, url: str) -> None:
        name = put(blobs)
        assert blobs.path(name).read_bytes() == b"code"
        assert open_blobs(url).path(name).read_bytes() == b"code"
        assert name.endswith(".so")
        assert name == put(blobs, name="b.so")
        assert name != put(blobs, b"other")

    def test_the_name_of_a_folder_says_what_is_in_it_and_where(self, blobs: Blobs) -> None:
        name = put_folder(blobs)
        assert (blobs.path(name) / "below" / "a.so").read_bytes() == b"code"
        assert name == put_folder(blobs)
        assert name != put_folder(blobs, b"other")

    def test_copies_of_files_are_kept_in_one_folder(
        self, blobs: Blobs, url: str, tmp_path: Path
    ) -> None:
        (tmp_path / "a.onnx").write_bytes(b"code")
        content = sha256(b"code").hexdigest()
        files = {"a.onnx": (tmp_path / "a.onnx", content), "w/b": (tmp_path / "a.onnx", content)}
        name = keep(blobs, files)
        (tmp_path / "a.onnx").unlink()
        assert name == keep(open_blobs(url), files)
        kept = blobs.path(name)
        assert {"a.onnx", "w/b"} == {
            str(file.relative_to(kept)) for file in kept.rglob("*") if file.is_file()
        }
        assert (kept / "w" / "b").read_bytes() == b"code"
        (kept / "w" / "b").write_bytes(b"c0de")
        (tmp_path / "a.onnx").write_bytes(b"code")
        assert name == keep(open_blobs(url), files)
        assert (kept / "w" / "b").read_bytes() == b"code"

    def test_a_file_that_changed_before_its_copy_is_refused(
        self, blobs: Blobs, tmp_path: Path
    ) -> None:
        (tmp_path / "a.onnx").write_bytes(b"newer")
        files = {"a.onnx": (tmp_path / "a.onnx", sha256(b"older").hexdigest())}
        with pytest.raises(InputError, match=r"^a\.onnx was changed while it was read; give"):
            keep(blobs, files)

    def test_what_is_gone_is_lost(self, blobs: Blobs) -> None:
        name = put(blobs)
        assert blobs.has(name)
        blobs.remove(name)
        assert not blobs.has(name)
        with pytest.raises(LostBlobError, match="gone"):
            blobs.path(name)

    def test_names_come_in_pages(self, blobs: Blobs) -> None:
        assert blobs.names() == []
        put_all = sorted(put(blobs, bytes([i])) for i in range(5))
        assert blobs.names() == put_all
        first = blobs.names(limit=2)
        assert put_all == [*first, *blobs.names(after=first[-1])]

    def test_a_draft_is_no_blob(self, blobs: Blobs) -> None:
        with blobs.draft() as draft:
            Path(draft, "a.so").write_bytes(b"code")
            assert blobs.names() == []

    def test_what_was_damaged_is_seen_by_whoever_meets_it_first(
        self, blobs: Blobs, url: str
    ) -> None:
        name, folder = put(blobs), put_folder(blobs)
        blobs.path(name).write_bytes(b"c0de")
        (blobs.path(folder) / "below" / "more").write_bytes(b"")
        fresh = open_blobs(url)
        for each in (name, folder):
            with pytest.raises(LostBlobError, match="damaged"):
                fresh.path(each)
            assert not fresh.has(each)
        assert name == put(fresh)

    def test_putting_again_mends_what_was_damaged(self, blobs: Blobs, url: str) -> None:
        name = put(blobs)
        blobs.path(name).write_bytes(b"c0de")
        assert name == put(open_blobs(url))
        assert open_blobs(url).path(name).read_bytes() == b"code"

    def test_what_is_in_use_is_not_swept(self, blobs: Blobs, url: str) -> None:
        name, other = put(blobs), put(blobs, b"other")
        fresh = open_blobs(url)
        with blobs.in_use(), blobs.in_use():
            assert not fresh.sweep(lambda: [name])
            assert blobs.has(name)
        assert fresh.sweep(lambda: [name])
        assert [other] == blobs.names()

    def test_two_processes_put_the_same_and_half_of_it_is_never_seen(
        self, blobs: Blobs, url: str
    ) -> None:
        command = [sys.executable, "-c", _PUTTER, url]
        putters = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        try:
            lines = [putter.stdout for putter in putters if putter.stdout is not None]
            [name] = {line.readline().strip() for line in lines}
            for _ in range(20):
                blobs.remove(name)
                for seen in blobs.names():
                    assert seen == name
                    assert name == name_of(open_blobs(url).path(seen))
                put_by = lines[0].readline().strip()
                assert name == put_by
        finally:
            for putter in putters:
                putter.communicate()
        assert all(putter.returncode == 0 for putter in putters)
