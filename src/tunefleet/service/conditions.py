"""The condition of devices, from the events of all jobs: the last drift of their reference
kernel, and quarantines."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunefleet.core.device import LOCAL, PROCESSOR
from tunefleet.core.events import Event, ResourceBack, ResourceQuarantined, StageCommitted
from tunefleet.core.stage import StageKind
from tunefleet.store import KeptEvent, Store

_KINDS: Sequence[type[Event]] = (ResourceQuarantined, ResourceBack, StageCommitted)
#: Events of a page, and how far back the first look goes.
_PAGE, _FIRST = 1000, 20_000
#: Each job that runs keeps the same quarantine, within so many seconds.
_SAME_S = 1.0


@dataclass(frozen=True, slots=True)
class DeviceCondition:
    """`drift` was reported by the last measurement, which ended at `drift_at`. The other values
    are the reason, start and end of the last quarantine, and the number of recent ones. Times
    are seconds since the epoch; None where there was none."""

    drift: str = ""
    drift_at: float | None = None
    reason: str = ""
    quarantined_at: float | None = None
    quarantined_until: float | None = None
    quarantines: int = 0


class DeviceConditions:
    """Reads each event once. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seq: int | None = None
        self._by_resource: dict[str, DeviceCondition] = {}

    def of(self, device: str) -> DeviceCondition:
        """The condition of a device of the home; of several places the one used last."""
        with self._lock:
            self._read()
            name = PROCESSOR if device == LOCAL else device
            places = [
                condition
                for resource, condition in self._by_resource.items()
                if resource == name or resource.startswith(f"{name}/")
            ]
        return max(places, key=_seen_at, default=DeviceCondition())

    def _read(self) -> None:
        last = self._store.events.last()
        seq = max(0, last - _FIRST) if self._seq is None else self._seq
        while page := self._store.events.page(seq, (), _PAGE, _KINDS):
            for kept in page:
                self._take(kept)
            seq = page[-1].seq
        self._seq = max(seq, last)

    def _take(self, kept: KeptEvent) -> None:
        match kept.event:
            case StageCommitted(run) if run.key.kind is StageKind.PROFILE and run.note:
                old = self._by_resource.get(run.resource_id, DeviceCondition())
                changed = replace(old, drift=run.note, drift_at=run.started_at + run.seconds)
                self._by_resource[run.resource_id] = changed
            case ResourceQuarantined(resource_id, reason, seconds):
                old = self._by_resource.get(resource_id, DeviceCondition())
                began = old.quarantined_at
                is_new = began is None or kept.at - began > _SAME_S
                self._by_resource[resource_id] = replace(
                    old,
                    reason=reason,
                    quarantined_at=kept.at if is_new else began,
                    quarantined_until=kept.at + seconds,
                    quarantines=old.quarantines + is_new,
                )
            case ResourceBack(resource_id):
                old = self._by_resource.get(resource_id, DeviceCondition())
                if old.quarantined_until is not None:
                    until = min(old.quarantined_until, kept.at)
                    self._by_resource[resource_id] = replace(old, quarantined_until=until)


def _seen_at(condition: DeviceCondition) -> float:
    return max(condition.drift_at or 0.0, condition.quarantined_at or 0.0)
