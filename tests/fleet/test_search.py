from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fleet.jobs import (
    SETTINGS,
    choose_winners,
    open_job,
    place_of,
    search,
)
from tests.store.values import cand, commit_measured
from tunefleet.core.coordination import ProcessIdentity
from tunefleet.core.events import LaneUpdated, StageCommitted, StageStarted
from tunefleet.core.identity import Tier
from tunefleet.core.stage import BuildResult, SelectResult, StageKey, StageKind
from tunefleet.core.trial import Failure, FailureKind, Measurement
from tunefleet.errors import StoreBusyError
from tunefleet.fleet.leases import Leases, machine_units
from tunefleet.stages import profile, winners, work
from tunefleet.stages.place import JobTask
from tunefleet.stages.runner import StageRunner
from tunefleet.stages.times import tuning_curve
from tunefleet.store import MemoryStore
from tunefleet.workers.pool import CallEnd, CallFailure

pytestmark = pytest.mark.tvm


def drive(store: Any, machine: Any, job: Any) -> list[Any]:
    seen: list[Any] = []
    search(store, machine, job, observer=seen.append)
    return seen


@pytest.fixture(scope="module")
def done(tiny: Any, machine: Any) -> Any:
    """(store, job, events) of a finished job of 30 trials."""
    store = MemoryStore()
    job = open_job(store, tiny, 30)
    return store, job, drive(store, machine, job)


def test_exactly_the_trials_asked_for(done: Any) -> None:
    store, job, _ = done
    assert len(store.records.trials(job.job_id)) == 30


def test_no_candidate_is_measured_twice(done: Any) -> None:
    store, job, _ = done
    for weighted in store.work.tasks(job.job_id):
        trials = store.records.trials(job.job_id, weighted.task.task_id)
        assert len({t.candidate.candidate_id for t in trials}) == len(trials)


def test_every_task_is_tried(done: Any) -> None:
    store, job, _ = done
    for weighted in store.work.tasks(job.job_id):
        assert store.records.trials(job.job_id, weighted.task.task_id)


