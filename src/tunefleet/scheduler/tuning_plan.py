"""The plan of a tuning job: rounds go to the lanes with the largest gain until the budget ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tunefleet.core.allocation import LaneState, first_batch, next_lane
from tunefleet.core.budget import Budget
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import (
    STAGE_ORDER,
    BuildResult,
    ProfileResult,
    SelectResult,
    StageKey,
    StageRun,
    UpdateResult,
    WorkKind,
)
from tunefleet.core.task import WeightedTask

#: The iteration of the first update, which learns from earlier jobs' records before any select.
FIRST_MODEL = -1
#: Initial guess of the seconds of a round.
_UNKNOWN_ROUND_S = 10.0


class LaneProgress:
    """Progress of one lane. `known_s` is the latency that earlier jobs reached; `is_verified`: with
    a program that one of them verified."""

    def __init__(
        self, weighted: WeightedTask, known_s: float | None, is_verified: bool = False
    ) -> None:
        self.weighted = weighted
        self.known_s = known_s
        self._is_verified = is_verified
        self.best_s = known_s
        self.trials = 0
        self.failed = 0
        self.given_up = ""
        self._exhausted = False
        #: Best latency after each finished round, and the total seconds of all stages.
        self._history: list[float | None] = []
        self._seconds = 0.0
        #: Of these the seconds of profile stages.
        self.device_s = 0.0
        #: iteration -> finished stages of an open round.
        self.rounds: dict[int, set[WorkKind]] = {}
        self.next_iteration = 0
        #: iteration -> trials still expected from the open round.
        self._expected: dict[int, int] = {}
        #: iteration -> candidates that failed to build in the open round.
        self._unbuilt: dict[int, set[str]] = {}
        self.batch = 0

    @property
    def state(self) -> LaneState:
        task = self.weighted.task
        return LaneState(
            task_id=task.task_id,
            weight=self.weighted.weight,
            flops=task.flops,
            history=tuple(self._history),
            seconds=self._seconds,
            exhausted=self.exhausted,
            is_verified=self._is_verified,
        )

    @property
    def exhausted(self) -> bool:
        """Whether the lane opens no further round."""
        return self._exhausted or bool(self.given_up)

    @property
    def expected(self) -> int:
        """Trials still expected from rounds in flight."""
        return sum(self._expected.values())

    def plan_round(self, batch: int) -> None:
        self.batch = batch
        self._expected[self.next_iteration] = batch

    def give_up(self, reason: str) -> None:
        self.given_up = reason
        self._forget_rounds()

    def absorb(self, key: StageKey, result: object, seconds: float) -> bool:
        """Take the result of a finished stage; False after a select without candidates."""
        if key.iteration == FIRST_MODEL:
            return True
        productive = self._absorb(key, result, seconds)
        if self.given_up:  # a stage that ended just before: nothing follows it
            self._forget_rounds()
        return productive

    def _absorb(self, key: StageKey, result: object, seconds: float) -> bool:
        iteration = key.iteration
        self._seconds += seconds
        self.next_iteration = max(self.next_iteration, iteration + 1)
        self.rounds.setdefault(iteration, set()).add(key.kind)
        if isinstance(result, SelectResult):
            self._exhausted = self._exhausted or result.exhausted
            self._expected[iteration] = len(result.candidates)
            if not result.candidates:
                self._close(iteration)
                return False
        elif isinstance(result, BuildResult):
            # A build may run twice: a candidate that fails in both counts as one trial.
            unbuilt = self._unbuilt.setdefault(iteration, set())
            failed = {candidate_id for candidate_id, _ in result.failed} - unbuilt
            unbuilt |= failed
            self._count(iteration, len(failed), [])
        elif isinstance(result, ProfileResult):
            self.device_s += seconds
            latencies = [profiled.measurement.latency_s for profiled in result.measured]
            self._count(iteration, len(result.failed), latencies)
            self._expected.pop(iteration, None)
        elif isinstance(result, UpdateResult):
            self._close(iteration)
        return True

    def _count(self, iteration: int, failed: int, latencies: list[float]) -> None:
        self.trials += failed + len(latencies)
        self.failed += failed
        self._expected[iteration] = self._expected.get(iteration, 0) - failed
        self.best_s = min([*latencies, *([self.best_s] if self.best_s else [])], default=None)

    def _forget_rounds(self) -> None:
        for of_rounds in (self.rounds, self._expected, self._unbuilt):
            of_rounds.clear()

    def _close(self, iteration: int) -> None:
        self.rounds.pop(iteration, None)
        self._expected.pop(iteration, None)
        self._unbuilt.pop(iteration, None)
        self._history.append(self.best_s)


class TuningPlan:
    """Implements scheduler.plan.Plan for a job with real tasks.

    `committed` are the stages that earlier processes finished, `elapsed_s` their wall-clock
    seconds, `now` the scheduler's time at which the job continues. With `first_model` one update
    comes before any round, to learn from the records of earlier jobs. Tasks of which a program is
    `verified` get their first rounds after the others. No round is opened
    from `deadline` on, a time of the scheduler, nor once the tasks take `until_s` together, nor
    `pause_s` after it began.
    """

    def __init__(
        self,
        tasks: Sequence[WeightedTask],
        budget: Budget,
        search: SearchSettings,
        *,
        known: Mapping[str, float | None],
        committed: Iterable[StageRun] = (),
        elapsed_s: float = 0.0,
        now: float = 0.0,
        first_model: bool = False,
        deadline: float | None = None,
        until_s: float | None = None,
        pause_s: float | None = None,
        verified: Collection[str] = (),
    ) -> None:
        self.budget = budget
        self._deadline = deadline
        self._until_s = until_s
        self._pause_at = None if pause_s is None else now + pause_s
        #: Whether it stopped for something else, and is to go on.
        self.pauses = False
        self._search = search
        self._began = now - elapsed_s
        self._now = now
        self.progress = {
            task_id: LaneProgress(weighted, known.get(task_id), task_id in verified)
            for weighted in tasks
            for task_id in (weighted.task.task_id,)
        }
        #: Lanes that may not open a round now.
        self._busy: set[str] = set()
        self._learns_first = first_model and bool(self.progress)
        for run in committed:
            self._learns_first = False
            self.progress[run.key.task_id].absorb(run.key, run.result, run.seconds)
        self._busy.update(task_id for task_id, lane in self.progress.items() if lane.rounds)

    # What the scheduler asks

    def lanes(self) -> Mapping[str, int]:
        return {task_id: lane.next_iteration for task_id, lane in self.progress.items()}

    def unfinished(self) -> Sequence[tuple[str, int, frozenset[WorkKind]]]:
        rounds = [
            (task_id, iteration, frozenset(done))
            for task_id, lane in self.progress.items()
            for iteration, done in sorted(lane.rounds.items())
        ]
        if self._learns_first:
            first = next(iter(self.progress))
            self._busy.add(first)
            rounds.append((first, FIRST_MODEL, frozenset(STAGE_ORDER[:-1])))
        return rounds

    def next_lane(self, now: float) -> str | None:
        self._now = now
        if self._learns_first:
            return None
        states = [self._state(lane) for lane in self.progress.values()]
        chosen = next_lane(states, self._busy)
        if chosen is None:
            return None
        self.progress[chosen.task_id].plan_round(self._batch(chosen, states))
        self._busy.add(chosen.task_id)
        return chosen.task_id

    def absorb(self, key: StageKey, result: object, seconds: float) -> bool:
        self._learns_first = self._learns_first and key.iteration != FIRST_MODEL
        return self.progress[key.task_id].absorb(key, result, seconds)

    def closed(self, task_id: str) -> None:
        self._busy.discard(task_id)

    def failed(self, task_id: str, reason: str) -> None:
        self._learns_first = False
        self.progress[task_id].give_up(reason)

    def ended(self, now: float) -> str:
        self._now = now
        if self._deadline is not None and now >= self._deadline:
            return "its deadline is reached"
        # Trials in flight count as spent: no round is opened for a budget that they use up.
        spent = self.budget.spent(
            trials=self.trials + self._expected,
            seconds=self.elapsed_s(now),
            device_s=self.device_s,
        )
        lanes = [lane for lane in self.progress.values() if not lane.exhausted]
        if not spent and self.reached:
            return f"an estimated latency of {(self._until_s or 0.0) * 1e3:.3g} ms is reached"
        if not spent and lanes and all(map(self._has_its_trials, lanes)):
            return f"each task has its {self.budget.trials_per_task} trials"
        self.pauses = not spent and self._pause_at is not None and now >= self._pause_at
        return "the source framework is measured again" if self.pauses else spent

    def rounds_left(self, task_id: str) -> float:
        lanes = [lane for lane in self.progress.values() if not lane.exhausted]
        limits = []
        if self.budget.trials is not None:
            left = self.budget.trials - self.trials - self._expected
            limits.append(max(0, left) / self._search.batch)
        if self.budget.seconds is not None:
            left_s = self.budget.seconds - self.elapsed_s(self._now)
            limits.append(max(0.0, left_s) / self._round_s())
        if self.budget.device_seconds is not None and self.device_s:
            left_s = self.budget.device_seconds - self.device_s
            limits.append(max(0.0, left_s) * self._rounds() / self.device_s)
        if self.budget.trials_per_task is not None:
            trials = sum(self._left(lane) or 0 for lane in lanes)
            limits.append(trials / self._search.batch)
        return min(limits, default=0.0) / max(1, len(lanes))

    # What others ask

    @property
    def trials(self) -> int:
        return sum(lane.trials for lane in self.progress.values())

    @property
    def reached(self) -> bool:
        """Whether the estimate is as low as it has to be."""
        latency_s, until_s = self.estimated_latency_s(), self._until_s
        return latency_s is not None and until_s is not None and latency_s <= until_s

    @property
    def device_s(self) -> float:
        """Seconds that the job's profile stages took."""
        return sum(lane.device_s for lane in self.progress.values())

    def elapsed_s(self, now: float) -> float:
        """Wall-clock seconds of the job, including those of earlier processes, without what it only
        waited."""
        return now - self._began

    def waited(self, seconds: float) -> None:
        """For other jobs or commands, while nothing of the job worked: no budget counts it."""
        self._began += seconds

    def batch(self, task_id: str) -> int:
        """The number of candidates to select in the round just opened."""
        return self.progress[task_id].batch

    def estimated_latency_s(self) -> float | None:
        """The sum of the tasks' best latencies, or None while a task has none. Tasks without
        candidates keep the default schedule and are not counted."""
        total = 0.0
        for lane in self.progress.values():
            if lane.best_s is None and not lane.exhausted:
                return None
            total += (lane.best_s or 0.0) * lane.weighted.weight
        return total

    @property
    def _expected(self) -> int:
        return sum(lane.expected for lane in self.progress.values())

    def _state(self, lane: LaneProgress) -> LaneState:
        """To a lane that has all of its trials no further round goes."""
        state = lane.state
        return replace(state, exhausted=True) if self._has_its_trials(lane) else state

    def _left(self, lane: LaneProgress) -> int | None:
        """How many trials a lane may still plan, None where that is not limited."""
        per_task = self.budget.trials_per_task
        return None if per_task is None else max(0, per_task - lane.trials - lane.expected)

    def _has_its_trials(self, lane: LaneProgress) -> bool:
        return self._left(lane) == 0

    def _rounds(self) -> int:
        """How many rounds were finished."""
        return sum(len(lane.state.history) for lane in self.progress.values())

    def _round_s(self) -> float:
        """Mean duration of a finished round in seconds."""
        rounds = self._rounds()
        seconds = sum(lane.state.seconds for lane in self.progress.values())
        return seconds / rounds if rounds else _UNKNOWN_ROUND_S

    def _batch(self, chosen: LaneState, states: list[LaneState]) -> int:
        left = None
        if self.budget.trials is not None:
            left = self.budget.trials - self.trials - self._expected
        size = self._search.batch
        if not chosen.history:
            size = first_batch(chosen, states, self._search, left, self._busy)
        limits = (size, left, self._left(self.progress[chosen.task_id]))
        return max(1, min(limit for limit in limits if limit is not None))
