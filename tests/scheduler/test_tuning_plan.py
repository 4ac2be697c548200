"""The plan of a real job: budgets with rounds in flight, resuming, giving up."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.mock import device, host
from tunefleet.core.budget import Budget
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import (
    BuildResult,
    Profiled,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageRun,
    UpdateResult,
)
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Built, Candidate, Failure, FailureKind, Measurement
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.policies import POLICIES
from tunefleet.scheduler.tuning_plan import FIRST_MODEL, TuningPlan
from tunefleet.scheduler.values import (
    End,
    FinishJob,
    JobRequest,
    JobSubmitted,
    ResourceJoined,
    StageFinished,
    StartStage,
)

SEARCH = SearchSettings(batch=6, first_batch=4)
FAILED = Failure(FailureKind.BUILD_ERROR, "made to fail")


def weighted(name: str) -> WeightedTask:
    return WeightedTask(Task(name, name, "conv2d", "1x1", 1e6, "program"), 1)


def plan_of(lanes: int = 3, trials: int = 40, **options: Any) -> TuningPlan:
    tasks = [weighted(f"t{i}") for i in range(lanes)]
    return TuningPlan(tasks, Budget(trials=trials), SEARCH, known={}, **options)


class Mock:
    """Answers every stage: candidates as asked for, every third build fails."""

    def __init__(self, plan: TuningPlan, space: int = 1000) -> None:
        self.plan, self.space = plan, space
        self.runs: list[StageRun] = []
        self.made: dict[str, int] = {}
        self.batches: dict[tuple[str, int], tuple[Candidate, ...]] = {}

    def result(self, key: StageKey) -> Any:
        if key.kind is StageKind.SELECT:
            had = self.made.get(key.task_id, 0)
            size = min(self.plan.batch(key.task_id), self.space - had)
            self.made[key.task_id] = had + size
            chosen = tuple(Candidate(f"{key.task_id}-{had + i}", "trace") for i in range(size))
            self.batches[key.task_id, key.iteration] = chosen
            return SelectResult(chosen, exhausted=self.made[key.task_id] >= self.space)
        if key.kind is StageKind.UPDATE:
            return UpdateResult()
        chosen = self.batches[key.task_id, key.iteration]
        bad = [c.candidate_id for i, c in enumerate(chosen) if i % 3 == 2]
        good = [c.candidate_id for i, c in enumerate(chosen) if i % 3 != 2]
        if key.kind is StageKind.BUILD:
            built = tuple(Built(c, "x.so", (), 0.1) for c in good)
            return BuildResult(built, tuple((c, FAILED) for c in bad))
        return ProfileResult(tuple(Profiled(c, Measurement((1e-3,)), 1e-3) for c in good))

    def drive(self, scheduler: Scheduler, request: JobRequest, stop_after: int = 10**6) -> str:
        waiting: list[StartStage] = []
        now, events = 0.0, [JobSubmitted(0.0, request)]
        for resource in (host(), device()):
            scheduler.handle(ResourceJoined(0.0, resource))
        reason = ""
        while events and len(self.runs) < stop_after:
            for instruction in scheduler.handle(events.pop()):
                if isinstance(instruction, StartStage):
                    waiting.append(instruction)
                elif isinstance(instruction, FinishJob):
                    reason = instruction.reason
            if waiting:
                now += 1.0
                start = waiting.pop(0)
                result = self.result(start.key)
                self.runs.append(StageRun(start.key, result, now, 1.0))
                events.append(
                    StageFinished(now, start.key, start.lease, End.DONE, 1.0, result)  # type: ignore[arg-type]
                )
        return reason


@given(
    lanes=st.integers(1, 5),
    trials=st.integers(1, 60),
    policy=st.sampled_from(sorted(POLICIES)),
    in_flight=st.integers(1, 6),
    lookahead=st.booleans(),
    stop_after=st.integers(0, 40),
)
def test_exactly_the_budgets_trials_also_when_resumed(
    lanes: int, trials: int, policy: str, in_flight: int, lookahead: bool, stop_after: int
) -> None:
    mock = Mock(plan_of(lanes, trials))
    request = JobRequest("j", mock.plan, lookahead=lookahead)
    mock.drive(Scheduler(POLICIES[policy](), in_flight), request, stop_after)
    # A new process knows what was committed, and nothing else.
    mock.plan = plan_of(lanes, trials, committed=mock.runs)
    request = JobRequest("j", mock.plan, lookahead=lookahead)
    mock.drive(Scheduler(POLICIES[policy](), in_flight), request)
    assert mock.plan.trials == trials
    assert len({run.key for run in mock.runs}) == len(mock.runs)


def test_a_job_ends_when_its_spaces_are_exhausted() -> None:
    mock = Mock(plan_of(2, 1000), space=10)
    reason = mock.drive(Scheduler(POLICIES["predictive"]()), JobRequest("j", mock.plan))
    assert reason == "nothing is left to try"
    assert mock.plan.trials == 20


@given(
    lanes=st.integers(1, 4),
    per_task=st.integers(1, 20),
    lookahead=st.booleans(),
    stop_after=st.integers(0, 40),
)
def test_each_task_gets_exactly_its_trials_also_when_resumed(
    lanes: int, per_task: int, lookahead: bool, stop_after: int
) -> None:
    tasks = [weighted(f"t{i}") for i in range(lanes)]
    budget = Budget(trials_per_task=per_task)

    def plan(committed: list[StageRun]) -> TuningPlan:
        return TuningPlan(tasks, budget, SEARCH, known={}, committed=committed)

    mock = Mock(plan([]))
    request = JobRequest("j", mock.plan, lookahead=lookahead)
    mock.drive(Scheduler(POLICIES["predictive"]()), request, stop_after)
    mock.plan = plan(mock.runs)
    request = JobRequest("j", mock.plan, lookahead=lookahead)
    reason = mock.drive(Scheduler(POLICIES["predictive"]()), request)
    assert [per_task] * lanes == [lane.trials for lane in mock.plan.progress.values()]
    assert f"each task has its {per_task} trials" == reason


def test_what_the_device_has_measured_counts() -> None:
    budget = Budget(device_seconds=3)
    mock = Mock(TuningPlan([weighted("a"), weighted("b")], budget, SEARCH, known={}))
    reason = mock.drive(Scheduler(POLICIES["sequential"]()), JobRequest("j", mock.plan))
    assert reason == "the 0.05 minutes of its device are over"
    profiles = [run for run in mock.runs if run.key.kind is StageKind.PROFILE]
    assert 3 <= len(profiles) <= 4  # each of a second, and one that had begun


def test_the_first_model_comes_before_any_selection() -> None:
    mock = Mock(plan_of(first_model=True))
    mock.drive(Scheduler(POLICIES["predictive"]()), JobRequest("j", mock.plan), stop_after=2)
    assert [(r.key.iteration, r.key.kind) for r in mock.runs] == [
        (FIRST_MODEL, StageKind.UPDATE),
        (0, StageKind.SELECT),
    ]


def test_time_of_earlier_processes_counts() -> None:
    tasks = [weighted("a")]
    plan = TuningPlan(tasks, Budget(seconds=60), SEARCH, known={}, elapsed_s=50.0, now=1000.0)
    assert plan.ended(1005.0) == ""
    assert plan.ended(1010.0) == "the time of 1 minutes is over"


def test_a_search_may_pause_before_its_budget_ends() -> None:
    plan = plan_of(1, trials=40, now=100.0, pause_s=30.0)
    assert (plan.ended(129.0), plan.pauses) == ("", False)
    assert (plan.ended(130.0), plan.pauses) == ("the source framework is measured again", True)
    spent = TuningPlan(
        [weighted("t0")], Budget(seconds=60), SEARCH, known={}, elapsed_s=50.0, pause_s=10.0
    )
    assert (spent.ended(10.0), spent.pauses) == ("the time of 1 minutes is over", False)


def test_a_lane_given_up_gives_its_trials_to_the_others() -> None:
    plan = plan_of(2, trials=8)
    assert (plan.next_lane(0.0), plan.next_lane(0.0)) == ("t0", "t1")
    assert plan.ended(0.0)
    plan.failed("t0", "poison")
    assert not plan.ended(0.0)
    plan.closed("t1")
    assert plan.next_lane(0.0) == "t1"


def test_what_a_lane_that_was_given_up_still_selects_is_not_waited_for() -> None:
    plan = plan_of(2, trials=8)
    assert (plan.next_lane(0.0), plan.next_lane(0.0)) == ("t0", "t1")
    plan.failed("t0", "poison")
    selected = SelectResult((Candidate("c", "trace"),) * 4)
    plan.absorb(StageKey("j", "t0", 0, StageKind.SELECT), selected, 1.0)
    assert not plan.ended(0.0)


def test_what_fails_in_a_build_that_is_made_again_is_one_trial() -> None:
    plan = plan_of(1, trials=8)
    plan.next_lane(0.0)
    failed = BuildResult((), (("a", FAILED), ("b", FAILED)))
    again = BuildResult((), (("b", FAILED), ("c", FAILED)))
    for result in (failed, again):
        plan.absorb(StageKey("j", "t0", 0, StageKind.BUILD), result, 1.0)
    assert plan.trials == 3


def test_known_latencies_count_from_the_start() -> None:
    tasks = [weighted("a")]
    plan = TuningPlan(tasks, Budget(trials=9), SEARCH, known={"a": 2e-3})
    assert plan.estimated_latency_s() == 2e-3


def test_tasks_with_a_verified_program_are_searched_last() -> None:
    tasks = [weighted("a"), weighted("b"), weighted("c")]
    plan = TuningPlan(tasks, Budget(trials=90), SEARCH, known={}, verified={"a", "b"})
    assert [plan.next_lane(0.0) for _ in tasks] == ["c", "a", "b"]


def test_a_search_ends_with_its_deadline() -> None:
    plan = plan_of(deadline=100.0)
    assert plan.ended(99.0) == ""
    assert plan.ended(100.0) == "its deadline is reached"


def test_a_search_ends_once_its_tasks_take_what_they_may_together() -> None:
    tasks = [weighted("a"), weighted("b")]
    budget, known = Budget(trials=9), {"a": 2e-3, "b": 1e-3}
    near = TuningPlan(tasks, budget, SEARCH, known=known, until_s=2.9e-3)
    assert (near.ended(0.0), near.reached) == ("", False)
    there = TuningPlan(tasks, budget, SEARCH, known=known, until_s=3e-3)
    assert (there.ended(0.0), there.reached) == ("an estimated latency of 3 ms is reached", True)
    unknown = TuningPlan(tasks, budget, SEARCH, known={"a": 2e-3}, until_s=9.0)
    assert (unknown.ended(0.0), unknown.reached) == ("", False)
