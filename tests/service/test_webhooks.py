"""Webhooks: signed, told in order, tried again, to public addresses alone."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tunefleet.core.events import JobEnded, JobOpened
from tunefleet.core.job import JobState
from tunefleet.service import sending
from tunefleet.service.problems import Refused
from tunefleet.service.sending import Sent, check_url, public_address, send, signature
from tunefleet.service.webhooks import RETRIES_S, Deliveries
from tunefleet.store import DeliveryState, Webhook

from .conftest import World

ASKED = {"network": "zoo:tiny_cnn", "budget": {"trials": 12}, "threads": 1}
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@dataclass
class Receiver:
    """Answers with `status` and keeps what came."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    came: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.came.append((self.path, headers, body))
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://localhost:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's reference libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert expected == signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "https:///x",
        "https://user@example.org/",
        "https://example.org/#x",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://exam ple.org/",
        "https://ex\u00e4mple.org/",
        "https://[::1",
        "https://example.org/" + "x" * 2000,
    ],
)
def test_what_is_no_public_url_is_refused(url: str) -> None:
    with pytest.raises(Refused) as refused:
        check_url(url, private=False)
    assert (refused.value.status, bool(refused.value.cure)) == (422, True)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.5.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a00:1]",
        "[2002:7f00:1::]",
        "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
        "[ff02::1]",
        "localhost",
        "2130706433",
        "0x7f.1",
    ],
)
def test_no_private_address_is_told_anything(address: str) -> None:
    sent = asyncio.run(send(f"https://{address}/", {}, b"", private=False))
    assert sent.status is None
    assert "private address" in sent.error or "has no address" in sent.error


def test_public_addresses_are_told() -> None:
    parts = check_url("https://[2606:4700::1111]/", private=False)
    assert asyncio.run(public_address(parts, private=False)) == "2606:4700::1111"
    parts = check_url("https://8.8.8.8/", private=False)
    assert asyncio.run(public_address(parts, private=False)) == "8.8.8.8"


def answering(*answers: list[str]) -> Any:
    """A name server that answers otherwise each time."""
    left = list(answers)

    async def looked_up(host: str) -> list[str]:
        return left.pop(0)

    return looked_up


def test_a_name_that_leads_elsewhere_later_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was looked at is what is connected to."""
    pinned: list[str] = []

    async def posted(parts: Any, address: str, headers: Any, body: bytes) -> Sent:
        pinned.append(address)
        return Sent(200)

    monkeypatch.setattr(sending, "_looked_up", answering(["8.8.8.8"], ["127.0.0.1"]))
    monkeypatch.setattr(sending, "_posted", posted)
    url = "https://rebinding.example/"
    assert asyncio.run(send(url, {}, b"", private=False)).is_done
    assert not asyncio.run(send(url, {}, b"", private=False)).is_done
    monkeypatch.setattr(sending, "_looked_up", answering(["8.8.8.8", "10.0.0.1"]))
    assert not asyncio.run(send(url, {}, b"", private=False)).is_done
    assert pinned == ["8.8.8.8"]


def test_the_host_is_named_and_no_redirect_followed(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 302, {"Location": receiver.url + "/elsewhere"}
    sent = asyncio.run(send(receiver.url, {"webhook-id": "a"}, b"{}", private=True))
    assert (sent.status, sent.is_done) == (302, False)
    [(path, headers, body)] = receiver.came
    assert (path, body, headers["webhook-id"]) == ("/hook", b"{}", "a")
    assert headers["host"].startswith("localhost:")


def test_who_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(sending, "_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        began = time.monotonic()
        sent = asyncio.run(send(url, {}, b"", private=True))
    assert (sent.status, time.monotonic() - began < 5) == (None, True)


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
    assert view["disabled"] == "10 tries in a row failed, the last: HTTP 503"
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
    monkeypatch.setattr(sending, "_looked_up", answering(*[["8.8.8.8"]] * 20))
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
