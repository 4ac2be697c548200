"""The Store contract on leases and on what users ask of jobs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tunefleet.core.coordination import (
    Claim,
    ControlRequest,
    Holder,
    Lease,
    ProcessIdentity,
    Queued,
)
from tunefleet.core.stage import Profiled, ProfileResult, SelectResult, StageKey, StageKind
from tunefleet.core.step import StepKind
from tunefleet.errors import InputError, LeaseLostError

from . import values as v
from .conformance_steps import step

#: Longer than any test, and shorter than any pause.
LONG_S, SHORT_S = 600.0, 0.01
PROCESS = ProcessIdentity("here", "boot", 1, 2)
HOLDER = Holder(PROCESS, "ann", "job", "profile of conv", 40.0)


def claim(name: str, *units: str, shared: bool = False) -> Claim:
    return Claim(name, frozenset(units), HOLDER, shared)


def ahead(answer: Lease | Queued) -> list[str]:
    assert isinstance(answer, Queued)
    return [status.claim.claim_id for status in answer.ahead]


def granted(answer: Lease | Queued) -> Lease:
    assert isinstance(answer, Lease)
    return answer


def lost_lease(store: Any) -> Lease:
    """A lease that expired and whose units another claim has by now."""
    lease = granted(store.coordination.acquire(claim("lost", "core 0"), SHORT_S))
    time.sleep(2 * SHORT_S)
    granted(store.coordination.acquire(claim("next", "core 0"), LONG_S))
    return lease


class Leases:
    def test_a_claim_of_free_units_is_granted(self, store: Any) -> None:
        lease = store.coordination.acquire(claim("a", "core 0", "core 1"), LONG_S)
        assert claim("a", "core 0", "core 1") == lease.claim
        [status] = store.coordination.claims()
        assert (lease.claim, True) == (status.claim, status.granted)
        assert 0.0 <= status.seconds < LONG_S

    def test_a_unit_has_one_holder(self, store: Any) -> None:
        store.coordination.acquire(claim("a", "core 0"), LONG_S)
        queued = store.coordination.acquire(claim("b", "core 0"), LONG_S)
        assert ahead(queued) == ["a"]
        assert [status.granted for status in queued.ahead] == [True]
        assert [status.granted for status in store.coordination.claims()] == [True, False]

    def test_other_units_are_free(self, store: Any) -> None:
        store.coordination.acquire(claim("a", "core 0"), LONG_S)
        assert granted(store.coordination.acquire(claim("b", "core 1"), LONG_S))

    def test_the_same_claim_is_granted_once(self, store: Any) -> None:
        first = store.coordination.acquire(claim("a", "core 0"), LONG_S)
        assert first == store.coordination.acquire(claim("a", "core 0"), LONG_S)

    def test_what_is_released_goes_to_the_first_that_waits(self, store: Any) -> None:
        for name in "abc":
            store.coordination.acquire(claim(name, "core 0"), LONG_S)
        store.coordination.release("a")
        assert ahead(store.coordination.acquire(claim("c", "core 0"), LONG_S)) == ["b"]
        assert granted(store.coordination.acquire(claim("b", "core 0"), LONG_S))

    def test_all_units_or_none(self, store: Any) -> None:
        store.coordination.acquire(claim("a", "core 0"), LONG_S)
        both = claim("both", "core 0", "core 1")
        assert ahead(store.coordination.acquire(both, LONG_S)) == ["a"]
        # Core 1 is nobody's, but the next in turn has asked for it.
        assert ahead(store.coordination.acquire(claim("c", "core 1"), LONG_S)) == ["both"]
        store.coordination.release("a")
        assert granted(store.coordination.acquire(both, LONG_S))
        store.coordination.release("both")
        assert granted(store.coordination.acquire(claim("c", "core 1"), LONG_S))

    def test_one_that_waits_and_is_not_made_again_is_dropped(self, store: Any) -> None:
        store.coordination.acquire(claim("a", "core 0"), LONG_S)
        store.coordination.acquire(claim("gone", "core 0"), SHORT_S)
        time.sleep(2 * SHORT_S)
        assert ahead(store.coordination.acquire(claim("b", "core 0"), LONG_S)) == ["a"]
        assert [s.claim.claim_id for s in store.coordination.claims()] == ["a", "b"]
        # Who comes back is the last in turn.
        assert ahead(store.coordination.acquire(claim("gone", "core 0"), LONG_S)) == ["a", "b"]

    def test_epochs_grow(self, store: Any) -> None:
        epochs = []
        for name in "abc":
            epochs.append(store.coordination.acquire(claim(name, "core 0"), LONG_S).epoch)
            store.coordination.release(name)
        assert sorted(set(epochs)) == epochs

    def test_shared_claims_have_a_unit_together(self, store: Any) -> None:
        for name in "ab":
            assert granted(store.coordination.acquire(claim(name, "core 0", shared=True), LONG_S))
        alone = claim("alone", "core 0")
        assert ahead(store.coordination.acquire(alone, LONG_S)) == ["a", "b"]
        # Or sharers that come and go would keep it waiting for ever.
        later = claim("later", "core 0", shared=True)
        assert ahead(store.coordination.acquire(later, LONG_S)) == ["alone"]
        store.coordination.release("a")
        store.coordination.release("b")
        assert granted(store.coordination.acquire(alone, LONG_S))

    def test_a_renewal_keeps_a_lease(self, store: Any) -> None:
        lease = store.coordination.acquire(claim("a", "core 0"), SHORT_S)
        store.coordination.renew(lease, LONG_S)
        time.sleep(2 * SHORT_S)
        assert ahead(store.coordination.acquire(claim("b", "core 0"), LONG_S)) == ["a"]

    def test_a_lease_that_expired_gives_way(self, store: Any) -> None:
        lease = lost_lease(store)
        assert [s.claim.claim_id for s in store.coordination.claims()] == ["next"]
        with pytest.raises(LeaseLostError, match="core 0"):
            store.coordination.renew(lease, LONG_S)

    def test_a_lease_that_expired_is_kept_where_nobody_came(self, store: Any) -> None:
        lease = store.coordination.acquire(claim("a", "core 0"), SHORT_S)
        time.sleep(2 * SHORT_S)
        assert store.coordination.claims() == []
        granted(store.coordination.acquire(claim("b", "core 1"), LONG_S))
        store.coordination.renew(lease, LONG_S)
        assert ahead(store.coordination.acquire(claim("c", "core 0"), LONG_S)) == ["a"]

    def test_a_released_lease_is_over(self, store: Any) -> None:
        lease = store.coordination.acquire(claim("a", "core 0"), LONG_S)
        store.coordination.release("a")
        store.coordination.release("a")
        with pytest.raises(LeaseLostError):
            store.coordination.renew(lease, LONG_S)

    def test_a_claim_made_after_its_release_is_another(self, store: Any) -> None:
        before = store.coordination.acquire(claim("a", "core 0"), LONG_S)
        store.coordination.release("a")
        assert before.epoch < store.coordination.acquire(claim("a", "core 0"), LONG_S).epoch
        with pytest.raises(LeaseLostError):
            store.coordination.renew(before, LONG_S)

    def test_a_claim_of_nothing_is_none(self) -> None:
        with pytest.raises(ValueError, match="no unit"):
            claim("a")


class Fencing:
    def test_a_commit_under_a_lease_counts(self, store: Any, job: str) -> None:
        lease = store.coordination.acquire(claim("a", "core 0"), LONG_S)
        assert store.work.commit(v.run_of(SelectResult((v.cand("x"),))), leases=[lease])
        assert store.work.commit_step(step(StepKind.VERIFY), leases=[lease])

    def test_a_commit_under_a_lost_lease_leaves_no_trace(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"x": 1e-3})
        before = (store.work.stages(job), store.records.trials(job), store.jobs.page())
        lease = lost_lease(store)
        late = v.run_of(SelectResult((v.cand("y"),)), iteration=1)
        with pytest.raises(LeaseLostError):
            store.work.commit(late, elapsed_s=99.0, leases=[lease])
        again = v.run_of(ProfileResult((Profiled("x", v.measured(2e-3), 0.25),)))
        with pytest.raises(LeaseLostError):
            store.work.commit(again, again=True, leases=[lease])
        assert before == (store.work.stages(job), store.records.trials(job), store.jobs.page())
        assert store.work.stage(StageKey(job, "t", 1, StageKind.SELECT)) is None

    def test_a_step_under_a_lost_lease_leaves_no_trace(self, store: Any) -> None:
        with pytest.raises(LeaseLostError):
            store.work.commit_step(step(StepKind.VERIFY), leases=[lost_lease(store)])
        assert store.work.steps(step(StepKind.VERIFY).key.owner) == []


class Requests:
    def test_nothing_is_asked_of_a_new_job(self, store: Any, job: str) -> None:
        assert store.coordination.wanted(job) is ControlRequest.RUN

    def test_the_last_request_counts(self, store: Any, job: str) -> None:
        for request in (ControlRequest.PAUSE, ControlRequest.CANCEL, ControlRequest.RUN):
            store.coordination.ask(job, request)
            assert store.coordination.wanted(job) is request
            asked = {} if request is ControlRequest.RUN else {job: request}
            assert asked == store.coordination.requests([job, "unknown"])

    def test_a_request_is_of_one_job(self, store: Any, job: str) -> None:
        store.jobs.open(v.make_spec("other"), job_id="other", now=1.0)
        store.coordination.ask(job, ControlRequest.PAUSE)
        assert store.coordination.wanted("other") is ControlRequest.RUN
        assert store.coordination.requests(["other"]) == {}

    def test_a_removed_job_leaves_no_request(self, store: Any, job: str) -> None:
        store.coordination.ask(job, ControlRequest.PAUSE)
        store.jobs.remove(job)
        v.open_with_task(store, job)
        assert store.coordination.wanted(job) is ControlRequest.RUN

    def test_an_unknown_job_cannot_be_asked(self, store: Any) -> None:
        with pytest.raises(InputError, match="no job job"):
            store.coordination.ask("job", ControlRequest.PAUSE)
