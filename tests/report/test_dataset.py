from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tunefleet.hardware import shipped_table
from tunefleet.report import dataset_text, plots
from tunefleet.report.dataset_page import dataset_page
from tunefleet.report.hardware_text import hardware_pairs, hardware_table
from tunefleet.report.plots import Point
from tunefleet.report.units import UNKNOWN

from .pages import Page

HOSTILE = "<script>alert('x')</script>[red]\" onload=\"y"


def stats(device: str = "v100", tasks: int = 3, measured: bool = True) -> dict[str, Any]:
    """What `tunefleet.dataset.statistics` gives of a device, or nearly."""
    quantiles = {"min": 4.0, "q1": 5.0, "median": 6.0, "q3": 7.0, "max": 9.0, "mean": 6.1}
    task = {
        "device": device,
        "target": "cuda",
        "workload": '["3458e75493bb4bb042e539b5ff4818fb", [128, 3072], [768, 3072]]',
        "format": "auto_scheduler",
        "records": 10,
        "valid": 8 if measured else 0,
        "programs": 9,
        "best_s": 1e-3 if measured else None,
        "median_s": 2e-3 if measured else None,
        "flops": 6e8,
        "flops_how": "exact",
        "gflops": 600.0 if measured else None,
    }
    primitive = {
        "format": "auto_scheduler", "kind": "SP", "name": "split", "total": 60, "records": 28,
        "most_in_a_record": 4, "tasks": tasks, "per_task": quantiles,
    }  # fmt: skip
    counts = {
        "records": 10 * tasks, "valid": 8 * tasks, "failed": 2 * tasks, "tasks": tasks,
        "programs": 9 * tasks, "failures": {"runtime error": tasks, "wrong answer": tasks},
    }  # fmt: skip
    entry = {
        **counts,
        "device": device,
        "hardware": {"key": "v100", "name": "NVIDIA V100", "peak_fp32_gflops": 15667.0},
        "sequence_length": quantiles,
        "sequence_lengths": {4: 10, 9: 20},
        "sequences": 4,
        "primitives": [primitive],
        "throughput_gflops": quantiles if measured else None,
        "flops": {"exact": tasks, "estimated": 0, "unknown": 0},
        "task_list": [task] * tasks,
    }
    return {**counts, "identical_records": 1, "files": 1, "devices": [entry]}


def printed(renderable: Any, width: int = 120) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(renderable)
    return file.getvalue()


def test_tables_tell_what_there_is() -> None:
    found = stats()
    assert "600" in printed(dataset_text.tasks_table(found["devices"][0], 2))
    assert "and 1 more" in printed(dataset_text.tasks_table(found["devices"][0], 2))
    assert "split" in printed(dataset_text.primitives_table(found["devices"][0]))
    assert "wrong answer" in printed(dataset_text.failures_table(found))
    assert "4 to 9" in printed(dataset_text.devices_table(found))
    assert "30 records of 3 tasks on 1 device from 1 file" in dataset_text.totals_text(found)
    assert "3 exact, 0 estimated" in dataset_text.flops_text(found)


@pytest.mark.parametrize(
    ("lengths", "shown"),
    [({4: 10, 9: 20}, "66.7 %"), ({5: 10, 69: 20}, "65 to 69"), ({3: 30}, "100.0 %")],
)
def test_lengths_are_shown_in_few_rows(lengths: dict[int, int], shown: str) -> None:
    device = {**stats()["devices"][0], "sequence_lengths": lengths}
    text = printed(dataset_text.lengths_table(device))
    assert shown in text
    assert len(text.splitlines()) <= 3 + 13


def test_what_nobody_measured_is_shown_as_unknown() -> None:
    found = stats(measured=False)
    assert UNKNOWN in printed(dataset_text.tasks_table(found["devices"][0], 2))
    assert "Latency" not in Page(dataset_page(found, "none")).text.replace("A latency", "")


