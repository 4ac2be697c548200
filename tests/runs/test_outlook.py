"""Forecasts of a search that goes its way, with a store and the plan of a real job."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.store import values as v
from tunefleet.core.budget import Budget
from tunefleet.core.events import Event, Forecasted, Note, SearchEnded, StageCommitted
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import (
    BuildResult,
    Profiled,
    ProfileResult,
    SelectResult,
    StageResult,
    UpdateResult,
)
from tunefleet.errors import StoreBusyError
from tunefleet.runs import outlook
from tunefleet.runs.forecasts import forecasts_of
from tunefleet.runs.outlook import Outlook, forecaster_of
from tunefleet.scheduler.tuning_plan import TuningPlan
from tunefleet.store import MemoryStore, open_store

ROUND = 4


class Driven:
    """A job of one task whose trials take 0.5 s each; the n-th has a latency of `latency(n)`."""

    def __init__(
        self,
        store: Any,
        job_id: str,
        trials: int,
        target_s: float | None = None,
        *,
        waits: bool = True,
    ) -> None:
        self.events: list[Event] = []
        self._store, self._trials, self._job_id = store, trials, job_id
        if not store.jobs.page(prefix=job_id):
            v.open_with_task(store, job_id)
        job, budget = store.jobs.get(job_id), Budget(trials=trials)
        committed = store.work.stages(job_id)
        tasks, settings = [v.make_task()], SearchSettings()
        self.plan = TuningPlan(tasks, budget, settings, known={}, committed=committed)
        self.outlook = Outlook(store, job, target_s, self._observe)
        self.outlook.follow(self.plan)
        if waits:
            self.learned()

    def learned(self) -> None:
        """Wait until it has learned from earlier searches."""
        assert self.outlook._learning is not None
        self.outlook._learning.join()

    def _observe(self, event: Event) -> None:
        self.events.append(event)
        self._store.events.append(self._job_id, 100.0, [event])

    def run(self, latency: Any, upto: int | None = None) -> None:
        for number in range(self.plan.trials, upto or self._trials, ROUND):
            assert self.plan.next_lane(0.0) == "t"
            names = [f"c{number + n}" for n in range(ROUND)]
            chosen = tuple(map(v.cand, names))
            profiled = tuple(
                Profiled(name, v.measured(latency(number + n)), 0.1) for n, name in enumerate(names)
            )
            results: list[StageResult] = [
                SelectResult(chosen), BuildResult(v.built(*names)), ProfileResult(profiled),
                UpdateResult(),
            ]  # fmt: skip
            for result in results:
                run = v.run_of(result, self._job_id, iteration=number // ROUND)
                self._store.work.commit(run)
                self.plan.absorb(run.key, result, run.seconds)
                self.outlook(StageCommitted(run, self.plan.trials, 0.5 * (number + ROUND)))
            self.plan.closed("t")

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def falling(trial: int) -> float:
    return 1e-3 * (1 + 8 / (1 + trial))


@pytest.fixture(autouse=True)
def no_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a forecast takes is more than a made-up search does."""
    monkeypatch.setattr("tunefleet.runs.outlook._COST", 1e9)


def test_a_search_is_forecast_after_rounds_and_judged_at_its_end() -> None:
    driven = Driven(MemoryStore(), "job", 64)
    driven.run(falling)
    driven.outlook.ended(False)
    forecasts = [event.forecast for event in driven.of(Forecasted)]
    assert forecasts[0].trials == ROUND
    assert {64} == {each.end_trials for each in forecasts}
    assert len(forecasts) <= 64 / ROUND
    assert forecasts[0].end_s == pytest.approx(32.0)
    (ended,) = driven.of(SearchEnded)
    assert ended.outcome.trials == 64
    assert ended.outcome.latency_s == pytest.approx(2 * falling(63))
    assert driven.of(Note) == []


def test_what_the_first_forecast_takes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefleet.runs.outlook._COST", 0.0)
    driven = Driven(MemoryStore(), "job", 64)
    driven.run(falling)
    assert len(driven.of(Forecasted)) == 2


def test_rounds_go_on_while_it_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    learned, made = threading.Event(), outlook.forecaster_of

    def waits(store: Any, job: Any) -> Any:
        assert learned.wait(60)
        return made(store, job)

    monkeypatch.setattr(outlook, "forecaster_of", waits)
    driven = Driven(MemoryStore(), "job", 64, waits=False)
    driven.run(falling, 32)
    assert driven.of(Forecasted) == []
    learned.set()
    driven.learned()
    driven.run(falling)
    assert driven.of(Forecasted)[0].forecast.trials == 36


def test_an_error_while_it_learns_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(store: Any, job: Any) -> Any:
        raise StoreBusyError("the store is busy", cure="wait")

    monkeypatch.setattr(outlook, "forecaster_of", fails)
    driven = Driven(MemoryStore(), "job", 64)
    with pytest.raises(StoreBusyError):
        driven.run(falling)


def test_a_target_out_of_reach_is_warned_of_once() -> None:
    driven = Driven(MemoryStore(), "job", 64, target_s=1e-5)
    driven.run(falling)
    (note,) = driven.of(Note)
    assert note.warning
    assert "not likely to be reached" in note.text
    assert "the search goes on" in note.text


def test_a_search_that_goes_on_is_not_warned_again() -> None:
    store = MemoryStore()
    first = Driven(store, "job", 64, target_s=1e-5)
    first.run(falling, 32)
    again = Driven(store, "job", 64, target_s=1e-5)
    again.run(falling)
    assert [len(each.of(Note)) for each in (first, again)] == [1, 0]
    assert len(again.of(Forecasted)) > 1


def test_earlier_searches_of_the_home_are_read() -> None:
    store = MemoryStore()
    shipped = forecaster_of(store, _job(store, "first")).gains.tasks
    driven = Driven(store, "job", 64)
    driven.run(falling)
    driven.outlook.ended(False)
    made = forecaster_of(store, _job(store, "last"))
    assert made.gains.tasks == shipped + 1
    assert len(made.calibration) > len(forecaster_of(store, store.jobs.get("job")).calibration)


def test_searches_of_another_tenant_are_not_read() -> None:
    store = MemoryStore()
    Driven(store, "job", 64).run(falling)
    own = _job(store, "own")
    known, other = (
        forecaster_of(store, replace(own, spec=replace(own.spec, tenant=tenant))).gains.tasks
        for tenant in ("", "ann")
    )
    assert known == other + 1


def test_forecasts_are_listed_with_what_came_of_them(tmp_path: Any) -> None:
    store = open_store(tmp_path)
    driven = Driven(store, "c0ffee", 64, target_s=1.5e-3)
    driven.run(falling)
    driven.outlook.ended(False)
    store.close()
    listing = forecasts_of(tmp_path, "c0ffee")
    assert listing == forecasts_of(tmp_path)
    assert listing[0]["network"] == "c0ffee"
    assert listing[0]["at"] == 100.0
    assert listing[0]["outcome"]["trials"] == 64
    assert {type(each["held"]) for each in listing} == {bool}


def test_looking_creates_no_home(tmp_path: Any) -> None:
    assert forecasts_of(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def _job(store: Any, job_id: str) -> Any:
    v.open_with_task(store, job_id)
    return store.jobs.get(job_id)
