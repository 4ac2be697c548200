"""The Store contract on webhooks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.errors import InputError
from tunefleet.store import (
    KEPT_DELIVERIES,
    KEPT_DELIVERIES_S,
    DeliveryState,
    Webhook,
    WebhookDelivery,
)

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

    def test_deliveries_come_in_pages_newest_first(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        for seq in (3, 5, 9):
            store.webhooks.advance("a1", DeliveryState(after=seq), delivery(seq))
        first = store.webhooks.deliveries("a1", None, 2)
        assert first == [delivery(9), delivery(5)]
        assert store.webhooks.deliveries("a1", 5, 2) == [delivery(3)]
        assert store.webhooks.deliveries("b2", None, 2) == []

    def test_an_attempt_replaces_the_one_before(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        failed = replace(delivery(3), status=None, error="no answer in 15 s")
        store.webhooks.advance("a1", DeliveryState(failures=1), failed)
        again = replace(delivery(3), attempts=2)
        store.webhooks.advance("a1", DeliveryState(after=3), again)
        assert store.webhooks.deliveries("a1", None, 10) == [again]

    def test_old_deliveries_are_removed(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        for seq in range(KEPT_DELIVERIES + 2):
            store.webhooks.advance("a1", DeliveryState(after=seq), delivery(seq))
        kept = store.webhooks.deliveries("a1", None, KEPT_DELIVERIES + 2)
        assert (len(kept), kept[-1].seq) == (KEPT_DELIVERIES, 2)
        late = replace(delivery(10_000), last_at=kept[5].last_at + KEPT_DELIVERIES_S)
        store.webhooks.advance("a1", DeliveryState(after=10_000), late)
        kept = store.webhooks.deliveries("a1", None, KEPT_DELIVERIES)
        assert [each.seq for each in kept] == [10_000, *range(KEPT_DELIVERIES + 1, 495, -1)]

    def test_deliveries_go_with_their_webhook(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        store.webhooks.advance("a1", DeliveryState(after=3), delivery(3))
        store.webhooks.remove("bob", "a1")
        assert store.webhooks.deliveries("a1", None, 2) == [delivery(3)]
        store.webhooks.remove("ann", "a1")
        store.webhooks.advance("a1", DeliveryState(after=5), delivery(5))
        assert store.webhooks.deliveries("a1", None, 2) == []

    def test_a_rotated_secret_stays_valid_for_a_while(self, store: Any) -> None:
        store.webhooks.put(HOOK)
        store.webhooks.rotate("a1", "whsec_y", 100.0)
        store.webhooks.drop_secrets(99.0)
        rotated = store.webhooks.get("ann", "a1")
        assert rotated.secrets(99.0) == ["whsec_y", "whsec_x"]
        assert rotated.secrets(100.0) == ["whsec_y"]
        store.webhooks.rotate("a1", "whsec_z", 200.0)
        assert store.webhooks.get("ann", "a1").secrets(99.0) == ["whsec_z", "whsec_y"]
        store.webhooks.drop_secrets(200.0)
        assert store.webhooks.get("ann", "a1") == replace(HOOK, secret="whsec_z")


def delivery(seq: int) -> WebhookDelivery:
    return WebhookDelivery(seq, f"msg_a1_{seq}", "job.failed", "j1", 50.0 + seq, 1, 60.0 + seq, 200)
