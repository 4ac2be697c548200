"""The Store contract on webhooks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.errors import InputError
from tunefleet.store import DeliveryState, Webhook

HOOK = Webhook("a1", "ann", "https://example.org/x", "whsec_x", ("job.failed",), 5.0)


class Hooks:
    def test_a_webhook_is_its_tenants_alone(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        store.webhooks.put(replace(HOOK, webhook_id="b2", tenant="bob"))
        assert store.webhooks.get("ann", "a1") == HOOK
        assert store.webhooks.get("bob", "a1") is None
        assert store.webhooks.of("ann") == [HOOK]
        store.webhooks.remove("bob", "a1")
        store.webhooks.remove("ann", "unknown")
        assert store.webhooks.of("ann") == [HOOK]
        store.webhooks.remove("ann", "a1")
        assert store.webhooks.of("ann") == []

    def test_the_oldest_comes_first(self, store: Any) -> None:
        for name, at in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
            store.webhooks.put(replace(HOOK, webhook_id=name, created_at=at))
        assert [each.webhook_id for each in store.webhooks.of("ann")] == ["b", "c", "a"]

    def test_an_id_is_there_once(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        with pytest.raises(InputError, match="webhook a1"):
            store.webhooks.put(replace(HOOK, tenant="bob"))

    def test_those_are_due_whose_next_try_is_not_later(self, store: Any) -> None:
        for name, state in (
            ("a", DeliveryState()),
            ("b", DeliveryState(next_at=10.0)),
            ("c", DeliveryState(next_at=11.0)),
            ("d", DeliveryState(disabled="410 Gone")),
        ):
            store.webhooks.put(replace(HOOK, webhook_id=name, state=state))
        assert [each.webhook_id for each in store.webhooks.due(10.0)] == ["a", "b"]

    def test_how_far_deliveries_came_is_kept(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        state = DeliveryState(7, 2, 90.0, "HTTP 500", 80.0)
        store.webhooks.advance("a1", state)
        assert store.webhooks.get("ann", "a1") == replace(HOOK, state=state)
        store.webhooks.remove("ann", "a1")
        store.webhooks.advance("a1", state)
        assert store.webhooks.get("ann", "a1") is None
