"""Jobs by HTTP: entered, shown with their reasons, followed, asked again; each user's alone."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import JobEnded, JobOpened, Note
from tunefleet.core.job import JobState
from tunefleet.store import Quota

from .conftest import World

ASKED = {"network": "zoo:tiny_cnn", "budget": {"trials": 12}, "threads": 1}


def create(world: World, headers: dict[str, str], asked: Any = ASKED, **more: str) -> Any:
    return world.client.post("/v1/jobs", json=asked, headers={**headers, **more})


def test_a_job_is_entered_for_the_server_of_the_home(world: World) -> None:
    ann = world.user("ann")
    created = create(world, ann)
    assert created.status_code == 201, created.text
    view = created.json()
    assert created.headers["Location"] == f"/v1/jobs/{view['id']}"
    assert (view["state"], view["reason"]["code"]) == ("queued", "not_begun")
    assert world.woken == [view["id"]]
    job = world.store.jobs.get(view["id"])
    assert (job.spec.terms.owner, job.spec.terms.served, job.spec.tenant) == ("ann", True, "ann")
    assert create(world, ann).json()["id"] == view["id"]  # it is under way


def test_a_job_of_another_machine_says_so(world: World) -> None:
    """As in a home that was restored elsewhere."""
    ann = world.user("ann")
    job_id = create(world, ann).json()["id"]
    job = world.store.jobs.get(job_id)
    opened = JobOpened(job_id, False, job.spec.budget, 0.0)
    refused = JobEnded("it was asked for on another device", "JobError")
    world.store.events.append(job_id, time.time(), [opened, refused])
    view = world.client.get(f"/v1/jobs/{job_id}", headers=ann).json()
    expected = {"code": "cannot_go_on", "text": "it was asked for on another device"}
    assert (view["state"], view["reason"]) == ("paused", expected)
    world.store.events.append(job_id, time.time(), [opened])  # on its machine again
    assert world.client.get(f"/v1/jobs/{job_id}", headers=ann).json()["state"] == "queued"


def test_a_job_of_another_machine_is_not_retried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = world.user("ann")
    job_id = create(world, ann).json()["id"]
    world.client.post(f"/v1/jobs/{job_id}/cancel", headers=ann)
    spec = world.store.jobs.get(job_id).spec
    elsewhere = replace(spec.preparation, device=replace(spec.device, name="another"))
    monkeypatch.setattr("tunefleet.service.jobs.preparation_of", lambda *_: elsewhere)
    retried = world.client.post(f"/v1/jobs/{job_id}/retry", headers=ann)
    assert (retried.status_code, retried.json()["cure"]) == (409, "submit its network again")


def test_users_see_their_own_jobs_alone(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    mine, other = create(world, ann).json()["id"], create(world, bob).json()["id"]
    assert mine != other
    assert [j["id"] for j in world.client.get("/v1/jobs", headers=bob).json()["jobs"]] == [other]
    for method, path in (
        ("get", ""),
        ("get", "/events"),
        ("get", "/tasks"),
        ("get", "/log"),
        ("post", "/pause"),
        ("post", "/resume"),
        ("post", "/cancel"),
        ("post", "/retry"),
        ("delete", ""),
    ):
        answer = world.client.request(method, f"/v1/jobs/{mine}{path}", headers=bob)
        assert answer.status_code == 404, (method, path)
    assert world.store.jobs.get(mine).state is JobState.RUNNING


def test_a_numbered_request_is_answered_once(world: World) -> None:
    ann = world.user("ann")
    key = {"Idempotency-Key": "k1"}
    first = create(world, ann, **key).json()["id"]
    world.store.jobs.finish(first, JobState.FAILED, {"stopped": "a test"})
    again = create(world, ann, **key).json()
    assert (again["id"], again["state"]) == (first, "failed")
    assert create(world, ann).json()["id"] != first
    other = create(world, ann, {**ASKED, "priority": 1}, **key)
    assert other.status_code == 422
    bad = {"Idempotency-Key": "k2"}
    assert create(world, ann, {**ASKED, "network": "zoo:unknown"}, **bad).status_code == 422
    assert create(world, ann, **bad).status_code == 201  # the refused one is not kept


@pytest.mark.parametrize(
    "asked",
    [
        {**ASKED, "network": "/etc/passwd"},
        {**ASKED, "network": "zoo:unknown"},
        {**ASKED, "network": "a" * 64},
        {**ASKED, "target": "cpu -mcpu=../x"},
        {**ASKED, "device": "board-unknown"},
        {**ASKED, "budget": {"trials": 0}},
        {**ASKED, "budget": {"minutes": 1e400}},
        {**ASKED, "agreement": {"latency_ms": -1}},
        {**ASKED, "deadline": 5.0},
        {**ASKED, "trust": True},
        {**ASKED, "kind": "collect"},
        {"kind": "evaluate", "artifact": "../../etc"},
        {"kind": "evaluate", "artifact": "a" * 32},
        {"kind": "evaluate"},
    ],
)
def test_what_cannot_be_done_is_refused_with_a_cause(world: World, asked: Any) -> None:
    content = json.dumps(asked).replace("Infinity", "1e400")
    headers = {**world.user("ann"), "Content-Type": "application/json"}
    refused = world.client.post("/v1/jobs", content=content, headers=headers)
    assert refused.status_code in (404, 422), refused.text
    problem = refused.json()
    assert problem["status"] == refused.status_code
    assert problem["detail"]
    assert world.store.jobs.page() == []


def test_pausing_cancelling_and_asking_again(world: World) -> None:
    ann = world.user("ann")
    job_id = create(world, ann).json()["id"]
    paused = world.client.post(f"/v1/jobs/{job_id}/pause", headers=ann)
    assert (paused.status_code, paused.json()["state"]) == (202, "paused")
    assert paused.json()["reason"]["code"] == "paused_by_user"
    resumed = world.client.post(f"/v1/jobs/{job_id}/resume", headers=ann)
    assert resumed.json()["state"] == "queued"
    assert world.store.coordination.wanted(job_id) is ControlRequest.RUN
    assert world.client.delete(f"/v1/jobs/{job_id}", headers=ann).status_code == 409
    cancelled = world.client.post(f"/v1/jobs/{job_id}/cancel", headers=ann).json()
    assert cancelled["state"] == "cancelled"
    assert world.client.post(f"/v1/jobs/{job_id}/pause", headers=ann).status_code == 409
    retried = world.client.post(f"/v1/jobs/{job_id}/retry", headers=ann)
    assert retried.status_code == 201
    assert retried.json()["id"] != job_id
    assert world.client.delete(f"/v1/jobs/{job_id}", headers=ann).status_code == 204
    assert world.client.get(f"/v1/jobs/{job_id}", headers=ann).status_code == 404


def test_jobs_come_in_pages(world: World) -> None:
    ann = world.user("ann")
    made = [
        create(world, ann, {**ASKED, "budget": {"trials": 12 + n}}).json()["id"] for n in range(3)
    ]
    first = world.client.get("/v1/jobs?limit=2", headers=ann).json()
    second = world.client.get(f"/v1/jobs?limit=2&cursor={first['next']}", headers=ann).json()
    listed = [job["id"] for page in (first, second) for job in page["jobs"]]
    assert listed == made[::-1]
    assert second["next"] is None


def test_a_quota_of_jobs_holds(world: World) -> None:
    ann = world.user("ann", quota=Quota(jobs=1))
    assert create(world, ann).status_code == 201
    refused = create(world, ann, {**ASKED, "priority": 1, "budget": {"trials": 99}})
    assert refused.status_code == 429


def test_a_quota_that_no_store_holds_is_refused(world: World) -> None:
    root = world.user("root", admin=True)
    for limit in ("jobs", "stored_bytes"):
        asked = {"name": "ann", "quota": {limit: 2**63}}
        assert world.client.post("/v1/users", json=asked, headers=root).status_code == 422


def keep(world: World, job_id: str, *events: Any) -> None:
    world.store.events.append(job_id, time.time(), events)


def test_events_come_as_pages_and_as_a_stream_without_gaps(world: World) -> None:
    ann = world.user("ann")
    job_id = create(world, ann).json()["id"]
    keep(world, job_id, Note("one"), Note("two"))
    path = f"/v1/jobs/{job_id}/events"
    page = world.client.get(path, headers=ann).json()["events"]
    assert [event["text"] for event in page] == ["one", "two"]

    def end() -> None:
        time.sleep(0.3)
        keep(world, job_id, Note("three"), JobEnded())

    thread = threading.Thread(target=end)
    thread.start()
    headers = {**ann, "Accept": "text/event-stream", "Last-Event-ID": str(page[0]["seq"])}
    with world.client.stream("GET", path, headers=headers) as stream:
        lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    thread.join()
    values = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert [value.get("text") or value["event"] for value in values] == ["two", "three", "JobEnded"]
    seqs = [page[0]["seq"], *(value["seq"] for value in values)]
    assert seqs == sorted(set(seqs))


def test_a_client_may_wait_for_the_end(world: World) -> None:
    ann = world.user("ann")
    job_id = create(world, ann).json()["id"]

    def end() -> None:
        time.sleep(0.3)
        world.store.jobs.finish(job_id, JobState.CANCELLED, {"stopped": "a test"})
        keep(world, job_id, JobEnded())

    thread = threading.Thread(target=end)
    thread.start()
    answer = world.client.get(f"/v1/jobs/{job_id}", headers={**ann, "Prefer": "wait=20"})
    thread.join()
    assert answer.json()["state"] == "cancelled"
    assert answer.headers["Preference-Applied"] == "wait=20"
    tag = {"If-None-Match": answer.headers["ETag"]}
    again = world.client.get(f"/v1/jobs/{job_id}", headers={**ann, **tag})
    assert again.status_code == 304


def test_jobs_are_filtered_and_sorted(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    create(world, bob, {**ASKED, "network": "zoo:vit_tiny"})
    ids = [
        create(world, ann, {**ASKED, "network": f"zoo:{name}"}).json()["id"]
        for name in ("vit_tiny", "tiny_cnn", "squeezenet")
    ]
    results = {ids[0]: 2.0, ids[1]: 1.0}
    for job_id, latency_ms in results.items():
        two = {"median": latency_ms, "low": latency_ms, "high": latency_ms}
        summary = {"run": job_id, "network": {"name": "x"}, "tuned_ms": two}
        world.store.jobs.finish(job_id, JobState.SUCCEEDED, summary)

    def listed(**query: Any) -> list[str]:
        answer = world.client.get("/v1/jobs", params=query, headers=ann).json()
        assert answer["next"] is None
        assert (answer["of_newest"] is None) is (not query)
        return [job["network"] for job in answer["jobs"]]

    assert listed() == ["squeezenet", "tiny_cnn", "vit_tiny"]
    assert listed(text="TINY") == ["tiny_cnn", "vit_tiny"]
    assert listed(sort="network", ascending=True) == ["squeezenet", "tiny_cnn", "vit_tiny"]
    assert listed(sort="latency", ascending=True) == ["tiny_cnn", "vit_tiny", "squeezenet"]
    assert listed(sort="latency") == ["vit_tiny", "tiny_cnn", "squeezenet"]
    assert listed(sort="latency", state="succeeded", text="VIT") == ["vit_tiny"]
    assert listed(ascending=True) == ["vit_tiny", "tiny_cnn", "squeezenet"]
    page = world.client.get("/jobs?text=tiny&sort=latency&ascending=true", headers=ann).text
    assert page.index("/jobs/" + ids[1]) < page.index("/jobs/" + ids[0])
    assert ids[2] not in page
    assert 'href="/jobs?text=tiny&amp;sort=latency&amp;ascending=false"' in page
    assert 'href="/jobs?text=tiny&amp;sort=latency&amp;ascending=true&amp;state=paused"' in page
