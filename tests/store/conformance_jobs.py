"""The Store contract on jobs and their tasks."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.events import JobEnded
from tunefleet.core.identity import Tier
from tunefleet.core.job import Job, JobState
from tunefleet.core.step import Published, StepKey, StepKind, StepRun
from tunefleet.errors import InputError
from tunefleet.store import JobOutcome, each_job
from tunefleet.store._base import PAGE

from . import values as v


def ids_of(jobs: Any) -> list[str]:
    return [job.job_id for job in jobs]


class Jobs:
    def test_a_new_job_runs_and_has_used_no_time(self, store: Any) -> None:
        job = store.jobs.open(v.make_spec(), job_id="a", now=5.0)
        assert Job("a", v.make_spec(), JobState.RUNNING, 5.0, 0.0) == job
        assert [job] == store.jobs.page()

    def test_the_same_command_finds_its_running_job(self, store: Any) -> None:
        first = store.jobs.open(v.make_spec(), job_id="a", now=5.0)
        assert first == store.jobs.open(v.make_spec(), job_id="b", now=6.0)

    def test_another_command_is_another_job(self, store: Any) -> None:
        store.jobs.open(v.make_spec("one"), job_id="a", now=5.0)
        assert store.jobs.open(v.make_spec("two"), job_id="b", now=5.0).job_id == "b"

    @pytest.mark.parametrize(
        "state", [state for state in JobState if state is not JobState.RUNNING]
    )
    def test_a_finished_job_is_not_taken_up_again(self, store: Any, state: JobState) -> None:
        store.jobs.open(v.make_spec(), job_id="a", now=5.0)
        store.jobs.finish("a", state, {})
        assert store.jobs.open(v.make_spec(), job_id="b", now=6.0).job_id == "b"
        assert store.jobs.open(v.make_spec(), job_id="c", now=7.0).job_id == "b"

    def test_a_job_id_is_given_once(self, store: Any) -> None:
        store.jobs.open(v.make_spec("one"), job_id="a", now=5.0)
        with pytest.raises(InputError, match="job a"):
            store.jobs.open(v.make_spec("two"), job_id="a", now=6.0)

    def test_jobs_are_listed_newest_first(self, store: Any) -> None:
        for name in "abc":
            store.jobs.open(v.make_spec(name), job_id=name, now=5.0)
        assert [job.job_id for job in store.jobs.page()] == ["c", "b", "a"]

    def test_jobs_come_in_pages(self, store: Any) -> None:
        for name in "abcde":
            store.jobs.open(v.make_spec(name), job_id=name, now=5.0)
        assert ids_of(store.jobs.page(limit=2)) == ["e", "d"]
        assert ids_of(store.jobs.page(limit=2, after="d")) == ["c", "b"]
        assert store.jobs.page(after="a") == []
        assert store.jobs.page(limit=0) == []

    def test_a_page_is_of_one_state_or_command_or_beginning(self, store: Any) -> None:
        for name in ("aa", "ab", "b"):
            store.jobs.open(v.make_spec(name), job_id=name, now=5.0)
        store.jobs.finish("ab", JobState.FAILED, {})
        assert ids_of(store.jobs.page(state=JobState.RUNNING)) == ["b", "aa"]
        assert ids_of(store.jobs.page(prefix="a")) == ["ab", "aa"]
        assert ids_of(store.jobs.page(prefix="a", state=JobState.FAILED)) == ["ab"]
        assert ids_of(store.jobs.page(fingerprint=v.make_spec("b").fingerprint)) == ["b"]

    def test_each_job_is_read_in_pages(self, store: Any) -> None:
        for number in range(2 * PAGE + 1):
            store.jobs.open(v.make_spec(str(number)), job_id=f"{number:04d}", now=5.0)
        every = ids_of(each_job(store.jobs))
        assert every == [f"{number:04d}" for number in reversed(range(2 * PAGE + 1))]

    def test_one_job_is_found_by_its_id(self, store: Any) -> None:
        job = store.jobs.open(v.make_spec(), job_id="a", now=5.0)
        assert job == store.jobs.get("a")

    def test_what_came_of_several_jobs(self, store: Any, job: str) -> None:
        store.jobs.open(v.make_spec("other"), job_id="other", now=5.0)
        v.commit_measured(store, {"x": 1e-3, "y": 2e-3})
        store.jobs.finish("other", JobState.FAILED, {"stopped": "why"})
        expected = {job: JobOutcome(None, 2), "other": JobOutcome({"stopped": "why"}, 0)}
        assert expected == store.jobs.outcomes([job, "other", "unknown"])
        assert store.jobs.outcomes([]) == {}

    def test_finishing_sets_state_and_summary(self, store: Any, job: str) -> None:
        assert store.jobs.summary(job) is None
        store.jobs.finish(job, JobState.SUCCEEDED, {"latency_s": 0.1, "tasks": [1, None, "ü"]})
        assert store.jobs.summary(job) == {"latency_s": 0.1, "tasks": [1, None, "ü"]}
        assert [j.state for j in store.jobs.page()] == [JobState.SUCCEEDED]

    def test_the_last_event_is_kept_with_the_state(self, store: Any, job: str) -> None:
        store.jobs.finish(job, JobState.FAILED, {}, JobEnded("why", "JobError"))
        (kept,) = store.events.page(0, [job])
        assert (kept.job_id, kept.event) == (job, JobEnded("why", "JobError"))
        assert kept.at == pytest.approx(time.time(), abs=60)
        with pytest.raises(InputError):
            store.jobs.finish("unknown", JobState.FAILED, {}, JobEnded())
        assert len(store.events.page(0)) == 1

    def test_finishing_again_changes_nothing(self, store: Any, job: str) -> None:
        store.jobs.finish(job, JobState.FAILED, {"why": "x"})
        before = store.jobs.page()
        store.jobs.finish(job, JobState.FAILED, {"why": "x"})
        assert (before, {"why": "x"}) == (store.jobs.page(), store.jobs.summary(job))

    def test_a_summary_belongs_to_the_store(self, store: Any, job: str) -> None:
        mine = {"n": [1]}
        store.jobs.finish(job, JobState.SUCCEEDED, mine)
        mine["n"].append(2)
        store.jobs.summary(job)["n"].append(3)
        assert store.jobs.summary(job) == {"n": [1]}

    def test_a_summary_is_json(self, store: Any, job: str) -> None:
        with pytest.raises(InputError, match="summary"):
            store.jobs.finish(job, JobState.SUCCEEDED, {"latency_s": math.nan})

    def test_a_job_is_not_finished_as_running(self, store: Any, job: str) -> None:
        with pytest.raises(InputError, match="running"):
            store.jobs.finish(job, JobState.RUNNING, {})

    def test_a_removed_job_leaves_no_trace(self, store: Any) -> None:
        for name in "ab":
            v.open_with_task(store, name)
        v.commit_measured(store, {"x": 1e-3, "only": 2e-3}, job_id="a")
        v.commit_measured(store, {"x": 3e-3}, job_id="b")
        store.work.commit_step(StepRun(StepKey("a", StepKind.PUBLISH), Published("a"), 0.0, 1.0))
        store.jobs.finish("a", JobState.SUCCEEDED, {})
        store.jobs.remove("a")
        assert [job.job_id for job in store.jobs.page()] == ["b"]
        assert {span.key.job_id for span in store.work.stages_between(0.0, 1e9)} == {"b"}
        assert store.work.steps("a") == []
        found = store.records.fastest("t", v.DEVICE, v.TOOLCHAIN, tier=Tier.EXACT, limit=9)
        assert [(r.job_id, r.candidate.candidate_id) for r in found] == [("b", "x")]
        v.open_with_task(store, "a")
        assert store.records.trial_count("a") == 0

    def test_the_best_of_a_removed_job_gives_its_place_back(self, store: Any) -> None:
        for name, latency_s in (("slow", 2e-3), ("fast", 1e-3)):
            v.open_with_task(store, name)
            v.commit_measured(store, {name: latency_s}, job_id=name)
            store.records.select_winner(name, "t", v.make_trial(name, latency_s), {})
        store.jobs.remove("fast")
        assert store.records.best("t", v.DEVICE, v.TOOLCHAIN).job_id == "slow"
        store.jobs.remove("slow")
        assert store.records.best("t", v.DEVICE, v.TOOLCHAIN) is None


class Tasks:
    def test_there_are_none_before_they_are_put(self, store: Any) -> None:
        store.jobs.open(v.make_spec(), job_id="job", now=1.0)
        assert store.work.tasks("job") == []

    def test_they_keep_their_order(self, store: Any) -> None:
        store.jobs.open(v.make_spec(), job_id="job", now=1.0)
        put = [v.make_task(name, weight=i + 1) for i, name in enumerate("tcba")]
        store.work.put_tasks("job", put)
        assert put == store.work.tasks("job")

    def test_putting_again_changes_nothing(self, store: Any, job: str) -> None:
        before = store.work.tasks(job)
        store.work.put_tasks(job, before)
        assert before == store.work.tasks(job)

    def test_other_tasks_replace_them(self, store: Any, job: str) -> None:
        store.work.put_tasks(job, [v.make_task("u"), v.make_task("x")])
        assert [t.task.task_id for t in store.work.tasks(job)] == ["u", "x"]

    def test_a_known_task_is_shared_under_the_name_of_each_job(self, store: Any) -> None:
        for job_id in "ab":
            store.jobs.open(v.make_spec(job_id), job_id=job_id, now=1.0)
        first, second = v.make_task(name="conv_1"), v.make_task(name="conv_7", weight=9)
        other = replace(second, task=replace(second.task, program="numbered otherwise"))
        store.work.put_tasks("a", [first])
        store.work.put_tasks("b", [other])
        assert [first] == store.work.tasks("a")
        assert [second] == store.work.tasks("b")

    def test_what_is_told_of_a_task_later_is_told_of_it_everywhere(self, store: Any) -> None:
        for job_id in "ab":
            store.jobs.open(v.make_spec(job_id), job_id=job_id, now=1.0)
        untold = v.make_task()
        told = replace(untold, task=replace(untold.task, precision="int8"))
        store.work.put_tasks("a", [untold])
        assert [untold] == store.work.tasks("a")
        store.work.put_tasks("b", [told])
        assert [told] == store.work.tasks("a") == store.work.tasks("b")

    def test_what_was_told_of_a_task_stays(self, store: Any, job: str) -> None:
        told = [replace(t, task=replace(t.task, precision="bf16")) for t in store.work.tasks(job)]
        store.work.put_tasks(job, told)
        untold = [replace(t, task=replace(t.task, precision="")) for t in told]
        store.work.put_tasks(job, untold)
        assert told == store.work.tasks(job)

    def test_a_task_stands_once_in_a_job(self, store: Any, job: str) -> None:
        with pytest.raises(InputError, match="twice"):
            store.work.put_tasks(job, [v.make_task("x"), v.make_task("x")])
        assert len(store.work.tasks(job)) == 2
