from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.costmodel.cards import a_card

from tunefleet.costmodel.card import SCHEMA, Card, Learned
from tunefleet.costmodel.registry import registry_of

FLOATS, INTEGERS = Learned("x86", "float32", 90), Learned("arm", "int8", 10)


def test_a_card_comes_back_from_its_bytes() -> None:
    card = a_card(parent="ab" * 16, limits="none known").with_id()
    assert Card.from_bytes(card.to_bytes()) == card


def test_whole_seconds_make_the_same_card() -> None:
    card = a_card(created=5).with_id()
    assert Card.from_bytes(card.to_bytes()) == card == a_card(created=5.0).with_id()


def test_what_taught_a_model_is_what_taught_its_parents_too() -> None:
    card = a_card(inherited=("cd" * 32,)).with_id()
    assert Card.from_bytes(card.to_bytes()) == card
    assert card.taught_by == ("cd" * 32, "ab" * 32)
    assert "inherited" not in a_card().to_json()  # cards of before keep their ids


def test_the_id_depends_on_everything() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"inherited": ("ab",)}, {"learned": (FLOATS,)},
        {"name": "other"}, {"created": 1.0}, {"parent": "a"},
        {"limits": "x"}, {"settings": {}}, {"seeds": (7, 8)}, {"files": ("0" * 64, "1" * 64)},
    ]  # fmt: skip
    assert len({a_card(**change).digest for change in changes}) == len(changes)


def test_a_model_has_learned_what_its_records_compute_in_on_each_architecture() -> None:
    card = a_card(learned=(FLOATS, INTEGERS)).with_id()
    assert Card.from_bytes(card.to_bytes()) == card
    assert card.architectures == ("x86", "arm")
    asked = [("x86", "float32"), ("x86", "int8"), ("arm", "int8"), ("gpu", "float32")]
    assert [card.has_learned(*kind) for kind in asked] == [True, False, True, False]


def test_what_is_not_told_may_have_been_learned() -> None:
    before = a_card()
    assert before.has_learned("arm", "int8")
    assert "learned" not in before.to_json()  # cards of before keep their ids
    nowhere = a_card(learned=(Learned("", "int8", 5), FLOATS))
    assert nowhere.architectures == ()
    assert nowhere.has_learned("arm", "int8")
    assert not nowhere.has_learned("arm", "float32")
    assert nowhere.has_learned("", "float32")
    assert not nowhere.has_learned("", "bf16")
    assert nowhere.has_learned("arm", "")  # a task that an earlier version stored


def test_the_shipped_model_says_that_it_learned_x86_alone() -> None:
    card = registry_of(None).get("x86").card
    assert all(card.has_learned("x86", precision) for precision in ("float32", "int8", "bf16"))
    asked = [("arm", "int8"), ("arm", "float32"), ("gpu", "float32")]
    assert not any(card.has_learned(*kind) for kind in asked)
    assert sum(each.records for each in card.learned) == card.split.train


def test_metrics_are_told_with_their_range() -> None:
    summary = a_card().metrics[0].to_json()["summary"]
    assert summary["pca"] == {"median": 0.5, "low": 0.25, "high": 0.75}


@pytest.mark.parametrize("name", ["", "-o", "a/b", "..", "a b", "\x1b[2J", "x" * 101])
def test_names_that_could_do_harm_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        a_card(name=name)


@pytest.mark.parametrize("given", [{"seeds": (1,)}, {"files": (), "seeds": ()}])
def test_each_seed_has_a_file(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="files and"):
        a_card(**given)


def test_metrics_are_those_of_all_members() -> None:
    with pytest.raises(ValueError, match="are not those of its members"):
        a_card(members=(b"a",), metrics=a_card().metrics)


def changed(**given: Any) -> bytes:
    return json.dumps({**a_card().with_id().to_json(), **given}).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"\x80\x04", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `schema`"),
        (changed(schema="tunefleet-costmodel/9"), f"this tunefleet reads '{SCHEMA}'"),
        (changed(seeds=["a", "b"]), r"Expected `int`.*\$.seeds"),
        (changed(limits="better than it is"), "does not match its id"),
        (changed(name="../../x"), "is not a valid name"),
    ],
)
def test_what_is_no_card_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError), match=reason):
        Card.from_bytes(data)
