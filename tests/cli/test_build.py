"""`tunefleet build`: what it asks for, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.result import TaskResult
from tunefleet.errors import InputError

from .conftest import RESULT, Invoke

KNOWN = replace(
    RESULT,
    known_share=0.75,
    tasks=(TaskResult(name="conv2d", source="reused"), TaskResult(name="add", source="default")),
)


@pytest.fixture
def asked(modules: Callable[..., None]) -> dict[str, Any]:
    """What the one call is asked for."""
    given: dict[str, Any] = {}

    def build(network: str, **request: Any) -> Any:
        given.update(request, network=network)
        if request["from_job"] == "000000":
            raise InputError("no run 000000")
        return KNOWN

    modules("tunefleet.runs.context", BenchmarkContext=lambda *given, **named: (given, named))
    modules("tunefleet.runs.known", build=build)
    return given


def test_the_share_that_is_known_is_printed(invoke: Invoke, asked: dict[str, Any]) -> None:
    shown = invoke("build", "zoo:tiny_cnn", "--from", "3f2a81", "--measure", "--threads", "2")
    assert shown.code == 0
    assert "75.0 % of the latency: 1 of 2 tasks has a verified program" in shown.out
    assert tuple(asked[name] for name in ("network", "from_job", "measure")) == (
        "zoo:tiny_cnn",
        "3f2a81",
        True,
    )
    assert (asked["context"][0], asked["context"][1]["threads"]) == (("native",), 2)


def test_its_json_has_the_share(invoke: Invoke, asked: dict[str, Any]) -> None:
    shown = invoke("build", "zoo:tiny_cnn", "--json", "-")
    assert json.loads(shown.out)["known_share"] == 0.75


def test_an_error_ends_it(invoke: Invoke, asked: dict[str, Any]) -> None:
    shown = invoke("build", "zoo:tiny_cnn", "--from", "000000")
    assert shown.code == 2
    assert shown.err.splitlines()[-1] == "error: no run 000000"
