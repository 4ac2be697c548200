"""The only module that decides which stages may run together."""

from __future__ import annotations

from tunefleet.errors import InternalError
from tunefleet.scheduler.values import Resource


class Ledger:
    """Tracks which resources hold which physical units.

    Two stages whose units intersect never run together unless both are on shareable resources.
    Units that a stage only uses `beside` its own are shared in any case.
    """

    def __init__(self) -> None:
        self._exclusive: dict[str, int] = {}
        self._shared: dict[str, int] = {}

    def free(self, resource: Resource) -> bool:
        for unit in resource.units:
            if self._exclusive.get(unit):
                return False
            if not resource.shareable and self._shared.get(unit):
                return False
        # Most have none, and this is asked several times for each event.
        return not (resource.beside and any(map(self._exclusive.get, resource.beside)))

    def take(self, resource: Resource) -> None:
        if not self.free(resource):
            raise InternalError(f"{resource.resource_id} was taken while its units are held")
        for held, units in self._uses(resource):
            for unit in units:
                held[unit] = held.get(unit, 0) + 1

    def release(self, resource: Resource) -> None:
        for held, units in self._uses(resource):
            for unit in units:
                count = held.get(unit, 0)
                if count < 1:
                    raise InternalError(f"{resource.resource_id} released units that were not held")
                held[unit] = count - 1

    def _uses(self, resource: Resource) -> tuple[tuple[dict[str, int], frozenset[str]], ...]:
        own = self._shared if resource.shareable else self._exclusive
        return (own, resource.units), (self._shared, resource.beside)
