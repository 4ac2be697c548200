"""Networks divided over this machine and a server of TVM's, which these tests start."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_devices import registered
from tunefleet import BenchmarkContext
from tunefleet.core.predicting import Workload
from tunefleet.core.task import Task
from tunefleet.errors import InputError

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
        with Placing("zoo:tiny_cnn", contexts) as made:
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


def test_one_device_is_not_two(tmp_path: Path) -> None:
    from tunefleet.runs.placement import Placing

    with pytest.raises(InputError, match="two devices or more"):
        Placing("zoo:tiny_cnn", {"local": BenchmarkContext(home=tmp_path)})


def test_the_numbers_of_a_task_are_those_of_its_shapes() -> None:
    from tunefleet.runs.timing import workload_of

    task = Task("id", "matmul+add", "matmul", "1x32 32x10 scalar -> 1x10", 640.0, "")
    assert workload_of(task) == Workload("matmul", 640.0, 32 + 320 + 1 + 10)
