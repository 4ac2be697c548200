from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.costmodel.cards import MEMBERS, a_card

from tunefleet.costmodel import RandomModel
from tunefleet.costmodel.registry import CARD, Registry, RegistryEntry, open_entry, registry_of
from tunefleet.errors import InputError, SetupError


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home" / "costmodels", tmp_path / "shipped")


@pytest.fixture
def entry(registry: Registry) -> RegistryEntry:
    return registry.add(a_card(), MEMBERS)


def test_an_entry_is_a_folder_called_by_its_id(entry: RegistryEntry) -> None:
    assert entry.path.name == entry.card.id == a_card().digest
    assert sorted(p.name for p in entry.path.iterdir()) == [CARD, "member-0.bin", "member-1.bin"]
    assert [p.name for p in entry.path.parent.iterdir()] == [entry.card.id]


def test_members_are_loaded_in_order(registry: Registry, entry: RegistryEntry) -> None:
    loaded = registry.get(entry.card.id).load()
    programs = [np.ones((1, 1), np.float32)] * 5
    assert [m.predict(programs).tolist() for m in loaded] == [
        RandomModel(seed).predict(programs).tolist() for seed in (0, 1)
    ]


def test_adding_again_changes_nothing(registry: Registry, entry: RegistryEntry) -> None:
    assert registry.add(a_card(), MEMBERS) == entry
    assert len(registry.list()[0]) == 1


def test_a_card_of_other_members_is_not_added(registry: Registry) -> None:
    with pytest.raises(ValueError, match="does not match these members"):
        registry.add(a_card(), (b"random/0", b"random/2"))


def test_the_newest_of_a_name_is_found(registry: Registry) -> None:
    old, new = (registry.add(a_card(created=created), MEMBERS) for created in (1.0, 2.0))
    other = registry.add(a_card(created=3.0, name="other"), MEMBERS)
    assert registry.get("mine") == new
    assert registry.get(old.card.id[:8]) == old
    assert registry.list() == ([other, new, old], [])


def test_an_entry_from_elsewhere_is_kept(registry: Registry, tmp_path: Path) -> None:
    archive = tmp_path / "theirs.zip"
    Registry(tmp_path / "theirs").add(a_card(), MEMBERS).export(archive)
    kept = registry.keep(registry.get(str(archive)))
    assert kept.path == registry.directory / a_card().digest
    assert registry.get("mine").load()
    assert registry.keep(kept) is kept
    assert len(registry.list()[0]) == 1


