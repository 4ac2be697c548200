"""Whether a measurement supports a ratio or a judgement: one rule for results, reports and jobs."""

from __future__ import annotations

from tunefleet.core.statistics import Interval

#: Begins every message about a missing ratio; the reason follows.
NOT_MEASURABLE = "not measurable now"

#: The share of the cores' time that other programs may take during a measurement.
MOST_TAKEN = 0.1
#: The factor that a 95 % interval may span.
MOST_SPREAD = 1.5
#: The relative change of the reference kernel over a measurement. The rounds of the contenders
#: alternate, so a smaller change does no harm to their ratio.
MOST_MOVED = 0.1


def why_not_measurable(taken: float, interval: Interval, moved: float = 0.0) -> str:
    """Why `interval`, of a ratio or a latency, is not to be shown or judged; "" where it is.

    `taken` is the share of the cores' time that other programs took, `moved` the relative change
    of the reference kernel over the measurement.
    """
    if taken > MOST_TAKEN:
        return f"other programs took {taken * 100:.0f} % of the cores"
    if moved > MOST_MOVED:
        return f"the speed of the machine changed by {moved * 100:.0f} % during the measurement"
    if interval.high > MOST_SPREAD * interval.low:
        return f"the 95 % interval is too wide ({interval.low:.3g} to {interval.high:.3g})"
    return ""
