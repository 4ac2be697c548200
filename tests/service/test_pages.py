"""Pages: shown to whom they belong, whatever names are in them, and made of this service alone."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)

from tunefleet.core.coordination import Claim, Holder
from tunefleet.core.events import (
    Forecasted,
    LaneUpdated,
    Note,
    ResourceBack,
    ResourceQuarantined,
    SearchEnded,
    StageCommitted,
)
from tunefleet.core.forecast import Quantiles, SearchForecast, SearchOutcome
from tunefleet.core.job import JobKind, JobState
from tunefleet.core.result import Baseline, Evaluation, ResultNetwork, RunResult, TaskResult
from tunefleet.core.stage import ProfileResult, StageKey, StageKind, StageRun, UpdateResult
from tunefleet.core.statistics import Interval
from tunefleet.core.task import Task, WeightedTask
from tunefleet.fleet.leases import machine_units, this_process
from tunefleet.report.units import TIMES
from tunefleet.service import pages, pages_fleet
from tunefleet.service.pages import _OWN_PAGE
from tunefleet.service.values import RecordPage

from .conftest import World

STATIC = Path(pages.__file__).parent / "static"
HOSTILE = "<img src=x onerror=alert(1)>&'\""
ASKED = {"network": "zoo:tiny_cnn", "budget": {"minutes": 5}, "threads": 1}
TASKS = [
    WeightedTask(Task(name, name, "conv2d", "(1,3)", 1e6, ""), weight)
    for name, weight in (("first", 2), (HOSTILE, 1))
]
OF_ALL = [
    *("/jobs", "/jobs?state=paused", "/submit", "/devices", "/records", "/records/best"),
    *("/records?network=net&sort=latency", "/cost-models", "/tokens"),
]


def create(world: World, headers: dict[str, str], **changed: Any) -> str:
    answer = world.client.post("/v1/jobs", json={**ASKED, **changed}, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def lane(task: int, trials: int, best_us: float | None, known_us: float | None = None) -> Any:
    best_s, known_s = (None if us is None else us / 1e6 for us in (best_us, known_us))
    return LaneUpdated(TASKS[task], trials, 0, best_s, known_s)


def stage(job_id: str, elapsed_s: float) -> StageCommitted:
    run = StageRun(StageKey(job_id, "first", 0, StageKind.UPDATE), UpdateResult(), 1e9, 1.0)
    return StageCommitted(run, 0, elapsed_s)


def searched(world: World, headers: dict[str, str]) -> str:
    """A job with two tasks that goes on."""
    job_id = create(world, headers)
    world.store.work.put_tasks(job_id, TASKS)
    events = [
        *(Note(HOSTILE, warning=True), lane(0, 8, 100.0)),
        *(stage(job_id, 5.0), lane(1, 8, None, known_us=50.0)),
        *(stage(job_id, 7.0), lane(0, 16, 100.0)),
        *(stage(job_id, 9.0), lane(0, 24, 100.0)),
        *(stage(job_id, 11.0), lane(1, 16, 30.0, known_us=50.0)),
    ]
    world.store.events.append(job_id, 1e9, events)
    return job_id


def ended(world: World, headers: dict[str, str]) -> str:
    job_id = searched(world, headers)
    two = Interval(median=2.0, low=1.9, high=2.1)
    baseline = Baseline(name=HOSTILE, kind="source", latency_ms=two, speedup=two)
    task = TaskResult(task_id="first", weight=2, latency_us=90.0, default_us=180.0, limit_share=0.5)
    result = RunResult(
        run="0" * 32,
        network=ResultNetwork(name=HOSTILE),
        tuned_ms=two,
        speedup=two,
        baselines=(baseline,),
        tasks=(task,),
        warnings=(HOSTILE,),
    )
    world.store.jobs.finish(job_id, JobState.SUCCEEDED, result.to_dict())
    return job_id


def test_nobody_is_shown_a_page(world: World) -> None:
    job_id = create(world, world.user("ann"))
    places = [*OF_ALL, "/users", f"/jobs/{job_id}", f"/compare?job={job_id}&job={job_id}"]
    for place in [*places, "/records/best.csv"]:
        answer = world.client.get(place, follow_redirects=False)
        assert answer.status_code == 303, place
        assert answer.headers["location"].startswith("/signin?next=/")
    asked = world.client.get("/jobs?state=paused", headers={"HX-Request": "true"})
    assert (asked.status_code, asked.headers["HX-Redirect"][:14]) == (204, "/signin?next=/")
    assert world.client.get("/signin").status_code == 200


def test_users_and_admins_are_shown_theirs(world: World) -> None:
    ann, root = world.user("ann"), world.user("root", admin=True)
    for headers in (ann, root):
        for place in [*OF_ALL, f"/jobs/{searched(world, headers)}"]:
            answer = world.client.get(place, headers=headers)
            assert answer.status_code == 200, place
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert world.client.get("/users", headers=root).status_code == 200
    refused = world.client.get("/users", headers=ann)
    assert (refused.status_code, "<h1>Not allowed</h1>" in refused.text) == (403, True)
    assert 'href="/users"' not in world.client.get("/jobs", headers=ann).text


def test_a_session_is_led_to_the_page_that_was_asked_for(world: World) -> None:
    text = world.user("ann")["Authorization"].removeprefix("Bearer ")
    answer = world.client.get("/jobs?state=paused")  # follows to the sign-in
    assert 'data-then="/jobs?state=paused"' in answer.text
    own = {"Origin": "http://testserver"}
    assert world.client.post("/v1/session", json={"token": text}, headers=own).status_code == 204
    assert world.client.get("/signin?next=/devices").url.path == "/devices"
    assert world.client.get("/jobs").status_code == 200
    world.client.cookies.clear()
    again = world.client.get("/jobs?state=paused", headers={"Sec-Fetch-Site": "cross-site"})
    assert 'content="0; url=/jobs?state=paused"' in again.text


@pytest.mark.parametrize(
    "place", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil", "", '/a"b']
)
def test_nobody_is_led_elsewhere(world: World, place: str) -> None:
    assert _OWN_PAGE.fullmatch(place) is None
    assert 'data-then="/jobs"' in world.client.get("/signin", params={"next": place}).text


def test_pages_of_others_jobs_are_not_found(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    of_ann, of_bob = searched(world, ann), create(world, bob)
    for place in (f"/jobs/{of_ann}", f"/compare?job={of_bob}&job={of_ann}"):
        assert world.client.get(place, headers=bob).status_code == 404
    assert of_ann not in world.client.get("/jobs", headers=bob).text
    assert world.client.get(f"/v1/jobs/{of_ann}/curve", headers=bob).status_code == 404
    assert world.client.get("/tokens?user=ann", headers=bob).status_code == 403


def test_the_curve_is_the_sum_of_the_tasks_best(world: World) -> None:
    ann = world.user("ann")
    job_id = searched(world, ann)
    curve = world.client.get(f"/v1/jobs/{job_id}/curve", headers=ann).json()
    # Not before both tasks have one; that of 24 trials was no better, nor that of 32.
    expected = [(16, 5.0, 0.25), (32, 9.0, 0.25), (40, 11.0, 0.23)]
    points = [(p["trials"], p["seconds"], p["latency_ms"]) for p in curve["samples"]]
    assert points == [pytest.approx(each) for each in expected]
    assert world.client.get(f"/v1/jobs/{job_id}/curve", headers=ann).json() == curve
    world.store.events.append(job_id, 1e9, [stage(job_id, 12.0), lane(0, 32, 90.0)])
    later = world.client.get(f"/v1/jobs/{job_id}/curve", headers=ann).json()["samples"]
    assert later[:-1] == curve["samples"]
    assert list(later[-1].values()) == pytest.approx([48, 12.0, 0.21])
    tasks = world.client.get(f"/v1/jobs/{job_id}/tasks", headers=ann).json()["tasks"]
    assert [(t["name"], t["weight"], t["trials"], t["best_s"]) for t in tasks] == [
        ("first", 2, 32, 90e-6),
        (HOSTILE, 1, 16, 30e-6),
    ]
    empty = create(world, ann, budget={"minutes": 6})
    assert world.client.get(f"/v1/jobs/{empty}/curve", headers=ann).json()["samples"] == []


def test_a_forecast_is_shown_while_the_search_goes_on(world: World) -> None:
    ann = world.user("ann")
    job_id = searched(world, ann)
    latency_s = Quantiles(100e-6, 150e-6, 200e-6)
    of = SearchForecast(40, 11.0, 230e-6, 400, 300.0, latency_s, (), 9, 120e-6, None, 0.25)
    world.store.events.append(job_id, 1e9, [Forecasted(of)])
    curve = world.client.get(f"/v1/jobs/{job_id}/curve", headers=ann).json()
    assert (curve["forecast"]["trials"], curve["forecast"]["seconds"]) == (400, 300.0)
    [listed] = world.client.get("/v1/jobs", headers=ann).json()["jobs"]
    assert listed["forecast"]["median_ms"] == pytest.approx(0.15)
    assert listed["forecast"]["ends_at"] == pytest.approx(1e9 + 289.0)
    text = world.client.get("/jobs", headers=ann).text
    assert "<td>150 µs<small>100 µs to 200 µs</small>" in text
    text = world.client.get(f"/jobs/{job_id}", headers=ann).text
    assert "150 µs at the end of the budget, with 80 % from 100 µs to 200 µs" in text
    assert "reached by then with 25.0 %" in text
    world.store.events.append(job_id, 1e9, [SearchEnded(SearchOutcome(400, 300.0, 1e-4, True))])
    curve = world.client.get(f"/v1/jobs/{job_id}/curve", headers=ann).json()
    assert curve["forecast"] is None
    assert world.client.get("/v1/jobs", headers=ann).json()["jobs"][0]["forecast"] is None
    assert "at the end of the budget" not in world.client.get(f"/jobs/{job_id}", headers=ann).text


def test_the_queue_is_shown_at_submission(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    queue = world.client.get("/v1/queue", headers=ann).json()
    assert (queue["jobs"], queue["ends_at"]) == (0, None)
    assert "Nothing is under way." in world.client.get("/submit", headers=ann).text
    create(world, bob)
    answer = world.client.post("/v1/jobs", json=ASKED, headers=ann).json()
    assert answer["queue"]["jobs"] == 1
    assert answer["queue"]["starts_at"] == pytest.approx(time.time(), abs=30)
    assert "2 jobs are under way, until about" in world.client.get("/submit", headers=ann).text
    page = world.client.get(f"/jobs/{answer['id']}", headers=ann).text
    assert "beside 1 other job" in page
    assert world.client.get("/v1/jobs", headers=ann).json()["jobs"][0]["queue"] is None


def test_a_page_of_a_job_says_what_it_reached(world: World) -> None:
    ann = world.user("ann")
    text = world.client.get(f"/jobs/{ended(world, ann)}", headers=ann).text
    assert "as fast as possible in 5 minutes" in text
    assert re.search(rf"<td>180 µs</td>\s*<td>90.0 µs</td>\s*<td>2.00{TIMES}</td>", text)
    assert f"2.00{TIMES} (1.90 to 2.10) as fast" in text
    assert "Ask again" in text
    assert ">Pause<" not in text
    assert "data-events" not in text


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_a_page_of_a_job_that_delivers_nothing_says_why(world: World, state: JobState) -> None:
    ann = world.user("ann")
    job_id = create(world, ann)
    world.store.jobs.finish(job_id, state, {"stopped": "its import failed"})
    for place in (f"/jobs/{job_id}", "/jobs"):
        text = world.client.get(place, headers=ann).text
        assert "its import failed" in text, place
        assert f">{state}<" in text, place


def test_a_page_of_an_evaluation_has_its_figures(world: World) -> None:
    ann = world.user("ann")
    tuned = world.store.jobs.get(create(world, ann))
    world.store.jobs.finish(tuned.job_id, JobState.CANCELLED, {})
    spec = replace(tuned.spec, kind=JobKind.EVALUATE)
    job_id = world.store.jobs.open(spec, job_id="e" * 32, now=1e9).job_id
    running = world.client.get(f"/jobs/{job_id}", headers=ann)
    assert (running.status_code, "Compared with its source" in running.text) == (200, False)
    two = Interval(median=2.0, low=1.9, high=2.1)
    figures = Evaluation(artifact="0" * 32, tuned_ms=two)
    world.store.jobs.finish(job_id, JobState.SUCCEEDED, figures.to_dict())
    text = world.client.get(f"/jobs/{job_id}", headers=ann).text
    assert "evaluate eeeeeeee" in text
    assert "2.00 ms (1.90 to 2.10)" in text


def test_two_to_four_jobs_stand_side_by_side(world: World) -> None:
    ann = world.user("ann")
    ids = [ended(world, ann), *(create(world, ann, budget={"minutes": n}) for n in (1, 2, 3, 4))]
    page = world.client.get("/compare", params={"job": ids[:4]}, headers=ann)
    assert page.status_code == 200
    assert all(f"/v1/jobs/{job_id}/curve" in page.text for job_id in ids[:4])
    for few_or_many in (ids[:1], ids, []):
        answer = world.client.get("/compare", params={"job": few_or_many}, headers=ann)
        assert answer.status_code == 422


def test_names_stay_text(world: World) -> None:
    """A file, a task, a note, a baseline and a label that would be markup."""
    ann = world.user("ann")
    name, content = "<script>alert(1)<x>.onnx", b"not a network"
    digest = hashlib.sha256(content).hexdigest()
    asked = {"digest": digest, "name": name, "size": len(content)}
    assert world.client.post("/v1/uploads", json=asked, headers=ann).status_code == 201
    part = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
    path = f"/v1/uploads/{digest}"
    assert world.client.patch(path, content=content, headers={**ann, **part}).status_code == 200
    job_id, named = ended(world, ann), create(world, ann, network=digest)
    world.client.post("/v1/tokens", json={"label": HOSTILE}, headers=ann)
    places = [*OF_ALL, f"/jobs/{job_id}", f"/jobs/{named}", f"/compare?job={job_id}&job={named}"]
    texts = {place: world.client.get(place, headers=ann).text for place in places}
    for place, text in texts.items():
        assert "<img" not in text, place
        assert "<script>" not in text, place
    for place in ("/jobs", "/submit", f"/jobs/{named}", f"/compare?job={job_id}&job={named}"):
        assert "&lt;script&gt;alert(1)" in texts[place], place
    for place in ("/tokens", f"/jobs/{job_id}"):
        assert "&lt;img src=x onerror=alert(1)&gt;&amp;&#39;&#34;" in texts[place], place


def test_pages_take_nothing_from_elsewhere(world: World) -> None:
    root = world.user("root", admin=True)
    for place in [*OF_ALL, "/users", f"/jobs/{ended(world, root)}", "/signin"]:
        answer = world.client.get(place, headers=root)
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        for address in re.findall(r"(?:src|href|action|hx-get)=[\"']([^\"']+)", answer.text):
            assert re.match(r"/(?!/)|#", address), (place, address)
        scripts = re.findall(r"<script([^>]*)>(.*?)</script>", answer.text, re.DOTALL)
        assert scripts
        assert all("src=" in given and not content for given, content in scripts), place
        assert not re.search(r"<style|\sstyle=|javascript:", answer.text), place
    own = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css")]
    assert len(own) >= 5
    for path in own:
        assert "://" not in path.read_text(encoding="utf-8"), path.name
        assert world.client.get(f"/static/{path.name}").status_code == 200


def test_vendored_files_are_those_that_were_taken() -> None:
    folder = STATIC / "vendor"
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    assert sums.keys() == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_best_records_are_a_page_and_a_file_for_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry: dict[str, Any] = dict.fromkeys(pages_fleet._COLUMNS, "x")
    entry |= {"name": "=cmd()", "latency_us": 1.5, "gflops": 2.0}
    given = {"": RecordPage(records=[entry], next="more"), "more": RecordPage(records=[entry])}
    monkeypatch.setattr(pages_fleet, "best_records", lambda *asked: given[asked[3]])
    ann = world.user("ann")
    page = world.client.get("/records/best?operator=conv2d", headers=ann).text
    assert 'href="/records/best?operator=conv2d&amp;cursor=more"' in page
    answer = world.client.get("/records/best.csv", headers=ann)
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == list(pages_fleet._COLUMNS)
    assert [row[1] for row in rows[1:]] == ["'=cmd()", "'=cmd()"]


def test_devices_say_for_whom_they_measure(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")

    def local(headers: dict[str, str]) -> Any:
        return world.client.get("/v1/devices", headers=headers).json()["devices"][0]

    assert (local(ann)["name"], local(ann)["state"]) == ("local", "free")
    assert (local(ann)["address"], local(world.user("root", admin=True))["address"]) == (
        "",
        "local",
    )
    job_id = create(world, ann)
    holder = Holder(this_process(), "ann", job_id, "profile")
    building = Claim("c1", machine_units(["core0"]), holder, shared=True)
    world.store.coordination.acquire(building, 60.0)
    assert local(ann)["state"] == "free"
    world.store.coordination.release("c1")
    world.store.coordination.acquire(Claim("c2", machine_units(["core0"]), holder), 60.0)
    assert (local(ann)["state"], local(ann)["job"]) == ("measuring", job_id)
    assert (local(bob)["job"], local(bob)["detail"]) == (None, "for another user")
    assert f"/jobs/{job_id}" in world.client.get("/devices", headers=ann).text
    assert job_id[:8] not in world.client.get("/devices", headers=bob).text


def test_devices_tell_of_drift_and_quarantine(world: World) -> None:
    ann = world.user("ann")

    def local() -> dict[str, Any]:
        found: dict[str, Any] = world.client.get("/v1/devices", headers=ann).json()["devices"][0]
        return found

    assert (local()["drift"], local()["quarantines"]) == ("", 0)
    jobs = [create(world, ann, budget={"minutes": n}) for n in (1, 2)]
    key = StageKey(jobs[0], "first", 0, StageKind.PROFILE)
    run = StageRun(key, ProfileResult(()), 1e9, 2.0, "reference drift +2.7%", "device")
    world.store.events.append(jobs[0], 1e9, [StageCommitted(run, 0, 1.0)])
    assert (local()["drift"], local()["drift_at"]) == ("reference drift +2.7%", 1e9 + 2)
    now, reason = time.time(), f"its reference kernel moved {HOSTILE}"
    for job_id in jobs:  # each job that runs keeps it
        world.store.events.append(job_id, now, [ResourceQuarantined("device", reason, 60.0)])
    device = local()
    assert (device["state"], device["detail"], device["quarantines"]) == ("quarantined", reason, 1)
    assert device["quarantined_until"] == pytest.approx(now + 60)
    text = world.client.get("/devices", headers=ann).text
    assert "reference drift +2.7%" in text
    assert "<img" not in text
    world.store.events.append(jobs[0], now + 1, [ResourceBack("device")])
    device = local()
    assert (device["quarantined_until"], device["quarantines"]) == (pytest.approx(now + 1), 1)
    later = ResourceQuarantined("device", reason, 5.0)
    world.store.events.append(jobs[0], now - 100 + 300, [later])
    assert local()["quarantines"] == 2
