"""The Store contract on records and winners: what later jobs reuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.forecast import TaskCurve
from tunefleet.core.identity import Tier
from tunefleet.core.stage import (
    Profiled,
    ProfileResult,
    SelectResult,
)
from tunefleet.core.trial import Failure, FailureKind, Trial
from tunefleet.errors import InputError
from tunefleet.store import BestRecord, Record

from . import values as v


def record_ids(store: Any, tier: Tier = Tier.EXACT, limit: int = 9, **asked: Any) -> list[str]:
    device, toolchain = asked.get("device", v.DEVICE), asked.get("toolchain", v.TOOLCHAIN)
    found = store.records.fastest("t", device, toolchain, tier=tier, limit=limit)
    return [record.candidate.candidate_id for record in found]


class Records:
    def test_the_fastest_come_first_up_to_the_limit(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"slow": 3e-3, "fast": 1e-3, "middle": 2e-3})
        assert record_ids(store) == ["fast", "middle", "slow"]
        assert record_ids(store, limit=2) == ["fast", "middle"]
        assert record_ids(store, limit=0) == []

    def test_a_record_says_who_measured_what(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 1e-3})
        expected = Record("t", "job", v.cand("a"), v.measured(1e-3), v.DEVICE, v.TOOLCHAIN)
        found = store.records.fastest("t", v.DEVICE, v.TOOLCHAIN, tier=Tier.EXACT, limit=1)
        assert [expected] == found

    def test_the_curve_of_a_task_has_its_trials_in_the_order_of_commit(
        self, store: Any, job: str
    ) -> None:
        v.commit_failed(store, "bad", v.CRASH)
        v.commit_measured(store, {"slow": 3e-3, "fast": 1e-3}, iteration=1)
        (curve,) = store.records.curves("job")
        assert TaskCurve("t", "conv2d", 1e6, 2, (None, 3e-3, 1e-3), (0, 1, 2)) == curve

    def test_rank_is_the_low_quantile(self, store: Any, job: str) -> None:
        store.work.commit(v.run_of(SelectResult((v.cand("steady"), v.cand("lucky")))))
        steady, lucky = v.measured(*[2.0] * 20), v.measured(1.0, *[3.0] * 19)
        both = (Profiled("lucky", lucky, 0.1), Profiled("steady", steady, 0.1))
        run = v.run_of(ProfileResult(both))
        store.work.commit(run)
        assert record_ids(store) == ["steady", "lucky"]

    def test_equals_come_in_the_order_of_commit(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        v.commit_measured(store, {"b": 1e-3}, job_id="other")
        v.commit_measured(store, {"a": 1e-3})
        assert record_ids(store) == ["b", "a"]

    def test_failures_and_other_tasks_are_left_out(self, store: Any, job: str) -> None:
        v.commit_failed(store, "bad", v.CRASH)
        v.commit_measured(store, {"a": 1e-3}, task_id="u")
        assert record_ids(store) == []

    def test_a_candidate_of_several_jobs_comes_once_with_its_best(self, store: Any) -> None:
        for job_id, latency_s in (("one", 3e-3), ("two", 1e-3), ("three", 2e-3)):
            v.open_with_task(store, job_id)
            v.commit_measured(store, {"a": latency_s}, job_id=job_id)
        found = store.records.fastest("t", v.DEVICE, v.TOOLCHAIN, tier=Tier.EXACT, limit=9)
        assert [(r.job_id, r.measurement.latency_s) for r in found] == [("two", 1e-3)]

    @pytest.mark.parametrize(
        ("measured_by", "exact", "compatible"),
        [
            ({}, ["a"], []),
            ({"device": v.SISTER}, [], ["a"]),
            ({"toolchain": v.PATCHED}, [], ["a"]),
            ({"device": v.SISTER, "toolchain": v.PATCHED}, [], ["a"]),
            ({"device": v.STRANGER}, [], []),
            ({"toolchain": replace(v.TOOLCHAIN, tvm="0.28.0")}, [], []),
            ({"toolchain": replace(v.TOOLCHAIN, tunefleet="9")}, ["a"], []),
        ],
    )
    def test_the_tiers_are_disjoint(
        self, store: Any, measured_by: Any, exact: list[str], compatible: list[str]
    ) -> None:
        v.open_with_task(store, "job", **measured_by)
        v.commit_measured(store, {"a": 1e-3})
        assert exact == record_ids(store, Tier.EXACT)
        assert compatible == record_ids(store, Tier.COMPATIBLE)

    def test_a_wrong_answer_here_bars_the_candidate(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        v.commit_measured(store, {"a": 1e-3, "b": 2e-3})
        v.commit_failed(store, "a", v.WRONG, job_id="other")
        assert record_ids(store) == ["b"]

    def test_another_failure_does_not(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        v.commit_measured(store, {"a": 1e-3})
        v.commit_failed(store, "a", Failure(FailureKind.RUN_TIMEOUT, ""), job_id="other")
        assert record_ids(store) == ["a"]

    def test_a_wrong_answer_elsewhere_does_not(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other", device=v.SISTER)
        v.commit_measured(store, {"a": 1e-3})
        v.commit_failed(store, "a", v.WRONG, job_id="other")
        assert record_ids(store) == ["a"]

    def test_a_wrong_answer_bars_where_measured_and_where_asked(self, store: Any) -> None:
        v.open_with_task(store, "sister", device=v.SISTER)
        v.open_with_task(store, "sister too", device=v.SISTER)
        v.open_with_task(store, "here")
        v.commit_measured(store, {"a": 1e-3, "b": 2e-3, "c": 3e-3}, job_id="sister")
        v.commit_failed(store, "a", v.WRONG, job_id="sister too")
        v.commit_failed(store, "b", v.WRONG, job_id="here")
        assert record_ids(store, Tier.COMPATIBLE) == ["c"]

    def test_a_wrong_answer_bars_its_own_task_only(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 1e-3})
        v.commit_failed(store, "a", v.WRONG, task_id="u")
        assert record_ids(store) == ["a"]

    def test_a_negative_limit_is_refused(self, store: Any, job: str) -> None:
        with pytest.raises(InputError, match="limit"):
            record_ids(store, limit=-1)


class Winners:
    def test_none_before_the_selection(self, store: Any, job: str) -> None:
        assert store.records.winners(job) == {}

    def test_a_winner_and_a_default_read_back(self, store: Any, job: str) -> None:
        winner = v.make_trial("a", 1e-3)
        store.records.select_winner(job, "t", winner, {"max_error": 1e-6, "rounds": [1, 2]})
        store.records.select_winner(job, "u", None, "nothing was faster")
        checks = {"max_error": 1e-6, "rounds": [1, 2]}
        expected = {"t": (winner, checks), "u": (None, "nothing was faster")}
        assert expected == store.records.winners(job)

    def test_its_measurement_may_be_newer_than_its_trial(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 1e-3})
        again = replace(store.records.trials(job)[0], outcome=v.measured(1.1e-3, 1.2e-3))
        store.records.select_winner(job, "t", again, None)
        assert {"t": (again, None)} == store.records.winners(job)
        assert [t.latency_s for t in store.records.trials(job)] == [1e-3]

    def test_repeating_replaces_the_entry(self, store: Any, job: str) -> None:
        store.records.select_winner(job, "t", v.make_trial("a", 1e-3), 1)
        store.records.select_winner(job, "t", v.make_trial("b", 2e-3), 2)
        assert {"t": (v.make_trial("b", 2e-3), 2)} == store.records.winners(job)

    def test_winners_are_of_their_job(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        store.records.select_winner("other", "t", v.make_trial("a", 1e-3), None)
        assert store.records.winners(job) == {}

    def test_a_failed_trial_cannot_win(self, store: Any, job: str) -> None:
        with pytest.raises(InputError, match="failed"):
            store.records.select_winner(job, "t", Trial(v.cand("a"), 0, v.WRONG), None)

    def test_checks_are_json(self, store: Any, job: str) -> None:
        with pytest.raises(InputError, match="checks"):
            store.records.select_winner(job, "t", None, object())

    def test_the_fastest_of_all_jobs_stands_in_the_best_only_table(self, store: Any) -> None:
        for job_id, latency_s in (("one", 2e-3), ("two", 1e-3), ("three", 3e-3)):
            v.open_with_task(store, job_id)
            store.records.select_winner(job_id, "t", v.make_trial("of " + job_id, latency_s), None)
        expected = Record("t", "two", v.cand("of two"), v.measured(1e-3), v.DEVICE, v.TOOLCHAIN)
        assert expected == store.records.best("t", v.DEVICE, v.TOOLCHAIN)

    def test_each_device_and_toolchain_has_a_best_of_its_own(self, store: Any) -> None:
        v.open_with_task(store, "here")
        v.open_with_task(store, "there", device=v.SISTER)
        store.records.select_winner("here", "t", v.make_trial("a", 2e-3), None)
        store.records.select_winner("there", "t", v.make_trial("b", 1e-3), None)
        assert store.records.best("t", v.DEVICE, v.TOOLCHAIN).job_id == "here"
        assert store.records.best("t", v.SISTER, v.TOOLCHAIN).job_id == "there"
        assert store.records.best("t", v.DEVICE, v.PATCHED) is None

    def test_the_best_only_table_is_read_in_pages(self, store: Any) -> None:
        for job_id, task_id in (("one", "b"), ("two", "a"), ("three", "c")):
            v.open_with_task(store, job_id, task_id)
            store.records.select_winner(
                job_id, task_id, v.make_trial("x", 1e-3), {"verified": True}
            )
        first = store.records.best_page(limit=2)
        assert [entry.task.task_id for entry in first] == ["a", "b"]
        expected = Record("b", "one", v.cand("x"), v.measured(1e-3), v.DEVICE, v.TOOLCHAIN)
        assert expected == first[1].record
        assert (v.make_task("b").task, {"verified": True}) == (first[1].task, first[1].checks)
        rest = store.records.best_page(after=first[1].place, limit=2)
        assert [entry.task.task_id for entry in rest] == ["c"]
        assert store.records.best_page(operator="matmul", limit=2) == []
        assert len(store.records.best_page(operator="conv2d", limit=9)) == 3

    def test_of_an_entry_the_fastest_winner_is_told(self, store: Any) -> None:
        for job_id, latency_s in (("one", 2e-3), ("two", 1e-3)):
            v.open_with_task(store, job_id)
            store.records.select_winner(job_id, "t", v.make_trial(job_id, latency_s), None)
        assert [entry.record.job_id for entry in store.records.best_page(limit=9)] == ["two"]

    def test_a_default_enters_no_best(self, store: Any, job: str) -> None:
        store.records.select_winner(job, "t", None, None)
        assert store.records.best("t", v.DEVICE, v.TOOLCHAIN) is None

    @pytest.mark.parametrize(
        ("again", "expected"), [(3e-3, "one"), (1.5e-3, "two"), (2e-3, "one"), (None, "one")]
    )
    def test_a_winner_taken_back_gives_its_place_back(
        self, store: Any, again: float | None, expected: str
    ) -> None:
        for job_id, latency_s in (("one", 2e-3), ("two", 1e-3)):
            v.open_with_task(store, job_id)
            store.records.select_winner(job_id, "t", v.make_trial(job_id, latency_s), None)
        store.records.select_winner("two", "t", again and v.make_trial("two", again), None)
        assert expected == store.records.best("t", v.DEVICE, v.TOOLCHAIN).job_id

    def test_selecting_again_changes_nothing(self, store: Any) -> None:
        for job_id in ("one", "two"):
            v.open_with_task(store, job_id)
            store.records.select_winner(job_id, "t", v.make_trial(job_id, 1e-3), None)
        before = store.records.best("t", v.DEVICE, v.TOOLCHAIN)
        for job_id in ("two", "one"):
            store.records.select_winner(job_id, "t", v.make_trial(job_id, 1e-3), None)
        assert before == store.records.best("t", v.DEVICE, v.TOOLCHAIN)

    def test_a_rejected_candidate_becomes_a_failure_where_it_was_measured(self, store: Any) -> None:
        same = replace(v.TOOLCHAIN, tunefleet="another, with the same code")
        places: dict[str, dict[str, Any]] = {
            "one": {},
            "two": {"toolchain": same},
            "sister": {"device": v.SISTER},
        }
        for job_id, place in places.items():
            v.open_with_task(store, job_id, **place)
            v.commit_measured(store, {"bad": 1e-3, "good": 2e-3}, job_id=job_id)
        profile = store.work.stages("two")[-1]
        store.records.select_winner(
            "one", "t", v.make_trial("good", 2e-3), None, [("bad", v.WRONG)]
        )
        for job_id in ("one", "two"):
            assert [v.WRONG, v.measured(2e-3)] == [t.outcome for t in store.records.trials(job_id)]
        assert [t.latency_s for t in store.records.trials("sister")] == [1e-3, 2e-3]
        assert profile == store.work.stages("two")[-1]
        assert record_ids(store) == ["good"]

    def test_a_rejection_is_of_its_task(self, store: Any, job: str) -> None:
        for task_id in "tu":
            v.commit_measured(store, {"a": 1e-3}, task_id=task_id)
        store.records.select_winner(
            job, "u", None, None, [("a", v.WRONG), ("never tried", v.WRONG)]
        )
        assert [t.latency_s for t in store.records.trials(job)] == [1e-3, None]

    def test_rejecting_again_changes_nothing(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 1e-3, "b": 2e-3})
        for _ in range(2):
            store.records.select_winner(job, "t", None, None, [("a", v.WRONG)])
            assert [t.latency_s for t in store.records.trials(job)] == [None, 2e-3]


class BestRecords:
    """The fastest program of every task with an operator."""

    def found(self, store: Any, operator: str = "conv2d", **asked: Any) -> list[tuple[str, float]]:
        device, toolchain = asked.get("device", v.DEVICE), asked.get("toolchain", v.TOOLCHAIN)
        return [
            (c.task_id, c.latency_s)
            for c in store.records.fastest_of_operator(operator, device, toolchain)
        ]

    def test_each_task_has_its_fastest_over_all_jobs(self, store: Any, job: str) -> None:
        v.open_with_task(store, "other")
        v.commit_measured(store, {"a": 2e-3, "b": 3e-3})
        v.commit_measured(store, {"c": 1e-3}, job_id="other")
        v.commit_measured(store, {"d": 4e-3}, task_id="u")
        assert self.found(store) == [("t", 1e-3), ("u", 4e-3)]

    def test_trials_of_all_jobs_count_for_a_best_record_failures_do_not(
        self, store: Any, job: str
    ) -> None:
        v.open_with_task(store, "other")
        v.commit_measured(store, {"a": 2e-3})
        v.commit_measured(store, {"c": 1e-3}, job_id="other")
        v.commit_measured(store, {"d": 4e-3}, task_id="u")
        v.commit_failed(store, "bad", v.CRASH, task_id="u", iteration=1)
        assert [t.latency_s for t in store.records.trials(job, "u")] == [4e-3, None]
        found = store.records.fastest_of_operator("conv2d", v.DEVICE, v.TOOLCHAIN, measured=2)
        assert [(c.task_id, c.latency_s) for c in found] == [("t", 1e-3)]
        assert store.records.fastest_of_operator("conv2d", v.DEVICE, v.TOOLCHAIN, measured=3) == []

    def test_a_best_record_says_what_its_task_is(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 2e-3})
        expected = BestRecord("t", "1x3x8x8", 1e6, v.cand("a").trace, 2e-3)
        assert [expected] == store.records.fastest_of_operator("conv2d", v.DEVICE, v.TOOLCHAIN)

    def test_the_earliest_of_equals_stands(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"b": 1e-3, "a": 1e-3})
        [best_record] = store.records.fastest_of_operator("conv2d", v.DEVICE, v.TOOLCHAIN)
        assert best_record.trace == v.cand("b").trace

    def test_failures_and_other_operators_are_left_out(self, store: Any, job: str) -> None:
        v.commit_failed(store, "bad", v.CRASH)
        assert self.found(store) == []
        v.commit_measured(store, {"a": 1e-3})
        assert self.found(store, "matmul") == []

    @pytest.mark.parametrize(
        ("asked", "count"),
        [
            ({}, 1),
            ({"device": v.SISTER}, 1),
            ({"toolchain": v.PATCHED}, 1),
            ({"device": v.STRANGER}, 0),
            ({"toolchain": replace(v.TOOLCHAIN, tvm="0.28.0")}, 0),
        ],
    )
    def test_they_come_from_compatible_places(
        self, store: Any, job: str, asked: dict[str, Any], count: int
    ) -> None:
        v.commit_measured(store, {"a": 1e-3})
        assert len(self.found(store, **asked)) == count

    def test_what_was_measured_beside_other_jobs_on_purpose_serves_no_job(self, store: Any) -> None:
        shared = replace(v.make_spec("shared"), shared=True)
        store.jobs.open(shared, job_id="shared", now=0.0)
        store.work.put_tasks("shared", [v.make_task()])
        v.commit_measured(store, {"a": 1e-3}, job_id="shared")
        store.records.select_winner("shared", "t", v.make_trial("a", 1e-3), None)
        for device in (v.DEVICE, v.SISTER):
            for tier in Tier:
                assert record_ids(store, tier, device=device) == []
        assert self.found(store) == []
        assert store.records.best("t", v.DEVICE, v.TOOLCHAIN) is None
        assert store.records.best_page() == []
        assert len(store.records.trials("shared")) == len(store.records.winners("shared")) == 1
        v.open_with_task(store, "alone")
        store.records.select_winner("alone", "t", v.make_trial("b", 2e-3), None)
        store.records.select_winner("shared", "t", v.make_trial("a", 1e-3), None)
        assert store.records.best("t", v.DEVICE, v.TOOLCHAIN).job_id == "alone"

    def test_a_measurement_beside_others_reads_back_as_one(self, store: Any, job: str) -> None:
        trial = Trial(v.cand("a"), 0, replace(v.measured(), shared=True))
        store.records.select_winner(job, "t", trial, None)
        assert store.records.winners(job)["t"][0].outcome.shared
