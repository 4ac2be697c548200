"""Cost models of a user's searches: the versions, what they learned, and a way back."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)

from tunefleet.core.settings import SHIPPED_MODEL
from tunefleet.costmodel.registry import registry_of
from tunefleet.store import Learning, LearningOutcome

from .conftest import World


def learned(world: World, tenant: str) -> tuple[str, str]:
    """The shipped version and one that a tenant's searches learned; their ids."""
    registry = registry_of(world.home)
    shipped = registry.get(SHIPPED_MODEL)
    card = shipped.card
    made = registry.add(
        type(card)(**{name: getattr(card, name) for name in card.__dataclass_fields__}
                   | {"name": "learned-x86", "parent": card.id, "created": 2e9, "id": ""}),
        shipped.data(),
    )  # fmt: skip
    world.store.explorer.add_learning(
        Learning(
            tenant=tenant,
            at=2e9,
            outcome=LearningOutcome.NO_WORSE,
            parent=card.id,
            model=made.card.id,
            in_use=made.card.id,
            jobs=("secret-job",),
            records=1200,
            held_back=240,
            before={"pca": 0.7, "top1": 0.8, "top5": 0.9},
            after={"pca": 0.75, "top1": 0.8, "top5": 0.9},
        )
    )
    return card.id, made.card.id


def used(world: World, headers: dict[str, str]) -> list[str]:
    models: list[dict[str, Any]] = world.client.get("/v1/cost-models", headers=headers).json()[
        "models"
    ]
    return [model["id"] for model in models if model["in_use"]]


def test_the_shipped_version_is_used_until_one_was_learned(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    listed = world.client.get("/v1/cost-models", headers=ann).json()
    assert [(m["name"], m["shipped"], m["in_use"]) for m in listed["models"]] == [
        (SHIPPED_MODEL, True, True)
    ]
    assert listed["learnings"] == []
    shipped, version = learned(world, "ann")
    listed = world.client.get("/v1/cost-models", headers=ann).json()
    assert [(m["id"], m["parent"]) for m in listed["models"]] == [
        (version, shipped),
        (shipped, None),
    ]
    [learning] = listed["learnings"]
    assert (learning["outcome"], learning["records"], learning["held_back"]) == (
        "no worse",
        1200,
        240,
    )
    assert "secret-job" not in str(listed)
    assert (used(world, ann), used(world, bob)) == ([version], [shipped])
    assert version not in world.client.get("/v1/cost-models", headers=bob).text


def test_searches_use_the_version_and_there_is_a_way_back(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    shipped, version = learned(world, "ann")

    def steered(headers: dict[str, str], minutes: int) -> str:
        asked = {"network": "zoo:tiny_cnn", "budget": {"minutes": minutes}, "threads": 1}
        job = world.client.post("/v1/jobs", json=asked, headers=headers).json()
        return str(world.store.jobs.get(job["id"]).spec.settings.search.pretrained)

    assert (steered(ann, 1), steered(bob, 1)) == (version, shipped)
    for model in (shipped, version, shipped):
        answer = world.client.post(f"/v1/cost-models/{model}/use", headers=ann)
        assert answer.status_code == 200, answer.text
        assert used(world, ann) == [model]
    assert steered(ann, 2) == shipped
    outcomes = [each["outcome"] for each in answer.json()["learnings"]]
    assert outcomes == ["chosen", "chosen", "chosen", "no worse"]


def test_versions_of_others_cannot_be_used(world: World) -> None:
    bob = world.user("bob")
    _, version = learned(world, "ann")
    for model in (version, "0" * 32):
        answer = world.client.post(f"/v1/cost-models/{model}/use", headers=bob)
        assert answer.status_code == 404


def test_the_page_shows_lineage_and_scores(world: World) -> None:
    ann = world.user("ann")
    shipped, version = learned(world, "ann")
    text = world.client.get("/cost-models", headers=ann).text
    assert "0.700 &rarr; 0.750" in text
    assert f'data-call="POST /v1/cost-models/{shipped}/use"' in text
    assert f'data-call="POST /v1/cost-models/{version}/use"' not in text
    assert ">in use<" in text
