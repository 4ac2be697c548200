"""When a job that is entered now would begin and end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.store import values as v
from tunefleet.core.budget import Budget
from tunefleet.core.coordination import Claim, ControlRequest, Holder
from tunefleet.core.job import Job, JobState
from tunefleet.core.phases import PHASES, Forecast
from tunefleet.core.stage import StageKey, StageKind, StageSpan, UpdateResult
from tunefleet.fleet.leases import this_process
from tunefleet.runs import queueing
from tunefleet.runs.forecast import EarlierRuns
from tunefleet.runs.queueing import (
    QueueEstimate,
    QueueEstimator,
    SharedWork,
    delivered_s,
    finished_s,
    stages_at_once,
)
from tunefleet.store import MemoryStore


def work(*seconds: float, owner: str = "") -> list[SharedWork]:
    return [SharedWork(each, owner=owner) for each in seconds]


@pytest.mark.parametrize(
    ("expected", "own", "others", "at_once"),
    [
        (60, work(60), [], 1.0),
        (30, work(60), [], 2.0),
        (120, work(60), work(60), 1.0),
        (70, work(60), work(10), 1.0),
        (20, work(10), work(60), 1.0),
        (90, work(30), work(30, 60), 1.0),
        (45, work(30), work(30, 60), 2.0),
        (80, work(60), [SharedWork(20, is_timed=True)], 1.0),
        (180, [SharedWork(60, is_timed=True)], work(60, 60), 1.0),
        (60, [SharedWork(60, is_timed=True)], work(60, 60), 3.0),
        (60, [SharedWork(60, is_timed=True)], [], 2.0),
        (0, work(0), work(60), 1.0),
        (20, work(10), work(60, 60, owner="another"), 1.0),
        (40, work(10), [SharedWork(60, owner="another", weight=3.0)], 1.0),
        (10, [SharedWork(10, urgent=True)], work(60, 60), 1.0),
        (70, work(10), [SharedWork(60, urgent=True)], 1.0),
    ],
)
def test_jobs_share_a_device(
    expected: float, own: list[SharedWork], others: list[SharedWork], at_once: float
) -> None:
    works = [*others, *own]
    assert finished_s(len(others), works, at_once) == pytest.approx(expected)


def test_deliveries_follow_one_another_after_all_imports() -> None:
    timed = [SharedWork(s, True, before_s=2.0, after_s=10.0) for s in (30.0, 25.0, 90.0)]
    assert delivered_s(timed, 1.0) == [101.0, 91.0, 161.0]


def test_stages_run_at_once_as_they_did() -> None:
    spans = [
        StageSpan(StageKey("job", "t", n, StageKind.BUILD), "host", 1, at, 10.0)
        for n, at in enumerate((0.0, 5.0, 100.0))
    ]
    assert stages_at_once(spans) == 30.0 / 25.0
    assert stages_at_once([]) == 1.0


def entered(store: Any, job_id: str, budget: Budget, **changed: Any) -> Job:
    spec = replace(v.make_spec(job_id), budget=budget, **changed)
    opened: Job = store.jobs.open(spec, job_id=job_id, now=1.0)
    store.work.put_tasks(job_id, [v.make_task()])
    return opened


def went_on(store: Any, job_id: str, trials: int, elapsed_s: float) -> None:
    v.commit_measured(store, {f"{job_id}{n}": 1e-3 for n in range(trials)}, job_id=job_id)
    store.work.commit(v.run_of(UpdateResult(), job_id), elapsed_s=elapsed_s)


@pytest.fixture(autouse=True)
def earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier runs took 2 s a trial and a second for each phase around the search."""
    known = Forecast(dict.fromkeys(PHASES, 1.0), work_s=2.0)
    monkeypatch.setattr(EarlierRuns, "of", lambda self, spec: known)


AROUND_S = len(PHASES) - 1


