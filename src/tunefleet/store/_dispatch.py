"""The contract of work that is given to other hosts."""

from __future__ import annotations

from typing import Any, Protocol

from tunefleet.core.hosts import GivenWork, HostIdentity, JoinedHost
from tunefleet.errors import LeaseLostError

#: Seconds after which a report is forgotten that nobody took.
UNTAKEN_S = 3600.0


class Dispatch(Protocol):
    """What hosts are given, and what they report.

    **Identity** is name and incarnation. Who joins under a name takes the place of whoever had it:
    what that one was given and has reported is forgotten, and its verbs raise LeaseLostError and
    leave no trace. So do those of a host that has left.
    **Time** is the store's, as in `Coordination`. Hosts of an earlier boot have left.
    **Values** are JSON with a schema of their own.
    """

    def join(self, host: HostIdentity, resources: Any) -> None:
        """A host is there, and offers resources; its first heartbeat."""

    def beat(self, host: HostIdentity) -> bool:
        """A heartbeat; False where the host was dismissed."""

    def dismiss(self, name: str) -> bool:
        """The host of a name is to end; False where there is none."""

    def leave(self, host: HostIdentity) -> None:
        """A host ends; nothing where it is not there."""

    def hosts(self) -> list[JoinedHost]:
        """Those that have joined and not left, in the order of their names."""

    def give(self, host: HostIdentity, giver: str, value: Any) -> int:
        """Give a host work; its number, which never comes again. `giver` is who takes the
        report."""

    def given(self, host: HostIdentity) -> list[GivenWork]:
        """What a host was given and has not reported, in the order of the numbers."""

    def abandon(self, number: int) -> None:
        """Work is not wanted any more: its host is to report soon. Nothing where that was
        reported."""

    def report(self, host: HostIdentity, number: int, value: Any) -> None:
        """How work ended. A second report of a number changes nothing."""

    def take_reports(self, giver: str) -> list[tuple[int, Any]]:
        """The numbers and values of what was reported to a giver; each is given out once."""


def gone(host: HostIdentity) -> LeaseLostError:
    return LeaseLostError(
        f"host {host.name} was replaced by another process of that name, or has left",
        cure="give each host a name of its own",
    )
