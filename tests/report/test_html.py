from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.result import CurvePoint, RunResult, TaskResult
from tunefleet.report import render_html
from tunefleet.report.result import read_result

from .pages import Page
from .results import a_result, a_run

HOSTILE = "<script>alert('x')</script>\" onload=\"y"


@pytest.mark.parametrize("tasks", [1, 60])
def test_the_page_is_well_formed(tasks: int) -> None:
    page = Page(render_html(a_run(tasks)))
    assert page.open == []


def test_nothing_is_loaded_and_nothing_runs(result: RunResult) -> None:
    page = Page(render_html(result))
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in page.attributes}
    assert "url(" not in render_html(result)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_every_task_is_listed_with_its_shapes() -> None:
    result = a_run(60)
    text = Page(render_html(result)).text
    assert all(task.shapes in text for task in result.tasks)


def _poison(value: Any) -> Any:
    """Every text of a result replaced by a hostile one, keys of free-form parts too."""
    if isinstance(value, dict):
        return {k: _poison(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_poison(v) for v in value]
    return HOSTILE if isinstance(value, str) else value


def test_hostile_names_are_escaped() -> None:
    hostile = _poison(a_result())
    hostile["failures"] = {HOSTILE: 3}
    hostile["wall"][HOSTILE] = 4.0
    page = Page(render_html(read_result(hostile, "artifact.json")))
    assert page.open == []
    assert "script" not in page.tags
    assert "onload" not in {name for name, _ in page.attributes}
    assert HOSTILE in page.text


@pytest.mark.parametrize("key", sorted(a_result()))
@pytest.mark.parametrize("how", ["missing", "none"])
def test_any_part_may_be_missing(key: str, how: str) -> None:
    result = a_result(3, 12)
    if how == "missing":
        del result[key]
    else:
        result[key] = None
    assert Page(render_html(read_result(result, "artifact.json"))).open == []


def test_parts_of_a_task_may_be_missing(result: RunResult) -> None:
    assert "conv2d" in render_html(replace(result, tasks=(TaskResult(name="conv2d"),)))


def test_an_empty_result_renders() -> None:
    assert "not compiled" in render_html(RunResult())


def test_the_headline_tells_latencies_and_speedup(result: RunResult) -> None:
    text = Page(render_html(result)).text
    assert "61.3 ms (59.5 to 63.1)" in text
    assert "1.21×" in text  # noqa: RUF001 (the sign of multiplication is what the page shows)
    assert "verified against the source framework" in text


def test_a_plain_delivery_is_not_praised(result: RunResult) -> None:
    why = "the tuned module differs from the source framework by 2.0e-01"
    page = render_html(replace(result, delivered="plain", why_plain=why))
    assert f"without what the search found: {why}" in page
    assert "badge good" not in page


def test_the_curve_starts_where_every_task_is_measured(result: RunResult) -> None:
    page = render_html(result)
    assert 'class="wait"' in page
    assert re.search(r'class="line" d="M[\d.]+ [\d.]+H', page)


def test_a_curve_without_an_estimate_is_left_out(result: RunResult) -> None:
    curve = (CurvePoint(trials=16, wall_s=3.0),)
    assert "Tuning curve" not in render_html(replace(result, curve=curve))


@pytest.mark.parametrize("points", [1, 2, 2000])
def test_curves_of_any_length(result: RunResult, points: int) -> None:
    curve = (
        CurvePoint(trials=i + 1, wall_s=float(i), latency_ms=9.0 - i / 500) for i in range(points)
    )
    page = render_html(replace(result, curve=tuple(curve)))
    assert page.count("<circle") <= 160