class TestQueue:
    def test_alone_a_job_begins_at_once(self) -> None:
        store = MemoryStore()
        job = entered(store, "job", Budget(trials=10))
        assert QueueEstimator(store).estimate(1000.0, job) == QueueEstimate(
            0, 1000.0, 1020.0 + AROUND_S
        )
        job = entered(store, "timed", Budget(seconds=60))
        assert QueueEstimator(store).estimate(1000.0) == QueueEstimate(2, 1000.0, 1089.0)

    def test_others_make_it_longer(self) -> None:
        store = MemoryStore()
        entered(store, "other", Budget(trials=8))
        went_on(store, "other", 4, elapsed_s=16.0)
        job = entered(store, "job", Budget(trials=10))
        # The other took 8 s for 4 trials, 4 stages at once; it has as many left, and its delivery.
        assert QueueEstimator(store).estimate(200.0, job) == QueueEstimate(
            1, 200.0, 209.0 + AROUND_S
        )
        store.coordination.ask("other", ControlRequest.PAUSE)
        assert QueueEstimator(store).estimate(200.0, job).jobs == 0
        store.coordination.ask("other", ControlRequest.RUN)
        store.jobs.finish("other", JobState.SUCCEEDED, {})
        assert QueueEstimator(store).estimate(200.0, job).ends_at == 205.0 + AROUND_S

    def test_of_a_job_without_a_round_the_rounds_of_others_say(self) -> None:
        store = MemoryStore()
        entered(store, "other", Budget(trials=8))
        went_on(store, "other", 8, elapsed_s=16.0)
        entered(store, "new", Budget(trials_per_task=4))
        unknown = Forecast(dict.fromkeys(PHASES, 1.0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EarlierRuns, "of", lambda self, spec: unknown)
            # A round of 8 trials takes 8 s, 4 stages at once; an import 2 s, each delivery 5 s.
            assert QueueEstimator(store).estimate(200.0) == QueueEstimate(2, 200.0, 212.0)

    def test_jobs_of_other_devices_do_not(self) -> None:
        store = MemoryStore()
        entered(store, "other", Budget(trials=8), device=v.STRANGER)
        job = entered(store, "job", Budget(trials=10))
        assert QueueEstimator(store).estimate(0.0, job).jobs == 0

    def test_nothing_is_said_of_what_is_not_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = MemoryStore()
        job = entered(store, "job", Budget(trials=10))
        entered(store, "other", Budget(device_seconds=8))
        assert QueueEstimator(store).estimate(0.0, job) == QueueEstimate(1, 0.0, None)
        store.jobs.finish("other", JobState.SUCCEEDED, {})
        monkeypatch.setattr(EarlierRuns, "of", lambda self, spec: Forecast())
        assert QueueEstimator(store).estimate(0.0, job).ends_at is None

    def test_it_waits_for_what_is_measured_now(self) -> None:
        store = MemoryStore()
        for unit, expected_s in (("host/core0", 40.0), ("device b", 90.0)):
            holder = Holder(this_process(), expected_s=expected_s)
            store.coordination.acquire(Claim(unit, frozenset({unit}), holder), 600.0)
        job = entered(store, "job", Budget(trials=10))
        estimate = QueueEstimator(store).estimate(0.0, job)
        assert estimate.starts_at == pytest.approx(40.0, abs=1.0)
        assert estimate.ends_at == pytest.approx(60.0 + AROUND_S, abs=1.0)

    def test_of_those_under_way_the_last_end_is_told(self) -> None:
        store = MemoryStore()
        for job_id, seconds in (("a", 60.0), ("b", 90.0)):
            entered(store, job_id, Budget(seconds=seconds))
        assert QueueEstimator(store).estimate(1000.0) == QueueEstimate(2, 1000.0, 1159.0)
        assert QueueEstimator(MemoryStore()).estimate(5.0) == QueueEstimate(0, 5.0, None)

    def test_there_is_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queueing, "_MOST", 2)
        store = MemoryStore()
        for job_id in ("a", "b", "c"):
            entered(store, job_id, Budget(seconds=60.0))
        assert QueueEstimator(store).estimate(0.0) == QueueEstimate(2, 0.0, None)
