"""The contract of webhooks: the URLs that receive events of a tenant's jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: The newest deliveries that are kept of each webhook, and for how many seconds.
KEPT_DELIVERIES, KEPT_DELIVERIES_S = 500, 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Progress of the deliveries. Events up to the number `after` are done; the next one has failed
    `failures` times in a row and is retried at `next_at` (seconds since the epoch). `last` is the
    result of the last attempt, made at `last_at`. Nothing is sent while `disabled`, the reason, is
    set."""

    after: int = 0
    failures: int = 0
    next_at: float = 0.0
    last: str = ""
    last_at: float | None = None
    disabled: str = ""


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One message to a webhook. `seq` is the number of its event, `kind` its type, `happened_at`
    the time of the event and `last_at` that of the last of the `attempts`, in seconds since the
    epoch. `status` is the HTTP status of that attempt, None where `error` says why there was
    none."""

    seq: int
    message_id: str
    kind: str
    job_id: str
    happened_at: float
    attempts: int
    last_at: float
    status: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that receives the `events` of a tenant's jobs, all of them where `events` is empty.
    `secret` signs messages; until `previous_until`, seconds since the epoch, `previous_secret` does
    as well."""

    webhook_id: str
    tenant: str
    url: str
    secret: str
    events: tuple[str, ...] = ()
    created_at: float = 0.0
    state: DeliveryState = DeliveryState()
    previous_secret: str = ""
    previous_until: float = 0.0

    def secrets(self, now: float) -> list[str]:
        """The secrets that are valid at a time, the newest first."""
        overlaps = bool(self.previous_secret) and now < self.previous_until
        return [self.secret, *([self.previous_secret] if overlaps else [])]


class Webhooks(Protocol):
    """Webhooks of all tenants, with the progress of each one's deliveries, which resume from it
    after a crash."""

    def put(self, webhook: Webhook) -> None:
        """Add a webhook. Raises InputError where there is one of its id."""

    def get(self, tenant: str, webhook_id: str) -> Webhook | None:
        """One webhook of a tenant."""

    def of(self, tenant: str) -> list[Webhook]:
        """Those of a tenant, the oldest first."""

    def due(self, now: float) -> list[Webhook]:
        """Those of all tenants that are not disabled, and whose next attempt is not later."""

    def advance(
        self, webhook_id: str, state: DeliveryState, delivery: WebhookDelivery | None = None
    ) -> None:
        """Store the progress of deliveries and, in the same transaction, the delivery of the last
        attempt, which replaces an earlier one of its event. Deliveries beyond `KEPT_DELIVERIES`, or
        older than `KEPT_DELIVERIES_S` before it, are removed. No effect where the webhook was
        removed."""

    def deliveries(self, webhook_id: str, before: int | None, limit: int) -> list[WebhookDelivery]:
        """A page of the deliveries, the newest event first: those of events before a number."""

    def rotate(self, webhook_id: str, secret: str, previous_until: float) -> None:
        """Replace the secret; the one so far stays valid until a time. An earlier one that still
        was is dropped."""

    def drop_secrets(self, now: float) -> None:
        """Erase the secrets that are not valid any more."""

    def remove(self, tenant: str, webhook_id: str) -> None:
        """Remove a webhook with its deliveries; no effect where there is none."""
