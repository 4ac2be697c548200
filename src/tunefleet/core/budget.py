"""When a job ends: trials, wall-clock or target latency, whichever comes first."""

from __future__ import annotations

from dataclasses import dataclass

from tunefleet.core.numbers import count, duration, positive


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one job; at least one of `trials` and `seconds` is set.

    `trials` counts all tasks of the network together.
    """

    trials: int | None = None
    seconds: float | None = None
    target_latency_s: float | None = None

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise ValueError("a budget needs a number of trials or a time")
        if self.trials is not None:
            object.__setattr__(self, "trials", count("trials", self.trials))
        # 60 and 60.0 seconds are the same budget, so they must have the same fingerprint.
        for name, check in (("seconds", duration), ("target_latency_s", positive)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(name, value))

    def spent(self, *, trials: int, seconds: float, latency_s: float | None) -> str:
        """The limit that is reached, in words, or "" while there is budget left."""
        if self.trials is not None and trials >= self.trials:
            return f"all {self.trials} trials are done"
        if self.seconds is not None and seconds >= self.seconds:
            return f"the time of {self.seconds / 60:g} minutes is over"
        if (
            self.target_latency_s is not None
            and latency_s is not None
            and latency_s <= self.target_latency_s
        ):
            return f"the target latency of {self.target_latency_s * 1e3:g} ms is reached"
        return ""
