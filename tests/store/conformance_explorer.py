"""The Store contract on lists of records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.target import CpuTarget
from tunefleet.errors import InputError
from tunefleet.store import ListedRecord, RecordColumn, RecordFilter, RecordOrder

from . import values as v

NEWEST, OLDEST = RecordOrder(), RecordOrder(descending=False)
FASTEST = RecordOrder(RecordColumn.LATENCY, descending=False)
SLOWEST = RecordOrder(RecordColumn.LATENCY)


def names(
    store: Any, order: RecordOrder = OLDEST, size: int = 2, tenant: str = "", **chosen: Any
) -> list[str]:
    """The candidates of all pages of so many records."""
    found: list[ListedRecord] = []
    after = None
    while page := store.explorer.page(
        RecordFilter(**chosen), order, after=after, limit=size, tenant=tenant
    ):
        found += page
        after = page[-1].place
    return [record.candidate_id for record in found]


def job_of(store: Any, job_id: str, task_id: str = "t", **changed: Any) -> None:
    """A job with one task: with a `name` and a `shapes` of the task, of a `network`."""
    spec = v.make_spec(job_id)
    network = replace(spec.network, name=changed.pop("network", "net"))
    weighted = v.make_task(task_id, name=changed.pop("name", "conv"))
    task = replace(weighted.task, shapes=changed.pop("shapes", weighted.task.shapes))
    device = replace(spec.device, name=changed.pop("device", spec.device.name))
    spec = replace(spec, network=network, device=device, **changed)
    store.jobs.open(spec, job_id=job_id, now=1.0)
    store.work.put_tasks(job_id, [replace(weighted, task=task)])


class Explored:
    def test_records_come_in_the_order_of_commit(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 2e-3, "b": 1e-3})
        v.commit_failed(store, "bad", v.CRASH, iteration=1)
        v.commit_measured(store, {"c": 3e-3}, iteration=2)
        assert names(store) == ["a", "b", "bad", "c"]
        assert names(store, NEWEST) == ["c", "bad", "b", "a"]

    @pytest.mark.parametrize("size", [1, 2, 3, 100])
    def test_failures_follow_those_with_a_latency(self, store: Any, job: str, size: int) -> None:
        v.commit_failed(store, "bad", v.CRASH)
        v.commit_failed(store, "worse", v.CRASH, iteration=1)
        v.commit_measured(store, {"a": 2e-3, "b": 1e-3, "c": 3e-3}, iteration=2)
        assert names(store, FASTEST, size) == ["b", "a", "c", "bad", "worse"]
        assert names(store, SLOWEST, size) == ["c", "a", "b", "worse", "bad"]

    def test_a_record_says_where_it_comes_from(self, store: Any) -> None:
        job_of(store, "one", network="resnet", target=CpuTarget("skylake", 2))
        v.commit_measured(store, {"a": 1e-3}, job_id="one", started_at=7.0)
        [found] = store.explorer.page(RecordFilter(), FASTEST, limit=5)
        task = v.make_task().task
        expected = ListedRecord(
            place=found.place,
            own=True,
            job_id="one",
            network="resnet",
            device=v.DEVICE.name,
            target=str(CpuTarget("skylake", 2)),
            task_id="t",
            name="conv",
            operator=task.operator,
            shapes=task.shapes,
            flops=task.flops,
            candidate_id="a",
            at=7.0,
            latency_s=1e-3,
            failure=None,
        )
        assert expected == found
        assert found.place.value == 1e-3

    def test_a_failure_has_its_kind(self, store: Any, job: str) -> None:
        v.commit_failed(store, "bad", v.CRASH)
        [found] = store.explorer.page(RecordFilter(), NEWEST, limit=5)
        assert (found.latency_s, found.failure) == (None, v.CRASH.kind.value)

    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            ({"network": "RES"}, ["a", "c"]),
            ({"network": "%"}, []),
            ({"network": "_"}, ["d"]),
            ({"device": "beta"}, ["b"]),
            ({"target": "zen"}, ["c"]),
            ({"task": "DENSE"}, ["d"]),
            ({"task": "u"}, ["b"]),
            ({"operator": "Conv"}, ["a", "b", "c", "d"]),
            ({"text": "7x7"}, ["c"]),
            ({"text": "bert"}, ["b"]),
            ({"text": "res", "target": "zen"}, ["c"]),
            ({"network": "res", "device": "beta"}, []),
            ({"text": "É"}, ["d"]),
            ({"text": "é"}, []),
            ({"text": "\\"}, []),
        ],
    )
    def test_records_are_filtered(
        self, store: Any, chosen: dict[str, Any], expected: list[str]
    ) -> None:
        job_of(store, "1", network="resnet")
        job_of(store, "2", "u", network="bert", device="Board Beta")
        job_of(store, "3", "w", network="ResNeXt", target=CpuTarget("zen5", 2), shapes="7x7 -> 3")
        job_of(store, "4", "x", network="É_net", name="dense")
        for job_id, task_id, name in (
            ("1", "t", "a"),
            ("2", "u", "b"),
            ("3", "w", "c"),
            ("4", "x", "d"),
        ):
            v.commit_measured(store, {name: 1e-3}, job_id=job_id, task_id=task_id)
        for column in RecordColumn:
            order = RecordOrder(column, descending=False)
            assert sorted(names(store, order, **chosen)) == expected
        assert names(store, **chosen) == expected

    @pytest.mark.parametrize("size", [1, 2, 100])
    def test_records_are_sorted_by_text(self, store: Any, size: int) -> None:
        job_of(store, "1", network="b")
        job_of(store, "2", network="a")
        v.commit_measured(store, {"b1": 1e-3, "b2": 2e-3}, job_id="1")
        v.commit_measured(store, {"a1": 3e-3, "a2": 1e-3}, job_id="2")
        v.commit_measured(store, {"b3": 1e-3}, job_id="1", iteration=1)
        order = RecordOrder(RecordColumn.NETWORK, descending=False)
        assert names(store, order, size) == ["a1", "a2", "b1", "b2", "b3"]
        order = RecordOrder(RecordColumn.NETWORK)
        assert names(store, order, size) == ["b3", "b2", "b1", "a2", "a1"]

    def test_a_tenant_is_given_its_own_and_what_is_shared(self, store: Any) -> None:
        for tenant in ("ann", "bob", ""):
            job_of(store, f"of {tenant}", tenant=tenant)
            v.commit_measured(store, {f"{tenant}'s": 1e-3}, job_id=f"of {tenant}")
        for order in (OLDEST, FASTEST, RecordOrder(RecordColumn.DEVICE)):
            assert names(store, order, tenant="ann") == ["ann's"]
            assert names(store, order) == ["'s"]
        store.accounts.share("bob", "ann", True)
        assert names(store, tenant="ann") == ["ann's", "bob's"]
        page = store.explorer.page(RecordFilter(), OLDEST, limit=9, tenant="ann")
        assert [record.own for record in page] == [True, False]

    def test_a_removed_job_has_no_records(self, store: Any) -> None:
        for job_id in ("1", "2"):
            job_of(store, job_id, network=f"net{job_id}")
            v.commit_measured(store, {job_id: 1e-3}, job_id=job_id)
        store.jobs.remove("1")
        for column in RecordColumn:
            assert names(store, RecordOrder(column)) == ["2"]

    def test_a_rejected_candidate_is_a_failure(self, store: Any, job: str) -> None:
        v.commit_measured(store, {"a": 1e-3, "b": 2e-3})
        store.records.select_winner("job", "t", None, {}, [("a", v.WRONG)])
        assert names(store, FASTEST) == ["b", "a"]

    def test_any_name_of_a_network_is_listed(self, store: Any) -> None:
        job_of(store, "1", network="a\udcff\0'\"")
        v.commit_measured(store, {"a": 1e-3}, job_id="1")
        [found] = store.explorer.page(RecordFilter(network="a?"), OLDEST, limit=5)
        assert found.network == "a??'\""

    def test_a_page_of_less_than_none_is_refused(self, store: Any) -> None:
        with pytest.raises(InputError):
            store.explorer.page(RecordFilter(), OLDEST, limit=-1)
        assert store.explorer.page(RecordFilter(), OLDEST, limit=0) == []
