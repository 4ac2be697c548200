"""Webhooks: messages are signed, come in order, are retried, and listed afterwards."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from dataclasses import replace
from typing import Any

import httpx2 as httpx
import pytest

from tunefleet.client import AsyncClient
from tunefleet.core.events import JobEnded, JobOpened
from tunefleet.core.job import JobState
from tunefleet.service import sending
from tunefleet.service.sending import Sent, signature
from tunefleet.service.webhooks import RETRIES_S, Deliveries
from tunefleet.store import DeliveryState, Webhook

from .conftest import Receiver, World

ASKED = {"network": "zoo:tiny_cnn", "budget": {"trials": 12}, "threads": 1}
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


async def public(host: str) -> list[str]:
    return ["8.8.8.8"]


def hook(world: World, receiver: Receiver, *events: str, **state: Any) -> Webhook:
    made = Webhook(
        "a" * 16, "ann", receiver.url, SECRET, events, time.time(), DeliveryState(**state)
    )
    world.store.webhooks.put(made)
    return made


def job(world: World, headers: dict[str, str], trials: int = 12) -> str:
    asked = {**ASKED, "budget": {"trials": trials}}
    return str(world.client.post("/v1/jobs", json=asked, headers=headers).json()["id"])


def ended(world: World, job_id: str, state: JobState = JobState.FAILED) -> None:
    spec = world.store.jobs.get(job_id).spec
    now = time.time()
    world.store.events.append(job_id, now, [JobOpened(job_id, False, spec.budget, 0.0)])
    world.store.jobs.finish(job_id, state, {"stopped": "a test"})
    world.store.events.append(job_id, now, [JobEnded()])


def deliver(world: World, **how: Any) -> None:
    """One look of the service at what happened."""
    app: Any = world.client.app
    deliveries = Deliveries(world.store, app.state.jobs, private=True, **how)
    for each in world.store.webhooks.due(time.time()):
        asyncio.run(deliveries.deliver(each))


def state(world: World) -> DeliveryState:
    found = world.store.webhooks.get("ann", "a" * 16)
    assert found is not None
    return found.state


def test_what_happens_to_ones_jobs_is_told_signed_and_in_order(
    world: World, receiver: Receiver
) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    hook(world, receiver)
    mine = job(world, ann)
    ended(world, job(world, bob))
    ended(world, mine)
    deliver(world)
    deliver(world)  # nothing twice
    told = [json.loads(body) for _, _, body in receiver.came]
    assert [each["type"] for each in told] == ["job.started", "job.failed"]
    assert {each["data"]["id"] for each in told} == {mine}
    assert told[1]["data"]["reason"]["text"] == "a test"
    assert told[1]["timestamp"].endswith("Z")
    for _, headers, body in receiver.came:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        mac = base64.b64encode(hmac.digest(b"k" * 32, signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{mac}"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    assert len({headers["webhook-id"] for _, headers, _ in receiver.came}) == 2


def test_only_what_was_asked_for_is_told(world: World, receiver: Receiver) -> None:
    ann = world.user("ann")
    hook(world, receiver, "job.cancelled")
    ended(world, job(world, ann))
    ended(world, job(world, ann, 13), JobState.CANCELLED)
    deliver(world)
    assert [json.loads(body)["type"] for _, _, body in receiver.came] == ["job.cancelled"]


def test_what_fails_is_tried_again_under_its_id_by_whoever_delivers_next(
    world: World, receiver: Receiver
) -> None:
    hook(world, receiver)
    ended(world, job(world, world.user("ann")))
    receiver.status = 500
    deliver(world)
    failed = state(world)
    assert (failed.failures, failed.last, failed.after) == (1, "HTTP 500", 0)
    assert 0 < failed.next_at - time.time() <= RETRIES_S[0]
    deliver(world)  # not yet
    assert len(receiver.came) == 1
    world.store.webhooks.advance("a" * 16, DeliveryState(failures=1))
    receiver.status = 204
    deliver(world)  # another process, as far as it can tell
    ids = [headers["webhook-id"] for _, headers, _ in receiver.came]
    assert (ids[0], len(ids)) == (ids[1], 3)
    assert (state(world).failures, state(world).last) == (0, "HTTP 204")


def test_after_many_failures_or_410_nothing_more_is_sent(world: World, receiver: Receiver) -> None:
    ann = world.user("ann")
    hook(world, receiver, failures=len(RETRIES_S))
    ended(world, job(world, ann))
    receiver.status = 503
    deliver(world)
    path = f"/v1/webhooks/{'a' * 16}"
    view = world.client.get(path, headers=ann).json()
    assert view["disabled"] == "10 attempts in a row failed, the last: HTTP 503"
    deliver(world)
    assert len(receiver.came) == 1
    again = world.client.patch(path, json={"disabled": False}, headers=ann).json()
    assert (again["disabled"], again["failures"]) == ("", 0)
    deliver(world)  # of what happens from then on
    assert len(receiver.came) == 1
    receiver.status = 410
    ended(world, job(world, ann, 13))
    deliver(world)
    assert "410" in world.client.get(path, headers=ann).json()["disabled"]


def test_nobody_is_told_of_a_disabled_users_jobs(world: World, receiver: Receiver) -> None:
    ann = world.user("ann")
    hook(world, receiver)
    ended(world, job(world, ann))
    world.user("ann", disabled=True)
    deliver(world)
    assert receiver.came == []


def test_the_service_delivers_by_itself(world: World, receiver: Receiver) -> None:
    world.client.app.state.deliveries._private = True  # type: ignore[attr-defined]
    hook(world, receiver)
    ended(world, job(world, world.user("ann")))
    end = time.monotonic() + 20
    while len(receiver.came) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_webhooks_are_their_owners(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_looked_up", public)
    ann, bob = world.user("ann"), world.user("bob")
    asked = {"url": "https://example.org/hook", "events": ["job.failed"]}
    made = world.client.post("/v1/webhooks", json=asked, headers=ann)
    assert made.status_code == 201, made.text
    secret, path = made.json()["secret"], f"/v1/webhooks/{made.json()['id']}"
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    [listed] = world.client.get("/v1/webhooks", headers=ann).json()["webhooks"]
    assert (listed["secret"], listed["url"]) == (None, asked["url"])
    assert world.client.get("/v1/webhooks", headers=bob).json()["webhooks"] == []
    for method, more, body in (
        ("get", "", None),
        ("patch", "", {"disabled": True}),
        ("delete", "", None),
        ("post", "/test", None),
    ):
        answer = world.client.request(method, path + more, json=body, headers=bob)
        assert answer.status_code == 404, (method, more)
    for _ in range(9):
        world.client.post("/v1/webhooks", json=asked, headers=ann)
    assert world.client.post("/v1/webhooks", json=asked, headers=ann).status_code == 429
    assert world.client.delete(path, headers=ann).status_code == 204
    assert world.client.get(path, headers=ann).status_code == 404


def test_private_addresses_are_refused_when_they_are_named(world: World) -> None:
    ann = world.user("ann")
    for url in ("https://127.0.0.1/", "https://localhost/", "http://8.8.8.8/"):
        refused = world.client.post("/v1/webhooks", json={"url": url}, headers=ann)
        assert refused.status_code == 422, url
        assert refused.json()["cure"]
    unknown = {"url": "https://8.8.8.8/", "events": ["job.unknown"]}
    assert world.client.post("/v1/webhooks", json=unknown, headers=ann).status_code == 422


def test_a_ping_says_what_came_of_it(world: World, receiver: Receiver) -> None:
    ann = world.user("ann")
    hook(world, receiver)
    path = f"/v1/webhooks/{'a' * 16}/test"
    refused = world.client.post(path, headers=ann).json()
    assert (refused["delivered"], "https" in refused["detail"]) == (False, True)
    world.client.app.state.deliveries._private = True  # type: ignore[attr-defined]
    sent = world.client.post(path, headers=ann).json()
    assert (sent["delivered"], sent["status"]) == (True, 200)
    [(_, _, body)] = receiver.came
    assert json.loads(body)["type"] == "ping"
    assert state(world) == DeliveryState()


def test_an_acknowledged_ping_sends_what_waits_for_its_retry(
    world: World, receiver: Receiver
) -> None:
    ann = world.user("ann")
    hook(world, receiver, failures=3, next_at=time.time() + 7200)
    ended(world, job(world, ann))
    world.client.app.state.deliveries._private = True  # type: ignore[attr-defined]
    receiver.status = 500
    world.client.post(f"/v1/webhooks/{'a' * 16}/test", headers=ann)
    deliver(world)
    assert [json.loads(body)["type"] for _, _, body in receiver.came] == ["ping"]
    receiver.status = 200
    world.client.post(f"/v1/webhooks/{'a' * 16}/test", headers=ann)
    deliver(world)
    types = [json.loads(body)["type"] for _, _, body in receiver.came]
    assert sorted(["ping", "ping", "job.started", "job.failed"]) == sorted(types)


def test_a_job_starts_once_though_its_server_was_killed_before_its_first_stage(
    world: World, receiver: Receiver
) -> None:
    hook(world, receiver)
    mine = job(world, world.user("ann"))
    opened = JobOpened(mine, False, world.store.jobs.get(mine).spec.budget, 0.0)
    world.store.events.append(mine, time.time(), [opened])
    ended(world, mine)
    deliver(world)
    types = [json.loads(body)["type"] for _, _, body in receiver.came]
    assert types == ["job.started", "job.failed"]


def test_an_event_of_a_restored_home_has_another_id_than_one_of_its_number(
    world: World, receiver: Receiver
) -> None:
    webhook = hook(world, receiver)
    ended(world, job(world, world.user("ann")))
    app: Any = world.client.app
    deliveries = Deliveries(world.store, app.state.jobs, private=True)
    [_, kept] = world.store.events.page(kinds=(JobOpened, JobEnded))
    messages = [deliveries._message(webhook, replace(kept, at=kept.at + s)) for s in (0, 0, 1)]
    first, again, later = (each.message_id for each in messages if each)
    assert first == again != later


def signed_by(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As docs/guide/service.md has it for receivers."""
    at = headers["webhook-timestamp"]
    expected = signature(secret, headers["webhook-id"], int(at), body)
    return expected in headers["webhook-signature"].split()


