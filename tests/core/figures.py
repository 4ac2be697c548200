"""Figures made by hand: of a quiet measurement and of a disturbed one."""

from __future__ import annotations

from tunefleet.core.result import Baseline, MeasuredShape
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
