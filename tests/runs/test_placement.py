"""Networks divided over this machine and a server of TVM's, which these tests start."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runs.served import killed, served
from tests.runs.test_devices import registered
from tunefleet import BenchmarkContext
from tunefleet.core.importing import DEFAULT_IMPORT
from tunefleet.core.placement import Connection
from tunefleet.core.predicting import Workload
from tunefleet.core.task import Task
from tunefleet.errors import InputError, JobError, RetryElsewhereError
from tunefleet.runs.errands import place
from tunefleet.runs.jobs import list_jobs
from tunefleet.runs.request import source_of

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def placing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tunefleet.runs.placement import Placing

    home = tmp_path_factory.mktemp("home")
    with registered(home, 1):
        contexts = {
            "local": BenchmarkContext(home=home, threads=1),
            "board-0": BenchmarkContext("x86-64-v2", device="board-0", home=home, threads=1),
        }
        source = source_of("zoo:tiny_cnn", DEFAULT_IMPORT, contexts["local"])
        with Placing(source, contexts) as made:
            yield made


def test_every_task_has_a_time_on_each_device(placing: Any) -> None:
    assert all(math.isfinite(s) and s > 0 for row in placing.measured.seconds for s in row)
    assert len(placing.measured.seconds) == len(placing.networks[0].flow.calls)


def test_nothing_is_predicted_where_nothing_is_recorded(placing: Any) -> None:
    assert placing.predicted is None
    assert {timings.recorded for timings in placing.timings} == {0}


def test_a_small_network_stays_here(placing: Any) -> None:
    from tunefleet.core.placement import best_placement
    from tunefleet.report.placement_text import placement_table, totals_table
    from tunefleet.runs.placement import told

    chosen = best_placement(placing.measured)
    assert set(chosen) == {0}
    report = {**told(placing, chosen), "ran": None, "pays": False}
    assert report["best_device"] == "local"
    assert report["placement"]["total_s"] == report["alone"]["local"]["total_s"]
    assert report["alone"]["board-0"]["transfers_s"] > 0
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert placement_table(report).row_count == len(report["tasks"])
    assert totals_table(report).row_count == 8


def test_divided_it_computes_the_same(placing: Any) -> None:
    calls = len(placing.measured.seconds)
    alone, divided = placing.run([(0,) * calls, tuple(c % 4 // 2 for c in range(calls))], 1)
    assert alone.difference == 0.0
    assert divided.difference < 1e-5
    assert divided.seconds > alone.seconds


def _believing(placing: Any, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Seconds of each call on both devices, changed, over links that cost nothing."""
    rows = tuple(change(call, row) for call, row in enumerate(placing.measured.seconds))
    free = (Connection(), Connection())
    monkeypatch.setattr(
        placing, "measured", replace(placing.measured, seconds=rows, connections=free)
    )


def test_a_division_that_is_slower_than_was_thought_is_not_recommended(
    placing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.report.placement_text import totals_table
    from tunefleet.runs.placement import judged

    # Every other call seems to take nothing on the board.
    _believing(placing, monkeypatch, lambda call, row: (row[0], row[0] * 2 * (call % 2 == 0)))
    report = judged(placing)
    assert report["placement"]["parts"] > 2
    assert not report["pays"]
    assert report["ran"]["placement_s"] > report["ran"]["alone_s"] > 0
    assert report["ran"]["difference"] < 1e-5
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert totals_table(report).row_count > 0


def test_a_network_that_no_device_runs_alone_is_divided(
    placing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.report.placement_text import totals_table
    from tunefleet.runs.placement import judged

    last = len(placing.measured.seconds) - 1
    nowhere = {0: (1e-6, math.inf), last: (math.inf, 1e-6)}
    _believing(placing, monkeypatch, lambda call, row: nowhere.get(call, row))
    report = judged(placing)
    assert report["pays"]
    assert report["ran"]["alone_s"] is None
    assert report["placement"]["devices_of_calls"][0] == "local"
    assert report["placement"]["devices_of_calls"][-1] == "board-0"
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert totals_table(report).row_count > 0


def test_a_device_that_goes_is_told_within_seconds(small: Path, tmp_path: Path) -> None:
    killed: list[float] = []
    with registered(tmp_path, 1) as (server,):

        def kill(what: str) -> None:
            if what.startswith("measuring") and "board-0" in what:
                server.kill()
                killed.append(time.monotonic())

        contexts = {
            "local": BenchmarkContext(home=tmp_path, threads=1),
            "board-0": BenchmarkContext(device="board-0", home=tmp_path, threads=1),
        }
        from tunefleet.runs.placement import Placing

        with pytest.raises(RetryElsewhereError, match="is not there: connection refused"):
            Placing(source_of(small, DEFAULT_IMPORT, contexts["local"]), contexts, tell=kill)
    (at,) = killed
    assert time.monotonic() - at < 15


def test_one_device_is_not_two(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two devices or more"):
        place("zoo:tiny_cnn", {"local": BenchmarkContext(home=tmp_path)})
    assert list_jobs(tmp_path) == []


@pytest.mark.long
def test_a_placement_is_a_job_which_the_server_of_a_home_does(tmp_path: Path) -> None:
    with registered(tmp_path, 1), served(tmp_path):
        told: list[str] = []
        contexts = {
            "local": BenchmarkContext(home=tmp_path, threads=1),
            "board-0": BenchmarkContext(device="board-0", home=tmp_path, threads=1),
        }
        report = place("zoo:tiny_cnn", contexts, tell=told.append)
    assert report["best_device"] == "local"
    assert any(text.startswith("importing it for board-0") for text in told)
    (job,) = list_jobs(tmp_path)
    assert (job["kind"], job["state"], job["reason"]) == ("place", "succeeded", "")


def test_a_placement_whose_process_is_killed_fails_for_who_waits_for_it(tmp_path: Path) -> None:
    contexts = {
        "local": BenchmarkContext(home=tmp_path, threads=1),
        "board-0": BenchmarkContext(device="board-0", home=tmp_path, threads=1),
    }
    with (
        registered(tmp_path, 1),
        served(tmp_path),
        killed(tmp_path),
        pytest.raises(JobError, match="its process ended by SIGKILL"),
    ):
        place("zoo:tiny_cnn", contexts)
    (job,) = list_jobs(tmp_path)
    assert (job["kind"], job["state"]) == ("place", "failed")
    assert "SIGKILL" in job["reason"]


def test_the_numbers_of_a_task_are_those_of_its_shapes() -> None:
    from tunefleet.runs.timing import workload_of

    task = Task("id", "matmul+add", "matmul", "1x32 32x10 scalar -> 1x10", 640.0, "")
    assert workload_of(task) == Workload("matmul", 640.0, 32 + 320 + 1 + 10)
