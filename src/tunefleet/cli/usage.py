"""How busy resources are: sums of what is told, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Usage:
    """Busy seconds of each resource since one of them was first busy.

    Times are `now` of whoever calls, in seconds. A resource with several stages at once is as
    busy as with one.
    """

    busy: frozenset[str] = frozenset()
    began: float | None = None
    changed: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def after(self, busy: frozenset[str], now: float) -> Usage:
        """The usage when from `now` on exactly these resources are busy."""
        if busy == self.busy:
            return self
        began = now if self.began is None else self.began
        new = dict.fromkeys(sorted(busy - self.seconds.keys()), 0.0)
        return Usage(busy, began, now, self._seconds(now) | new)

    def shares(self, now: float) -> dict[str, float]:
        """The busy share of each resource that was ever busy; ends when the last one fell idle."""
        end = now if self.busy else self.changed
        wall = end - (self.began or 0.0)
        return {name: s / wall if wall > 0 else 0.0 for name, s in self._seconds(now).items()}

    def _seconds(self, now: float) -> dict[str, float]:
        since = max(0.0, now - self.changed)
        return {name: s + since * (name in self.busy) for name, s in self.seconds.items()}
