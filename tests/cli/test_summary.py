from __future__ import annotations

from typing import Any

import pytest

from tests.report.results import a_run
from tunefleet.cli.summary import show_several
from tunefleet.core.result import RunResult

ERROR = "the network differs from\nits source framework"


def printed(
    capsys: pytest.CaptureFixture[str], outcomes: list[Any], shares: dict[str, float]
) -> list[str]:
    names = [f"zoo:net{index}" for index in range(len(outcomes))]
    show_several(names, outcomes, wall_s=723.0, shares=shares)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_each_network_has_a_row_and_a_path_or_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    result = a_run(3, 12)
    lines = printed(capsys, [result, ERROR], {"host": 0.431, "device": 0.912})
    row = next(line for line in lines if line.startswith("net0"))
    for cell in ("4.99 ms", "4.12 ms", "1.21\N{MULTIPLICATION SIGN} (1.18 to 1.24)", "192"):
        assert cell in row
    assert f"net0  {result.artifact}" in lines
    assert "net1  failed: the network differs from its source framework" in lines
    assert lines[-2:] == [
        "wall time          12 min 03 s",
        "used while tuning  host 43%, device 91%",
    ]


def test_every_part_of_a_result_may_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, [RunResult(), ERROR], {})
    assert "net0  not saved" in lines
    assert "wall time  12 min 03 s" in lines
