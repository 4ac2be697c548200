"""Webhooks: URLs that receive the events of one's jobs, and what was delivered to them."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from tunefleet.service.caller import ByUser
from tunefleet.service.problems import Refused, not_found
from tunefleet.service.sending import Sent, check_url, new_secret, public_address
from tunefleet.service.values_webhooks import (
    AskedRotation,
    AskedWebhook,
    ChangedWebhook,
    DeliveryPage,
    DeliveryView,
    WebhookList,
    WebhookTest,
    WebhookView,
)
from tunefleet.service.webhooks import Message
from tunefleet.store import DeliveryState, Webhook, WebhookDelivery

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

_MOST = 10
_HOUR_S = 3600.0
_Id = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("")
def list_webhooks(request: Request, caller: ByUser) -> WebhookList:
    """One's webhooks, each with the result of its last delivery."""
    found = request.app.state.store.webhooks.of(caller.user.name)
    return WebhookList(webhooks=[_view(webhook) for webhook in found])


@router.post("", status_code=201)
async def add_webhook(asked: AskedWebhook, request: Request, caller: ByUser) -> WebhookView:
    """Add a webhook, which receives events of one's jobs from now on. The response has the secret
    that signs its messages; it is not shown again."""
    state, private = request.app.state, request.app.state.settings.private_webhooks
    await public_address(check_url(asked.url, private=private), private=private)
    webhook = await asyncio.to_thread(_added, request, caller, asked)
    state.audit.keep(caller.user.name, "add webhook", webhook=webhook.webhook_id, url=webhook.url)
    return _view(webhook).model_copy(update={"secret": webhook.secret})


def _added(request: Request, caller: ByUser, asked: AskedWebhook) -> Webhook:
    store, tenant = request.app.state.store, caller.user.name
    if len(store.webhooks.of(tenant)) >= _MOST:
        raise Refused(429, f"there are {_MOST} webhooks of yours", cure="remove one of them")
    webhook = Webhook(
        uuid.uuid4().hex[:16],
        tenant,
        asked.url,
        new_secret(),
        tuple(dict.fromkeys(asked.events)),
        time.time(),
        DeliveryState(after=store.events.last()),
    )
    store.webhooks.put(webhook)
    return webhook


@router.get("/{webhook_id}")
def get_webhook(webhook_id: _Id, request: Request, caller: ByUser) -> WebhookView:
    """One webhook."""
    return _view(_own(request, caller, webhook_id))


@router.patch("/{webhook_id}")
def change_webhook(
    webhook_id: _Id, changed: ChangedWebhook, request: Request, caller: ByUser
) -> WebhookView:
    """Disable a webhook, or enable one, which receives the events from now on."""
    store, webhook = request.app.state.store, _own(request, caller, webhook_id)
    state = replace(webhook.state, disabled="by its user")
    if not changed.disabled:
        state = DeliveryState(after=store.events.last())
    store.webhooks.advance(webhook_id, state)
    request.app.state.audit.keep(
        caller.user.name, "change webhook", webhook=webhook_id, disabled=changed.disabled
    )
    return _view(replace(webhook, state=state))


@router.delete("/{webhook_id}", status_code=204)
def remove_webhook(webhook_id: _Id, request: Request, caller: ByUser) -> None:
    """Remove a webhook and the list of its deliveries."""
    _own(request, caller, webhook_id)
    request.app.state.store.webhooks.remove(caller.user.name, webhook_id)
    request.app.state.audit.keep(caller.user.name, "remove webhook", webhook=webhook_id)


@router.post("/{webhook_id}/test")
async def ping_webhook(webhook_id: _Id, request: Request, caller: ByUser) -> WebhookTest:
    """Send a `ping` now and return its result, which is not counted as a delivery. If it is
    acknowledged, a delivery that waits for its retry is sent now."""
    webhook = await asyncio.to_thread(_own, request, caller, webhook_id)
    now = time.time()
    message = Message.of(f"msg_{uuid.uuid4().hex}", "ping", now, {"webhook": webhook_id})
    sent = await request.app.state.deliveries.post(webhook, message)
    if sent.is_done:
        await asyncio.to_thread(_retry_now, request, caller, webhook_id)
    return WebhookTest(delivered=sent.is_done, status=sent.status, detail=str(sent))


def _retry_now(request: Request, caller: ByUser, webhook_id: str) -> None:
    """Make a delivery due that waits for its retry."""
    webhooks = request.app.state.store.webhooks
    webhook = webhooks.get(caller.user.name, webhook_id)
    if webhook and webhook.state.failures and not webhook.state.disabled:
        webhooks.advance(webhook_id, replace(webhook.state, next_at=time.time()))


@router.post("/{webhook_id}/rotate")
def rotate_secret(
    webhook_id: _Id, asked: AskedRotation, request: Request, caller: ByUser
) -> WebhookView:
    """Replace the secret. The response has the new one, which is not shown again. Messages are
    signed with both secrets until the overlap is over, then with the new one alone."""
    store, webhook = request.app.state.store, _own(request, caller, webhook_id)
    until, secret = time.time() + asked.overlap_hours * _HOUR_S, new_secret()
    store.webhooks.rotate(webhook_id, secret, until)
    request.app.state.audit.keep(
        caller.user.name, "rotate webhook", webhook=webhook_id, overlap_hours=asked.overlap_hours
    )
    rotated = replace(webhook, secret=secret, previous_secret=webhook.secret, previous_until=until)
    return _view(rotated).model_copy(update={"secret": secret})


@router.get("/{webhook_id}/deliveries")
def list_deliveries(
    webhook_id: _Id,
    request: Request,
    caller: ByUser,
    cursor: Annotated[str, Query(pattern=r"^(\d{1,15})?$")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> DeliveryPage:
    """Past deliveries, the newest event first: the last 500 of the last 30 days."""
    _own(request, caller, webhook_id)
    before = int(cursor) if cursor else None
    found = request.app.state.store.webhooks.deliveries(webhook_id, before, limit)
    more = str(found[-1].seq) if len(found) == limit else None
    return DeliveryPage(deliveries=[_delivery(each) for each in found], next=more)


def _delivery(delivery: WebhookDelivery) -> DeliveryView:
    return DeliveryView(
        id=delivery.message_id,
        event=delivery.kind,
        job=delivery.job_id,
        happened_at=delivery.happened_at,
        attempts=delivery.attempts,
        last_at=delivery.last_at,
        delivered=Sent(delivery.status).is_done,
        status=delivery.status,
        error=delivery.error,
    )


def _own(request: Request, caller: ByUser, webhook_id: str) -> Webhook:
    found: Webhook | None = request.app.state.store.webhooks.get(caller.user.name, webhook_id)
    if found is None:
        raise not_found(f"webhook {webhook_id}")
    return found


def _view(webhook: Webhook) -> WebhookView:
    state = webhook.state
    return WebhookView(
        id=webhook.webhook_id,
        url=webhook.url,
        events=list(webhook.events),
        created_at=webhook.created_at,
        failures=state.failures,
        next_at=state.next_at if state.failures and not state.disabled else None,
        last=state.last,
        last_at=state.last_at,
        disabled=state.disabled,
        previous_until=webhook.previous_until if len(webhook.secrets(time.time())) > 1 else None,
    )
