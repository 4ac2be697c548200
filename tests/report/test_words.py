from __future__ import annotations

from typing import Any

import pytest

from tunefleet.report.units import UNKNOWN
from tunefleet.report.words import device_text, toolchain_text, verdict


@pytest.mark.parametrize(
    ("result", "good", "text"),
    [
        ({"delivered": "tuned", "verified": True}, True, "verified against the source framework"),
        ({"delivered": "tuned", "verified": False}, False, "the tuned network, not verified"),
        ({"delivered": "plain", "why_plain": "wrong answer"}, False, "found: wrong answer"),
        ({"delivered": "untuned", "verified": True}, False, "found: tuning gave nothing better"),
        ({}, False, "the tuned network, not verified"),
    ],
    ids=["verified", "not verified", "plain", "untuned", "old result"],
)
def test_only_a_verified_tuned_network_is_all_that_was_hoped_for(
    result: dict[str, Any], good: bool, text: str
) -> None:
    found, told = verdict(result)
    assert found is good
    assert told.endswith(text)


def test_the_difference_is_that_of_what_is_delivered() -> None:
    result = {"delivered": "tuned", "verified": True, "difference": {"tuned": 2e-6, "plain": 0.5}}
    assert "2" in verdict(result)[1].partition("differs by ")[2]
    assert "0.5" not in verdict(result)[1]


def test_a_device_says_what_is_known_of_it() -> None:
    assert device_text({"name": "EPYC", "cores": 1}) == "EPYC, 1 core"
    assert device_text({"name": "EPYC", "cores": 2, "memory_gib": 8}) == "EPYC, 2 cores, 8 GiB"
    assert device_text(None) == UNKNOWN


def test_a_toolchain_leaves_out_what_is_not_known() -> None:
    assert (
        toolchain_text({"tvm": "0.27.0", "measure_version": 0}) == "TVM 0.27.0, measuring rules 0"
    )
    assert toolchain_text({"other": "1"}) == UNKNOWN
