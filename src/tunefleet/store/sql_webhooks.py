"""Webhooks, in a database."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from tunefleet.store import rules
from tunefleet.store._webhooks import DeliveryState, Webhook
from tunefleet.store.database import Database
from tunefleet.store.schema import webhooks

_OF_STATE = tuple(field.name for field in fields(DeliveryState))


class SqlWebhooks:
    """`Webhooks` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, webhook: Webhook) -> None:
        with self._database.writing() as connection:
            own = webhooks.c.webhook_id == webhook.webhook_id
            if connection.scalar(select(webhooks.c.tenant).where(own)) is not None:
                raise rules.known_webhook(webhook.webhook_id)
            row = asdict(webhook)
            state = row.pop("state")
            connection.execute(insert(webhooks).values({**row, **state}))

    def get(self, tenant: str, webhook_id: str) -> Webhook | None:
        query = select(webhooks).where(
            webhooks.c.tenant == tenant, webhooks.c.webhook_id == webhook_id
        )
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _webhook(row)

    def of(self, tenant: str) -> list[Webhook]:
        query = select(webhooks).where(webhooks.c.tenant == tenant)
        query = query.order_by(webhooks.c.created_at, webhooks.c.webhook_id)
        with self._database.reading() as connection:
            return [_webhook(row) for row in connection.execute(query)]

    def due(self, now: float) -> list[Webhook]:
        query = select(webhooks).where(webhooks.c.disabled == "", webhooks.c.next_at <= now)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(webhooks.c.webhook_id))
            return [_webhook(row) for row in rows]

    def advance(self, webhook_id: str, state: DeliveryState) -> None:
        with self._database.writing() as connection:
            own = webhooks.c.webhook_id == webhook_id
            connection.execute(update(webhooks).where(own).values(asdict(state)))

    def remove(self, tenant: str, webhook_id: str) -> None:
        with self._database.writing() as connection:
            own = (webhooks.c.tenant == tenant, webhooks.c.webhook_id == webhook_id)
            connection.execute(delete(webhooks).where(*own))


def _webhook(row: Row[Any]) -> Webhook:
    values = dict(row._mapping)
    state = DeliveryState(**{name: values.pop(name) for name in _OF_STATE})
    return Webhook(**{**values, "events": tuple(values["events"])}, state=state)
