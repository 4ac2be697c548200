"""Archives of strangers: all or nothing, and nothing outside."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tunefleet.errors import InputError
from tunefleet.system import files, unpacking
from tunefleet.system.unpacking import check_name, unpack


def _packed(members: Mapping[str, bytes], mode: int = 0) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member)
    return content.getvalue()


def _unpacked(content: bytes, folder: Path) -> list[str]:
    archive, target = folder / "a.zip", folder / "target"
    archive.write_bytes(content)
    target.mkdir()
    try:
        unpack(archive, target)
    finally:
        written = sorted(
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
        )
        assert [name for name in written if not name.startswith("target/")] == ["a.zip"]
    return [name.removeprefix("target/") for name in written if name != "a.zip"]


def test_files_lie_as_they_were_packed(tmp_path: Path) -> None:
    members = {"net/a.onnx": b"a", "net/b/w.bin": b"w", "net/": b"", "__MACOSX/x": b"", ".x": b""}
    assert _unpacked(_packed(members), tmp_path) == ["net/a.onnx", "net/b/w.bin"]


@pytest.mark.parametrize(
    ("members", "mode", "reason"),
    [
        ({"../a": b""}, 0, "leads out"),
        ({"/etc/a": b""}, 0, "leads out"),
        ({"net/../../a": b""}, 0, "leads out"),
        ({"net\\..\\a": b""}, 0, "is no name"),
        ({"C:a": b""}, 0, "is no name"),
        ({"a\nb": b""}, 0, "cannot be printed"),
        ({"-rf": b""}, 0, "begins or ends"),
        ({"a" * 300: b""}, 0, "more than 200 bytes"),
        ({"a": b"/etc/passwd"}, stat.S_IFLNK, "link or a device"),
        ({"a": b""}, stat.S_IFIFO, "link or a device"),
        ({"/".join("abcdefghij"): b""}, 0, "10 deep"),
        ({"a": b"x", "a/b": b"y"}, 0, "below a file"),
        ({str(number): b"" for number in range(2001)}, 0, "2,001 files"),
    ],
)
def test_what_leads_elsewhere_is_refused(
    members: Mapping[str, bytes], mode: int, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        _unpacked(_packed(members, mode), tmp_path)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    content = _packed({"a": b"x", "b": b"y"}).replace(b"b", b"a")
    with pytest.raises(InputError, match=r"two files of one name|no zip archive"):
        _unpacked(content, tmp_path)


def test_bombs_and_lying_lengths_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_UNPACKED_BYTES", 1 << 16)
    with pytest.raises(InputError, match="unpacks to"):
        _unpacked(_packed({"a": bytes(1 << 20)}), tmp_path)
    whole = _packed({"a": bytes(1000)})
    lying = whole.replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    (tmp_path / "target").rmdir()
    with pytest.raises(InputError, match="is no zip archive"):
        _unpacked(lying, tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", _packed({"a": b"x"})[:60]])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no zip archive"):
        _unpacked(content, tmp_path)


def test_a_long_list_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LIST_BYTES", 1000)
    with pytest.raises(InputError, match="lists 100 files"):
        _unpacked(_packed({f"file{number}": b"" for number in range(100)}), tmp_path)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "a\\b", "a\0b", "a\x1b[2J", "\u202ea.onnx", ".x", "-x", " x", "x" * 201],
)
def test_names_of_no_file(name: str) -> None:
    with pytest.raises(InputError) as refused:
        check_name(name)
    assert str(refused.value).isprintable()


def test_names_of_networks() -> None:
    for name in ("resnet-50.onnx", "mobile_net v2.tflite", "netz-größe.pt2", "a.b.zip"):
        check_name(name)
    assert unpacking.LONGEST_NAME == 200
