"""What a schedule applies to: the form of the task's program, and the tensor intrinsic."""

from __future__ import annotations

import re

#: A block that only the Winograd form of a program has; its schedules contain this name.
WINOGRAD_BLOCK = "winograd_products"

#: Prefix of the names of tensor intrinsics in traces.
INTRINSIC_PREFIX = "tunefleet."
_TENSORIZE = re.compile(rf'\["Tensorize",\s*\[[^\]]*\],\s*\["{re.escape(INTRINSIC_PREFIX)}([^"]+)"')


def is_winograd(trace: str) -> bool:
    """Whether a trace schedules the Winograd form, which needs fewer multiplications than the
    task's FLOPs count."""
    return f'"{WINOGRAD_BLOCK}"' in trace


def has_peak_of_floats(trace: str) -> bool:
    """Whether a program's FLOPs per second are comparable with the device's float32 peak. They are
    not for Winograd, which executes fewer FLOPs than the task counts, nor for tensor instructions,
    which exceed that peak."""
    return not is_winograd(trace) and not intrinsic_of(trace)


def intrinsic_of(trace: str) -> str:
    """The tunefleet tensor intrinsic that a trace uses; empty for a plain program."""
    match = _TENSORIZE.search(trace)
    return match.group(1) if match else ""
