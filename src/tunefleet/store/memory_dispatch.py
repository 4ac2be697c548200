"""Work that is given to other hosts, in memory."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass, replace
from typing import Any

from tunefleet.core.hosts import GivenWork, HostIdentity, JoinedHost
from tunefleet.store._dispatch import UNTAKEN_S, gone
from tunefleet.store.memory_state import MemoryState


@dataclass
class _Host:
    joined: JoinedHost
    beat_at: float
    dismissed: bool = False


@dataclass
class _Work:
    host: str
    giver: str
    given: GivenWork
    report: Any = None
    reported_at: float | None = None


class MemoryDispatch:
    """`Dispatch` within one process. Values go through JSON, as in a database."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._numbers = itertools.count(1)
        self._hosts: dict[str, _Host] = {}
        self._work: dict[int, _Work] = {}

    def join(self, host: HostIdentity, resources: Any) -> None:
        with self._state.verb():
            self._end(host.name)
            self._hosts[host.name] = _Host(
                JoinedHost(host, _as_json(resources), 0.0), time.monotonic()
            )

    def beat(self, host: HostIdentity) -> bool:
        with self._state.verb():
            own = self._current(host)
            own.beat_at = time.monotonic()
            return not own.dismissed

    def dismiss(self, name: str) -> bool:
        with self._state.verb():
            if name in self._hosts:
                self._hosts[name].dismissed = True
            return name in self._hosts

    def leave(self, host: HostIdentity) -> None:
        with self._state.verb():
            own = self._hosts.get(host.name)
            if own is not None and own.joined.identity == host:
                self._end(host.name)

    def hosts(self) -> list[JoinedHost]:
        with self._state.verb():
            now = time.monotonic()
            return [
                replace(own.joined, silent_s=now - own.beat_at)
                for _, own in sorted(self._hosts.items())
            ]

    def give(self, host: HostIdentity, giver: str, value: Any) -> int:
        with self._state.verb():
            self._current(host)
            oldest = time.monotonic() - UNTAKEN_S
            for number, work in list(self._work.items()):
                if work.reported_at is not None and work.reported_at < oldest:
                    del self._work[number]
            given = GivenWork(next(self._numbers), _as_json(value))
            self._work[given.number] = _Work(host.name, giver, given)
            return given.number

    def given(self, host: HostIdentity) -> list[GivenWork]:
        with self._state.verb():
            self._current(host)
            return [
                work.given
                for work in self._work.values()
                if work.host == host.name and work.reported_at is None
            ]

    def abandon(self, number: int) -> None:
        with self._state.verb():
            work = self._work.get(number)
            if work is not None:
                work.given = replace(work.given, abandoned=True)

    def report(self, host: HostIdentity, number: int, value: Any) -> None:
        with self._state.verb():
            self._current(host)
            work = self._work.get(number)
            if work is not None and work.host == host.name and work.reported_at is None:
                work.report, work.reported_at = _as_json(value), time.monotonic()

    def take_reports(self, giver: str) -> list[tuple[int, Any]]:
        with self._state.verb():
            taken = {
                number: work.report
                for number, work in self._work.items()
                if work.giver == giver and work.reported_at is not None
            }
            for number in taken:
                del self._work[number]
            return list(taken.items())

    def _current(self, host: HostIdentity) -> _Host:
        own = self._hosts.get(host.name)
        if own is None or own.joined.identity != host:
            raise gone(host)
        return own

    def _end(self, name: str) -> None:
        self._hosts.pop(name, None)
        self._work = {number: work for number, work in self._work.items() if work.host != name}


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
