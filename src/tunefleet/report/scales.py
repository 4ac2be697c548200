"""Axes: where values go, and which round numbers are written beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Distances between ticks of a time axis, in seconds.
_TIME_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400),
)

#: Distances between ticks of another axis, about.
_STEPS = 5
#: A range wider than this is drawn on a logarithmic axis.
_LOG_RATIO = 10.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` onto 0 to 1; `ticks` lie between them."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def time_scale(end_s: float, count: int = 7) -> Scale:
    """From zero to `end_s` with at most `count` ticks after zero."""
    end_s = max(end_s, 1e-3)
    fitting = [step for step in _TIME_STEPS if end_s / step <= count]
    step = fitting[0] if fitting else _TIME_STEPS[-1] * math.ceil(end_s / count / _TIME_STEPS[-1])
    return Scale(0.0, end_s, tuple(step * i for i in range(int(end_s / step) + 1)))


def tick_time(seconds: float, end_s: float) -> str:
    """What is written beside a tick of an axis that ends at `end_s`."""
    if seconds == 0:
        return "0"
    if end_s < 120:
        return f"{seconds:g} s"
    if end_s < 7200:
        return f"{seconds / 60:g} min"
    return f"{seconds / 3600:g} h"


def count_scale(high: float) -> Scale:
    """From zero to a round number that is not below `high`."""
    step = max(1.0, _round_step(max(high, 1.0) / _STEPS))
    last = math.ceil(high / step - 1e-9) or 1
    return Scale(0.0, last * step, tuple(i * step for i in range(last + 1)))


def value_scale(low: float, high: float) -> Scale:
    """Around positive values: logarithmic beyond a ratio of ten, never closer than 2 % apart."""
    if high / low > _LOG_RATIO:
        return _log_scale(low, high)
    if high - low < 0.02 * high:
        low, high = low * 0.99, high * 1.01
    step = _round_step((high - low) / _STEPS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Scale(first * step, last * step, tuple(i * step for i in range(first, last + 1)))


def _log_scale(low: float, high: float) -> Scale:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    first = max((m for m in marks if m <= low), default=low)
    last = min((m for m in marks if m >= high), default=high)
    inside = tuple(m for m in marks if first <= m <= last)
    if len(inside) > 8:
        inside = tuple(m for m in inside if math.log10(m) % 1 < 1e-6 or m in (first, last))
    return Scale(first, last, inside, log=True)


def _round_step(step: float) -> float:
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * digit for digit in (1, 2, 5, 10) if size * digit >= step * 0.9999)
