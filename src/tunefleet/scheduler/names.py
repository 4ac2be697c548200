"""Names of the policies, without importing the scheduler (`tunefleet.scheduler.policies`)."""

from __future__ import annotations

SEQUENTIAL, SYNCHRONOUS, INTERLEAVED, PREDICTIVE = POLICY_NAMES = (
    "sequential", "synchronous", "interleaved", "predictive",
)  # fmt: skip
