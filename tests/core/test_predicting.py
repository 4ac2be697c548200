from __future__ import annotations

import pytest

from tunefleet.core.predicting import Timed, Workload, predicted_s, typical_error


def timed(operator: str, flops: float, numbers: float, seconds: float) -> Timed:
    return Timed(Workload(operator, flops, numbers), seconds)


def test_what_nothing_was_measured_for_is_not_predicted() -> None:
    assert predicted_s(Workload("conv2d", 1e6, 1e3), []) is None
    assert typical_error([timed("conv2d", 1e6, 1e3, 1.0)]) is None


def test_time_grows_with_what_grows_more() -> None:
    known = [timed("conv2d", 1e6, 1e4, 1e-3)]
    assert predicted_s(Workload("conv2d", 4e6, 2e4), known) == pytest.approx(4e-3)
    assert predicted_s(Workload("conv2d", 2e6, 5e4), known) == pytest.approx(5e-3)


def test_the_same_operator_is_asked_first() -> None:
    known = [timed("matmul", 1e6, 1e4, 9.0), timed("conv2d", 2e6, 1e4, 2e-3)]
    assert predicted_s(Workload("conv2d", 1e6, 1e4), known) == pytest.approx(1e-3)
    assert predicted_s(Workload("mean", 1e6, 1e4), known[:1]) == pytest.approx(9.0)


def test_tasks_without_operations_are_told_by_what_they_move() -> None:
    known = [timed("transpose", 0, 1e3, 1e-6)]
    assert predicted_s(Workload("transpose", 0, 1e4), known) == pytest.approx(1e-5)


def test_the_error_is_what_leaving_each_out_gives() -> None:
    known = [timed("conv2d", 1e6, 1e4, 1e-3), timed("conv2d", 2e6, 1e4, 4e-3)]
    assert typical_error(known) == pytest.approx(2.0)
