"""What a schedule is of: which form of a task's program, and which tensor intrinsic."""

from __future__ import annotations

import re

#: The block of a program in Winograd's form that the direct form lacks: schedules name it.
WINOGRAD_BLOCK = "winograd_products"

#: Of the names under which intrinsics stand in traces.
INTRINSIC_PREFIX = "tunefleet."
_TENSORIZE = re.compile(rf'\["Tensorize",\s*\[[^\]]*\],\s*\["{re.escape(INTRINSIC_PREFIX)}([^"]+)"')


def is_winograd(trace: str) -> bool:
    """Whether a trace schedules the form with fewer multiplications than the task's FLOPs say."""
    return f'"{WINOGRAD_BLOCK}"' in trace


def has_peak_of_floats(trace: str) -> bool:
    """Whether a program's operations a second are a share of what the device reaches in float32:
    Winograd's does fewer than its task counts, tensor instructions do more."""
    return not is_winograd(trace) and not intrinsic_of(trace)


def intrinsic_of(trace: str) -> str:
    """The tensor intrinsic of ours that a trace schedules; empty for a plain program."""
    match = _TENSORIZE.search(trace)
    return match.group(1) if match else ""
