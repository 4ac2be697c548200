"""Deliveries to webhooks: in the order of the events, each repeated until it is acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tunefleet.core.events import JobEnded, JobOpened
from tunefleet.core.job import JobState
from tunefleet.errors import InputError, TunefleetError
from tunefleet.service.jobs import ServiceJobs
from tunefleet.service.sending import Sent, send, signature
from tunefleet.store import DeliveryState, KeptEvent, Store, Webhook, WebhookDelivery

#: Seconds before a delivery is retried, after each failure in a row; about three days in all.
#: After the last of them the webhook is disabled.
RETRIES_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
#: Seconds between two polls for events, concurrent webhooks, and deliveries of one in a row.
_LOOK_S, _AT_ONCE, _IN_A_ROW = 1.0, 8, 20
#: Seconds between two polls for expired secrets.
_SECRETS_S = 600.0
_GONE = 410

#: `send`, or a fake in tests.
Send = Callable[..., Awaitable[Sent]]


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its id, which all attempts share, the type and the time of its event, in seconds
    since the epoch, its job, if any, and the body."""

    message_id: str
    kind: str
    happened_at: float
    job_id: str
    body: bytes

    @classmethod
    def of(
        cls, message_id: str, kind: str, at: float, data: dict[str, Any], job_id: str = ""
    ) -> Message:
        moment = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
        value = {"type": kind, "timestamp": moment, "data": data}
        return cls(message_id, kind, at, job_id, json.dumps(value).encode())


class Deliveries:
    """Sends the events of tenants' jobs to their webhooks, at least once: progress is stored after
    each attempt, so a process that is killed between the two leaves a message that is sent again
    under its id. For one event loop. `private` also allows addresses that are not public."""

    def __init__(
        self, store: Store, jobs: ServiceJobs, *, private: bool = False, how: Send = send
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._private = private
        self._send = how
        self._under_way: dict[str, asyncio.Task[None]] = {}
        #: By webhook, the last event that it does not receive; stored with the next delivery.
        self._passed: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver within the block."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            tasks = [task, *self._under_way.values()]
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        secrets_at = 0.0
        while True:
            await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(TunefleetError):  # a store that is busy is asked again
                if time.monotonic() >= secrets_at:
                    await asyncio.to_thread(self._store.webhooks.drop_secrets, time.time())
                    secrets_at = time.monotonic() + _SECRETS_S
                last = await asyncio.to_thread(self._store.events.last)
                due = await asyncio.to_thread(self._store.webhooks.due, time.time())
                waiting = [
                    each
                    for each in due
                    if each.webhook_id not in self._under_way and self._reached(each) < last
                ]
                for webhook in waiting[: _AT_ONCE - len(self._under_way)]:
                    self._begin(webhook)

    def _begin(self, webhook: Webhook) -> None:
        task = asyncio.create_task(self.deliver(webhook))
        self._under_way[webhook.webhook_id] = task

        def ended(task: asyncio.Task[None]) -> None:
            del self._under_way[webhook.webhook_id]
            if not task.cancelled():
                task.exception()  # retried at the next look

        task.add_done_callback(ended)

    async def deliver(self, webhook: Webhook) -> None:
        """Send a webhook the events since the last delivery, until one fails or none is left."""
        for _ in range(_IN_A_ROW):
            found = await asyncio.to_thread(self._next, webhook)
            if found is None:
                return
            seq, message = found
            sent = await self.post(webhook, message)
            current = await asyncio.to_thread(self._keep, webhook, seq, message, sent)
            if current is None or current.state.disabled or not sent.is_done:
                return
            webhook = current

    def _keep(self, webhook: Webhook, seq: int, message: Message, sent: Sent) -> Webhook | None:
        """Store the result of an attempt; the webhook after it, None where it was removed."""
        current = self._store.webhooks.get(webhook.tenant, webhook.webhook_id)
        if current is None:
            return None
        now, state = time.time(), current.state
        if state == webhook.state:  # else its user disabled or enabled it meanwhile
            state = _after(state, seq, sent, now)
        delivery = _delivery(webhook.state, seq, message, sent, now)
        self._store.webhooks.advance(webhook.webhook_id, state, delivery)
        return replace(current, state=state)

    async def post(self, webhook: Webhook, message: Message) -> Sent:
        """Send a message, signed with each of the webhook's valid secrets."""
        at = int(time.time())
        signatures = [
            signature(secret, message.message_id, at, message.body)
            for secret in webhook.secrets(time.time())
        ]
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message.message_id,
            "webhook-timestamp": str(at),
            "webhook-signature": " ".join(signatures),
        }
        return await self._send(webhook.url, headers, message.body, private=self._private)

    def _next(self, webhook: Webhook) -> tuple[int, Message] | None:
        """The next message, with the number of its event; None where there is none."""
        user = self._store.accounts.user(webhook.tenant)
        if user is None or user.disabled:
            return None
        after, last = self._reached(webhook), self._store.events.last()
        while page := self._store.events.page(after, kinds=(JobOpened, JobEnded)):
            for kept in page:
                message = self._message(webhook, kept)
                if message is not None:
                    return kept.seq, message
                after = kept.seq
        self._passed[webhook.webhook_id] = max(after, last)
        return None

    def _reached(self, webhook: Webhook) -> int:
        """The number of the last event that is done."""
        return max(webhook.state.after, self._passed.get(webhook.webhook_id, 0))

    def _message(self, webhook: Webhook, kept: KeptEvent) -> Message | None:
        """None for an event that the webhook does not receive."""
        try:
            job = self._store.jobs.get(kept.job_id)
        except InputError:  # removed
            return None
        if job.spec.tenant != webhook.tenant:
            return None
        if isinstance(kept.event, JobOpened):
            first = self._store.events.page(0, [job.job_id], 1, [JobOpened])
            kind = "job.started" if [kept.seq] == [each.seq for each in first] else ""
        else:
            kind = "job.interrupted" if job.state is JobState.RUNNING else f"job.{job.state}"
        if not kind or (webhook.events and kind not in webhook.events):
            return None
        data = self._jobs.view(job).model_dump(mode="json", exclude={"result"})
        # After a backup was restored, an event gets the number of one that was sent before.
        message_id = f"msg_{webhook.webhook_id}_{kept.seq}_{int(kept.at * 1e3):x}"
        return Message.of(message_id, kind, kept.at, data, job.job_id)


def _delivery(
    state: DeliveryState, seq: int, message: Message, sent: Sent, now: float
) -> WebhookDelivery:
    """The delivery of the event `seq` after an attempt from a state."""
    return WebhookDelivery(
        seq=seq,
        message_id=message.message_id,
        kind=message.kind,
        job_id=message.job_id,
        happened_at=message.happened_at,
        attempts=state.failures + 1,
        last_at=now,
        status=sent.status,
        error=sent.error,
    )


def _after(state: DeliveryState, seq: int, sent: Sent, now: float) -> DeliveryState:
    """The state of deliveries after an attempt to send the event `seq`."""
    if sent.is_done:
        return DeliveryState(after=seq, last=str(sent), last_at=now)
    failures, disabled, wait_s = state.failures + 1, "", 0.0
    if sent.status == _GONE:
        disabled = "it answered 410 Gone"
    elif failures > len(RETRIES_S):
        disabled = f"{failures} attempts in a row failed, the last: {sent}"
    else:
        wait_s = RETRIES_S[failures - 1]
    return DeliveryState(state.after, failures, now + wait_s, str(sent), now, disabled)
