"""Which measurements support a ratio or a judgement."""

from __future__ import annotations

import pytest

from tunefleet.core.statistics import Interval
from tunefleet.core.undisturbed import why_not_measurable

QUIET = Interval(2.0, 1.9, 2.1)


def test_a_quiet_measurement_supports_a_ratio() -> None:
    assert why_not_measurable(0.02, QUIET) == ""


@pytest.mark.parametrize(
    ("taken", "interval", "moved", "reason"),
    [
        (0.91, QUIET, 0.0, "other programs took 91 % of the cores"),
        (0.02, QUIET, 0.2, "the speed of the machine changed by 20 % during the measurement"),
        (0.02, Interval(78.0, 3.15, 114.0), 0.0, "the 95 % interval is too wide (3.15 to 114)"),
    ],
)  # fmt: skip
def test_a_disturbed_one_does_not(
    taken: float, interval: Interval, moved: float, reason: str
) -> None:
    assert why_not_measurable(taken, interval, moved) == reason
