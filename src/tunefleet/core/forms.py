"""Which of the forms that a task's program can be computed in a schedule is of."""

from __future__ import annotations

#: The block of a program in Winograd's form that the direct form lacks: schedules name it.
WINOGRAD_BLOCK = "winograd_products"


def is_winograd(trace: str) -> bool:
    """Whether a trace schedules the form with fewer multiplications than the task's FLOPs say."""
    return f'"{WINOGRAD_BLOCK}"' in trace
