"""What is read from a file is shown, or refused; it never ends in a bug."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from tests.core.figures import measured
from tunefleet.core.result import SCHEMA, RunResult
from tunefleet.errors import InputError
from tunefleet.report import render_html
from tunefleet.report.result import read_result

from .results import a_result, a_run

STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    1e308,
    float("nan"),
    "",
    "\ud800",
    [],
    {},
    [[]],
    {"x": {}},
)


def test_a_result_of_an_earlier_version_is_read() -> None:
    result = read_result(a_result(), "artifact.json")
    assert result.schema == SCHEMA
    assert [each.name for each in result.baselines] == ["PyTorch", "untuned TVM"]
    assert read_result({}, "artifact.json") == RunResult()


def test_a_ratio_of_an_earlier_version_that_was_disturbed_is_left_out() -> None:
    result = read_result(a_result() | {"disturbed": 0.91}, "artifact.json")
    assert [result.speedup, *(each.speedup for each in result.baselines)] == [None, None, None]
    assert result.why_no_speedup == "other programs took 91 % of the cores"


def test_a_target_of_an_earlier_version_is_an_agreement() -> None:
    written = RunResult(trials=4).measured_again([measured(5.0)]).to_dict()
    written |= {"target_latency": {"target_ms": 4.0, "met": False, "missed_by": 0.25}}
    agreement = read_result(written, "x").agreement
    assert agreement is not None
    assert agreement.text == "not met: best so far 5 ms, at most 4 ms agreed"


def test_shares_of_a_part_of_the_tasks_are_left_out() -> None:
    value = a_result(tasks=2)
    value["tasks"][1] |= {"latency_us": None, "network_share": 0.0}
    value["tasks"][0]["network_share"] = 1.0
    tasks = read_result(value, "artifact.json").tasks
    assert [task.network_share for task in tasks] == [None, None]


def test_a_result_is_read_as_it_was_written() -> None:
    result = a_run()
    assert read_result(json.loads(json.dumps(result.to_dict())), "artifact.json") == result


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trials", "many"),
        ("threads", -2),
        ("tasks", [{"name": 3}]),
        ("tuned_ms", {"median": 1.0}),
        ("tuned_ms", {"median": float("inf"), "low": 1.0, "high": 2.0}),
        ("network", "resnet"),
        ("wall", {"tune": []}),
    ],
)
def test_what_cannot_be_shown_is_refused(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=r"artifact.json is damaged: its result cannot be shown"):
        read_result(a_result() | {key: value}, "artifact.json")


def test_what_is_accepted_can_be_shown() -> None:
    generator, shown = random.Random(0), 0
    for _ in range(600):
        result = copy.deepcopy(a_result(tasks=2, rounds=3))
        places = list(_places(result))
        for holder, key in generator.sample(places, generator.choice((1, 2))):
            holder[key] = generator.choice(STRANGE)
        try:
            shown_result = read_result(result, "artifact.json")
        except InputError:
            continue
        assert render_html(shown_result)
        shown += 1
    assert shown > 10


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found
