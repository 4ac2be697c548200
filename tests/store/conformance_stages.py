"""The Store contract on what stages leave behind."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.stage import (
    BuildResult,
    Profiled,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageSpan,
    UpdateResult,
)
from tunefleet.core.trial import Trial
from tunefleet.errors import InputError, InternalError

from . import values as v


def ids(trials: list[Trial]) -> list[str]:
    return [trial.candidate.candidate_id for trial in trials]


class Commits:
    def test_select_enters_no_trial(self, store: Any, job: str) -> None:
        assert store.work.commit(v.run_of(SelectResult((v.cand("a"),))))
        assert store.records.trials(job) == []

    def test_a_build_makes_trials_of_its_failures(self, store: Any, job: str) -> None:
        store.work.commit(v.run_of(SelectResult((v.cand("a"), v.cand("b")))))
        store.work.commit(v.run_of(BuildResult(v.built("a"), (("b", v.CRASH),))))
        assert [Trial(v.cand("b"), 0, v.CRASH)] == store.records.trials(job)

    def test_a_profile_makes_trials_of_all_it_reports(self, store: Any, job: str) -> None:
        store.work.commit(v.run_of(SelectResult((v.cand("a", 0.1), v.cand("b", 0.2)))))
        store.work.commit(v.run_of(BuildResult(v.built("a", "b", build_s=0.75))))
        took = v.measured(2e-3, 1e-3)
        store.work.commit(v.run_of(ProfileResult((Profiled("b", took, 1.5),), (("a", v.WRONG),))))
        expected = [
            Trial(v.cand("b", 0.2), 0, took, 0.75, 1.5),
            Trial(v.cand("a", 0.1), 0, v.WRONG, 0.75, 0.0),
        ]
        assert expected == store.records.trials(job)

    def test_the_first_commit_of_a_stage_wins(self, store: Any, job: str) -> None:
        first = v.run_of(SelectResult((v.cand("a"),)))
        assert store.work.commit(first, elapsed_s=2.0) is True
        assert store.work.commit(first, elapsed_s=3.0) is False
        assert store.work.commit(v.run_of(SelectResult((v.cand("b"),))), elapsed_s=50.0) is False
        assert first == store.work.stage(first.key)
        assert [j.elapsed_s for j in store.jobs.page()] == [2.0]

    def test_a_late_profile_leaves_no_trace(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 1e-3, "b": 2e-3})
        before = (store.records.trials(job), store.work.stages(job), store.jobs.page())
        late = v.run_of(ProfileResult((Profiled("a", v.measured(9.0), 9.0),), (("b", v.WRONG),)))
        assert store.work.commit(late) is False
        assert before == (store.records.trials(job), store.work.stages(job), store.jobs.page())

    def test_a_candidate_is_one_trial_of_a_job(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 1e-3})
        v.commit_measured(store, {"a": 5e-3, "b": 2e-3}, iteration=1)
        v.commit_failed(store, "b", v.WRONG, iteration=2)
        assert ids(store.records.trials(job)) == ["a", "b"]
        assert [t.latency_s for t in store.records.trials(job)] == [1e-3, 2e-3]

    def test_a_candidate_reported_twice_is_one_trial(self, store: Any, job: str) -> None:
        store.work.commit(v.run_of(SelectResult((v.cand("a"),))))
        twice = tuple(Profiled("a", v.measured(s), s / 10) for s in (1.0, 2.0))
        store.work.commit(v.run_of(ProfileResult(twice, (("a", v.WRONG),))))
        assert [t.latency_s for t in store.records.trials(job)] == [1.0]

    def test_a_candidate_selected_twice_is_tried_as_first_selected(
        self, store: Any, job: str
    ) -> None:
        run = v.run_of(SelectResult((v.cand("a", 0.1), v.cand("a", 0.9))))
        store.work.commit(run)
        store.work.commit(v.run_of(ProfileResult((), (("a", v.WRONG),))))
        assert run == store.work.stage(run.key)
        assert [trial.candidate.score for trial in store.records.trials(job)] == [0.1]

    def test_a_candidate_is_another_trial_in_another_task_and_job(
        self, store: Any, job: str
    ) -> None:
        v.open_with_task(store, "other")
        for where in ({"task_id": "t"}, {"task_id": "u"}, {"job_id": "other"}):
            v.commit_measured(store, {"a": 1e-3}, **where)
        assert (len(store.records.trials(job)), len(store.records.trials("other"))) == (2, 1)

    def test_each_job_keeps_its_own_score_and_features(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        mine, other = v.cand("a", 0.1, b"schema 1"), v.cand("a", 0.9, b"schema 2")
        for job_id, candidate in (("job", mine), ("other", other)):
            store.work.commit(v.run_of(SelectResult((candidate,)), job_id=job_id))
            store.work.commit(v.run_of(ProfileResult((), (("a", v.WRONG),)), job_id=job_id))
        assert [mine] == [t.candidate for t in store.records.trials("job")]
        assert [other] == [t.candidate for t in store.records.trials("other")]

    def test_a_stranger_among_the_results_leaves_no_trace(self, store: Any, job: str) -> None:
        store.work.commit(v.run_of(SelectResult((v.cand("a"),))))
        results = tuple(Profiled(name, v.measured(), 0.1) for name in "ax")
        run = v.run_of(ProfileResult(results))
        with pytest.raises(InternalError, match="candidate x"):
            store.work.commit(run)
        assert (
            store.records.trials(job),
            store.work.stage(run.key),
            len(store.work.stages(job)),
        ) == ([], None, 1)

    def test_a_result_of_another_kind_is_refused(self, store: Any, job: str) -> None:
        run = replace(v.run_of(UpdateResult()), key=StageKey(job, "t", 0, StageKind.SELECT))
        with pytest.raises(InternalError, match="UpdateResult"):
            store.work.commit(run)

    def test_the_longest_elapsed_time_of_a_job_counts(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        for i, elapsed_s in enumerate([0.5, 1.5, 0.7]):
            store.work.commit(v.run_of(UpdateResult(), iteration=i), elapsed_s=elapsed_s)
        assert [j.elapsed_s for j in store.jobs.page()] == [0.0, 1.5]

    def test_a_commit_without_elapsed_time_adds_none(self, store: Any, job: str) -> None:
        store.work.commit(v.run_of(UpdateResult(), seconds=9.0))
        assert [j.elapsed_s for j in store.jobs.page()] == [0.0]

    def test_the_newest_model_of_the_job_counts(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        assert store.records.model(job) == UpdateResult()
        store.work.commit(v.run_of(UpdateResult(b"one", 8), task_id="u", iteration=5))
        store.work.commit(v.run_of(UpdateResult(b"two", 16), task_id="t"))
        store.work.commit(v.run_of(UpdateResult(b"", 0), task_id="t", iteration=1))
        store.work.commit(v.run_of(UpdateResult(b"three", 9), job_id="other"))
        assert store.records.model(job) == UpdateResult(b"two", 16)
        assert store.records.model("other") == UpdateResult(b"three", 9)

    def test_each_update_keeps_its_model(self, store: Any, job: str) -> None:
        runs = [v.run_of(UpdateResult(m, 8), iteration=i) for i, m in enumerate([b"1", b"", b"2"])]
        for run in runs:
            store.work.commit(run)
        assert runs == [store.work.stage(run.key) for run in runs]

    def test_threads_commit_side_by_side(self, store: Any, job: str) -> None:
        def iteration(i: int) -> None:
            v.commit_measured(store, {"every": 1e-3, f"c{i}": 1e-3}, iteration=i)
            store.work.commit(v.run_of(UpdateResult(), iteration=i), elapsed_s=float(i))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(iteration, range(8)))
        assert sorted(["every", *(f"c{i}" for i in range(8))]) == sorted(
            ids(store.records.trials(job))
        )
        assert (len(store.work.stages(job)), store.jobs.page()[0].elapsed_s) == (32, 7.0)

    def test_one_of_many_threads_commits_a_stage(self, store: Any, job: str) -> None:
        run = v.run_of(SelectResult((v.cand("a"),)))
        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(store.work.commit, [run] * 8)) == 1


class Reading:
    def test_a_stage_tells_where_it_ran_and_at_which_attempt(self, store: Any, job: str) -> None:
        run = replace(v.run_of(UpdateResult()), resource_id="device 1", attempt=3)
        store.work.commit(run)
        found = [store.work.stage(run.key), *store.work.stages(job)]
        assert [(r.resource_id, r.attempt) for r in found] == [("device 1", 3)] * 2

    def test_a_stage_not_committed_is_none(self, store: Any, job: str) -> None:
        assert store.work.stage(StageKey(job, "t", 0, StageKind.SELECT)) is None

    def test_stages_come_in_the_order_of_commit_without_bulk(self, store: Any, job: str) -> None:
        later = v.run_of(SelectResult((v.cand("a"), v.cand("b")), True), task_id="u", iteration=3)
        update = v.run_of(UpdateResult(b"model", 7))
        failed = v.run_of(BuildResult((), (("a", v.CRASH),)), task_id="u", iteration=3)
        for run in (later, update, failed):
            store.work.commit(run)
        lean = SelectResult((v.cand("a", features=b""), v.cand("b", features=b"")), True)
        expected = [replace(later, result=lean), replace(update, result=UpdateResult(b"", 7))]
        assert [*expected, failed] == store.work.stages(job)

    def test_stages_tell_the_note(self, store: Any, job: str) -> None:
        store.work.commit(replace(v.run_of(UpdateResult()), note="drift \udc80 again"))
        assert [run.note for run in store.work.stages(job)] == ["drift \udc80 again"]

    def test_trials_come_in_the_order_of_commit_with_features(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"c": 3e-3}, task_id="u")
        v.commit_measured(store, {"b": 2e-3, "a": 1e-3}, iteration=4)
        assert ids(store.records.trials(job)) == ["c", "b", "a"]
        assert ids(store.records.trials(job, "t")) == ["b", "a"]
        assert {b"\0features"} == {t.candidate.features for t in store.records.trials(job)}
        assert [t.iteration for t in store.records.trials(job)] == [0, 4, 4]

    def test_a_score_may_be_no_number(self, store: Any, job: str) -> None:
        run = v.run_of(SelectResult((v.cand("a", math.nan), v.cand("b", -math.inf))))
        store.work.commit(run)
        unknown, worst = store.work.stage(run.key).result.candidates
        assert math.isnan(unknown.score)
        assert -math.inf == worst.score


class Windows:
    @pytest.mark.parametrize(
        ("start", "end", "touches"),
        [
            (0.0, 9.0, False),
            (0.0, 10.0, True),
            (11.0, 11.0, True),
            (9.0, 13.0, True),
            (12.0, 20.0, True),
            (12.5, 20.0, False),
        ],
    )
    def test_a_stage_touches_the_window_or_not(
        self, store: Any, job: str, start: float, end: float, touches: bool
    ) -> None:
        store.work.commit(v.run_of(UpdateResult(), started_at=10.0, seconds=2.0))
        assert touches is bool(store.work.stages_between(start, end))

    def test_spans_tell_when_and_where_stages_of_all_jobs_ran(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        mine = v.run_of(SelectResult((v.cand("a"),)), task_id="u", started_at=7.0)
        other = replace(v.run_of(UpdateResult(b"m"), "other"), resource_id="host", attempt=2)
        for run in (other, mine):
            store.work.commit(run)
        expected = [
            StageSpan(mine.key, "", 1, 7.0, 2.0),
            StageSpan(other.key, "host", 2, 100.0, 2.0),
        ]
        assert expected == store.work.stages_between(0.0, 200.0)

    def test_equal_starts_come_in_the_order_of_commit(self, store: Any, job: str) -> None:
        for i in (3, 1, 2):
            store.work.commit(v.run_of(UpdateResult(), iteration=i))
        assert [s.key.iteration for s in store.work.stages_between(0.0, 200.0)] == [3, 1, 2]

    def test_a_second_commit_is_no_second_span(self, store: Any, job: str) -> None:
        for seconds in (2.0, 50.0):
            store.work.commit(v.run_of(UpdateResult(), seconds=seconds))
        assert [s.seconds for s in store.work.stages_between(0.0, 200.0)] == [2.0]

    @pytest.mark.parametrize("end", [0.5, math.nan])
    def test_a_window_ends_after_its_start(self, store: Any, end: float) -> None:
        with pytest.raises(InputError, match="window"):
            store.work.stages_between(1.0, end)
