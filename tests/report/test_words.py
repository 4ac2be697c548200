from __future__ import annotations

from dataclasses import replace
from html import escape

import pytest

from tests.core.figures import BUSY, measured
from tunefleet.core.agreement import Agreed, judge
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.job import NOTHING_LEFT, NOTHING_TO_TUNE
from tunefleet.core.network import SegmentCopies
from tunefleet.core.result import (
    Baseline,
    CurvePoint,
    Differences,
    Outside,
    OutsideSegment,
    RunResult,
    TaskResult,
    to_json,
)
from tunefleet.core.statistics import Interval
from tunefleet.report import render_html
from tunefleet.report.result import read_result
from tunefleet.report.units import TIMES, UNKNOWN
from tunefleet.report.words import (
    agreement_text,
    device_text,
    figure_lines,
    outside_lines,
    ratio_text,
    slower_text,
    toolchain_text,
    verdict,
)


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


def test_copies_between_gpu_and_cpu_are_shown_where_there_are_any() -> None:
    segment = OutsideSegment(nodes=("NonZero y",), reason="its size depends on the data")
    on_cpu = Outside(framework="ONNX Runtime", segments=(segment,))
    assert len(outside_lines(to_json(on_cpu))) == 2
    copies = SegmentCopies(to_cpu=1, to_cpu_bytes=1536, to_gpu=2, to_gpu_bytes=None)
    assert outside_lines(to_json(replace(on_cpu, copies=copies)))[1] == (
        "  each call copies 1 tensor (1.5 KiB) to the CPU and "
        "2 tensors (a size that depends on values) to the GPU"
    )


def test_a_result_of_before_copies_were_counted_is_read() -> None:
    outside = {"framework": "PyTorch", "segments": [], "share_of_flops": 0.1}
    result = read_result({"outside": outside}, "old")
    assert result.outside == Outside(framework="PyTorch", segments=(), share_of_flops=0.1)


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


def test_a_network_without_tasks_ends_with_that_word_and_advice() -> None:
    difference = Differences(plain=1e-6, tuned=1e-6)
    slow = Baseline(
        name="ONNX Runtime",
        kind="source",
        latency_ms=Interval(1.0, 0.9, 1.1),
        speedup=Interval(0.2, 0.19, 0.21),
    )
    result = RunResult(
        delivered="plain",
        why_plain=NOTHING_TO_TUNE,
        verified=True,
        difference=difference,
        baselines=(slow,),
    )
    assert verdict(result)[1].endswith("nothing of this network can be tuned")
    assert slower_text(result) == (
        "slower than ONNX Runtime: 5.00 times its latency; "
        "nothing of this network can be tuned: run it in ONNX Runtime"
    )


def test_where_nothing_is_left_a_larger_budget_is_no_advice() -> None:
    slow = Baseline(
        name="PyTorch",
        kind="source",
        latency_ms=Interval(1.0, 0.9, 1.1),
        speedup=Interval(0.5, 0.49, 0.51),
    )
    result = RunResult(baselines=(slow,), stopped=NOTHING_LEFT)
    assert slower_text(result).endswith("every program was tried: run it in PyTorch")


def test_a_part_that_was_tuned_is_counted() -> None:
    tasks = (TaskResult(trials=4), TaskResult())
    result = RunResult(delivered="tuned", verified=True, tasks=tasks, tuned_tasks=1)
    good, text = verdict(result)
    assert not good
    assert text.startswith("the tuned network (1 of 2 tasks tuned), verified")


def test_an_agreement_that_was_not_judged_says_how_it_is() -> None:
    met = judge(Agreed(latency_ms=4.0), [measured(3.9)])
    busy = judge(Agreed(latency_ms=4.0), [measured(3.9, BUSY)])
    assert met is not None
    assert busy is not None
    assert met.text == agreement_text(met, "a" * 32)
    told = agreement_text(busy, "a" * 32)
    assert f"{busy.text}; `tunefleet evaluate aaaaaaaa` judges it" == told


def test_each_latency_is_explained_in_a_line() -> None:
    result = RunResult(
        tuned_ms=Interval(4.0, 3.9, 4.1),
        kernels_ms=3.8,
        tasks=(TaskResult(latency_us=1500.0, weight=2),),
        curve=(CurvePoint(trials=4, wall_s=1.0, latency_ms=2.9),),
    )
    lines = figure_lines(result)
    assert [(name, figure) for name, figure, _ in lines] == [
        ("latency", "4.00 ms"),
        ("kernels", "3.80 ms"),
        ("tasks", "3.00 ms"),
        ("curve", "2.90 ms"),
    ]
    page = render_html(result)
    assert all(escape(what) in page for _, _, what in lines)


def test_a_device_says_what_is_known_of_it() -> None:
    device = DeviceIdentity("cpu", "EPYC", (), 1, (), 0)
    assert device_text(device) == "EPYC, 1 core"
    assert device_text(DeviceIdentity("cpu", "EPYC", (), 2, (), 8)) == "EPYC, 2 cores, 8 GiB"
    assert device_text(None) == UNKNOWN


def test_a_toolchain_leaves_out_what_is_not_known() -> None:
    assert toolchain_text(ToolchainIdentity("", "0.27.0", "", 0)) == "TVM 0.27.0, measuring rules 0"


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [
        (Interval(2.0, 1.9, 2.1), f"2.00{TIMES} (1.90 to 2.10) faster"),
        (Interval(0.5, 0.4, 0.8), f"2.00{TIMES} (1.25 to 2.50) slower"),
    ],
)
def test_a_ratio_says_faster_or_slower(speedup: Interval, expected: str) -> None:
    assert expected == ratio_text(speedup, None, "")
