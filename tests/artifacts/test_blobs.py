"""Files and folders named by their content."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.artifacts.conformance_blobs import BlobsContract, put, put_folder
from tunefleet.artifacts.arrays import load_arrays, save_arrays
from tunefleet.artifacts.blobs import (
    FolderBlobs,
    LostBlobError,
    name_of,
    open_blobs,
    remove_unused,
)
from tunefleet.errors import InputError, SetupError


class TestFolderBlobs(BlobsContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/owner"


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "owner")


def test_a_url_names_a_folder_as_its_path_does(tmp_path: Path) -> None:
    name = put(open_blobs(tmp_path / "a b"))
    for place in (str(tmp_path / "a b"), f"file://{tmp_path}/a%20b"):
        assert open_blobs(place).has(name)


@pytest.mark.parametrize("url", ["s3://bucket/blobs", "file://host/blobs"])
def test_blobs_elsewhere_are_refused(url: str) -> None:
    with pytest.raises(InputError, match=f"cannot be kept at {url}; give a path, or file:///PATH"):
        open_blobs(url)


def test_blobs_of_a_folder_that_is_not_there_are_lost(tmp_path: Path) -> None:
    with pytest.raises(LostBlobError):
        FolderBlobs(tmp_path / "nowhere").path("a" * 64)


def test_a_draft_whose_folder_was_removed_is_lost_and_no_bug(blobs: FolderBlobs) -> None:
    with blobs.draft() as draft:
        path = Path(draft, "a.so")
        path.write_bytes(b"code")
        shutil.rmtree(draft)
        with pytest.raises(SetupError, match="is gone; leave the home folder as it is"):
            blobs.put(path)


def test_blobs_in_use_are_not_removed(blobs: FolderBlobs, tmp_path: Path) -> None:
    name = put(blobs)
    with blobs.in_use(), blobs.in_use():
        assert remove_unused(blobs.root)
        assert blobs.has(name)
    assert not remove_unused(tmp_path / "owner")
    assert not (tmp_path / "owner").exists()
    assert not remove_unused(tmp_path / "nowhere")


def test_a_copy_elsewhere_has_the_same_name(blobs: FolderBlobs, tmp_path: Path) -> None:
    name = put_folder(blobs)
    copied = Path(shutil.copytree(blobs.path(name), tmp_path / "copy"))
    assert name == name_of(copied)


def test_arrays_read_back_with_their_types_and_shapes(tmp_path: Path) -> None:
    import ml_dtypes

    lists = [
        [np.arange(6, dtype="float32").reshape(2, 3), np.array(True)],
        [],
        [np.zeros((0, 2), "int64"), np.array([1.5], ml_dtypes.bfloat16)],
    ]
    save_arrays(tmp_path / "a.npz", lists)
    found = load_arrays(tmp_path / "a.npz", 3)
    for expected, actual in zip(lists, found, strict=True):
        assert [(a.dtype, a.shape) for a in expected] == [(a.dtype, a.shape) for a in actual]
        for one, two in zip(expected, actual, strict=True):
            np.testing.assert_array_equal(one, two)
