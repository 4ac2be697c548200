from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
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


def test_nothing_is_loaded_and_only_our_script_runs(result: RunResult) -> None:
    text = render_html(result)
    page = Page(text)
    assert not {"img", "link", "iframe", "object"} & set(page.tags)
    assert not {"src", "onload", "onclick"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    [script] = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert ("content", policy) in page.attributes


def test_a_page_without_a_table_has_no_script(result: RunResult) -> None:
    page = Page(render_html(replace(result, tasks=())))
    assert "script" not in page.tags
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
    assert page.tags.count("script") == 1
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
    assert page.count('class="dot"') <= 150 + 2


def test_source_and_tuned_are_compared_although_untuned_tvm_is_twelve_times_as_long(
    result: RunResult,
) -> None:
    page = render_html(result)
    found = dict(re.findall(r'class="bar (\w+)" style="width:([\d.]+)%', page))
    assert float(found["source"]) == pytest.approx(4.99 / 4.12 * float(found["tuned"]), rel=1e-3)
    assert float(found["tuned"]) > 50
    assert "61.3 ms (59.5 to 63.1), bar cut" in Page(page).text


def test_each_stage_of_the_time_has_a_bar_and_needs_no_colour(result: RunResult) -> None:
    page = render_html(result)
    assert page.count('class="bar wall"') == len(result.wall)
    assert "build candidates" in Page(page).text


def test_the_report_links_to_the_timeline_beside_it_where_there_is_one(result: RunResult) -> None:
    linked = replace(result, timeline="javascript:alert(1)//timeline.html")
    assert ("href", "timeline.html") in Page(render_html(linked)).attributes
    assert "javascript" not in render_html(linked)
    assert "<a " not in render_html(result)
