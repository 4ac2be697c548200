"""The contract of webhooks: where a tenant wants to be told of its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """How far deliveries came. `after` is the number of the last event that was delivered or is
    none to be told; `failures` of the next one in a row, which is tried again at `next_at` (seconds
    since the epoch). `last` says what came of the last try, at `last_at`. `disabled` is why nothing
    more is sent."""

    after: int = 0
    failures: int = 0
    next_at: float = 0.0
    last: str = ""
    last_at: float | None = None
    disabled: str = ""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that is told of a tenant's jobs: of `events`, of all where there are none. `secret`
    signs what is sent."""

    webhook_id: str
    tenant: str
    url: str
    secret: str
    events: tuple[str, ...] = ()
    created_at: float = 0.0
    state: DeliveryState = DeliveryState()


class Webhooks(Protocol):
    """Webhooks of all tenants, with how far each one's deliveries came: who delivers goes on there
    after it was killed."""

    def put(self, webhook: Webhook) -> None:
        """Add a webhook. Raises InputError where there is one of its id."""

    def get(self, tenant: str, webhook_id: str) -> Webhook | None:
        """One webhook of a tenant."""

    def of(self, tenant: str) -> list[Webhook]:
        """Those of a tenant, the oldest first."""

    def due(self, now: float) -> list[Webhook]:
        """Those of all tenants that are not disabled, and whose next try is not later."""

    def advance(self, webhook_id: str, state: DeliveryState) -> None:
        """Keep how far deliveries came; nothing where the webhook was removed."""

    def remove(self, tenant: str, webhook_id: str) -> None:
        """Tell it nothing more; nothing where there is none."""
