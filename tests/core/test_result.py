"""What a result says of its measurements: quiet, disturbed, too small, a target missed."""

from __future__ import annotations

import pytest
from tests.core.figures import BUSY, measured

from tunefleet.core.result import MeasuredShape, RunResult, TargetOutcome, judged_target
from tunefleet.core.statistics import Interval


@pytest.mark.parametrize(
    ("shapes", "outcome"),
    [
        ([measured(3.9)], TargetOutcome(target_ms=4.0, met=True)),
        ([measured(5.0)], TargetOutcome(target_ms=4.0, met=False, missed_by=0.25)),
        ([measured(3.0), measured(5.0)], TargetOutcome(target_ms=4.0, met=False, missed_by=0.25)),
        ([measured(3.0, BUSY)], TargetOutcome(target_ms=4.0, why_not_judged=BUSY)),
        ([], TargetOutcome(target_ms=4.0, why_not_judged="not measured end to end")),
    ],
    ids=["met", "missed", "the slowest shape misses", "disturbed", "not measured"],
)
def test_a_target_is_judged_on_what_is_delivered(
    shapes: list[MeasuredShape], outcome: TargetOutcome
) -> None:
    assert judged_target(4.0, shapes) == outcome


def test_figures_that_were_disturbed_are_filled_in_by_a_later_measurement() -> None:
    busy = RunResult(
        run="a", target_latency=judged_target(4.0, [measured(9.0, BUSY)])
    ).measured_again([measured(9.0, BUSY)])
    assert busy.lacks_figures
    quiet = busy.measured_again([measured(3.0)])
    assert quiet.speedup == Interval(2.0, 1.95, 2.05)
    assert quiet.why_no_speedup is None
    assert quiet.target_latency == TargetOutcome(target_ms=4.0, met=True)
    assert not quiet.lacks_figures


def test_the_json_has_null_and_the_reason() -> None:
    value = RunResult().measured_again([measured(9.0, BUSY)]).to_dict()
    assert (value["speedup"], value["why_no_speedup"]) == (None, BUSY)
    (source,) = value["baselines"]
    assert (source["speedup"], source["why_no_speedup"]) == (None, BUSY)
