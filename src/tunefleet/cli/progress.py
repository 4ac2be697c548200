"""The state of a run as its events tell it: no clock, no terminal, only sums."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    Forecasted,
    JobContinued,
    JobEnded,
    JobHeld,
    JobOpened,
    LaneUpdated,
    Note,
    PhaseStarted,
    Prepared,
    Progressed,
    ResourceBack,
    ResourceQuarantined,
    StageAbandoned,
    StageCommitted,
    StageProgressed,
    StageStarted,
)
from tunefleet.core.forecast import SearchForecast
from tunefleet.core.phases import (
    JUDGED_PHASES,
    NO_FORECAST,
    PHASES,
    TUNE,
    Forecast,
    TuningClock,
    command_left_s,
    tuning_left_s,
)
from tunefleet.core.stage import StageKey, StageKind, UpdateResult, WorkKind

#: Notes that are kept, the last ones.
NOTES = 4

#: Rounds over which the trend of the network's latency is told.
TREND_ROUNDS = 10


#: What a job does in each phase of its run.
_STATES = {
    "import": "importing",
    "check": "importing",
    "tune": "tuning",
    "verify winners": "verifying",
    "compile": "compiling",
    "verify": "verifying",
    "measure": "measuring",
    "publish": "publishing",
}
#: Phases whose steps hold the device.
_MEASURING = ("check", "verify winners", "verify", "measure")


@dataclass(frozen=True, slots=True)
class Running:
    """A stage that runs now; `total` is 0 until it told how much it has to do."""

    key: StageKey
    resource_id: str
    done: int = 0
    total: int = 0


@dataclass(slots=True)
class Progress:
    """What a watcher may want to know. Times are `now` of whoever calls `absorb`, in seconds."""

    network: str
    peak_gflops: float | None = None
    phase: str = ""
    step: Progressed | None = None
    job_id: str = ""
    resumed: bool = False
    budget: Budget | None = None
    lanes: dict[str, LaneUpdated] = field(default_factory=dict)
    #: In the order of their start.
    running: dict[StageKey, Running] = field(default_factory=dict)
    held: JobHeld | None = None
    ended: JobEnded | None = None
    spent: dict[WorkKind, float] = field(default_factory=dict)
    #: Estimated latency of the network after each round, as soon as every task has one.
    history: list[float] = field(default_factory=list)
    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=NOTES))
    forecast: Forecast = NO_FORECAST
    #: The latest forecast of the search.
    outlook: SearchForecast | None = None
    phases: tuple[str, ...] = PHASES
    _clock: TuningClock = field(default_factory=TuningClock)
    _phase_began: float = 0.0
    _first: tuple[float, int] | None = None

    def absorb(self, event: Event, now: float) -> Note | None:
        """Take an event into account; returns what a user should be told of it."""
        match event:
            case PhaseStarted(name):
                self._enter(name, now)
            case JobOpened():
                self.job_id, self.resumed, self.budget = event.job_id, event.resumed, event.budget
                self.forecast = event.forecast
                self.phases = JUDGED_PHASES if event.is_judged else PHASES
                self._clock = TuningClock(event.elapsed_s)
            case Prepared():
                self.peak_gflops = event.peak_gflops
                self.budget = event.budget or self.budget
            case JobHeld():
                self.held = event
            case JobContinued():
                self.held = None
            case JobEnded():
                self._clock = self._clock.stopped(now)
                self.ended, self.held = event, None
                self.running.clear()
            case LaneUpdated():
                self.lanes[event.weighted.task.task_id] = event
            case StageStarted(key, resource_id):
                self.running[key] = Running(key, resource_id or _usual_resource(key.kind))
                self._first = self._first or (now, self.trials)
            case StageProgressed(key, done, total) if key in self.running:
                self.running[key] = replace(self.running[key], done=done, total=total)
            case StageCommitted():
                self._finish(event, now)
            case StageAbandoned(key):
                self.running.pop(key, None)
            case Progressed():
                self.step = event
            case Forecasted(outlook):
                self.outlook = outlook
        note = self._note(event)
        if note is not None:
            self.notes.append(note)
        return note

    def _enter(self, phase: str, now: float) -> None:
        """A phase of several steps goes on where the next of them begins."""
        if phase != self.phase:
            self._phase_began = now
        self.phase, self.step, self.held = phase, None, None
        self.running.clear()
        self._clock = self._clock.started(now) if phase == TUNE else self._clock.stopped(now)

    def _finish(self, event: StageCommitted, now: float) -> None:
        kind = event.run.key.kind
        self.spent[kind] = self.spent.get(kind, 0.0) + event.run.seconds
        self._clock = self._clock.corrected(event.elapsed_s, now)
        self.running.pop(event.run.key, None)
        if isinstance(event.run.result, UpdateResult):
            latency = self.latency_s
            if latency is not None:
                self.history.append(latency)

    def _note(self, event: Event) -> Note | None:
        match event:
            case Note():
                return event
            case JobHeld(reason, by_user):
                return Note(f"paused: {reason}", warning=not by_user)
            case JobContinued():
                return Note("continued")
            case StageAbandoned(key, reason):
                return Note(f"{key.kind} of {self.task_name(key)} given up: {reason}")
            case ResourceQuarantined(resource_id, reason, seconds):
                return Note(f"{resource_id}: pausing {seconds:.0f} s: {reason}", warning=True)
            case ResourceBack(resource_id):
                return Note(f"{resource_id} is tried again")
        return None

    @property
    def state(self) -> str:
        """What the job does, in a word."""
        if self.ended is not None:
            return "failed" if self.ended.error else "done"
        if self.held is not None:
            return "paused"
        if not self.phase or (self.phase == TUNE and self._first is None):
            return "waiting"
        return _STATES.get(self.phase, self.phase)

    @property
    def measuring(self) -> bool:
        """Whether a device measures for the job now."""
        profiles = any(key.kind is StageKind.PROFILE for key in self.running)
        return profiles or (self.ended is None and self.phase in _MEASURING)

    def task_name(self, key: StageKey) -> str:
        """The name of the task of a stage."""
        lane = self.lanes.get(key.task_id)
        return lane.weighted.task.name if lane else key.task_id[:8]

    @property
    def trials(self) -> int:
        """Trials of the job so far, those of earlier processes included."""
        return sum(lane.trials for lane in self.lanes.values())

    @property
    def failed(self) -> int:
        return sum(lane.failed for lane in self.lanes.values())

    @property
    def measured(self) -> int:
        """Tasks that have a latency."""
        return sum(lane.best_s is not None for lane in self.lanes.values())

    @property
    def known_latency_s(self) -> float:
        """The sum of the tasks' best latencies, of those that have one."""
        return sum((lane.best_s or 0.0) * lane.weighted.weight for lane in self.lanes.values())

    @property
    def latency_s(self) -> float | None:
        """The estimated latency of the network, or None while a task has none.

        Where nothing can be tried the default schedule stays, and is not counted.
        """
        known = bool(self.measured) and all(
            lane.best_s is not None or lane.exhausted for lane in self.lanes.values()
        )
        return self.known_latency_s if known else None

    @property
    def trend(self) -> float | None:
        """Relative change of the estimate over the last rounds (-0.05: 5 % faster)."""
        if len(self.history) < 2:
            return None
        before = self.history[max(0, len(self.history) - 1 - TREND_ROUNDS)]
        return self.history[-1] / before - 1

    def elapsed_s(self, now: float) -> float:
        """How long the job was tuned for, by earlier processes too."""
        return self._clock.elapsed_s(now)

    def in_phase_s(self, now: float) -> float:
        """How long the phase has run."""
        return max(0.0, now - self._phase_began)

    @property
    def phase_s(self) -> float | None:
        """How long the phase took in earlier runs, or None while unknown."""
        return self.forecast.seconds.get(self.phase)

    @property
    def steps_now(self) -> bool:
        """Whether the network is in a phase of steps, which have no trials."""
        return bool(self.phase) and self.phase != TUNE and self.ended is None

    def tuning_left_s(self, now: float) -> float | None:
        """Time of tuning to the first limit of the budget, or None while unknown: at the rate of
        this run, before it has one at that of earlier runs."""
        if self.budget is None:
            return None
        trial_s = self.forecast.trial_s
        if self._first is not None:
            at, trials = self._first
            done = self.trials - trials
            trial_s = (now - at) / done if done > 0 else trial_s
        return tuning_left_s(self.budget, self.elapsed_s(now), self.trials, trial_s)

    def left_s(self, now: float) -> float | None:
        """Time to the end of the command, or None while a phase to come is unknown."""
        tuning_s = self.tuning_left_s(now)
        in_phase_s, seconds = self.in_phase_s(now), self.forecast.seconds
        return command_left_s(self.phase, in_phase_s, tuning_s, seconds, self.phases)

    def ranked(self) -> list[LaneUpdated]:
        """Tasks by their share of the network's latency; those without one by FLOPs, last."""
        return sorted(
            self.lanes.values(),
            key=lambda lane: (
                lane.best_s is None,
                -(lane.best_s or 0.0) * lane.weighted.weight,
                -lane.weighted.total_flops,
            ),
        )


def _usual_resource(kind: WorkKind) -> str:
    """Where a stage runs that was started without a scheduler."""
    return "device" if kind is StageKind.PROFILE else "host"
