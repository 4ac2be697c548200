"""Every role against every route of the OpenAPI document, on things that are there."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.store import values as v
from tunefleet.artifacts.artifact import SCHEMA
from tunefleet.core.job import JobState
from tunefleet.service.caller import Rates
from tunefleet.store import Webhook

from .conftest import World

FILE, PART = b"a whole network", b"another network"
DIGEST, ON_ITS_WAY = (hashlib.sha256(content).hexdigest() for content in (FILE, PART))
RUN = "a" * 32
ASKED = {"network": "zoo:tiny_cnn", "budget": {"trials": 12}, "threads": 1}
#: Of an address that is told nothing.
HOOK = Webhook("ab" * 8, "ann", "https://127.0.0.1/", "whsec_a2tr")
ANNOUNCED = {"digest": DIGEST, "name": "net.onnx", "size": len(FILE)}

OPEN = (200, 200, 200, 200)
ADMIN = (401, 403, 403, 200)
ANYBODY = (401, 200, 200, 200)
OWN = (401, 200, 404, 404)

#: What each role is answered: nobody, the owner, another user, an admin who owns nothing. They come
#: in another order, the owner last; what removes things is below what needs them.
EXPECTED: dict[str, tuple[int, int, int, int]] = {
    "get /healthz": OPEN,
    "get /readyz": OPEN,
    "get /metrics": ADMIN,
    "get /v1/me": ANYBODY,
    "get /v1/devices": ANYBODY,
    "get /v1/queue": ANYBODY,
    "get /v1/cost-models": ANYBODY,
    "post /v1/cost-models/{model_id}/use": (401, 404, 404, 404),  # nobody learned it
    "get /v1/records": ANYBODY,
    "get /v1/records.csv": ANYBODY,
    "get /v1/records/best": ANYBODY,
    # Everybody may announce a file of their own; the owner's is there.
    "post /v1/uploads": (401, 200, 201, 201),
    "get /v1/uploads/{digest}": OWN,
    "patch /v1/uploads/{digest}": OWN,
    "get /v1/networks": ANYBODY,
    "get /v1/networks/{digest}": OWN,
    "post /v1/jobs": (401, 201, 201, 201),
    "get /v1/jobs": ANYBODY,
    "get /v1/jobs/{job_id}": OWN,
    "get /v1/jobs/{job_id}/events": OWN,
    "get /v1/jobs/{job_id}/tasks": OWN,
    "get /v1/jobs/{job_id}/curve": OWN,
    "get /v1/jobs/{job_id}/log": OWN,
    "get /v1/jobs/{job_id}/timeline": (401, 422, 404, 404),  # of a job that did nothing yet
    "get /v1/jobs/{job_id}/outputs/{name}": (401, 404, 404, 404),  # of no run
    "post /v1/jobs/{job_id}/pause": (401, 202, 404, 404),
    "post /v1/jobs/{job_id}/resume": (401, 202, 404, 404),
    "post /v1/jobs/{job_id}/cancel": (401, 202, 404, 404),
    "post /v1/jobs/{job_id}/retry": (401, 201, 404, 404),
    "get /v1/artifacts": ANYBODY,
    "get /v1/artifacts/{run_id}": OWN,
    "get /v1/artifacts/{run_id}/files/{name}": OWN,
    "delete /v1/jobs/{job_id}": (401, 204, 404, 404),
    "delete /v1/networks/{digest}": (401, 204, 204, 204),  # what is not there is gone
    "get /v1/webhooks": ANYBODY,
    "post /v1/webhooks": (401, 201, 201, 201),
    "get /v1/webhooks/{webhook_id}": OWN,
    "post /v1/webhooks/{webhook_id}/test": OWN,
    "post /v1/webhooks/{webhook_id}/rotate": OWN,
    "get /v1/webhooks/{webhook_id}/deliveries": OWN,
    "patch /v1/webhooks/{webhook_id}": OWN,
    "delete /v1/webhooks/{webhook_id}": (401, 204, 404, 404),
    "get /v1/shares": ANYBODY,
    "post /v1/shares": (401, 201, 201, 201),
    "delete /v1/shares/{reader}": ANYBODY,
    "get /v1/users": ADMIN,
    "post /v1/users": (401, 403, 403, 201),
    "patch /v1/users/{name}": ADMIN,
    "get /v1/tokens": (401, 200, 403, 200),  # of the owner, whom the query names
    "post /v1/tokens": (401, 201, 403, 201),
    "delete /v1/tokens/{token_id}": (401, 404, 403, 204),  # the admin was there before
    "post /v1/session": (401, 401, 401, 401),  # by a token in the body, which is none
    "delete /v1/session": (401, 204, 204, 204),
}
#: Where a call needs a body or more.
MORE: dict[str, dict[str, Any]] = {
    "post /v1/uploads": {"json": ANNOUNCED},
    "patch /v1/uploads/{digest}": {
        "content": b"a",
        "headers": {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"},
    },
    "post /v1/jobs": {"json": ASKED},
    "post /v1/webhooks": {"json": {"url": "https://8.8.8.8/"}},
    "patch /v1/webhooks/{webhook_id}": {"json": {"disabled": True}},
    "post /v1/webhooks/{webhook_id}/rotate": {"json": {}},
    "post /v1/shares": {"json": {"reader": "*"}},
    "post /v1/users": {"json": {"name": "eve"}},
    "patch /v1/users/{name}": {"json": {"quota": {"jobs": 5}}},
    "get /v1/tokens": {"params": {"user": "ann"}},
    "post /v1/tokens": {"json": {"user": "ann"}},
    "delete /v1/tokens/{token_id}": {"params": {"user": "ann"}},
    "post /v1/session": {"json": {"token": "tf_none"}, "headers": {"Origin": "http://testserver"}},
}
_WITH_ENDED = ("post /v1/jobs/{job_id}/retry", "delete /v1/jobs/{job_id}")


@pytest.fixture
def ann(world: World) -> dict[str, str]:
    """The owner of a network, an upload, an open job, one that has ended, and its artifact."""
    world.client.app.state.address_rates = Rates(1e6, 1e6)  # type: ignore[attr-defined]
    headers = world.user("ann")
    for content in (FILE, PART):
        announced = {**ANNOUNCED, "digest": hashlib.sha256(content).hexdigest()}
        world.client.post("/v1/uploads", json=announced, headers=headers)
    part = {**headers, **MORE["patch /v1/uploads/{digest}"]["headers"]}
    sent = world.client.patch(f"/v1/uploads/{DIGEST}", content=FILE, headers=part)
    assert sent.json()["network"], sent.text
    world.store.webhooks.put(HOOK)
    return headers


def created(world: World, headers: dict[str, str], trials: int) -> str:
    asked = {**ASKED, "budget": {"trials": trials}}
    job_id: str = world.client.post("/v1/jobs", json=asked, headers=headers).json()["id"]
    return job_id


def ended_with_artifact(world: World, headers: dict[str, str]) -> str:
    job_id = created(world, headers, 13)
    world.store.jobs.finish(job_id, JobState.SUCCEEDED, {"run": RUN})
    network = {"name": "net", "source": "", "digest": "", "inputs": [], "outputs": []}
    spec, folder = v.make_spec(), world.home / "artifacts" / RUN
    folder.mkdir(parents=True)
    (folder / "module.so").write_bytes(b"code")
    manifest = {
        "schema": SCHEMA,
        "network": network,
        "target": spec.target.to_json(),
        "device": spec.device.to_json(),
        "toolchain": spec.toolchain.to_json(),
        "result": {"job": job_id},
        "instructions": [],
        "files": {"module.so": "0" * 64},
    }
    (folder / "artifact.json").write_text(json.dumps(manifest), encoding="utf-8")
    return job_id


def documented(app: Any) -> set[str]:
    paths = app.openapi()["paths"]
    return {f"{method} {path}" for path, methods in paths.items() for method in methods}


def test_every_role_is_answered_what_is_expected_of_every_route(
    world: World, ann: dict[str, str]
) -> None:
    names = {
        "name": "module.so",
        "reader": "*",
        "run_id": RUN,
        "model_id": "0" * 32,
        "webhook_id": HOOK.webhook_id,
        "digest": DIGEST,
        "job_id": created(world, ann, 14),
        "token_id": world.client.get("/v1/tokens", headers=ann).json()["tokens"][0]["id"],
    }
    ended = ended_with_artifact(world, ann)
    roles = (world.user("bob"), world.user("root", admin=True))
    spare = world.client.post("/v1/tokens", json={}, headers=ann).json()["token"]
    assert documented(world.client.app) == set(EXPECTED), "a route without an expected answer"
    answered = {}
    for route in EXPECTED:
        method, path = route.split(" ")
        here = {**names, "job_id": ended} if route in _WITH_ENDED else names
        if path == "/v1/users/{name}":
            here = {**here, "name": "ann"}
        if path.endswith("/outputs/{name}"):
            here = {**here, "name": "output.npy"}
        if path == "/v1/uploads/{digest}":
            here = {**here, "digest": ON_ITS_WAY}
        if route == "delete /v1/tokens/{token_id}":
            ann = {"Authorization": f"Bearer {spare}"}
        codes = []
        for headers in ({}, *roles, ann):
            more = dict(MORE.get(route, {}))
            given = {**more.pop("headers", {}), **headers}
            client = TestClient(world.client.app, raise_server_exceptions=False)
            answer = client.request(method, path.format(**here), headers=given, **more)
            codes.append(answer.status_code)
        nobody, other, admin, owner = codes
        answered[route] = (nobody, owner, other, admin)
    assert answered == EXPECTED


def test_what_was_tried_of_others_left_no_trace(world: World, ann: dict[str, str]) -> None:
    job_id, bob = created(world, ann, 14), world.user("bob")
    for verb in ("pause", "cancel"):
        world.client.post(f"/v1/jobs/{job_id}/{verb}", headers=bob)
    world.client.delete(f"/v1/networks/{DIGEST}", headers=bob)
    view = world.client.get(f"/v1/jobs/{job_id}", headers=ann).json()
    assert (view["state"], view["created_at"] <= time.time()) == ("queued", True)
    assert world.client.get(f"/v1/networks/{DIGEST}", headers=ann).status_code == 200
