from __future__ import annotations

import re

import pytest

from tunefleet.report.bars import PageBar, bars

from .pages import Page


def widths(page: str) -> list[float]:
    return [float(width) for width in re.findall(r'class="bar [^"]*" style="width:([\d.]+)%', page)]


def bar(name: str, value: float, spread: float = 0.02, main: bool = True) -> PageBar:
    low, high = value * (1 - spread), value * (1 + spread)
    return PageBar(name, name, value, f"{value} ms", low, high, main)


def test_main_bars_can_be_compared_beside_one_fifty_times_as_long() -> None:
    page = bars([bar("source", 2.0), bar("untuned", 100.0, main=False), bar("tuned", 1.0)])
    source, untuned, tuned = widths(page)
    assert source == pytest.approx(2 * tuned, rel=1e-3)
    assert tuned > 30
    assert untuned == 100
    assert "100.0 ms, bar cut" in Page(page).text
    assert page.count('class="cut"') == 1


def test_a_bar_that_is_not_much_longer_is_drawn_whole() -> None:
    page = bars([bar("source", 2.0), bar("untuned", 4.0, main=False), bar("tuned", 1.0)])
    assert "cut" not in page
    assert widths(page) == [50, 100, 25]


def test_a_wide_interval_does_not_hide_the_bars() -> None:
    page = bars([bar("source", 2.0, spread=0.9), PageBar("tuned", "tuned", 1.0, "", 0.9, 400.0)])
    assert min(widths(page)) > 30
    assert page.count('class="whisker open"') == 2


def test_every_name_is_written_whole_and_escaped() -> None:
    name = "a framework with a <long> name that nobody shortens"
    page = bars([bar(name, 1.0)])
    assert name in Page(page).text
    assert "<long>" not in page


def test_alone_the_baseline_is_what_matters() -> None:
    assert widths(bars([bar("untuned", 5.0, main=False)]))[0] > 60


def test_nothing_is_drawn_of_nothing() -> None:
    assert bars([]) == ""
    assert bars([PageBar("tuned", "tuned", 0.0, "0 ms")]) == ""
