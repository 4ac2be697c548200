from __future__ import annotations

import json
import time
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.store.values import make_spec
from tunefleet.cli.jobs import STATES
from tunefleet.core.events import Forecasted, SearchEnded
from tunefleet.core.forecast import Quantiles, SearchForecast, SearchOutcome
from tunefleet.core.job import JobState
from tunefleet.report.jobs_text import budget_text, queue_text
from tunefleet.runs import jobs
from tunefleet.store import open_store

from .conftest import Invoke

JOB = "c0ffee" + "0" * 26
SUMMARY = {
    "tuned_ms": {"median": 0.25, "low": 0.24, "high": 0.26},
    "speedup": None,
    "why_no_speedup": "other programs took 91 % of the cores",
    "run": JOB,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store = open_store(tmp_path)
    store.jobs.open(make_spec("net"), job_id=JOB, now=1.0)
    store.jobs.finish(JOB, JobState.SUCCEEDED, SUMMARY)
    store.jobs.open(make_spec("other"), job_id="d" * 32, now=2.0)
    store.close()
    return tmp_path


def test_a_job_is_shown_with_its_latency_and_why_it_has_no_ratio(
    invoke: Invoke, home: Path
) -> None:
    ended = invoke("jobs", "--home", str(home), "--state", "succeeded")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[2].split()[:5] == ["c0ffee00", "succeeded", "net", "250", "µs"]
    assert "c0ffee00  not measurable now: other programs took 91 % of the cores" in ended.out
    assert "other" not in ended.out.replace("other programs", "")


def test_an_interrupted_job_is_paused_with_the_reason(invoke: Invoke, home: Path) -> None:
    listing = json.loads(invoke("jobs", "--home", str(home), "--json", "-").out)["jobs"]
    assert [(job["state"], job["reason"]) for job in listing] == [
        ("paused", jobs.INTERRUPTED),
        ("succeeded", ""),
    ]
    assert listing[1]["why_no_speedup"] == SUMMARY["why_no_speedup"]


def test_the_newest_are_shown(invoke: Invoke, home: Path) -> None:
    out = invoke("jobs", "--home", str(home), "--limit", "1", "--json", "-").out
    assert [job["network"] for job in json.loads(out)["jobs"]] == ["other"]


def test_states_are_those_of_jobs() -> None:
    assert STATES == jobs.STATES


@pytest.mark.parametrize("arguments", ["--state done", "--limit 0"])
def test_wrong_filters_are_refused_in_a_line(invoke: Invoke, home: Path, arguments: str) -> None:
    ended = invoke("jobs", "--home", str(home), *arguments.split())
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("order", ["before", "after"])
def test_removing_needs_a_yes_where_nobody_can_be_asked(
    invoke: Invoke, home: Path, order: str
) -> None:
    given = ["jobs", "rm", JOB, "--home", str(home)]
    if order == "before":
        given = ["jobs", "--home", str(home), "rm", JOB]
    ended = invoke(*given)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "add --yes" in ended.err
    ended = invoke(*given, "--yes")
    assert (ended.code, ended.out) == (0, "job c0ffee00 (net) is removed\n")
    assert [job["job"] for job in jobs.list_jobs(home)] == ["d" * 32]


@pytest.mark.parametrize(
    ("expected", "budget"),
    [
        ("1,000 trials", {"trials": 1000}),
        ("5:00", {"seconds": 300.0}),
        ("64 or 5:00", {"trials": 64, "seconds": 300.0}),
        ("64 per task or 5:00 of device", {"trials_per_task": 64, "device_seconds": 300.0}),
        ("64 trials, ≤ 2.00 ms", {"trials": 64, "target_latency_s": 2e-3}),
    ],
)
def test_a_budget_in_words(expected: str, budget: dict[str, float]) -> None:
    assert budget_text(budget) == expected


def test_the_newest_forecast_of_a_search_is_shown(invoke: Invoke, home: Path) -> None:
    latency_s = Quantiles(1.8e-3, 1.9e-3, 2.1e-3)
    forecast = SearchForecast(10, 60.0, 3e-3, 100, 660.0, latency_s, (), 9, probability=0.4)
    with closing(open_store(home)) as store:
        store.jobs.open(make_spec("searched"), job_id="f" * 32, now=2.0)
        older = replace(forecast, end_s=9e3)
        store.events.append("f" * 32, 1e9, [Forecasted(older), Forecasted(forecast)])
    shown = invoke("jobs", "--home", str(home)).out
    clock = time.strftime("%H:%M", time.localtime(1e9 + 600))
    expected = f"forecast: 1.90 ms (1.80 ms to 2.10 ms) at about {clock}; target reached with 40 %"
    assert expected in " ".join(shown.split())
    [first, *_] = json.loads(invoke("jobs", "--home", str(home), "--json", "-").out)["jobs"]
    assert first["forecast"]["latency_s"]["p50"] == 1.9e-3
    with closing(open_store(home)) as store:
        ended = SearchEnded(SearchOutcome(100, 660.0, 2e-3, False))
        store.events.append("f" * 32, 1e9, [ended])
    assert "forecast" not in invoke("jobs", "--home", str(home)).out


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ({"jobs": 0, "starts_at": 0.0, "ends_at": None}, "begins about {0}"),
        (
            {"jobs": 1, "starts_at": 0.0, "ends_at": 3600.0},
            "begins about {0} beside 1 job, ends about {1}",
        ),
        ({"jobs": 2, "starts_at": 0.0, "ends_at": None}, "begins about {0} beside 2 jobs"),
    ],
)
def test_a_queue_in_words(queue: dict[str, Any], expected: str) -> None:
    clocks = [time.strftime("%H:%M", time.localtime(at)) for at in (0, 3600)]
    assert expected.format(*clocks) == queue_text(queue)


def test_the_limit_counts_a_services_jobs_in_the_states_asked_for(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    views: list[dict[str, Any]] = [
        dict.fromkeys(("latency_ms", "reason", "outcome", "forecast", "trials"))
        | {"id": f"{n}" * 8, "state": state, "network": "net", "created_at": n}
        for n, state in enumerate(("failed", "succeeded", "paused", "succeeded"))
    ]

    class Client:
        def jobs(self, limit: int, state: str = "") -> list[dict[str, Any]]:
            return [view for view in reversed(views) if state in ("", view["state"])][:limit]

    monkeypatch.setattr("tunefleet.cli.remote.client_of", lambda _: nullcontext(Client()))

    def listed(*arguments: str) -> list[str]:
        out = invoke("jobs", "--server", "http://x", "--json", "-", *arguments).out
        return [view["id"][0] for view in json.loads(out)["jobs"]]

    assert listed("--limit", "2") == ["3", "2"]
    assert listed("--limit", "1", "--state", "paused") == ["2"]
    assert listed("--limit", "2", "--state", "failed", "--state", "succeeded") == ["3", "1"]
