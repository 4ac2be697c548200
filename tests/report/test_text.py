from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from tests.core.figures import measured
from tunefleet.core.agreement import Agreed, judge
from tunefleet.core.result import RunResult
from tunefleet.report import text
from tunefleet.report.result import read_result

from .results import a_result, a_run


def printed(renderable: RenderableType, width: int = 100, *, markup: bool = True) -> str:
    file = io.StringIO()
    Console(file=file, width=width, markup=markup).print(renderable)
    return file.getvalue()


def test_the_summary_tells_the_speedup_and_what_is_delivered(result: RunResult) -> None:
    shown = printed(text.summary_table(result))
    assert "14.9" in shown
    assert "verified against the source framework" in shown
    assert "15 failed (build error 11, run timeout 3, wrong answer 1)" in shown


@pytest.mark.parametrize("key", sorted(a_result()))
def test_tables_tolerate_missing_parts(key: str) -> None:
    value = a_result(3, 12)
    del value[key]
    result = read_result(value, "artifact.json")
    for table in (text.summary_table, text.tasks_table, text.wall_table):
        printed(table(result))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_their_width(result: RunResult, width: int) -> None:
    for table in (text.summary_table, text.tasks_table, text.wall_table):
        assert width >= max(map(len, printed(table(result), width).splitlines()))


def test_a_program_by_a_tensor_instruction_names_it(result: RunResult) -> None:
    assert "vnni.16x4" in printed(text.tasks_table(result), 200)


def test_tasks_beyond_the_limit_are_counted() -> None:
    shown = printed(text.tasks_table(a_run(30), limit=20))
    assert "and 10 more tasks" in shown


def test_markup_in_names_is_text(result: RunResult) -> None:
    network = replace(result.network, name="[red]a[/red]")
    result = replace(result, network=network, tasks=(replace(result.tasks[0], name="[b]c"),))
    assert "[red]a[/red]" in printed(text.summary_table(result))
    assert "[b]c" in printed(text.tasks_table(result))


def test_a_listing_sums_shares_up() -> None:
    tasks = [
        {"name": n, "shapes": "1x1", "weight": 1, "flops": 1e6, "share": 0.5} for n in ("a", "b")
    ]
    listing = {"network": "n[1]", "target": "llvm", "tasks": tasks}
    assert "100.0 %" in printed(text.listing_table(listing))


@pytest.mark.parametrize("markup", [False, True])
def test_a_title_is_shown_as_it_is(markup: bool) -> None:
    listing = {"network": "n[1]", "target": "llvm"}
    assert printed(text.listing_table(listing), markup=markup).startswith("n[1] on llvm")


def test_checks_show_advice() -> None:
    checks = [{"name": "cpu", "ok": False, "severity": "warning", "value": "1", "advice": "more"}]
    assert "more" in printed(text.checks_table({"checks": checks}))


def test_what_became_of_agreements_is_in_the_tables() -> None:
    judged = judge(Agreed(latency_ms=4.0), [measured(5.0)], trials=8)
    missed = replace(a_run(), agreement=judged)
    assert "not met: best so far 5 ms, at most 4 ms agreed" in printed(text.summary_table(missed))
    several = text.networks_table(["a", "b", "c"], [missed, a_run(), "error"])
    assert "agreed" in printed(several)
    assert "not met" in printed(several)
    assert "agreed" not in printed(text.networks_table(["b"], [a_run()]))
