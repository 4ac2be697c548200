"""The phases of a run: the tuning clock, the time left, and the least budget of a search.

Times are in seconds; `now` is of a clock that only the caller knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tunefleet.core.allocation import LaneState, first_batch
from tunefleet.core.budget import Budget
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import StageSpan
from tunefleet.core.statistics import median
from tunefleet.core.step import StepKind
from tunefleet.core.task import WeightedTask

#: The only phase that the time of a budget counts.
TUNE = "tune"
#: In the order of a run.
PHASES = ("import", "check", TUNE, "verify winners", "compile", "verify", "publish", "measure")
#: In the order of a run whose delivery is judged before it is published.
JUDGED_PHASES = (*PHASES[:-2], "measure", "publish")
#: The phase that a user sees of each step.
PHASE_OF = {
    StepKind.SPLIT: "import",
    StepKind.IMPORT: "import",
    StepKind.CHECK: "check",
    StepKind.BASELINE: "check",
    StepKind.BUILD_FINALISTS: "verify winners",
    StepKind.SELECT_WINNERS: "verify winners",
    StepKind.COMPILE: "compile",
    StepKind.VERIFY: "verify",
    StepKind.PUBLISH: "publish",
    StepKind.MEASURE: "measure",
}
#: Steps that not every tuning has.
_OF_SOME_JOBS = (StepKind.SPLIT, StepKind.BASELINE)
#: A run takes at most this part longer than its budget, where its search can make up for it with
#: at most that part of its own time. A budget below `_SHORT_S` is the search's alone.
_MOST_BEYOND, _MOST_GIVEN, _SHORT_S = 0.15, 1 / 3, 240.0
#: What a first delivery takes: in any case, for each task, and of the time of import and check. Of
#: networks with 16 to 103 tasks on an Intel Xeon, an EPYC Zen 3 and a Zen 5 at half its speed, with
#: 2 cores, with the command's own start and end and a closing comparison that was disturbed once;
#: and 15 % more, since a machine may become slower meanwhile.
_DELIVERY_S, _TASK_S, _OF_PREPARATION = 38.0, 0.3, 0.5


@dataclass(frozen=True, slots=True)
class Forecast:
    """What earlier runs say of this one. `seconds` is by phase, from runs of the same network;
    `trial_s` is the time of one of their trials while other jobs ran, `work_s` that of its stages;
    `round_s` the first round of a task of any network. None or missing where there was no such
    run."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    trial_s: float | None = None
    round_s: float | None = None
    work_s: float | None = None

    def around_search_s(self, *, prepared: bool) -> float | None:
        """What all phases but tuning take together, less those that a network has behind it that is
        `prepared`; None where one is not known."""
        done = (TUNE, "import", "check") if prepared else (TUNE,)
        seconds = [self.seconds.get(phase) for phase in PHASES if phase not in done]
        known = [each for each in seconds if each is not None]
        return sum(known) if len(known) == len(seconds) else None


#: What is known where nothing ran before.
NO_FORECAST = Forecast()


