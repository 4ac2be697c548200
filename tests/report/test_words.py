from __future__ import annotations

import pytest

from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.result import Baseline, Differences, RunResult
from tunefleet.core.statistics import Interval
from tunefleet.report.units import UNKNOWN
from tunefleet.report.words import device_text, ratio_text, slower_text, toolchain_text, verdict


@pytest.mark.parametrize(
    ("result", "good", "text"),
    [
        (RunResult(delivered="tuned", verified=True), True, "against the source framework"),
        (RunResult(delivered="tuned"), False, "the tuned network, not verified"),
        (RunResult(delivered="plain", why_plain="wrong answer"), False, "found: wrong answer"),
        (RunResult(delivered="plain"), False, "found: tuning gave nothing better"),
    ],
    ids=["verified", "not verified", "plain", "no reason"],
)
def test_only_a_verified_tuned_network_is_all_that_was_hoped_for(
    result: RunResult, good: bool, text: str
) -> None:
    found, told = verdict(result)
    assert found is good
    assert told.endswith(text)


def test_the_difference_is_that_of_what_is_delivered() -> None:
    difference = Differences(tuned=2e-6, plain=0.5)
    text = verdict(RunResult(delivered="tuned", verified=True, difference=difference))[1]
    assert "2" in text.partition("differs by ")[2]
    assert "0.5" not in text


def test_a_missing_ratio_comes_with_the_command_that_measures_it() -> None:
    text = ratio_text(None, "other programs took 91 % of the cores", "0123456789abcdef")
    assert text == (
        "not measurable now: other programs took 91 % of the cores; "
        "`tunefleet evaluate 01234567` measures again"
    )


def test_a_module_that_is_slower_than_its_framework_is_said_to_be() -> None:
    latency = Interval(10.0, 9.9, 10.1)
    source = Baseline(
        name="PyTorch", kind="source", latency_ms=latency, speedup=Interval(0.5, 0.48, 0.52)
    )
    text = slower_text(RunResult(baselines=(source,)))
    assert text.startswith("slower than PyTorch: 2.00 times its latency; ")


def test_a_device_says_what_is_known_of_it() -> None:
    device = DeviceIdentity("cpu", "EPYC", (), 1, (), 0)
    assert device_text(device) == "EPYC, 1 core"
    assert device_text(DeviceIdentity("cpu", "EPYC", (), 2, (), 8)) == "EPYC, 2 cores, 8 GiB"
    assert device_text(None) == UNKNOWN


def test_a_toolchain_leaves_out_what_is_not_known() -> None:
    assert toolchain_text(ToolchainIdentity("", "0.27.0", "", 0)) == "TVM 0.27.0, measuring rules 0"
