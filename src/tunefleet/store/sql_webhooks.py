"""Webhooks, in a database."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from tunefleet.store import rules
from tunefleet.store._webhooks import (
    KEPT_DELIVERIES,
    KEPT_DELIVERIES_S,
    DeliveryState,
    Webhook,
    WebhookDelivery,
)
from tunefleet.store.database import Database
from tunefleet.store.schema import deliveries, webhooks

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

    def advance(
        self, webhook_id: str, state: DeliveryState, delivery: WebhookDelivery | None = None
    ) -> None:
        with self._database.writing() as connection:
            own = webhooks.c.webhook_id == webhook_id
            changed = connection.execute(update(webhooks).where(own).values(asdict(state)))
            if changed.rowcount and delivery is not None:
                _keep(connection, webhook_id, delivery)

    def deliveries(self, webhook_id: str, before: int | None, limit: int) -> list[WebhookDelivery]:
        query = select(deliveries).where(deliveries.c.webhook_id == webhook_id)
        if before is not None:
            query = query.where(deliveries.c.seq < before)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(deliveries.c.seq.desc()).limit(limit))
            return [_delivery(row) for row in rows]

    def rotate(self, webhook_id: str, secret: str, previous_until: float) -> None:
        with self._database.writing() as connection:
            query = update(webhooks).where(webhooks.c.webhook_id == webhook_id)
            connection.execute(
                query.values(
                    previous_secret=webhooks.c.secret, secret=secret, previous_until=previous_until
                )
            )

    def drop_secrets(self, now: float) -> None:
        with self._database.writing() as connection:
            over = (webhooks.c.previous_secret != "", webhooks.c.previous_until <= now)
            query = update(webhooks).where(*over)
            connection.execute(query.values(previous_secret="", previous_until=0.0))

    def remove(self, tenant: str, webhook_id: str) -> None:
        with self._database.writing() as connection:
            own = (webhooks.c.tenant == tenant, webhooks.c.webhook_id == webhook_id)
            if connection.execute(delete(webhooks).where(*own)).rowcount:
                connection.execute(delete(deliveries).where(deliveries.c.webhook_id == webhook_id))


def _keep(connection: Connection, webhook_id: str, delivery: WebhookDelivery) -> None:
    """Store a delivery in place of an earlier attempt, and remove those that are kept no longer."""
    of_webhook = deliveries.c.webhook_id == webhook_id
    newest = select(deliveries.c.seq).where(of_webhook).order_by(deliveries.c.seq.desc())
    connection.execute(delete(deliveries).where(of_webhook, deliveries.c.seq == delivery.seq))
    connection.execute(insert(deliveries).values(webhook_id=webhook_id, **asdict(delivery)))
    first = connection.scalar(newest.offset(KEPT_DELIVERIES - 1).limit(1))
    old = [deliveries.c.last_at < delivery.last_at - KEPT_DELIVERIES_S]
    old += [] if first is None else [deliveries.c.seq < first]
    connection.execute(delete(deliveries).where(of_webhook, or_(*old)))


def _delivery(row: Row[Any]) -> WebhookDelivery:
    values = dict(row._mapping)
    del values["webhook_id"]
    return WebhookDelivery(**values)


def _webhook(row: Row[Any]) -> Webhook:
    values = dict(row._mapping)
    state = DeliveryState(**{name: values.pop(name) for name in _OF_STATE})
    return Webhook(**{**values, "events": tuple(values["events"])}, state=state)
