from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.store.values import make_spec
from tunefleet.core.events import Event, Forecasted, SearchEnded
from tunefleet.core.forecast import SearchOutcome
from tunefleet.store import open_store

from .conftest import Invoke
from .streams import JOB, forecast


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store = open_store(tmp_path)
    store.jobs.open(make_spec("net"), job_id=JOB, now=1.0)
    events: list[Event] = [
        Forecasted(forecast(16, 64, 10.0, 4e-3)),
        Forecasted(forecast(32, 64, 20.0, 3.5e-3)),
        SearchEnded(SearchOutcome(64, 40.0, 3e-3, False)),
    ]
    store.events.append(JOB, 1000.0, events)
    store.close()
    return tmp_path


def test_forecasts_stand_beside_what_came_of_them(invoke: Invoke, home: Path) -> None:
    ended = invoke("forecasts", JOB[:8], "--home", str(home))
    assert (ended.code, ended.err) == (0, "")
    rows = ended.out.splitlines()[2:4]
    assert all(row.startswith(JOB[:8]) for row in rows)
    assert all("3.00 ms, not met" in row for row in rows)
    assert "the end lay between 10 and 90 % in 2 of 2 forecasts" in ended.out


def test_the_same_as_json(invoke: Invoke, home: Path) -> None:
    listing = json.loads(invoke("forecasts", "--home", str(home), "--json", "-").out)["forecasts"]
    assert [each["trials"] for each in listing] == [16, 32]
    at_end = {"p10": 2.8e-3, "p50": 3.2e-3, "p90": 3.6e-3}
    assert listing[0]["latency_s"] == pytest.approx(at_end)
    assert listing[0]["probability"] == 0.2
    assert listing[0]["outcome"]["latency_s"] == 3e-3


def test_without_any_it_says_when_they_are_made(invoke: Invoke, tmp_path: Path) -> None:
    ended = invoke("forecasts", "--home", str(tmp_path / "none"))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("no forecasts yet")


def test_an_unknown_job_is_a_line(invoke: Invoke, home: Path) -> None:
    ended = invoke("forecasts", "abcdef12", "--home", str(home))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
