"""Deliveries to webhooks: in the order of what happened, each until it is taken."""

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
from tunefleet.store import DeliveryState, KeptEvent, Store, Webhook

#: Seconds before a delivery is tried again, after each failure in a row; about three days together.
#: After the last of them the webhook is disabled.
RETRIES_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
#: Seconds between two looks for what happened, deliveries at once, and those of one in a row.
_LOOK_S, _AT_ONCE, _IN_A_ROW = 1.0, 8, 20
_GONE = 410

#: How something is sent: `send`, or what stands for it in tests.
Send = Callable[..., Awaitable[Sent]]


@dataclass(frozen=True, slots=True)
class Message:
    """What is told: an id that stays over all tries, and the body."""

    message_id: str
    body: bytes

    @classmethod
    def of(cls, message_id: str, kind: str, at: float, data: dict[str, Any]) -> Message:
        moment = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
        value = {"type": kind, "timestamp": moment, "data": data}
        return cls(message_id, json.dumps(value).encode())


class Deliveries:
    """Tells webhooks what happens to their tenants' jobs. How far it came is in the store: it goes
    on there after it was killed, and may tell the last thing again, under the same id. All in one
    event loop. `private`: addresses that are not public are told too."""

    def __init__(
        self, store: Store, jobs: ServiceJobs, *, private: bool = False, how: Send = send
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._private = private
        self._send = how
        self._under_way: dict[str, asyncio.Task[None]] = {}
        #: By webhook, up to which event there is nothing to tell; kept with the next delivery.
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
        while True:
            await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(TunefleetError):  # a store that is busy is asked again
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
                task.exception()  # tried again at the next look

        task.add_done_callback(ended)

    async def deliver(self, webhook: Webhook) -> None:
        """Tell a webhook what happened since the last time, until it fails or nothing is left."""
        for _ in range(_IN_A_ROW):
            found = await asyncio.to_thread(self._next, webhook)
            if found is None:
                return
            seq, message = found
            sent = await self.post(webhook, message)
            webhook = replace(webhook, state=_after(webhook.state, seq, sent, time.time()))
            await asyncio.to_thread(self._store.webhooks.advance, webhook.webhook_id, webhook.state)
            if not sent.is_done:
                return

    async def post(self, webhook: Webhook, message: Message) -> Sent:
        """Send a message, signed."""
        at = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message.message_id,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(webhook.secret, message.message_id, at, message.body),
        }
        return await self._send(webhook.url, headers, message.body, private=self._private)

    def _next(self, webhook: Webhook) -> tuple[int, Message] | None:
        """What is to be told next, with the number of its event."""
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
        """The number of the last event that there is nothing to tell of."""
        return max(webhook.state.after, self._passed.get(webhook.webhook_id, 0))

    def _message(self, webhook: Webhook, kept: KeptEvent) -> Message | None:
        """None for what the webhook is not told."""
        try:
            job = self._store.jobs.get(kept.job_id)
        except InputError:  # removed
            return None
        if job.spec.tenant != webhook.tenant:
            return None
        if isinstance(kept.event, JobOpened):
            kind = "job.started" if not kept.event.resumed else ""
        else:
            kind = "job.interrupted" if job.state is JobState.RUNNING else f"job.{job.state}"
        if not kind or (webhook.events and kind not in webhook.events):
            return None
        data = self._jobs.view(job).model_dump(mode="json", exclude={"result"})
        return Message.of(f"msg_{webhook.webhook_id}_{kept.seq}", kind, kept.at, data)


def _after(state: DeliveryState, seq: int, sent: Sent, now: float) -> DeliveryState:
    """The state of deliveries after a try to tell the event of a number."""
    if sent.is_done:
        return DeliveryState(after=seq, last=str(sent), last_at=now)
    failures, disabled, wait_s = state.failures + 1, "", 0.0
    if sent.status == _GONE:
        disabled = "it answered 410 Gone"
    elif failures > len(RETRIES_S):
        disabled = f"{failures} tries in a row failed, the last: {sent}"
    else:
        wait_s = RETRIES_S[failures - 1]
    return DeliveryState(state.after, failures, now + wait_s, str(sent), now, disabled)
