"""Names of the formats of tuning logs, without importing their codecs."""

from __future__ import annotations

AUTO_SCHEDULER, AUTOTVM, METASCHEDULE, KERNEL_TUNER = NAMES = (
    "auto_scheduler", "autotvm", "metaschedule", "kernel_tuner",
)  # fmt: skip

#: The formats that `dataset export` writes.
WRITTEN = (AUTO_SCHEDULER, METASCHEDULE)
