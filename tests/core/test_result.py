"""What a result says of its measurements: quiet, disturbed, too small, a target missed."""

from __future__ import annotations

from tests.core.figures import BUSY, measured

from tunefleet.core.agreement import Agreed, judge
from tunefleet.core.result import RunResult
from tunefleet.core.statistics import Interval

AGREED = Agreed(latency_ms=4.0)


def test_figures_that_were_disturbed_are_filled_in_by_a_later_measurement() -> None:
    busy = RunResult(run="a", agreement=judge(AGREED, [measured(9.0, BUSY)])).measured_again(
        [measured(9.0, BUSY)]
    )
    assert busy.lacks_figures
    quiet = busy.measured_again([measured(3.0)])
    assert quiet.speedup == Interval(2.0, 1.95, 2.05)
    assert quiet.why_no_speedup is None
    assert quiet.agreement == judge(AGREED, [measured(3.0)], trials=0)
    assert not quiet.lacks_figures


def test_the_json_has_null_and_the_reason() -> None:
    value = RunResult().measured_again([measured(9.0, BUSY)]).to_dict()
    assert (value["speedup"], value["why_no_speedup"]) == (None, BUSY)
    (source,) = value["baselines"]
    assert (source["speedup"], source["why_no_speedup"]) == (None, BUSY)