def phase_seconds(walls: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The median of each phase except tuning over earlier runs, from the seconds of their steps
    by kind. A run without one of the steps of a phase says nothing of it."""
    of_phase: dict[str, list[float]] = {}
    for wall in walls:
        for phase in PHASES:
            kinds = [str(kind) for kind, of in PHASE_OF.items() if of == phase]
            kinds = [kind for kind in kinds if kind not in _OF_SOME_JOBS]
            if kinds and all(kind in wall for kind in kinds):
                of_phase.setdefault(phase, []).append(sum(wall[kind] for kind in kinds))
    return {phase: median(seconds) for phase, seconds in of_phase.items()}


def first_round_s(spans: Iterable[StageSpan]) -> float | None:
    """The mean seconds of tasks' first rounds, without what learns before them; None without
    one."""
    rounds: dict[tuple[str, str], float] = {}
    for span in spans:
        if span.key.iteration == 0:
            task = (span.key.job_id, span.key.task_id)
            rounds[task] = rounds.get(task, 0.0) + span.seconds
    return sum(rounds.values()) / len(rounds) if rounds else None


@dataclass(frozen=True, slots=True)
class TuningClock:
    """How long a job was tuned for: `before_s` until `since`, from when it runs; None: it does
    not run."""

    before_s: float = 0.0
    since: float | None = None

    def started(self, now: float) -> TuningClock:
        return self if self.since is not None else replace(self, since=now)

    def stopped(self, now: float) -> TuningClock:
        return TuningClock(self.elapsed_s(now))

    def corrected(self, elapsed_s: float, now: float) -> TuningClock:
        """The clock of whoever counts the budget says `elapsed_s`."""
        return TuningClock(elapsed_s, None if self.since is None else now)

    def elapsed_s(self, now: float) -> float:
        return self.before_s + (0.0 if self.since is None else max(0.0, now - self.since))


def tuning_left_s(
    budget: Budget, elapsed_s: float, trials: int, trial_s: float | None
) -> float | None:
    """Seconds of tuning to the first limit of a budget, or None while unknown; `trial_s` is what a
    trial takes, where that is known."""
    limits = []
    if budget.seconds is not None:
        limits.append(budget.seconds - elapsed_s)
    if budget.trials is not None and trial_s is not None:
        limits.append((budget.trials - trials) * trial_s)
    return max(0.0, min(limits)) if limits else None


def command_left_s(
    phase: str,
    in_phase_s: float,
    tuning_s: float | None,
    seconds: Mapping[str, float],
    phases: Sequence[str] = PHASES,
) -> float | None:
    """Seconds to the end of the whole command, or None where an open phase is unknown.

    `in_phase_s` is how long `phase` has run, `tuning_s` what tuning still takes, and `seconds` what
    the other `phases` took in earlier runs. Before the first phase `phase` is "".
    """
    at = phases.index(phase) if phase in phases else -1
    total = 0.0
    for number, name in enumerate(phases[max(0, at) :], max(0, at)):
        whole = tuning_s if name == TUNE else seconds.get(name)
        if whole is None:
            return None
        done = in_phase_s if number == at and name != TUNE else 0.0
        total += max(0.0, whole - done)
    return total


def search_ends_by(deadline: float | None, delivery_s: float | None, now: float) -> float | None:
    """When a search has to end so that its delivery is there by a deadline. Times are seconds since
    the epoch; `delivery_s` is None where it is not known. A delivery gets at most half of the time
    that is left: without a search there is nothing to deliver."""
    if deadline is None:
        return None
    return deadline - min(delivery_s or 0.0, max(0.0, deadline - now) / 2)


def first_delivery_s(tasks: int, prepared_s: float) -> float:
    """What the delivery of a network with so many tasks takes, whose import and check took
    `prepared_s`, where no run of the network is known."""
    return _DELIVERY_S + _TASK_S * tasks + _OF_PREPARATION * prepared_s


def search_budget(budget: Budget, around_s: float) -> Budget:
    """What the search has of a budget whose run takes `around_s` besides."""
    if budget.seconds is None or budget.seconds < _SHORT_S:
        return budget
    beyond_s = max(0.0, around_s - _MOST_BEYOND * budget.seconds)
    return replace(budget, seconds=budget.seconds - min(_MOST_GIVEN * budget.seconds, beyond_s))


@dataclass(frozen=True, slots=True)
class LeastBudget:
    """What a first batch of every task takes; `seconds` is None where nothing is known."""

    tasks: int
    trials: int
    seconds: float | None = None

    def text(self) -> str:
        """`5 tasks; a first batch of each takes 18 trials, about 2 minutes`."""
        of = "it" if self.tasks == 1 else "each"
        time = "" if self.seconds is None else f", about {_minutes(self.seconds)}"
        return f"{_tasks(self.tasks)}; a first batch of {of} takes {self.trials} trials{time}"

    def warning(self, budget: Budget) -> str:
        """Why a budget is too small, in words; "" where it is not."""
        few = budget.trials is not None and budget.trials < self.trials
        if few:
            given = f"{budget.trials} trial{'' if budget.trials == 1 else 's'}"
            needed = f"{self.trials} trials"
        elif budget.seconds is not None and self.seconds and budget.seconds < self.seconds:
            given, needed = _minutes(budget.seconds), f"about {_minutes(self.seconds)}"
        else:
            return ""
        option = "--trials" if few else "--minutes"
        return (
            f"the budget of {given} is too small for {_tasks(self.tasks)}: a first batch of all "
            f"of them takes {needed}; some may stay untuned (give a larger {option})"
        )


def least_budget(
    tasks: Sequence[WeightedTask], search: SearchSettings, round_s: float | None
) -> LeastBudget:
    """The least budget that gives every task a first batch; `round_s` as in `Forecast`."""
    lanes = [LaneState(w.task.task_id, w.weight, w.task.flops) for w in tasks]
    trials = sum(first_batch(lane, lanes, search, None) for lane in lanes)
    return LeastBudget(len(lanes), trials, None if round_s is None else round_s * len(lanes))


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _minutes(seconds: float) -> str:
    """`40 seconds`, `1 minute`, `2.5 minutes`, `12 minutes`."""
    if seconds < 55:
        return f"{max(1, math.ceil(seconds))} seconds"
    minutes = seconds / 60
    rounded = f"{minutes:.1f}".removesuffix(".0") if minutes < 9.95 else str(math.ceil(minutes))
    return f"{rounded} minute{'' if rounded == '1' else 's'}"
