"""The drawing: well-formed, complete, legible when full, and blind to hostile names."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tunefleet.report import Bar, Gap, Timeline, gantt_page, gantt_png, gantt_svg

from .pages import Page

HOSTILE = (
    "<script>alert('x')</script>\" onload=\"y $\\frac$ \x00\x1b \N{CJK UNIFIED IDEOGRAPH-4E2D}"
)


def timeline(resources: int = 2, each: int = 8, jobs: int = 3) -> Timeline:
    stages = ("select", "build", "profile", "update")
    bars = [
        Bar(f"r{r}", f"job{i % jobs}", stages[i % 4], f"t{i}", 10.0 * i, 10.0 * i + 8, 1, 2.0)
        for r in range(resources)
        for i in range(each)
    ]
    return Timeline(tuple(bars), tuple(f"r{r}" for r in range(resources)))


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_png_is_1200_pixels_wide_times_its_scale() -> None:
    png = gantt_png(timeline(), "A title", scale=1.0)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20], "big") == 1200


def test_the_drawing_names_resources_jobs_stages_and_utilisation() -> None:
    found = texts(gantt_svg(timeline(), "A title"))
    assert {"A title", "r0", "r1", "job0", "job1", "job2", "S  select", "U  update"} <= set(found)
    assert found.count("82%") == 2


def test_the_same_timeline_gives_the_same_drawing() -> None:
    assert gantt_svg(timeline(), "t") == gantt_svg(timeline(), "t")
    assert gantt_png(timeline(), "t") == gantt_png(timeline(), "t")


def test_a_bar_is_labelled_as_far_as_there_is_room() -> None:
    wide, narrow = texts(gantt_svg(timeline(each=4), "")), texts(gantt_svg(timeline(each=60), ""))
    assert "job0 select" in wide
    assert "job0 select" not in narrow
    assert "S" in narrow


@pytest.mark.slow
@pytest.mark.parametrize(("resources", "each", "jobs"), [(2, 2000, 4), (16, 1250, 32)])
def test_full_rows_become_shares_of_time(resources: int, each: int, jobs: int) -> None:
    svg = gantt_svg(timeline(resources, each, jobs), "full")
    assert any(text.startswith("heights: share of each") for text in texts(svg))
    assert len(svg) < 3_000_000


def test_rows_with_room_keep_their_bars_beside_full_ones() -> None:
    both = Timeline((*timeline(1, 2000).bars, Bar("other", "job0", "profile", "t", 0, 9000)))
    assert "job0 profile" in texts(gantt_svg(both, ""))


def test_the_legend_explains_every_letter_that_stands_in_a_bar() -> None:
    steps = ("import", "check", "build finalists", "publish", "something new")
    bars = [Bar("r", "job0", step, "", 4.0 * i, 4.0 * i + 4) for i, step in enumerate(steps)]
    found = set(texts(gantt_svg(Timeline((*bars, Bar("r", "job0", "build", "t", 20, 99))), "")))
    letters = {"imp", "fin", "pub", "S"}  # "check" has room for its name
    assert letters <= found
    explained = {text.split()[0] for text in found if "  " in text}
    assert explained == {*letters, "chk", "B"}
    assert "steps" not in found


def colours(svg: str) -> set[str]:
    return {c for c in re.findall(r"fill: (#[0-9a-f]{6})", svg) if c not in ("#ffffff", "#ededeb")}


def test_one_job_has_a_colour_for_each_kind_of_stage_and_several_one_each() -> None:
    assert {"#0072b2", "#e69f00", "#009e73", "#cc79a7"} <= colours(gantt_svg(timeline(jobs=1), ""))
    alone = Timeline(tuple(Bar("r", job, "build", "t", 0, 9) for job in ("a", "b")))
    assert {"#0072b2", "#e69f00"} <= colours(gantt_svg(alone, ""))


def test_many_jobs_share_colours_in_groups_that_are_named() -> None:
    found = texts(gantt_svg(timeline(each=64, jobs=32), ""))
    assert "job0 to job3" in found


def test_attempts_and_unavailable_times_are_explained_only_where_there_are_any() -> None:
    plain = timeline()
    odd = Timeline((*plain.bars, Bar("r0", "job0", "build", "t", 90, 95, attempt=2)),
                   gaps=(Gap("r1", 85, 95),))  # fmt: skip
    assert {"attempt after the first", "unavailable"} <= set(texts(gantt_svg(odd, "")))
    assert not {"attempt after the first", "unavailable"} & set(texts(gantt_svg(plain, "")))


@pytest.mark.parametrize("empty", [Timeline(()), Timeline((), ("r",))])
def test_nothing_is_drawn_of_nothing(empty: Timeline) -> None:
    assert gantt_png(empty, "empty")
    assert Page(gantt_page(empty, "empty")).open == []


def hostile() -> Timeline:
    bars = (Bar(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0, 9), Bar("r", "j", "s", "t", 0, 9))
    return Timeline(bars, gaps=(Gap("r", 9, 10, HOSTILE),))


def test_hostile_names_stay_text() -> None:
    assert any("script" in text for text in texts(gantt_svg(hostile(), HOSTILE)))
    page = Page(gantt_page(hostile(), HOSTILE, HOSTILE, [(HOSTILE, HOSTILE)]))
    assert page.open == []
    assert "script" not in page.tags
    assert "onload" not in {name for name, _ in page.attributes}


def test_the_page_loads_and_runs_nothing() -> None:
    page = gantt_page(timeline(), "t")
    read = Page(page)
    assert not {"script", "img", "image", "link", "iframe", "object"} & set(read.tags)
    targets = [v for name, v in read.attributes if name in ("src", "href", "xlink:href")]
    assert all(value and value.startswith("#") for value in targets)
    assert all(inner.startswith("#") for inner in re.findall(r"url\(([^)]*)", page))
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in read.attributes


def test_the_page_tells_the_figures_of_resources_and_jobs() -> None:
    text = Page(gantt_page(timeline(), "t", "simulated", [("makespan", "78 s")])).text
    assert "makespan78 s" in text
    assert "r0" + "8" + "1 min 04 s" + "82.1 %" in text
    # job0: rounds 0, 3 and 6 of both resources
    assert "job0" + "3" + "6" + "48.0 s" + "2.0 s" + "2.0 s" + "0 s" + "1 min 08 s" in text


@pytest.mark.slow
def test_drawing_needs_no_display_and_leaves_pyplot_alone() -> None:
    code = ("import sys; from tunefleet.report import Timeline, gantt_png; "
            "assert 'matplotlib' not in sys.modules; gantt_png(Timeline(()), ''); "
            "sys.exit('matplotlib.pyplot' in sys.modules)")  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
