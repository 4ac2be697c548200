from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.runs.spans import MINE, open_job, ran, whole_round
from tunefleet.store import open_store

from .conftest import Invoke

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> str:
    """One run of one round, and one that has only selected."""
    with closing(open_store(tmp_path / "home")) as store:
        open_job(store)
        whole_round(store, 0.0)
        open_job(store, "f" * 32, "short")
        ran(store, "select", 0.0, 1.0, job="f" * 32)
    return str(tmp_path / "home")


def test_timeline_prints_resources_and_draws(invoke: Invoke, home: str, tmp_path: Path) -> None:
    done = invoke(
        "timeline", "aaaaaa", "--home", home, "--output", str(tmp_path / "new" / "charts")
    )
    assert (done.code, done.err) == (0, "")
    assert "device 1" in done.out
    assert "net aaaaaaaa" in done.out
    found = sorted((tmp_path / "new" / "charts").iterdir())
    assert [path.name for path in found] == ["timeline-aaaaaaaa.html", "timeline-aaaaaaaa.png"]
    assert all(f"wrote {path}" in done.out for path in found)


def test_a_name_steers_neither_terminal_nor_page(invoke: Invoke, home: str, tmp_path: Path) -> None:
    with closing(open_store(Path(home))) as store:
        open_job(store, "c" * 32, "\x1b[31m[red]<i>\udc80")
        whole_round(store, 100.0, job="c" * 32)
    done = invoke("timeline", "cccccc", "--home", home, "--output", str(tmp_path))
    assert (done.code, "[red]" in done.out, "\x1b" in done.out) == (0, True, False)
    assert "<i>" not in (tmp_path / "timeline-cccccccc.html").read_text()


def test_json_on_stdout_is_all_there_is(invoke: Invoke, home: str, tmp_path: Path) -> None:
    done = invoke("timeline", MINE, "--home", home, "--output", str(tmp_path), "--json", "-")
    found = json.loads(done.out)
    assert (found["schema"], found["tuning_s"]) == ("tunefleet-timeline/2", 7.0)


def test_durations_go_into_a_simulation(invoke: Invoke, home: str, tmp_path: Path) -> None:
    recorded = str(tmp_path / "durations.json")
    done = invoke(
        "timeline", MINE, "--home", home, "--output", str(tmp_path), "--durations", recorded
    )
    assert done.code == 0
    simulated = invoke("simulate", "--durations", recorded, "--json", "-")
    assert json.loads(simulated.out)["policies"][0]["makespan_s"] == 7.0


def test_a_trace_is_written_for_perfetto(invoke: Invoke, home: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = invoke("timeline", MINE, "--home", home, "-o", str(tmp_path), "--trace", str(trace))
    assert done.code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    stages = ["select", "build", "profile", "update"]
    assert stages == [e["name"] for e in events if e["args"].get("job") == "net aaaaaaaa"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["aaa"], "too short"),
        (["123456"], "no run 123456"),
        (["ffffff", "--durations", "DIR/d.json"], "no whole round"),
        (["aaaaaa", "--output", "DIR/home/store.sqlite"], "is a file"),
        (["aaaaaa", "--json", "DIR/none/x.json"], "does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_leaves_nothing(
    invoke: Invoke, home: str, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    given = [a.replace("DIR", str(tmp_path)) for a in arguments]
    extra = [] if "--output" in given else ["--output", str(tmp_path / "charts")]
    done = invoke("timeline", *given, *extra, "--home", home)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert reason in done.err
    assert not (tmp_path / "charts").exists()
