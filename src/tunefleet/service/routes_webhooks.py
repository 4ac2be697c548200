"""Webhooks: where one wants to be told of one's jobs."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Request

from tunefleet.service.caller import ByUser
from tunefleet.service.problems import Refused, not_found
from tunefleet.service.sending import check_url, new_secret, public_address
from tunefleet.service.values import (
    AskedWebhook,
    ChangedWebhook,
    WebhookList,
    WebhookTest,
    WebhookView,
)
from tunefleet.service.webhooks import Message
from tunefleet.store import DeliveryState, Webhook

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

_MOST = 10
_Id = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("")
def list_webhooks(request: Request, caller: ByUser) -> WebhookList:
    """One's webhooks, with what came of their last deliveries."""
    found = request.app.state.store.webhooks.of(caller.user.name)
    return WebhookList(webhooks=[_view(webhook) for webhook in found])


@router.post("", status_code=201)
async def add_webhook(asked: AskedWebhook, request: Request, caller: ByUser) -> WebhookView:
    """Be told of one's jobs from now on. Its secret, by which what is sent is signed, is given
    once."""
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
    """Disable a webhook, or let one be told again, of what happens from now on."""
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
    """Be told nothing more."""
    _own(request, caller, webhook_id)
    request.app.state.store.webhooks.remove(caller.user.name, webhook_id)
    request.app.state.audit.keep(caller.user.name, "remove webhook", webhook=webhook_id)


@router.post("/{webhook_id}/test")
async def ping_webhook(webhook_id: _Id, request: Request, caller: ByUser) -> WebhookTest:
    """Send a `ping` now; what came of it. It counts neither as a delivery nor as a failure."""
    webhook = await asyncio.to_thread(_own, request, caller, webhook_id)
    now = time.time()
    message = Message.of(f"msg_{uuid.uuid4().hex}", "ping", now, {"webhook": webhook_id})
    sent = await request.app.state.deliveries.post(webhook, message)
    return WebhookTest(delivered=sent.is_done, status=sent.status, detail=str(sent))


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
    )
