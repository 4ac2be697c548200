"""Records of all jobs that one may see: filtered, sorted, in pages, as a file."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)

from tests.store import values as v

from .conftest import World

COLUMNS = ["measured", "network", "task", "operator", "device", "target", "latency"]


def measured(world: World, tenant: str, network: str, latencies_s: dict[str, float]) -> str:
    """A job of a tenant with records of a task."""
    spec = replace(v.make_spec(f"{tenant} {network}"), tenant=tenant)
    spec = replace(spec, network=replace(spec.network, name=network))
    job_id = spec.fingerprint[:32]
    world.store.jobs.open(spec, job_id=job_id, now=1.0)
    world.store.work.put_tasks(job_id, [v.make_task()])
    v.commit_measured(world.store, latencies_s, job_id=job_id)
    return job_id


def asked(world: World, headers: dict[str, str], **query: Any) -> list[dict[str, Any]]:
    """The records of all pages."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = world.client.get(
            "/v1/records", params={**query, "cursor": cursor}, headers=headers
        )
        assert answer.status_code == 200, answer.text
        found += answer.json()["records"]
        cursor = answer.json()["next"]
    return found


def names(world: World, headers: dict[str, str], **query: Any) -> list[str]:
    return [record["candidate_id"] for record in asked(world, headers, **query)]


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("ascending", [True, False])
def test_pages_have_every_record_once(world: World, column: str, ascending: bool) -> None:
    ann = world.user("ann")
    measured(world, "ann", "resnet", {"a": 2e-3, "b": 1e-3})
    job_id = measured(world, "ann", "bert", {"c": 3e-3})
    v.commit_failed(world.store, "bad", v.CRASH, job_id=job_id, iteration=1)
    query = {"sort": column, "ascending": ascending}
    whole = names(world, ann, **query)
    assert sorted(whole) == ["a", "b", "bad", "c"]
    for limit in (1, 2, 3):
        assert names(world, ann, limit=limit, **query) == whole
    expected = {
        ("latency", True): ["b", "a", "c", "bad"],
        ("network", True): ["c", "bad", "a", "b"],
    }
    assert expected.get((column, ascending), whole) == whole


def test_a_record_says_where_it_comes_from(world: World) -> None:
    ann = world.user("ann")
    job_id = measured(world, "ann", "resnet", {"a": 2e-3})
    v.commit_failed(world.store, "bad", v.CRASH, job_id=job_id, iteration=1)
    failed, good = asked(world, ann)
    assert (failed["failure"], failed["latency_us"], failed["gflops"]) == (
        "build_crash",
        None,
        None,
    )
    assert (good["network"], good["task"], good["job"]) == ("resnet", "conv", job_id)
    assert (good["latency_us"], good["gflops"]) == (pytest.approx(2000.0), pytest.approx(0.5))


def test_records_of_others_are_those_that_they_share(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    measured(world, "ann", "secret", {"a": 1e-3})
    measured(world, "bob", "own", {"b": 1e-3})
    measured(world, "", "of the home", {"h": 1e-3})
    for query in ({}, {"text": "secret"}, {"sort": "latency"}, {"sort": "network"}):
        assert "a" not in names(world, bob, **query)
    assert names(world, bob) == ["b"]
    page = world.client.get("/records?network=secret", headers=bob).text
    assert "There is none of that kind yet" in page
    world.client.post("/v1/shares", json={"reader": "bob"}, headers=ann)
    assert names(world, bob, ascending=True) == ["a", "b"]
    [shared] = [each for each in asked(world, bob) if each["candidate_id"] == "a"]
    assert shared["job"] is None


def test_the_file_has_every_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefleet.service.routes_records._PART", 2)
    ann = world.user("ann")
    measured(world, "ann", "=cmd()", {f"c{n}": 1e-3 * (n + 1) for n in range(5)})
    answer = world.client.get("/v1/records.csv?sort=latency&ascending=true", headers=ann)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    head, *rows = csv.reader(io.StringIO(answer.text))
    assert [row[head.index("candidate_id")] for row in rows] == ["c0", "c1", "c2", "c3", "c4"]
    assert {row[head.index("network")] for row in rows} == {"'=cmd()"}
    filtered = world.client.get("/v1/records.csv?network=other", headers=ann).text
    assert filtered.splitlines() == [",".join(head)]


@pytest.mark.parametrize(
    "value",
    [
        "x",
        [],
        ["measured", True, None, 1],
        ["measured", True, None, 1, "1"],
        ["measured", True, None, 1, 2**63],
        ["measured", True, "net", 1, 1],
        ["measured", False, None, 1, 1],
        ["latency", True, "net", 1, 1],
        ["network", True, "\ud800", 1, 1],
        ["network", True, None, 1, 1],
    ],
)
def test_a_cursor_of_something_else_is_refused(world: World, value: Any) -> None:
    ann = world.user("ann")
    cursor = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    sort = value[0] if value and value[0] in COLUMNS else "measured"
    query = {"cursor": cursor, "sort": sort}
    answer = world.client.get("/v1/records", params=query, headers=ann)
    assert (answer.status_code, "no cursor" in answer.json()["detail"]) == (422, True)
    assert world.client.get(f"/records?{urlencode(query)}", headers=ann).status_code == 422


@pytest.mark.parametrize("cursor", ["%", "é", "a", "[" * 1999])
def test_what_is_no_cursor_is_refused(world: World, cursor: str) -> None:
    ann = world.user("ann")
    answer = world.client.get("/v1/records", params={"cursor": cursor}, headers=ann)
    assert answer.status_code == 422


def test_a_page_keeps_its_filters_in_the_address(world: World) -> None:
    ann = world.user("ann")
    measured(world, "ann", "<b>net", {f"c{n}": 1e-3 * (n + 1) for n in range(60)})
    place = "/records?network=%3Cb%3E&sort=latency&ascending=true"
    text = world.client.get(place, headers=ann).text
    assert "&lt;b&gt;net" in text
    assert 'aria-sort="ascending"' in text
    assert 'href="/records?network=%3Cb%3E&amp;sort=latency&amp;ascending=false"' in text
    assert 'href="/v1/records.csv?network=%3Cb%3E&amp;sort=latency&amp;ascending=true"' in text
    [following] = re.findall(r'href="(/records\?[^"]*cursor=[^"]*)" rel="next"', text)
    assert text.count("<tr>") == 51
    later = world.client.get(following.replace("&amp;", "&"), headers=ann).text
    assert later.count("<tr>") == 11
