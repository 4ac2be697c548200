"""What is said of latencies that were measured in turn."""

import os
import time

import pytest

from tunefleet.core.statistics import Interval
from tunefleet.core.step import Comparison
from tunefleet.stages.measure import SOURCE, TUNED, UNTUNED, figures_of
from tunefleet.workers import disturbance
from tunefleet.workers.disturbance import watched

pytestmark = pytest.mark.tvm


def _comparison(source: float, tuned: float, disturbed: float = 0.0) -> Comparison:
    return Comparison({SOURCE: (source,) * 9, UNTUNED: (1.0,) * 9, TUNED: (tuned,) * 9}, disturbed)


def test_the_headline_is_the_gain_over_the_source_framework():
    shape = figures_of(_comparison(0.02, 0.01), "ONNX Runtime", ["x: float32[1]"])
    assert shape.speedup == Interval(2.0, 2.0, 2.0)
    assert [b.name for b in shape.baselines] == ["ONNX Runtime", "untuned"]


def test_a_disturbed_measurement_has_no_ratio():
    shape = figures_of(_comparison(0.02, 0.01, disturbed=0.91), "PyTorch", [])
    assert shape.tuned_ms == Interval(10.0, 10.0, 10.0)
    assert [shape.speedup, *(b.speedup for b in shape.baselines)] == [None, None, None]
    assert shape.why_no_speedup == "other programs took 91 % of the cores"


def test_without_a_source_framework_the_gain_is_over_plain_schedules():
    shape = figures_of(Comparison({UNTUNED: (1.0,) * 9, TUNED: (0.25,) * 9}, 0.0), "", [])
    assert shape.speedup == Interval(4.0, 4.0, 4.0)


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