@pytest.mark.parametrize("devices", [1, 3])
def test_the_page_is_well_formed_and_loads_nothing(devices: int) -> None:
    found = stats(tasks=300)
    found["devices"] *= devices
    page = Page(dataset_page(found, "a.parquet"))
    assert page.open == []
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert "runtime error" in page.text
    assert "the first 200" in page.text


def test_of_very_many_tasks_some_are_drawn() -> None:
    page = Page(dataset_page(stats(tasks=2500), "a.parquet"))
    assert "one of 3 tasks" in page.text
    assert page.tags.count("circle") == 834


def test_names_are_text_on_the_page_and_in_tables() -> None:
    found = stats(HOSTILE)
    found["devices"][0]["task_list"][0]["workload"] = HOSTILE
    page = Page(dataset_page(found, HOSTILE))
    assert "script" not in page.tags
    assert "onload" not in {name for name, _ in page.attributes}
    for table in (dataset_text.devices_table, dataset_text.failures_table):
        assert "<script>" in printed(table(found))
    assert "[red]" in printed(dataset_text.primitives_table(found["devices"][0]))


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        ('["3458e75493bb4bb042e539b5ff4818fb", [128, 3072], []]', "3458e754 128x3072"),
        (
            '["conv2d_nchw.cuda", ["TENSOR", [1, 3, 8, 8], "float32"], [1, 1], null, "float32"]',
            "conv2d_nchw.cuda 1x3x8x8 1x1 float32",
        ),
        ('["dense.x86", [["TENSOR", [1, 3], "float32"], 4], {}]', "dense.x86 1x3 4"),
        ("727506180805651697", "727506180805651697"),
        ("no json", "no json"),
        ("[]", "[]"),
    ],
)
def test_workloads_in_short(workload: str, text: str) -> None:
    assert dataset_text.workload_text(workload) == text


@given(st.text() | st.recursive(st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_workload_has_a_text(workload: str) -> None:
    assert isinstance(dataset_text.workload_text(workload), str)


@given(st.dictionaries(st.integers(0, 60), st.integers(1, 10**7), max_size=9))
def test_a_histogram_has_a_bar_for_each_length(counts: dict[int, int]) -> None:
    drawn = plots.histogram(counts, "n")
    assert drawn.count("<rect") == len(counts)
    assert Page(drawn).open == []


POSITIVE = st.floats(1e-9, 1e15)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), max_size=9), st.none() | POSITIVE)
def test_marks_stay_inside_the_plot(values: list[tuple[float, float]], limit: float | None) -> None:
    points = [Point(x, y, "exact", "t") for x, y in values]
    axis = ("a", plots.format_tick)
    drawn = Page(plots.scatter(points, axis, axis, (limit, "limit") if limit else None))
    assert drawn.open == []
    places = [float(v or 0) for name, v in drawn.attributes if name in ("cx", "cy")]
    assert all(0 <= place <= 860 for place in places)


@given(st.lists(st.tuples(POSITIVE, POSITIVE).map(sorted), max_size=9))
def test_ranges_are_drawn_for_any_values(values: list[list[float]]) -> None:
    rows = [(low, high, "t") for low, high in values]
    assert Page(plots.ranges(rows, "ms", str, "n")).open == []


def test_ticks_are_short() -> None:
    assert [plots.format_tick(v) for v in (0.01, 0, 500, 20e3, 1.5e6, 1e9)] == [
        "0.01", "0", "500", "20 k", "1.5 M", "1 G",
    ]  # fmt: skip


def test_every_device_of_the_table_can_be_shown() -> None:
    assert "15.7" in printed(hardware_table(shipped_table()))
    for row in shipped_table():
        assert row.source.split(";")[0] in printed(hardware_pairs(row), 400)


def test_the_device_table_fits_a_file() -> None:
    lines = printed(hardware_table(shipped_table())).splitlines()
    assert max(map(len, lines)) <= 120
