"""What a result says of its measurements: quiet, disturbed, too small, a target missed."""

from __future__ import annotations

import pytest

from tunefleet.core.result import Baseline, MeasuredShape, RunResult, TargetOutcome, judged_target
from tunefleet.core.statistics import Interval

BUSY = "other programs took 91 % of the cores"


def measured(latency_ms: float, why: str | None = None) -> MeasuredShape:
    """A shape measured beside a framework that takes twice as long."""
    ratio = None if why else Interval(2.0, 1.95, 2.05)
    latency = Interval(latency_ms, latency_ms * 0.99, latency_ms * 1.01)
    source = Baseline(
        name="PyTorch",
        kind="source",
        latency_ms=Interval(2 * latency_ms, 2 * latency_ms, 2 * latency_ms),
        speedup=ratio,
        why_no_speedup=why,
    )
    return MeasuredShape(
        tuned_ms=latency,
        speedup=ratio,
        why_no_speedup=why,
        baselines=(source,),
        disturbed=0.91 if why else 0.01,
        why_disturbed=why,
    )


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
