"""Events of a running job for its observers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunefleet.core.budget import Budget
from tunefleet.core.forecast import SearchForecast, SearchOutcome
from tunefleet.core.phases import NO_FORECAST, Forecast
from tunefleet.core.stage import StageKey, StageRun
from tunefleet.core.step import StepSpan
from tunefleet.core.task import WeightedTask
from tunefleet.errors import InternalError


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """One of `phases.PHASES`, in the order of these or of `phases.JUDGED_PHASES`."""

    name: str


@dataclass(frozen=True, slots=True)
class JobOpened:
    """`elapsed_s` is how long earlier processes tuned it for; `is_judged`: what it delivers is
    measured before it is published."""

    job_id: str
    resumed: bool
    budget: Budget
    elapsed_s: float
    forecast: Forecast = NO_FORECAST
    is_judged: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A network is imported and checked. `peak_gflops`: what its device reaches at best. `budget`:
    what the search has of the job's, None for all of it."""

    peak_gflops: float | None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class LaneUpdated:
    """The state of one task after a stage; `known_s` is what earlier jobs reached. Nothing more is
    tried of one that is `exhausted`."""

    weighted: WeightedTask
    trials: int
    failed: int
    best_s: float | None
    known_s: float | None
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class JobHeld:
    """No further stage of the job starts until the missing resource is available, or, with
    `by_user`, until the user resumes it."""

    reason: str
    by_user: bool = False


@dataclass(frozen=True, slots=True)
class JobContinued:
    """The job is no longer held."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The last event of a network's run; `error` is the one line of one that failed, `kind` the
    name of its class, `details` the traceback of a bug."""

    error: str = ""
    kind: str = ""
    details: str = ""


def ended_by(error: Exception) -> JobEnded:
    """The end of a run that failed."""
    details = error.details if isinstance(error, InternalError) else ""
    return JobEnded(str(error) or type(error).__name__, type(error).__name__, details)


@dataclass(frozen=True, slots=True)
class StageStarted:
    key: StageKey
    resource_id: str = ""


@dataclass(frozen=True, slots=True)
class StageProgressed:
    key: StageKey
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StageCommitted:
    run: StageRun
    trials_done: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class StepCommitted:
    span: StepSpan


@dataclass(frozen=True, slots=True)
class StageAbandoned:
    """A stage was given up before its end; the same key may start again."""

    key: StageKey
    reason: str


@dataclass(frozen=True, slots=True)
class ResourceQuarantined:
    """No stage starts on the resource for so many seconds."""

    resource_id: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ResourceBack:
    """A resource that was quarantined is tried again."""

    resource_id: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """Progress within a phase that has no stages."""

    done: int
    total: int
    text: str


@dataclass(frozen=True, slots=True)
class Forecasted:
    """What is expected of the search of a job, when this was kept."""

    forecast: SearchForecast


@dataclass(frozen=True, slots=True)
class SearchEnded:
    """The search of a job ended, which judges the forecasts of it."""

    outcome: SearchOutcome


@dataclass(frozen=True, slots=True)
class Note:
    """Something a user should know; `warning` where it may change what they trust."""

    text: str
    warning: bool = False


Event = (
    PhaseStarted
    | JobOpened
    | Prepared
    | JobHeld
    | JobContinued
    | JobEnded
    | LaneUpdated
    | StageStarted
    | StageProgressed
    | StageCommitted
    | StepCommitted
    | StageAbandoned
    | ResourceQuarantined
    | ResourceBack
    | Progressed
    | Forecasted
    | SearchEnded
    | Note
)

Observer = Callable[[Event], None]
