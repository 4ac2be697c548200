"""Numbers as people read them: three digits that matter, with a unit."""

from __future__ import annotations

import math

from tunefleet.core.budget import Budget
from tunefleet.core.statistics import Interval

#: Shown where a number is not known.
UNKNOWN = "\N{EN DASH}"

TIMES = "\N{MULTIPLICATION SIGN}"


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, without exponent: 3.95, 12.3, 1234."""
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{value:.{max(0, decimals)}f}"


def format_seconds(seconds: float | None) -> str:
    """A duration: 850 ms, 12.3 s, 6 min 52 s, 3 h 05 min."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms" if seconds else "0 s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min"


def format_clock(seconds: float | None) -> str:
    """A duration that does not change its width every second: 6:52, 3:05:00."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def format_latency(seconds: float | None) -> str:
    """A latency: 820 ns, 12.3 µs, 3.95 ms, 1.20 s."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9995:
            return f"{significant(seconds / size)} {unit}"
    return f"{significant(seconds * 1e9)} ns"


def format_interval(interval: Interval | None, unit: str) -> str:
    """A 95 % interval: `3.95 ms (3.91 to 4.02)`; bounds get the digits that tell them apart."""
    if not interval:
        return UNKNOWN
    digits = interval_digits(interval)
    bounds = (interval.median, interval.low, interval.high)
    middle, low, high = (significant(each, digits) for each in bounds)
    space = "" if unit == TIMES else " "
    return f"{middle}{space}{unit} ({low} to {high})"


def interval_digits(interval: Interval) -> int:
    """Three significant digits, four where three would show a narrow interval as a point."""
    low, high = interval.low, interval.high
    return 4 if low != high and significant(low) == significant(high) else 3


def format_gflops(value: float | None) -> str:
    """Throughput in GFLOP/s, the unit in the heading."""
    return UNKNOWN if value is None else significant(value) if value < 1000 else f"{value:,.0f}"


def format_mflop(flops: float | None) -> str:
    """Work in millions of floating-point operations, the unit in the heading."""
    if flops is None:
        return UNKNOWN
    millions = flops / 1e6
    return f"{millions:,.0f}" if millions >= 100 else significant(millions)


def format_share(share: float | None) -> str:
    """A share as per cent: 12.3 %, 0.4 %, < 0.1 %."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share * 100:.1f} %"


def format_count(value: int | None) -> str:
    """A whole number with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def format_some(count: int, name: str) -> str:
    """So many of them: 1 task, 1,024 tasks."""
    return f"{format_count(count)} {name}{'' if count == 1 else 's'}"


def format_difference(value: float) -> str:
    """A relative difference: 2.4e-6."""
    return f"{value:.1e}".replace("e-0", "e-").replace("e+00", "")


def format_bytes(size: float) -> str:
    """The size of a cache or file: 32 KiB, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.4g} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_budget(budget: Budget | None) -> str:
    """A budget in words: `500 trials or 10 min 00 s or until 3.9 ms`."""
    if not budget:
        return UNKNOWN
    parts = []
    if budget.trials:
        parts.append(f"{format_count(budget.trials)} trials")
    if budget.seconds:
        parts.append(format_seconds(budget.seconds))
    if budget.trials_per_task:
        parts.append(f"{format_some(budget.trials_per_task, 'trial')} per task")
    if budget.device_seconds:
        parts.append(f"{format_seconds(budget.device_seconds)} of device")
    if budget.target_latency_s:
        parts.append(f"until {format_latency(budget.target_latency_s)}")
    return " or ".join(parts) or UNKNOWN
