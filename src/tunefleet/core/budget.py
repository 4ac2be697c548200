"""When a job ends: trials, wall-clock or device time, whichever comes first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tunefleet.core.numbers import count, duration, positive

#: What a budget may limit; a target latency may never be reached.
LIMITS = ("trials", "seconds", "trials_per_task", "device_seconds")
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "trials": count,
    "trials_per_task": count,
    "seconds": duration,
    "device_seconds": duration,
    "target_latency_s": positive,
}


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one job; at least one that is not `target_latency_s` is set.

    `trials` counts all tasks of the network together, `trials_per_task` those of each. `seconds`
    are of wall-clock time, without what the job only waits for others.
    `device_seconds` counts what the job's profile stages take. `target_latency_s` is what is agreed
    (`core.agreement`).
    """

    trials: int | None = None
    seconds: float | None = None
    target_latency_s: float | None = None
    trials_per_task: int | None = None
    device_seconds: float | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in LIMITS):
            raise ValueError("a budget needs a number of trials or a time")
        # 60 and 60.0 seconds are the same budget, so they must have the same fingerprint.
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(name, value))

    @property
    def parts(self) -> list[Any]:
        """What tells it from other budgets, for fingerprints: those of jobs of earlier versions
        stay as they were."""
        later = {name: getattr(self, name) for name in ("trials_per_task", "device_seconds")}
        given = {name: value for name, value in later.items() if value is not None}
        return [self.trials, self.seconds, self.target_latency_s, *([given] if given else ())]

    def spent(self, *, trials: int, seconds: float, device_s: float = 0.0) -> str:
        """The limit that is reached, in words, or "" while there is budget left."""
        if self.trials is not None and trials >= self.trials:
            return f"all {self.trials} trials are done"
        if self.seconds is not None and seconds >= self.seconds:
            return f"the time of {round(self.seconds / 60, 2):g} minutes is over"
        if self.device_seconds is not None and device_s >= self.device_seconds:
            return f"the {self.device_seconds / 60:g} minutes of its device are over"
        return ""


#: Of jobs that search nothing: a job has a budget.
NO_SEARCH = Budget(trials=1)
