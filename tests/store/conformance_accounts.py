"""The Store contract on the users of a service, and on whose records are whose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.identity import Tier
from tunefleet.core.stage import StageKind
from tunefleet.core.trial import Trial
from tunefleet.errors import InputError
from tunefleet.store import EVERYONE, AccessToken, AnsweredRequest, KeptNetwork, Quota, User
from tunefleet.store._accounts import ANSWERED_S

from . import values as v

ANN = User("ann", admin=True, created_at=5.0, quota=Quota(jobs=3, device_s=60.0))
TOKEN = AccessToken("d1", "tf_ab", "ann", "laptop", created_at=7.0, expires_at=90.0)
NETWORK = KeptNetwork("ann", "f00", "net.onnx", "networks/f00/net.onnx", 12, 3.0)


def of_tenant(store: Any, job_id: str, tenant: str, latency_s: float) -> None:
    """A job of a tenant that measured one program of the task t, and delivers it."""
    spec = replace(v.make_spec(name=job_id), tenant=tenant)
    store.jobs.open(spec, job_id=job_id, now=1.0)
    store.work.put_tasks(job_id, [v.make_task("t")])
    v.commit_measured(store, {job_id: latency_s}, job_id=job_id)
    [trial] = store.records.trials(job_id)
    assert isinstance(trial, Trial)
    store.records.select_winner(job_id, "t", trial, {"by": job_id})


def seen(store: Any, tenant: str) -> set[str]:
    """The jobs of which a tenant sees anything, by any of the verbs that look at all jobs."""
    of = (v.DEVICE, v.TOOLCHAIN)
    fastest = store.records.fastest("t", *of, tier=Tier.EXACT, limit=9, tenant=tenant)
    jobs = {record.job_id for record in fastest}
    best = store.records.best("t", *of, tenant=tenant)
    jobs |= {best.job_id} if best else set()
    jobs |= {entry.record.job_id for entry in store.records.best_page(tenant=tenant)}
    near = store.records.fastest_of_operator("conv2d", *of, tenant=tenant)
    assert len(near) == bool(jobs)
    return jobs


class Tenants:
    def test_a_tenant_is_given_its_own_records(self, store: Any) -> None:
        for tenant, latency_s in (("", 3e-3), ("ann", 1e-3), ("bob", 2e-3)):
            of_tenant(store, f"of {tenant or 'home'}", tenant, latency_s)
        assert [seen(store, tenant) for tenant in ("", "ann", "bob", "eve")] == [
            {"of home"},
            {"of ann"},
            {"of bob"},
            set(),
        ]

    @pytest.mark.parametrize("reader", ["bob", EVERYONE])
    def test_and_those_that_were_shared_with_it(self, store: Any, reader: str) -> None:
        of_tenant(store, "of ann", "ann", 1e-3)
        of_tenant(store, "of bob", "bob", 2e-3)
        store.accounts.share("ann", reader, True)
        store.accounts.share("ann", reader, True)
        assert store.accounts.readers("ann") == [reader]
        assert seen(store, "bob") == {"of ann", "of bob"}
        assert seen(store, "ann") == {"of ann"}
        assert seen(store, "eve") == ({"of ann"} if reader == EVERYONE else set())
        best = store.records.best("t", v.DEVICE, v.TOOLCHAIN, tenant="bob")
        assert best.job_id == "of ann"
        [entry] = store.records.best_page(tenant="bob")
        assert (entry.record.job_id, entry.checks) == ("of ann", {"by": "of ann"})
        store.accounts.share("ann", reader, False)
        assert seen(store, "bob") == {"of bob"}

    def test_a_removed_job_leaves_the_best_of_each_tenant(self, store: Any) -> None:
        of_tenant(store, "one", "ann", 1e-3)
        of_tenant(store, "two", "ann", 2e-3)
        of_tenant(store, "bobs", "bob", 3e-3)
        store.jobs.remove("one")
        assert (seen(store, "ann"), seen(store, "bob")) == ({"two"}, {"bobs"})

    def test_jobs_are_listed_by_their_tenant(self, store: Any) -> None:
        of_tenant(store, "of ann", "ann", 1e-3)
        of_tenant(store, "of home", "", 1e-3)
        listed = [
            [job.job_id for job in store.jobs.page(tenant=tenant)] for tenant in ("ann", "", None)
        ]
        assert listed == [["of ann"], ["of home"], ["of home", "of ann"]]

    def test_the_same_request_of_two_tenants_is_two_jobs(self, store: Any) -> None:
        spec = v.make_spec()
        first = store.jobs.open(replace(spec, tenant="ann"), job_id="1", now=1.0)
        second = store.jobs.open(replace(spec, tenant="bob"), job_id="2", now=1.0)
        assert (first.job_id, second.job_id) == ("1", "2")


class Users:
    def test_a_user_is_kept_as_given_and_can_be_changed(self, store: Any) -> None:
        store.accounts.put_user(ANN)
        store.accounts.put_user(User("bob"))
        assert store.accounts.user("ann") == ANN
        assert store.accounts.users() == [ANN, User("bob")]
        assert store.accounts.users(after="ann", limit=1) == [User("bob")]
        changed = replace(ANN, disabled=True, quota=Quota(stored_bytes=1))
        store.accounts.put_user(changed)
        assert store.accounts.user("ann") == changed
        assert store.accounts.user("eve") is None

    def test_a_token_is_found_by_its_digest_until_it_is_removed(self, store: Any) -> None:
        with pytest.raises(InputError, match="no user ann"):
            store.accounts.put_token(TOKEN)
        store.accounts.put_user(ANN)
        second = replace(TOKEN, digest="d2", created_at=8.0, session=True, admin=True)
        store.accounts.put_token(second)
        store.accounts.put_token(TOKEN)
        assert store.accounts.token("d1") == TOKEN
        assert store.accounts.tokens("ann") == [TOKEN, second]
        store.accounts.use_token("d1", 50.0)
        store.accounts.use_token("unknown", 50.0)
        assert store.accounts.token("d1") == replace(TOKEN, last_used_at=50.0)
        store.accounts.remove_token("d1")
        store.accounts.remove_token("d1")
        assert (store.accounts.token("d1"), store.accounts.tokens("ann")) == (None, [second])


class Kept:
    def test_networks_are_their_tenants(self, store: Any) -> None:
        store.holdings.put_network(NETWORK)
        store.holdings.put_network(replace(NETWORK, name="other.onnx"))  # the first stays
        store.holdings.put_network(replace(NETWORK, digest="f01", size=30))
        store.holdings.put_network(replace(NETWORK, tenant="bob"))
        assert store.holdings.network("ann", "f00") == NETWORK
        assert store.holdings.network("eve", "f00") is None
        assert [n.digest for n in store.holdings.networks("ann")] == ["f00", "f01"]
        assert [n.digest for n in store.holdings.networks("ann", after="f00")] == ["f01"]
        assert store.holdings.networks("ann", limit=0) == []
        assert [store.holdings.stored_bytes(name) for name in ("ann", "bob", "eve")] == [42, 12, 0]
        store.holdings.remove_network("ann", "f00")
        store.holdings.remove_network("ann", "f00")
        assert store.holdings.network("ann", "f00") is None
        assert store.holdings.places([NETWORK.place, "elsewhere"]) == {NETWORK.place}

    def test_what_a_tenant_measured_since_a_time_is_summed(self, store: Any) -> None:
        of_tenant(store, "of ann", "ann", 1e-3)
        of_tenant(store, "of bob", "bob", 1e-3)
        runs = store.work.stages("of ann")
        profiled = [run for run in runs if run.key.kind is StageKind.PROFILE]
        seconds = sum(run.seconds for run in profiled)
        assert seconds > 0
        began = min(run.started_at for run in profiled)
        assert store.holdings.measured_s("ann", began - 1) == pytest.approx(seconds)
        assert store.holdings.measured_s("ann", max(r.started_at for r in profiled)) == 0
        assert store.holdings.measured_s("eve", 0.0) == 0

    def test_a_numbered_request_is_answered_once(self, store: Any) -> None:
        begin = store.holdings.begin_request
        assert begin("ann", "k", "asked", 1.0) is None
        assert begin("ann", "k", "asked", 2.0) == AnsweredRequest("asked", None, 1.0)
        assert begin("bob", "k", "asked", 2.0) is None
        store.holdings.end_request("ann", "k", {"job": "7"})
        assert begin("ann", "k", "else", 3.0) == AnsweredRequest("asked", {"job": "7"}, 1.0)
        store.holdings.forget_unanswered()
        assert begin("ann", "k", "asked", 3.0) == AnsweredRequest("asked", {"job": "7"}, 1.0)
        assert begin("bob", "k", "asked", 4.0) is None
        store.holdings.end_request("bob", "k", None)
        assert begin("bob", "k", "asked", 4.0) is None
        later = 3.0 + ANSWERED_S
        assert begin("ann", "k", "asked", later) is None
        assert begin("bob", "k", "asked", later) == AnsweredRequest("asked", None, 4.0)
