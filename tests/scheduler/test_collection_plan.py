"""Every task of a collection gets its trials, also after an interruption."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.test_tuning_plan import SEARCH, Mock, weighted
from tunefleet.core.stage import StageKind
from tunefleet.scheduler.collection_plan import CollectionPlan
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.policies import POLICIES
from tunefleet.scheduler.values import JobRequest


def plan_of(lanes: int, per_task: int, **options: Any) -> CollectionPlan:
    return CollectionPlan([weighted(f"t{i}") for i in range(lanes)], SEARCH, per_task, **options)


def drive(mock: Mock, in_flight: int = 3, stop_after: int = 10**6) -> str:
    scheduler = Scheduler(POLICIES["predictive"](), in_flight)
    return mock.drive(scheduler, JobRequest("j", mock.plan), stop_after)


@given(
    lanes=st.integers(1, 5),
    per_task=st.integers(1, 30),
    in_flight=st.integers(1, 6),
    stop_after=st.integers(0, 40),
)
def test_every_task_gets_exactly_its_trials_also_when_resumed(
    lanes: int, per_task: int, in_flight: int, stop_after: int
) -> None:
    mock = Mock(plan_of(lanes, per_task))
    drive(mock, in_flight, stop_after)
    mock.plan = plan_of(lanes, per_task, committed=mock.runs)
    drive(mock, in_flight)
    assert {lane.trials for lane in mock.plan.progress.values()} == {per_task}
    assert len({run.key for run in mock.runs}) == len(mock.runs)


def test_a_small_space_gives_what_it_has() -> None:
    mock = Mock(plan_of(2, 50), space=10)
    assert drive(mock) == "every task has its trials"
    assert mock.plan.trials == 20


def test_tasks_take_turns() -> None:
    mock = Mock(plan_of(3, 4 * SEARCH.batch))
    drive(mock, stop_after=24)
    selected = Counter(r.key.task_id for r in mock.runs if r.key.kind is StageKind.SELECT)
    assert max(selected.values()) - min(selected.values()) <= 1