def test_a_folder_here_hides_no_model(
    registry: Registry, entry: RegistryEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    other = Registry(tmp_path / "theirs").add(a_card(name="theirs"), MEMBERS)
    for name in (entry.card.id, entry.card.name, "theirs"):
        other.export(Path(name))
    assert registry.get(entry.card.id) == registry.get(entry.card.name) == entry
    assert registry.get("theirs").card == registry.get(f"./{entry.card.name}").card == other.card


def test_models_of_the_package_are_found_beside_the_users(
    registry: Registry, entry: RegistryEntry
) -> None:
    shipped = Registry(registry.shipped).add(a_card(name="shipped", created=1.0), MEMBERS)
    assert registry.get("shipped") == shipped
    assert registry.list()[0] == [entry, shipped]


def test_models_of_the_package_alone_are_listed_once() -> None:
    entries, damaged = registry_of(None).list()
    assert not damaged
    assert len({entry.card.id for entry in entries}) == len(entries) > 0


def test_a_registry_that_is_not_there_is_empty(registry: Registry) -> None:
    assert registry.list() == ([], [])
    assert not registry.directory.exists()
    with pytest.raises(InputError, match="train one with `tunefleet costmodel train`"):
        registry.get("mine")


def test_an_unknown_name_is_told_with_the_known(registry: Registry, entry: RegistryEntry) -> None:
    with pytest.raises(InputError, match=r"no cost model 'yours' in .*; choose of mine"):
        registry.get("yours")


@pytest.mark.parametrize("name", ["folder", "archive.zip"])
class TestExport:
    def test_a_copy_is_taken_by_its_path(
        self, registry: Registry, entry: RegistryEntry, tmp_path: Path, name: str
    ) -> None:
        entry.export(tmp_path / name)
        copy = registry.get(str(tmp_path / name))
        assert copy.card == entry.card
        assert copy.data() == MEMBERS

    def test_what_is_there_is_kept(self, entry: RegistryEntry, tmp_path: Path, name: str) -> None:
        entry.export(tmp_path / name)
        with pytest.raises(InputError, match="exists"):
            entry.export(tmp_path / name)

    def test_a_place_that_cannot_be_written_is_explained(
        self, entry: RegistryEntry, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match=r"cannot write .*; choose another path"):
            entry.export(tmp_path / "file" / name)


def test_an_archive_is_always_the_same_bytes(entry: RegistryEntry, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        entry.export(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.mark.parametrize("created", [1.0, 1e12])
def test_a_name_of_the_home_is_not_taken_by_one_of_a_release(
    registry: Registry, entry: RegistryEntry, created: float
) -> None:
    shipped = Registry(registry.shipped).add(a_card(name="mine", created=created), MEMBERS)
    assert registry.get("mine") == entry
    assert registry.get(shipped.card.id) == shipped
    assert registry.called("mine", registry.list()[0]) == entry


def test_a_copy_of_a_shipped_version_is_that_version(registry: Registry, tmp_path: Path) -> None:
    shipped = Registry(registry.shipped).add(a_card(name="shipped"), MEMBERS)
    shipped.export(tmp_path / "copy.zip")
    copy = registry.get(str(tmp_path / "copy.zip"))
    assert registry.keep(copy) is copy
    registry.add(copy.card, copy.data())
    (listed,) = registry.list()[0]
    assert registry.is_shipped(listed)


def no_card(entry: RegistryEntry) -> None:
    (entry.path / CARD).unlink()


def cut_card(entry: RegistryEntry) -> None:
    (entry.path / CARD).write_bytes(entry.card.to_bytes()[:100])


def edited_card(entry: RegistryEntry) -> None:
    (entry.path / CARD).write_bytes(entry.card.to_bytes().replace(b"0.75", b"0.95"))


def no_member(entry: RegistryEntry) -> None:
    (entry.path / "member-1.bin").unlink()


def other_member(entry: RegistryEntry) -> None:
    (entry.path / "member-1.bin").write_bytes(b"random/7")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (no_card, "no usable card.json: it is missing"),
        (cut_card, "no usable card.json: Input data was truncated"),
        (edited_card, "no usable card.json: its content does not match its id"),
        (no_member, "no usable member-1.bin: it is missing"),
        (other_member, "no usable member-1.bin: its content does not match the card"),
    ],
)
def test_damage_is_told_with_its_file(
    registry: Registry, entry: RegistryEntry, harm: Callable[[RegistryEntry], None], reason: str
) -> None:
    harm(entry)
    with pytest.raises(InputError, match=f"{reason}.*; export it again"):
        registry.get(entry.card.id).load()


def test_a_damaged_entry_does_not_hide_others(registry: Registry, entry: RegistryEntry) -> None:
    good = registry.add(a_card(name="good"), MEMBERS)
    cut_card(entry)
    found, damaged = registry.list()
    assert found == [good]
    assert entry.card.id in str(*damaged)
    assert registry.get("good") == good


def test_a_draft_of_a_killed_process_is_no_entry(registry: Registry, entry: RegistryEntry) -> None:
    (registry.directory / ".draft-x").mkdir()
    assert registry.list() == ([entry], [])


def test_a_kind_that_is_not_known_here_is_explained(registry: Registry) -> None:
    future = registry.add(a_card(kind="oracle"), MEMBERS)
    with pytest.raises(InputError, match="unknown kind 'oracle'; use a version"):
        future.load()


def test_members_that_are_no_models_are_explained(registry: Registry) -> None:
    members = (b"\x80\x04pickle",)
    foreign = registry.add(a_card(members), members)
    with pytest.raises(InputError, match="cannot be loaded as random: not a random cost model"):
        foreign.load()


@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x03\x04" + b"\0" * 40])
def test_paths_that_are_no_models_are_explained(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"cost model .*x\.zip"):
        open_entry(path)


def test_an_archive_of_something_else_is_explained(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(InputError, match=r"no usable card\.json: it is missing"):
        open_entry(tmp_path / "x.zip")


def test_an_archive_with_any_other_byte_is_a_model_or_explained(
    entry: RegistryEntry, tmp_path: Path
) -> None:
    entry.export(tmp_path / "x.zip")
    content = (tmp_path / "x.zip").read_bytes()
    refused = 0
    for place in range(len(content)):
        harmed = bytearray(content)
        harmed[place] ^= 0xFF
        (tmp_path / "x.zip").write_bytes(harmed)
        try:
            open_entry(tmp_path / "x.zip").data()
        except InputError:
            refused += 1
    assert refused > len(content) / 2


def test_a_place_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"cannot write cost models to .*; use --home DIR"):
        Registry(tmp_path / "file" / "costmodels").add(a_card(), MEMBERS)
