"""What is forecast of a search while it runs, and what came of it.

Latencies are those of the network's tasks together, each as often as it occurs; times are seconds
of tuning since the job began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

#: A target that is less likely than this to be reached by the end of the budget is warned of: fixed
#: on recorded searches (benchmarks/forecasts.py).
UNLIKELY = 0.08

#: A search that ended with a smaller part of the trials that a forecast reaches to does not say
#: what it would have come to.
_FAR_ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class TaskCurve:
    """The search of one task: the latency of each of its trials in their order, None for one that
    failed, and the `numbers` of these trials among those of all tasks."""

    task_id: str
    operator: str
    flops: float
    weight: int
    latencies_s: tuple[float | None, ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantiles:
    """10, 50 and 90 %. Of a time, None where it is after the end of the budget."""

    p10: float | None
    p50: float | None
    p90: float | None

    def covers(self, value: float) -> bool:
        """Whether a value lies between 10 and 90 %."""
        return (self.p10 is None or self.p10 <= value) and (self.p90 is None or value <= self.p90)


@dataclass(frozen=True, slots=True)
class SearchForecast:
    """Made after `trials` and `elapsed_s`, when the tasks took `now_s` together: what they take at
    the end of the budget, after `end_trials`, and when they take `target_s`, with the `probability`
    that they do by then. `signs` are what it was made from (`learning.forecasting`), `curves` the
    number of earlier searches of tasks.
    """

    trials: int
    elapsed_s: float
    now_s: float
    end_trials: int
    end_s: float
    latency_s: Quantiles
    signs: tuple[float, ...]
    curves: int
    target_s: float | None = None
    target_at_s: Quantiles | None = None
    probability: float | None = None

    @property
    def is_unlikely(self) -> bool:
        """Whether the target will hardly be reached."""
        return self.probability is not None and self.probability < UNLIKELY


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """How a search ended: `reached` says whether the target of its last forecast was."""

    trials: int
    elapsed_s: float
    latency_s: float
    reached: bool


@dataclass(frozen=True, slots=True)
class JudgedForecast:
    """A forecast beside what came of it. `held`: the latency at the end lies between 10 and 90 %;
    `time_held`: so does the time of the target. None where the search does not say."""

    forecast: SearchForecast
    outcome: SearchOutcome | None = None
    held: bool | None = None
    time_held: bool | None = None


def judge_forecast(forecast: SearchForecast, outcome: SearchOutcome | None) -> JudgedForecast:
    """What came of a forecast; nothing is judged of a search that goes on."""
    if outcome is None:
        return JudgedForecast(forecast)
    held = time_held = None
    if outcome.trials >= _FAR_ENOUGH * forecast.end_trials:
        held = forecast.latency_s.covers(outcome.latency_s)
    target_at_s = forecast.target_at_s
    if target_at_s is not None and outcome.reached:
        time_held = target_at_s.covers(outcome.elapsed_s)
    elif target_at_s is not None and held is not None:
        time_held = target_at_s.p90 is None
    return JudgedForecast(forecast, outcome, held, time_held)


def running_best(latencies_s: tuple[float | None, ...]) -> Iterator[float | None]:
    """The best latency after each trial; None before the first that did not fail."""
    best: float | None = None
    for latency_s in latencies_s:
        if latency_s is not None and (best is None or latency_s < best):
            best = latency_s
        yield best
