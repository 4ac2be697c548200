"""Files and folders named by their content."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tunefleet.artifacts.arrays import load_arrays, save_arrays
from tunefleet.artifacts.objects import (
    FolderObjects,
    LostObjectError,
    name_of,
    remove_unused,
)
from tunefleet.errors import SetupError


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "owner")


def put(objects: FolderObjects, content: bytes = b"code", name: str = "a.so") -> str:
    with objects.draft() as draft:
        Path(draft, name).write_bytes(content)
        return objects.put(Path(draft, name))


def put_folder(objects: FolderObjects, content: bytes = b"code") -> str:
    with objects.draft() as draft:
        Path(draft, "folder", "below").mkdir(parents=True)
        Path(draft, "folder", "below", "a.so").write_bytes(content)
        return objects.put(Path(draft, "folder"))


def test_an_object_is_found_by_its_content(objects: FolderObjects) -> None:
    name = put(objects)
    assert objects.path(name).read_bytes() == b"code"
    assert name.endswith(".so")
    assert name == put(objects, name="b.so")
    assert name != put(objects, b"other")


def test_the_name_of_a_folder_says_what_is_in_it_and_where(objects: FolderObjects) -> None:
    name = put_folder(objects)
    assert (objects.path(name) / "below" / "a.so").read_bytes() == b"code"
    assert name == put_folder(objects)
    assert name != put_folder(objects, b"other")


def test_what_is_gone_is_lost(objects: FolderObjects) -> None:
    name = put(objects)
    objects.remove(name)
    assert not objects.has(name)
    with pytest.raises(LostObjectError, match="gone"):
        objects.path(name)
    with pytest.raises(LostObjectError):
        FolderObjects(objects.root / "nowhere").path(name)


def test_a_draft_whose_folder_was_removed_is_lost_and_no_bug(objects: FolderObjects) -> None:
    with objects.draft() as draft:
        path = Path(draft, "a.so")
        path.write_bytes(b"code")
        shutil.rmtree(draft)
        with pytest.raises(SetupError, match="is gone; leave the home folder as it is"):
            objects.put(path)


def test_what_was_damaged_is_seen_by_whoever_meets_it_first(objects: FolderObjects) -> None:
    name, folder = put(objects), put_folder(objects)
    objects.path(name).write_bytes(b"c0de")
    (objects.path(folder) / "below" / "more").write_bytes(b"")
    fresh = FolderObjects(objects.root)
    for each in (name, folder):
        with pytest.raises(LostObjectError, match="damaged"):
            fresh.path(each)
        assert not fresh.has(each)
    assert name == put(fresh)


def test_objects_in_use_are_not_removed(objects: FolderObjects, tmp_path: Path) -> None:
    name = put(objects)
    with objects.in_use(), objects.in_use():
        assert remove_unused(objects.root)
        assert objects.has(name)
    assert not remove_unused(tmp_path / "owner")
    assert not (tmp_path / "owner").exists()
    assert not remove_unused(tmp_path / "nowhere")


def test_a_copy_elsewhere_has_the_same_name(objects: FolderObjects, tmp_path: Path) -> None:
    name = put_folder(objects)
    copied = Path(shutil.copytree(objects.path(name), tmp_path / "copy"))
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
