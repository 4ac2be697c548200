from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tunefleet.core.result import RunResult, TaskResult
from tunefleet.core.roofline import Bandwidth
from tunefleet.report.task_table import roofline, tasks

from .pages import Page

CONV = TaskResult(
    name="conv2d", shapes="1x8x8x16 -> 1x8x8x16", weight=2, flops=2e6, trials=9, failed=1,
    latency_us=50.0, default_us=200.0, gflops=40.0, bytes=20_000, source="tuned", limit_share=0.4,
    network_share=0.9,
)  # fmt: skip
COPY = TaskResult(name="transpose", flops=0.0, latency_us=10.0, gflops=0.0, bytes=64)
RESULT = RunResult(
    tasks=(COPY, CONV),
    peak_gflops=100.0,
    bandwidths=(Bandwidth("L2", 2**21, 50.0), Bandwidth("memory", 0, 10.0)),
)


def rows(page: str) -> list[list[str]]:
    body = page[page.index("<tbody>") :]
    return [
        [re.sub(r"<[^>]*>", " ", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", body)
    ]


def test_a_task_shows_before_after_gain_and_distance_from_the_limit() -> None:
    first = rows(tasks(RESULT))[0]
    assert first[0].split()[0] == "conv2d"
    assert [*first[4:7], first[8]] == ["200 µs", "50.0 µs", "4.00×", "40.0 %"]  # noqa: RUF001


def test_what_is_not_known_is_a_dash() -> None:
    last = rows(tasks(RESULT))[1]
    assert (last[4], last[6], last[8]) == ("–", "–", "–")  # noqa: RUF001


def test_cells_carry_the_numbers_that_they_are_sorted_by() -> None:
    page = tasks(RESULT)
    assert 'class="sortable"' in page
    assert '<td data-value="0.0002">200 µs</td>' in page
    assert '<td class="bar" data-value="0.4">' in page


def test_the_heading_tells_how_many_tasks_were_measured() -> None:
    part = replace(RESULT, tasks=(CONV, replace(COPY, latency_us=None)))
    assert "1 of 2 tasks measured" in Page(tasks(part)).text


def test_the_roofline_has_a_point_for_each_task_that_computes_and_names_its_roofs() -> None:
    page = roofline(RESULT)
    text = Page(page).text
    assert page.count("<circle") == 1
    assert page.count('class="roof"') == 3
    assert "L2 up to 2 MiB: 50.0 GB/s; memory: 10.0 GB/s" in text
    assert "conv2d 1x8x8x16 -> 1x8x8x16: 40.0 GFLOP/s, moves 19.53 KiB, 40.0 % of its limit" in text


def test_a_point_lies_below_its_roof_by_its_distance() -> None:
    """2 MFLOP and 20 kB: 100 FLOPs a byte, so computing limits, at 100 GFLOP/s."""
    page = roofline(RESULT)
    flat = re.search(r'class="roof" d="M[\d.]+ ([\d.]+)L', page)
    height = re.search(r'<circle [^>]*cy="([\d.]+)"', page)
    assert flat is not None
    assert height is not None
    assert float(height[1]) > float(flat[1])


@pytest.mark.parametrize("missing", [{"peak_gflops": None}, {"bandwidths": ()}, {"tasks": (COPY,)}])
def test_without_limits_there_is_no_roofline(missing) -> None:
    assert roofline(replace(RESULT, **missing)) == ""


def test_names_are_escaped() -> None:
    result = replace(RESULT, tasks=(replace(CONV, name="<b>", shapes="<i>"),))
    page = tasks(result) + roofline(result)
    assert "<b>" not in page
    assert "<i>" not in page