def test_stages_of_a_lane_come_in_order(done: Any) -> None:
    _, _, events = done
    runs = [e.run for e in events if isinstance(e, StageCommitted)]
    for task_id in {r.key.task_id for r in runs}:
        kinds = [r.key.kind for r in runs if r.key.task_id == task_id]
        complete = kinds[: len(kinds) // 4 * 4]
        order = [StageKind.SELECT, StageKind.BUILD, StageKind.PROFILE, StageKind.UPDATE]
        assert complete == order * (len(complete) // 4)


def test_lane_events_count_the_trials(done: Any) -> None:
    _, _, events = done
    last = {e.weighted.task.task_id: e for e in events if isinstance(e, LaneUpdated)}
    assert sum(e.trials for e in last.values()) == 30


def test_the_curve_never_rises(done: Any) -> None:
    store, job, _ = done
    curve = [p.latency_ms for p in tuning_curve(store, job) if p.latency_ms is not None]
    assert curve == sorted(curve, reverse=True)


def test_a_finished_job_does_nothing_more(done: Any, machine: Any) -> None:
    store, job, _ = done
    events = drive(store, machine, job)
    assert not [e for e in events if isinstance(e, StageCommitted)]


def test_winners_are_verified(done: Any, machine: Any) -> None:
    store, job, _ = done
    choose_winners(store, machine, job)
    winners = store.records.winners(job.job_id)
    assert set(winners) == {t.task.task_id for t in store.work.tasks(job.job_id)}
    assert all(checks["verified"] for winner, checks in winners.values() if winner is not None)
    assert any(winner is not None for winner, _ in winners.values())


def test_a_later_job_starts_from_the_records(done: Any, tiny: Any, machine: Any) -> None:
    store, first, _ = done
    job = open_job(store, tiny, 31)
    assert job.job_id != first.job_id
    events = drive(store, machine, job)
    known = next(e for e in events if isinstance(e, LaneUpdated))
    assert known.known_s is not None
    old = {t.candidate.candidate_id for t in store.records.trials(first.job_id) if t.latency_s}
    assert not old & {t.candidate.candidate_id for t in store.records.trials(job.job_id)}


def test_without_transfer_nothing_is_known(done: Any, tiny: Any, machine: Any) -> None:
    store, _, _ = done
    job = open_job(store, tiny, 9, replace(SETTINGS, transfer=False))
    events = drive(store, machine, job)
    assert all(e.known_s is None for e in events if isinstance(e, LaneUpdated))


@pytest.mark.parametrize(("trials", "lent"), [(15, 0), (16, 1)])
def test_only_a_task_that_has_been_tuned_lends_its_schedule(
    tiny: Any, trials: int, lent: int, tmp_path: Path
) -> None:
    store = MemoryStore()
    settings = replace(SETTINGS, search=replace(SETTINGS.search, pretrained=""))
    job = open_job(store, tiny, 99, settings)
    tasks = [w.task for w in store.work.tasks(job.job_id)]
    source, task = next(
        (a, b) for a, b in itertools.permutations(tasks, 2)
        if a.operator == b.operator and a.shapes.count("x") == b.shapes.count("x")
    )  # fmt: skip
    latencies = {str(n): 1e-3 + n for n in range(trials)}
    commit_measured(store, latencies, job_id=job.job_id, task_id=source.task_id)
    asked: list[Any] = []

    def call(function: Any, request: Any, *rest: Any) -> SelectResult:
        asked.append(request)
        return SelectResult(())

    lead = SimpleNamespace(call=call)
    machine: Any = SimpleNamespace(target=job.spec.target, lead=lead, scratch=tmp_path)
    key = StageKey(job.job_id, task.task_id, 0, StageKind.SELECT)
    StageRunner(place_of(store, machine)).run(JobTask(job, task), key, 4)
    assert asked[0].transfer_sources == (cand("0").trace,) * lent


def test_records_of_another_device_are_not_reused_as_they_are(done: Any) -> None:
    store, job, _ = done
    other = replace(job.spec.device, key="another")
    task_id = store.work.tasks(job.job_id)[0].task.task_id
    found = store.records.fastest(task_id, other, job.spec.toolchain, tier=Tier.EXACT, limit=5)
    assert found == []
    assert store.records.fastest(task_id, other, job.spec.toolchain, tier=Tier.COMPATIBLE, limit=5)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (CallEnd.CRASH, FailureKind.RUN_CRASH),
        (CallEnd.TIMEOUT, FailureKind.RUN_TIMEOUT),
        (CallEnd.MEMORY, FailureKind.RUN_MEMORY),
    ],
)
def test_a_failing_candidate_is_a_failed_trial_and_the_run_goes_on(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, end: CallEnd, kind: FailureKind
) -> None:
    """Every other candidate's measurement fails; the real pool makes such failures (test_pool)."""
    real, count = machine.device.call, itertools.count()

    def half_failing(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is work.profile_candidate and next(count) % 2:
            return CallFailure(end, "made to fail")
        return real(function, *args, **kwargs)

    monkeypatch.setattr(machine.device, "call", half_failing)
    store = MemoryStore()
    job = open_job(store, tiny, 18, replace(SETTINGS, transfer=False))
    drive(store, machine, job)
    outcomes = [t.outcome for t in store.records.trials(job.job_id)]
    failed = [o for o in outcomes if isinstance(o, Failure)]
    assert len(outcomes) == 18
    assert failed
    assert {f.kind for f in failed} == {kind}
    assert any(isinstance(o, Measurement) for o in outcomes)


def test_a_wrong_program_never_wins(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.devices import Check

    store = MemoryStore()
    job = open_job(store, tiny, 12, replace(SETTINGS, transfer=False))
    drive(store, machine, job)
    real = machine.device.call

    def wrong(function: Any, *args: Any, **kwargs: Any) -> Any:
        found = real(function, *args, **kwargs)
        return Check("outputs differ", found.default_s) if isinstance(found, Check) else found

    monkeypatch.setattr(machine.device, "call", wrong)
    choose_winners(store, machine, job)
    assert {winner for winner, _ in store.records.winners(job.job_id).values()} == {None}
    kinds = {
        t.outcome.kind for t in store.records.trials(job.job_id) if isinstance(t.outcome, Failure)
    }
    assert FailureKind.WRONG_ANSWER in kinds


def test_where_all_finalists_are_wrong_the_next_trial_may_win(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.devices import Check

    store = MemoryStore()
    settings = replace(SETTINGS, transfer=False, measure=replace(SETTINGS.measure, finalists=1))
    job = open_job(store, tiny, 18, settings)
    drive(store, machine, job)
    real, checked = machine.device.call, set[str]()

    def first_wrong(function: Any, default: Any, *args: Any, **kwargs: Any) -> Any:
        found = real(function, default, *args, **kwargs)
        if not isinstance(found, Check) or default.path in checked:
            return found
        checked.add(default.path)
        return Check("outputs differ", found.default_s)

    monkeypatch.setattr(machine.device, "call", first_wrong)
    choose_winners(store, machine, job)
    winners = store.records.winners(job.job_id)
    won = {name: winner for name, (winner, _) in winners.items() if winner is not None}
    assert won
    for task_id, winner in won.items():
        (wrong,) = (
            t for t in store.records.trials(job.job_id, task_id) if isinstance(t.outcome, Failure)
        )
        assert wrong.candidate.candidate_id != winner.candidate.candidate_id


def test_where_no_finalist_can_be_built_again_the_next_trial_may_win(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    settings = replace(SETTINGS, transfer=False, measure=replace(SETTINGS.measure, finalists=1))
    job = open_job(store, tiny, 18, settings)
    drive(store, machine, job)
    real = winners._kept

    def lost(outcome: Any, what: str, *args: Any) -> Any:
        return None if "finalist" in what else real(outcome, what, *args)

    monkeypatch.setattr(winners, "_kept", lost)
    monkeypatch.setattr(winners, "_there", lambda *args: {})
    choose_winners(store, machine, job)
    assert any(winner for winner, _ in store.records.winners(job.job_id).values())


def test_of_what_a_search_built_stays_what_may_win(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    job = open_job(store, tiny, 30, replace(SETTINGS, transfer=False))
    drive(store, machine, job)
    objects, most = place_of(store, machine).objects(job.job_id), SETTINGS.measure.finalists
    kept = 0
    for weighted in store.work.tasks(job.job_id):
        trials = store.records.trials(job.job_id, weighted.task.task_id)
        may_win = {t.candidate.candidate_id for t in profile.closest(trials, SETTINGS.measure)}
        key = StageKey(job.job_id, weighted.task.task_id, 0, StageKind.BUILD)
        built = profile.built_in(place_of(store, machine), key, {t.iteration for t in trials})
        there = {each.candidate_id for each in built if objects.has(each.path)}
        assert there == may_win
        assert 0 < len(there) <= most
        kept += len(there)
    assert kept < 30
    asked: list[Any] = []
    real = machine.builders

    def counted(settings: Any) -> Any:
        builders = real(settings)

        def build(call: Any, jobs: Any, *more: Any) -> Any:
            asked.extend(jobs)
            return builders.map(call, jobs, *more)

        return SimpleNamespace(map=build)

    monkeypatch.setattr(machine, "builders", counted)
    choose_winners(store, machine, job)
    assert {function for function, _ in asked} == {work.build_default}
    assert any(winner for winner, _ in store.records.winners(job.job_id).values())


def test_a_single_odd_reading_is_no_drift(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([1.0, 1.2, 1.01] + [1.0] * 1000)
    monkeypatch.setattr(profile, "reference_latency", lambda place: next(readings))
    store = MemoryStore()
    drive(store, machine, open_job(store, tiny, 4, replace(SETTINGS, transfer=False)))
    notes = [r.note for j in store.jobs.page() for r in store.work.stages(j.job_id) if r.note]
    assert notes[0] == "reference drift +1.0%"


def test_a_disturbed_batch_is_measured_again(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([1.0, 1.2, 1.2, 1.2, 1.0, 1.001] + [1.0] * 1000)
    monkeypatch.setattr(profile, "reference_latency", lambda place: next(readings))
    store = MemoryStore()
    job = open_job(store, tiny, 4, replace(SETTINGS, transfer=False))
    drive(store, machine, job)
    notes = [r.note for r in store.work.stages(job.job_id) if r.key.kind is StageKind.PROFILE]
    assert notes[0] == "reference drift +0.1%, measured 2 times"
    first = store.records.trials(job.job_id)[0].outcome
    assert isinstance(first, Measurement)
    assert first.drift == pytest.approx(0.001)


def test_waiting_for_another_command_is_no_time_of_the_job(tiny: Any, machine: Any) -> None:
    store = MemoryStore()
    job = open_job(store, tiny, 4)
    other = Leases(store.coordination, process=ProcessIdentity("elsewhere", "elsewhere", 1, 1))
    claim = other.claim(machine_units(machine.layout.host_units | machine.layout.device_units))
    other.acquire(claim, print, lambda: None)
    events: list[Any] = []

    def observe(event: Any) -> None:
        events.append(event)
        if [type(each) for each in events].count(StageStarted) == 1 == len(other._held):
            threading.Timer(4.0, other.release, [claim]).start()

    began = time.monotonic()
    search(store, machine, job, observer=observe)
    took_s = time.monotonic() - began
    elapsed_s = [event.elapsed_s for event in events if isinstance(event, StageCommitted)]
    assert elapsed_s == sorted(elapsed_s)
    assert 0 < elapsed_s[-1] < took_s - 3.5
    assert store.jobs.get(job.job_id).elapsed_s < took_s - 3.5
    other.close()


def test_libraries_that_are_gone_are_built_again_and_nothing_is_measured_twice(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.stages import build

    real, builds = build.build, list[StageKey]()

    def lost_once(place: Any, lane: Any, key: StageKey) -> Any:
        made = real(place, lane, key)
        builds.append(key)
        if len(builds) == 1:
            for each in made.built:
                place.objects(key.job_id).remove(each.path)
        return made

    monkeypatch.setattr(build, "build", lost_once)
    store = MemoryStore()
    job = open_job(store, tiny, 9, replace(SETTINGS, transfer=False))
    drive(store, machine, job)
    assert builds.count(builds[0]) == 2
    assert len(set(builds)) == len(builds) - 1
    trials = store.records.trials(job.job_id)
    assert len(trials) == 9
    assert all(isinstance(t.outcome, Measurement) for t in trials)
    runs = {run.key: run for run in store.work.stages(job.job_id)}
    assert runs[builds[0]].attempt == 2
    profiled = runs[replace(builds[0], kind=StageKind.PROFILE)]
    assert profiled.attempt == 2


def test_a_store_that_another_process_holds_ends_the_search(
    tiny: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the resource, and each commit waits half a minute."""
    store = MemoryStore()
    job = open_job(store, tiny, 10)

    def locked(*_: Any, **__: Any) -> Any:
        raise StoreBusyError("the store is locked by another process", cure="try again")

    monkeypatch.setattr(store.work, "commit", locked)
    with pytest.raises(StoreBusyError):
        drive(store, machine, job)


def test_no_record_holds_a_path_of_this_machine(done: Any) -> None:
    store, job, _ = done
    for run in store.work.stages(job.job_id):
        if isinstance(run.result, BuildResult):
            assert not any("/" in built.path for built in run.result.built)
