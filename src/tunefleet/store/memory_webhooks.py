"""Webhooks, in memory."""

from __future__ import annotations

from dataclasses import replace

from tunefleet.store import rules
from tunefleet.store._webhooks import (
    KEPT_DELIVERIES,
    KEPT_DELIVERIES_S,
    DeliveryState,
    Webhook,
    WebhookDelivery,
)
from tunefleet.store.memory_state import MemoryState


class MemoryWebhooks:
    """`Webhooks` in this process."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._webhooks: dict[str, Webhook] = {}
        self._deliveries: dict[str, dict[int, WebhookDelivery]] = {}

    def put(self, webhook: Webhook) -> None:
        with self._state.verb():
            if webhook.webhook_id in self._webhooks:
                raise rules.known_webhook(webhook.webhook_id)
            self._webhooks[webhook.webhook_id] = webhook

    def get(self, tenant: str, webhook_id: str) -> Webhook | None:
        with self._state.verb():
            found = self._webhooks.get(webhook_id)
            return found if found is not None and found.tenant == tenant else None

    def of(self, tenant: str) -> list[Webhook]:
        with self._state.verb():
            own = [each for each in self._webhooks.values() if each.tenant == tenant]
            return sorted(own, key=lambda each: (each.created_at, each.webhook_id))

    def due(self, now: float) -> list[Webhook]:
        with self._state.verb():
            return [
                self._webhooks[webhook_id]
                for webhook_id in sorted(self._webhooks)
                if not self._webhooks[webhook_id].state.disabled
                and self._webhooks[webhook_id].state.next_at <= now
            ]

    def advance(
        self, webhook_id: str, state: DeliveryState, delivery: WebhookDelivery | None = None
    ) -> None:
        with self._state.verb():
            if webhook_id not in self._webhooks:
                return
            self._webhooks[webhook_id] = replace(self._webhooks[webhook_id], state=state)
            if delivery is not None:
                kept = self._deliveries.get(webhook_id, {}) | {delivery.seq: delivery}
                oldest = delivery.last_at - KEPT_DELIVERIES_S
                self._deliveries[webhook_id] = {
                    seq: kept[seq]
                    for seq in sorted(kept)[-KEPT_DELIVERIES:]
                    if kept[seq].last_at >= oldest
                }

    def deliveries(self, webhook_id: str, before: int | None, limit: int) -> list[WebhookDelivery]:
        with self._state.verb():
            kept = self._deliveries.get(webhook_id, {})
            newest = sorted(kept, reverse=True)
            return [kept[seq] for seq in newest if before is None or seq < before][:limit]

    def rotate(self, webhook_id: str, secret: str, previous_until: float) -> None:
        with self._state.verb():
            if webhook_id in self._webhooks:
                old = self._webhooks[webhook_id]
                self._webhooks[webhook_id] = replace(
                    old, secret=secret, previous_secret=old.secret, previous_until=previous_until
                )

    def drop_secrets(self, now: float) -> None:
        with self._state.verb():
            for webhook_id, webhook in self._webhooks.items():
                if webhook.previous_until <= now:
                    self._webhooks[webhook_id] = replace(
                        webhook, previous_secret="", previous_until=0.0
                    )

    def remove(self, tenant: str, webhook_id: str) -> None:
        with self._state.verb():
            if webhook_id in self._webhooks and self._webhooks[webhook_id].tenant == tenant:
                del self._webhooks[webhook_id]
                self._deliveries.pop(webhook_id, None)
