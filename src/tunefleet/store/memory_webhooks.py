"""Webhooks, in memory."""

from __future__ import annotations

from dataclasses import replace

from tunefleet.store import rules
from tunefleet.store._webhooks import DeliveryState, Webhook
from tunefleet.store.memory_state import MemoryState


class MemoryWebhooks:
    """`Webhooks` in this process."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._webhooks: dict[str, Webhook] = {}

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

    def advance(self, webhook_id: str, state: DeliveryState) -> None:
        with self._state.verb():
            if webhook_id in self._webhooks:
                self._webhooks[webhook_id] = replace(self._webhooks[webhook_id], state=state)

    def remove(self, tenant: str, webhook_id: str) -> None:
        with self._state.verb():
            if webhook_id in self._webhooks and self._webhooks[webhook_id].tenant == tenant:
                del self._webhooks[webhook_id]
