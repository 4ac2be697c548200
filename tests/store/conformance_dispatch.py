"""The contract of work that is given to other hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tunefleet.core.hosts import GivenWork, HostIdentity
from tunefleet.errors import LeaseLostError

HOST = HostIdentity("a", "first")
AGAIN = HostIdentity("a", "second")
OFFERED = [{"role": "host", "kind": "k"}]
REPORT = {"schema": 1, "end": "done"}
OF_HOST: list[Callable[[Any, HostIdentity], object]] = [
    lambda s, host: s.dispatch.beat(host),
    lambda s, host: s.dispatch.give(host, "giver", {}),
    lambda s, host: s.dispatch.given(host),
    lambda s, host: s.dispatch.report(host, 1, REPORT),
]


class HostWork:
    @pytest.fixture
    def number(self, store: Any) -> int:
        """Of work that a host was given."""
        store.dispatch.join(HOST, OFFERED)
        number: int = store.dispatch.give(HOST, "giver", {"key": 1})
        return number

    def test_hosts_are_known_until_they_leave(self, store: Any) -> None:
        other = HostIdentity("b", "first")
        for host in (other, HOST):
            store.dispatch.join(host, OFFERED)
        assert [host.identity for host in store.dispatch.hosts()] == [HOST, other]
        assert [host.resources for host in store.dispatch.hosts()] == [OFFERED, OFFERED]
        store.dispatch.leave(HOST)
        assert [host.identity for host in store.dispatch.hosts()] == [other]

    def test_a_heartbeat_ends_silence(self, store: Any) -> None:
        store.dispatch.join(HOST, OFFERED)
        (before,) = store.dispatch.hosts()
        (later,) = store.dispatch.hosts()
        assert 0 <= before.silent_s <= later.silent_s < 60
        assert store.dispatch.beat(HOST)

    def test_a_host_that_is_dismissed_hears_of_it(self, store: Any) -> None:
        assert not store.dispatch.dismiss("a")
        store.dispatch.join(HOST, OFFERED)
        assert store.dispatch.dismiss("a")
        assert not store.dispatch.beat(HOST)
        store.dispatch.join(AGAIN, OFFERED)
        assert store.dispatch.beat(AGAIN)

    def test_work_is_given_until_it_is_reported(self, store: Any, number: int) -> None:
        second = store.dispatch.give(HOST, "other", {"key": 2})
        given = [GivenWork(number, {"key": 1}), GivenWork(second, {"key": 2})]
        assert store.dispatch.given(HOST) == given
        store.dispatch.report(HOST, number, REPORT)
        assert store.dispatch.given(HOST) == given[1:]
        assert second > number

    def test_a_giver_takes_its_reports_once(self, store: Any, number: int) -> None:
        assert store.dispatch.take_reports("giver") == []
        store.dispatch.report(HOST, number, REPORT)
        assert store.dispatch.take_reports("other") == []
        assert store.dispatch.take_reports("giver") == [(number, REPORT)]
        assert store.dispatch.take_reports("giver") == []

    def test_the_first_report_counts(self, store: Any, number: int) -> None:
        store.dispatch.report(HOST, number, REPORT)
        store.dispatch.report(HOST, number, {"schema": 1, "end": "failed"})
        assert store.dispatch.take_reports("giver") == [(number, REPORT)]
        store.dispatch.report(HOST, number, REPORT)
        assert store.dispatch.take_reports("giver") == []

    def test_a_host_hears_what_is_abandoned(self, store: Any, number: int) -> None:
        store.dispatch.abandon(number)
        store.dispatch.abandon(number + 1)
        assert store.dispatch.given(HOST) == [GivenWork(number, {"key": 1}, abandoned=True)]

    def test_who_joins_under_a_name_takes_nothing_over(self, store: Any, number: int) -> None:
        done = store.dispatch.give(HOST, "giver", {})
        store.dispatch.report(HOST, done, REPORT)
        store.dispatch.join(AGAIN, OFFERED)
        assert store.dispatch.given(AGAIN) == []
        store.dispatch.report(AGAIN, number, REPORT)
        assert store.dispatch.take_reports("giver") == []
        assert store.dispatch.give(AGAIN, "giver", {}) > done

    @pytest.mark.parametrize("verb", OF_HOST)
    def test_an_earlier_incarnation_is_refused(
        self, store: Any, number: int, verb: Callable[[Any, HostIdentity], object]
    ) -> None:
        store.dispatch.join(AGAIN, OFFERED)
        with pytest.raises(LeaseLostError, match="host a was replaced"):
            verb(store, HOST)
        store.dispatch.leave(HOST)
        assert [host.identity for host in store.dispatch.hosts()] == [AGAIN]
        assert store.dispatch.given(AGAIN) == []

    @pytest.mark.parametrize("verb", OF_HOST)
    def test_a_host_that_has_left_is_refused(
        self, store: Any, number: int, verb: Callable[[Any, HostIdentity], object]
    ) -> None:
        store.dispatch.leave(HOST)
        with pytest.raises(LeaseLostError, match="or has left"):
            verb(store, HOST)
        assert store.dispatch.take_reports("giver") == []
