from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tests.runs.spans import MINE, OTHER, open_job, ran, whole_round
from tunefleet.report import run_timeline as drawn
from tunefleet.report.units import UNKNOWN
from tunefleet.runs.timeline import build_timeline, find_job
from tunefleet.store import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    open_job(store, MINE, "net <b>&</b> [red]")
    open_job(store, OTHER, "other")
    whole_round(store, 0.0)
    whole_round(store, 3.0, job=OTHER)
    return store


def trace(store: MemoryStore) -> dict[str, Any]:
    return build_timeline(store, find_job(store, MINE))


def printed(*tables: Any) -> str:
    console = Console(file=io.StringIO(), width=120, markup=False)
    for table in tables:
        console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_timeline_has_the_resources_and_jobs_of_the_trace(store: Any) -> None:
    timeline = drawn.chart_of(trace(store))
    assert timeline.resources == ("host 1", "device 1")
    assert timeline.jobs == ("net <b>&</b> [red] aaaaaaaa", "other bbbbbbbb")
    used = {r["resource"]: r["utilisation"] for r in trace(store)["resources"]}
    assert used == timeline.utilisation()


def test_tables_tell_resources_and_jobs(store: Any) -> None:
    found = trace(store)
    text = printed(drawn.resources_table(found), drawn.jobs_table(found))
    assert "net <b>&</b> [red] aaaaaaaa" in text
    assert "1 in 3.0 s" in text
    assert "57.1 %" in text


def test_the_page_shows_picture_and_figures_and_escapes_names(store: Any) -> None:
    page = drawn.timeline_page(trace(store))
    assert "<svg" in page
    assert "device 1" in page
    assert "net &lt;b&gt;&amp;&lt;/b&gt; [red] aaaaaaaa" in page
    assert "<b>&" not in page


def test_all_tables_tell_the_same_waits(store: Any) -> None:
    """Selections, of which nobody knows how long they waited, count nowhere."""
    ran(store, "select", 8.0, 9.0, iteration=1)
    ran(store, "build", 11.0, 12.0, iteration=1, on="host 1")
    text = dict(drawn.timeline_facts(trace(store)))["waited per stage"]
    assert text == "0 s at the median, 2.0 s at the 95th percentile"
    assert "0 s</td><td>2.0 s</td>" in drawn.timeline_page(trace(store))


def test_the_picture_is_a_png(store: Any) -> None:
    assert drawn.timeline_png(trace(store)).startswith(b"\x89PNG\r\n")


def test_picture_and_page_say_what_is_cut_out(store: Any) -> None:
    ran(store, "select", 8000.0, 8001.0, iteration=1)
    found = trace(store)
    assert "1 pause of 2 h 13 min is cut out" in drawn.timeline_page(found).split("<svg")[0]
    ran(store, "build", 9000.0, 9001.0, iteration=1)
    assert "2 pauses of 2 h 30 min in all are cut out" in drawn.timeline_notes(trace(store))[0]


def test_notes_tell_what_nobody_wrote_down(store: Any) -> None:
    ran(store, "select", 7.0, 8.0, iteration=1)
    assert any(note.startswith("1 stage is shown") for note in drawn.timeline_notes(trace(store)))


def test_a_lone_stage_has_neither_notes_nor_waiting() -> None:
    store = MemoryStore()
    open_job(store)
    ran(store, "select", 0.0, 1.0, on="host 1")
    assert drawn.timeline_notes(trace(store)) == []
    assert ("waited per stage", UNKNOWN) in drawn.timeline_facts(trace(store))