def test_while_a_secret_is_rotated_both_sign(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, path = world.user("ann"), f"/v1/webhooks/{'a' * 16}"
    hook(world, receiver)
    first = world.client.post(f"{path}/rotate", json={}, headers=ann).json()
    assert first["previous_until"] == pytest.approx(time.time() + 86_400, abs=60)
    ended(world, job(world, ann))
    deliver(world)
    for _, headers, body in receiver.came:
        assert len(headers["webhook-signature"].split()) == 2
        assert signed_by(first["secret"], headers, body)
        assert signed_by(SECRET, headers, body)
    receiver.came.clear()
    again = world.client.post(f"{path}/rotate", json={"overlap_hours": 0}, headers=ann).json()
    assert again["previous_until"] is None
    ended(world, job(world, ann, 13))
    deliver(world)
    assert len(receiver.came) == 2
    for _, headers, body in receiver.came:
        assert len(headers["webhook-signature"].split()) == 1
        assert signed_by(again["secret"], headers, body)
    [listed] = world.client.get("/v1/webhooks", headers=ann).json()["webhooks"]
    assert (listed["secret"], listed["previous_until"]) == (None, None)
    for hours in (-1, 169, "1e999"):
        refused = world.client.post(f"{path}/rotate", json={"overlap_hours": hours}, headers=ann)
        assert refused.status_code == 422


def test_the_old_secret_is_erased_when_the_overlap_is_over(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = hook(world, receiver)
    world.store.webhooks.rotate(made.webhook_id, "whsec_new", time.time() - 1)
    app: Any = world.client.app
    deliveries = Deliveries(world.store, app.state.jobs)

    async def look() -> None:
        async with deliveries.running():
            await asyncio.sleep(0.5)

    monkeypatch.setattr("tunefleet.service.webhooks._LOOK_S", 0.05)
    asyncio.run(look())
    kept = world.store.webhooks.get("ann", made.webhook_id)
    assert kept is not None
    assert (kept.secret, kept.previous_secret) == ("whsec_new", "")


def test_past_deliveries_are_listed(world: World, receiver: Receiver) -> None:
    ann, path = world.user("ann"), f"/v1/webhooks/{'a' * 16}/deliveries"
    hook(world, receiver)
    mine = job(world, ann)
    ended(world, mine)
    receiver.status = 500
    deliver(world)
    [failed] = world.client.get(path, headers=ann).json()["deliveries"]
    assert (failed["event"], failed["status"], failed["error"]) == ("job.started", 500, "")
    assert (failed["delivered"], failed["attempts"]) == (False, 1)
    world.store.webhooks.advance("a" * 16, replace(state(world), next_at=0.0))
    receiver.status = 200
    deliver(world)
    page = world.client.get(path, params={"limit": 1}, headers=ann).json()
    rest = world.client.get(path, params={"cursor": page["next"]}, headers=ann).json()
    assert rest["next"] is None
    [last], [first] = page["deliveries"], rest["deliveries"]
    assert (last["event"], last["attempts"], last["job"]) == ("job.failed", 1, mine)
    assert (first["event"], first["attempts"], first["delivered"]) == ("job.started", 2, True)
    ids = [headers["webhook-id"] for _, headers, _ in receiver.came]
    assert [first["id"], first["id"], last["id"]] == ids


def test_a_delivery_without_a_response_is_listed_with_its_error(
    world: World, receiver: Receiver
) -> None:
    ann = world.user("ann")
    hook(world, replace(receiver, url="http://127.0.0.1:1/"))
    ended(world, job(world, ann))
    deliver(world)
    path = f"/v1/webhooks/{'a' * 16}/deliveries"
    [listed] = world.client.get(path, headers=ann).json()["deliveries"]
    assert listed["status"] is None
    assert "ConnectError" in listed["error"]


def test_a_webhook_that_is_disabled_while_it_is_delivered_to_stays_disabled(
    world: World, receiver: Receiver
) -> None:
    ann, path = world.user("ann"), f"/v1/webhooks/{'a' * 16}"
    hook(world, receiver)
    ended(world, job(world, ann))

    def disable(message_id: str) -> None:
        stopped = replace(state(world), disabled="by its user")
        world.store.webhooks.advance("a" * 16, stopped)

    receiver.before = disable
    deliver(world)
    assert len(receiver.came) == 1
    assert world.client.get(path, headers=ann).json()["disabled"] == "by its user"


def test_the_client_has_the_verbs_of_webhooks(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_looked_up", public)
    token = world.user("ann")["Authorization"].removeprefix("Bearer ")

    async def used() -> None:
        transport = httpx.ASGITransport(world.client.app)
        async with AsyncClient("http://testserver", token, transport=transport) as client:
            made = await client.add_webhook("https://example.org/", ["job.failed"])
            rotated = await client.rotate_webhook(made["id"], overlap_hours=1)
            assert rotated["secret"] not in (None, made["secret"])
            assert not (await client.ping_webhook(made["id"]))["delivered"]
            assert await client.deliveries(made["id"]) == []
            assert (await client.enable_webhook(made["id"]))["disabled"] == ""
            assert [each["id"] for each in await client.webhooks()] == [made["id"]]
            await client.remove_webhook(made["id"])
            assert await client.webhooks() == []

    async def refused(*args: Any) -> Sent:
        return Sent(None, "no route")

    monkeypatch.setattr(sending, "_posted", refused)
    asyncio.run(used())
