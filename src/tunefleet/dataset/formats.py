"""The formats of tuning logs by name, without what reads them (`tunefleet.dataset.codecs`)."""

from __future__ import annotations

AUTO_SCHEDULER, AUTOTVM, METASCHEDULE, KERNEL_TUNER = NAMES = (
    "auto_scheduler", "autotvm", "metaschedule", "kernel_tuner",
)  # fmt: skip

#: Those that records are written back to.
WRITTEN = (AUTO_SCHEDULER, METASCHEDULE)
