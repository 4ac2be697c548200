"""What is said of latencies that were measured in turn."""

import os
import time

import pytest

from tunefleet.core.step import Comparison
from tunefleet.stages.measure import SOURCE, TUNED, UNTUNED, told
from tunefleet.workers import disturbance
from tunefleet.workers.disturbance import watched

pytestmark = pytest.mark.tvm


def _comparison(source: float, tuned: float, disturbed: float = 0.0) -> Comparison:
    return Comparison({SOURCE: (source,) * 9, UNTUNED: (1.0,) * 9, TUNED: (tuned,) * 9}, disturbed)


def test_the_headline_is_the_gain_over_the_source_framework():
    value = told(_comparison(0.02, 0.01), "ONNX Runtime", ["x: float32[1]"])
    assert value["speedup"]["median"] == 2.0
    assert [b["name"] for b in value["baselines"]] == ["ONNX Runtime", "untuned TVM"]
    assert value["warnings"] == []


def test_a_slower_module_is_said_to_be_slower():
    (warning,) = told(_comparison(0.01, 0.02), "PyTorch", [])["warnings"]
    assert warning.startswith("this module takes 2.00 times as long as PyTorch")


def test_a_disturbed_measurement_is_warned_of():
    (warning,) = told(_comparison(0.02, 0.01, disturbed=0.4), "PyTorch", [])["warnings"]
    assert warning.startswith("other processes or a container's limit took 40% of the cores")


def test_without_a_source_framework_the_gain_is_over_untuned_tvm():
    comparison = Comparison({UNTUNED: (1.0,) * 9, TUNED: (0.25,) * 9}, 0.0)
    assert told(comparison, "", [])["speedup"]["median"] == 4.0


def test_what_this_process_does_is_no_disturbance():
    with watched() as watch:
        end = time.perf_counter() + 0.2
        while time.perf_counter() < end:
            pass
    assert 0.0 <= watch.share <= 1.0


def test_time_that_a_container_withheld_is_a_share_of_all_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(disturbance, "_busy_s", lambda cores: 0.0)
    monkeypatch.setattr(disturbance, "_own_s", lambda: 0.0)
    monkeypatch.setattr(time, "monotonic", iter([0.0, 10.0]).__next__)
    monkeypatch.setattr(disturbance, "throttled_s", iter([3.0, 8.0]).__next__)
    with watched() as watch:
        pass
    assert watch.share == 0.25
