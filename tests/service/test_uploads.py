"""Networks come in parts, go on after a cut, and are their owner's."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from tunefleet.core.home import Home
from tunefleet.runs.quotas import lack_of_quota
from tunefleet.service import uploads
from tunefleet.service.problems import Refused
from tunefleet.store import Quota

from .conftest import World

PART = {"Content-Type": "application/offset+octet-stream"}
CONTENT = bytes(range(256)) * 16
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def begin(world: World, headers: dict[str, str], **changed: Any) -> Any:
    asked = {"digest": DIGEST, "name": "net.onnx", "size": len(CONTENT)} | changed
    return world.client.post("/v1/uploads", json=asked, headers=headers)


def send(world: World, headers: dict[str, str], offset: int, content: bytes) -> Any:
    return world.client.patch(
        f"/v1/uploads/{DIGEST}",
        content=content,
        headers={**headers, **PART, "Upload-Offset": str(offset)},
    )


def test_a_file_goes_on_after_a_cut_and_is_not_sent_again(world: World) -> None:
    ann = world.user("ann")
    assert begin(world, ann).json()["offset"] == 0
    assert send(world, ann, 0, CONTENT[:1000]).json()["offset"] == 1000
    assert begin(world, ann).json()["offset"] == 1000
    again = send(world, ann, 0, CONTENT[:1000])
    assert (again.status_code, again.headers["Upload-Offset"]) == (409, "1000")
    done = send(world, ann, 1000, CONTENT[1000:]).json()
    assert done["network"]["digest"] == DIGEST
    known = begin(world, ann)
    assert (known.status_code, known.json()["network"]["name"]) == (200, "net.onnx")
    network = world.store.holdings.network("ann", DIGEST)
    assert network is not None
    assert (world.home / network.place).read_bytes() == CONTENT
    assert list((world.home / "uploads").rglob("*.part")) == []


def test_another_user_does_not_learn_that_it_is_there(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    begin(world, ann)
    send(world, ann, 0, CONTENT)
    assert world.client.get(f"/v1/networks/{DIGEST}", headers=bob).status_code == 404
    assert begin(world, bob).json()["offset"] == 0
    assert send(world, bob, 0, CONTENT).json()["network"]["digest"] == DIGEST
    assert world.client.delete(f"/v1/networks/{DIGEST}", headers=bob).status_code == 204
    assert world.client.get(f"/v1/networks/{DIGEST}", headers=ann).status_code == 200
    assert world.client.get("/v1/networks", headers=bob).json()["networks"] == []


def test_a_digest_that_lies_is_refused_and_the_file_can_be_sent_again(world: World) -> None:
    ann = world.user("ann")
    begin(world, ann)
    refused = send(world, ann, 0, CONTENT[::-1])
    assert refused.status_code == 422
    assert "another digest" in refused.json()["detail"]
    assert begin(world, ann).json()["offset"] == 0
    assert send(world, ann, 0, CONTENT).json()["network"] is not None


def test_more_bytes_than_announced_are_refused_while_they_come(world: World) -> None:
    ann = world.user("ann")
    begin(world, ann, size=10)
    assert send(world, ann, 0, CONTENT).status_code == 413


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"name": "net.pkl"}, 415),
        ({"name": "../net.onnx"}, 422),
        ({"name": ".onnx"}, 422),
        ({"name": "a\x00.onnx"}, 422),
        ({"size": 1 << 21}, 413),
        ({"size": 0}, 422),
        ({"digest": "x" * 64}, 422),
        ({"digest": DIGEST.upper()}, 422),
        ({"more": 1}, 422),
    ],
)
def test_what_cannot_be_a_network_is_refused(
    world: World, changed: dict[str, Any], status: int
) -> None:
    refused = begin(world, world.user("ann"), **changed)
    assert refused.status_code == status
    assert refused.headers["Content-Type"] == "application/problem+json"


def test_a_quota_counts_what_is_kept_and_what_comes(world: World) -> None:
    ann = world.user("ann", quota=Quota(stored_bytes=5000))
    begin(world, ann)
    second = begin(world, ann, digest="a" * 64)
    assert second.status_code == 413
    send(world, ann, 0, CONTENT)
    assert begin(world, ann, digest="a" * 64).status_code == 413
    assert begin(world, ann, digest="a" * 64, size=100).status_code == 201


def test_a_quota_counts_outputs_of_run_jobs(world: World) -> None:
    ann = world.user("ann", quota=Quota(stored_bytes=len(CONTENT) + 400))
    outputs = Home(world.home).outputs_of("ann") / "job"
    outputs.mkdir(parents=True)
    (outputs / "output.npy").write_bytes(bytes(500))
    refused = begin(world, ann)
    assert refused.status_code == 413
    assert "your files have 500 of" in refused.json()["detail"]
    (outputs / "output.npy").write_bytes(bytes(300))
    assert begin(world, ann).status_code == 201
    world.user("bob", quota=Quota(stored_bytes=0))
    assert lack_of_quota(world.store, world.home, "bob", 0) == ""
    assert lack_of_quota(world.store, world.home, "", 1 << 40) == ""


def test_what_came_before_a_cut_stays_and_is_no_bug(world: World) -> None:
    ann = world.user("ann")
    begin(world, ann)
    append = world.client.app.state.uploads.append  # type: ignore[attr-defined]
    user = world.store.accounts.user("ann")

    async def cut() -> Any:
        yield CONTENT[:700]
        raise ClientDisconnect

    with pytest.raises(Refused, match="was cut"):
        asyncio.run(append(user, DIGEST, 0, cut()))
    assert begin(world, ann).json()["offset"] == 700


def test_a_file_that_comes_too_slowly_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = world.user("ann")
    begin(world, ann)
    app: Any = world.client.app
    user = world.store.accounts.user("ann")

    async def still() -> Any:
        yield CONTENT[:100]
        await asyncio.sleep(60)

    async def dripping() -> Any:
        for byte in range(100):
            yield bytes([byte])
            await asyncio.sleep(0.01)

    monkeypatch.setattr(uploads, "_STILL_S", 0.1)
    monkeypatch.setattr(uploads, "_SLOW_AFTER_S", 0.2)
    for parts, there in ((still(), 0), (dripping(), 100)):
        with pytest.raises(Refused, match="too slowly") as refused:
            asyncio.run(app.state.uploads.append(user, DIGEST, there, parts))
        assert (refused.value.status, bool(refused.value.cure)) == (408, True)
    assert 100 < begin(world, ann).json()["offset"] < 150


def test_one_part_of_a_file_is_received_at_a_time(world: World) -> None:
    ann = world.user("ann")
    begin(world, ann)
    append = world.client.app.state.uploads.append  # type: ignore[attr-defined]
    user = world.store.accounts.user("ann")

    async def two() -> Any:
        began, ends = asyncio.Event(), asyncio.Event()

        async def slow() -> Any:
            began.set()
            await ends.wait()
            yield CONTENT

        first = asyncio.create_task(append(user, DIGEST, 0, slow()))
        await began.wait()
        with pytest.raises(Refused, match="is being received"):
            await append(user, DIGEST, 0, slow())
        ends.set()
        return (await first)[0]

    assert asyncio.run(two()) == len(CONTENT)


def test_why_a_file_was_refused_is_said_again_until_it_is_sent_again(world: World) -> None:
    ann = world.user("ann")
    begin(world, ann)
    send(world, ann, 0, CONTENT[::-1])
    status = world.client.get(f"/v1/uploads/{DIGEST}", headers=ann)
    assert (status.status_code, "another digest" in status.json()["detail"]) == (422, True)
    assert list((world.home / "uploads").rglob("*.part")) == []
    begin(world, ann)
    assert world.client.get(f"/v1/uploads/{DIGEST}", headers=ann).json()["offset"] == 0


def test_a_file_that_is_there_whole_is_checked_on_an_empty_part(world: World) -> None:
    ann = world.user("ann")
    begin(world, ann)
    append = world.client.app.state.uploads.append  # type: ignore[attr-defined]

    async def whole() -> Any:
        yield CONTENT

    # As after a service that was killed during its check.
    asyncio.run(append(world.store.accounts.user("ann"), DIGEST, 0, whole()))
    assert begin(world, ann).json()["offset"] == len(CONTENT)
    assert send(world, ann, len(CONTENT), b"").json()["network"]["kind"] == "network"
