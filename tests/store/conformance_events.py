"""The contract of the events that a store keeps."""

from __future__ import annotations

from typing import Any

import pytest

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
    SearchEnded,
    StageAbandoned,
    StageCommitted,
    StageProgressed,
    StageStarted,
    StepCommitted,
)
from tunefleet.core.forecast import Quantiles, SearchForecast, SearchOutcome
from tunefleet.core.phases import Forecast
from tunefleet.core.stage import StageKey, StageKind, StageRun, UpdateResult
from tunefleet.core.step import StepKey, StepKind, StepSpan
from tunefleet.errors import InputError

from . import values as v

KEY = StageKey("job", "t", 3, StageKind.UPDATE)
STEP = StageKey("job", "", 0, StepKind.IMPORT)
FORECAST = SearchForecast(
    16, 20.0, 2e-3, 64, 80.0, Quantiles(1e-3, 1.5e-3, 1.75e-3), (1.5, 0.25), 12,
    target_s=1.25e-3, target_at_s=Quantiles(60.0, None, None), probability=0.25,
)  # fmt: skip
#: As they are kept: without programs and results.
KEPT: list[Event] = [
    PhaseStarted("import"),
    JobOpened("job", True, Budget(trials=3), 1.5, Forecast({"import": 2.0}, None, 0.5), True),
    Prepared(99.5),
    Prepared(99.5, Budget(seconds=216.0)),
    JobHeld("cores 0-1 are used by job 3f2a of ann"),
    JobContinued(),
    LaneUpdated(v.make_task(), 4, 1, 1e-3, None, True),
    StageStarted(KEY, "host"),
    StageStarted(STEP, "host"),
    StageCommitted(StageRun(KEY, UpdateResult(), 100.0, 2.5, "note", "host", 2), 12, 30.0),
    StepCommitted(StepSpan(StepKey("p", StepKind.IMPORT), "host", 1, 100.0, 2.5)),
    StageAbandoned(KEY, "silent"),
    ResourceQuarantined("device", "it moved", 5.0),
    ResourceBack("device"),
    Forecasted(FORECAST),
    SearchEnded(SearchOutcome(64, 90.0, 1.5e-3, False)),
    Note("a text with \ud800 and \0", warning=True),
    JobEnded("it differs; tune it again", "JobError"),
]


def program_free(event: Event) -> Event:
    if not isinstance(event, LaneUpdated):
        return event
    weighted = event.weighted
    task = type(weighted.task)(**{**_fields(weighted.task), "program": ""})
    return type(event)(**{**_fields(event), "weighted": type(weighted)(task, weighted.weight)})


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class EventLog:
    def test_events_read_back_in_their_order(self, store: Any) -> None:
        v.open_with_task(store, "job")
        store.events.append("job", 5.0, KEPT)
        page = store.events.page()
        assert [program_free(event) for event in KEPT] == [kept.event for kept in page]
        assert {("job", 5.0)} == {(kept.job_id, kept.at) for kept in page}
        assert sorted({kept.seq for kept in page}) == [kept.seq for kept in page]
        assert store.events.last() == page[-1].seq

    def test_every_kind_of_event_is_kept_or_named_as_passing(self) -> None:
        passing = {StageProgressed, Progressed}
        assert set(Event.__args__) == {type(event) for event in KEPT} | passing

    def test_what_only_says_how_far_a_stage_is_passes(self, store: Any) -> None:
        v.open_with_task(store, "job")
        store.events.append("job", 0.0, [StageProgressed(KEY, 1, 8), Progressed(1, 2, "x")])
        assert store.events.page() == []
        assert store.events.last() == 0

    def test_a_reader_goes_on_behind_a_number(self, store: Any) -> None:
        v.open_with_task(store, "job")
        for index in range(5):
            store.events.append("job", index, [Note(str(index))])
        first = store.events.page(limit=2)
        rest = store.events.page(first[-1].seq)
        assert [kept.event.text for kept in [*first, *rest]] == ["0", "1", "2", "3", "4"]
        assert store.events.page(rest[-1].seq) == []

    def test_the_events_of_some_jobs(self, store: Any) -> None:
        for job in ("a", "b", "c"):
            v.open_with_task(store, job, task_id=job)
            store.events.append(job, 0.0, [Note(job)])
        assert [kept.job_id for kept in store.events.page(job_ids=["a", "c"])] == ["a", "c"]

    def test_the_events_of_some_kinds(self, store: Any) -> None:
        v.open_with_task(store, "job")
        store.events.append("job", 0.0, KEPT)
        page = store.events.page(kinds=[Forecasted, SearchEnded])
        assert [Forecasted, SearchEnded] == [type(kept.event) for kept in page]

    def test_numbers_are_never_given_again(self, store: Any) -> None:
        v.open_with_task(store, "job")
        v.open_with_task(store, "other", task_id="u")
        store.events.append("job", 0.0, [Note("x")])
        last = store.events.last()
        store.jobs.remove("job")
        assert store.events.page() == []
        store.events.append("other", 0.0, [Note("y")])
        assert store.events.last() > last

    def test_a_job_that_is_unknown_has_none(self, store: Any) -> None:
        with pytest.raises(InputError, match="no job job"):
            store.events.append("job", 0.0, [Note("x")])

    def test_as_json_they_say_their_kind(self, store: Any) -> None:
        v.open_with_task(store, "job")
        store.events.append("job", 5.0, [Note("x")])
        (kept,) = store.events.page()
        assert kept.to_json() == {
            "seq": kept.seq, "job": "job", "at": 5.0, "event": "Note", "text": "x",
            "warning": False,
        }  # fmt: skip
