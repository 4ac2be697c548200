"""What is said of latencies that were measured in turn."""

import time

import pytest

from tunefleet.core.step import Comparison
from tunefleet.stages.measure import SOURCE, TUNED, UNTUNED, told
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
