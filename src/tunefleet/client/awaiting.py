"""A client of a service, to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx2 as httpx

from tunefleet.client import calls, operations, webhooks
from tunefleet.client.calls import Answer, Call, Calls
from tunefleet.client.tries import TIMEOUT, Tries, headers_of, result_of
from tunefleet.core.result import RunResult

if TYPE_CHECKING:
    from tunefleet.core.result import Evaluation

T = TypeVar("T")


class AsyncClient:
    """As `Client`, to be awaited."""

    def __init__(self, url: str, token: str, **how: Any) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers_of(token), timeout=TIMEOUT, **how
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def done(self, operation: Calls[T]) -> T:
        """The result of an operation of `client.calls`."""
        try:
            call = next(operation)
            while True:
                call = operation.send(await self._answer(call))
        except StopIteration as end:
            value: T = end.value
            return value

    async def _answer(self, call: Call) -> Answer:
        tries = Tries(call)
        while True:
            response, error = None, None
            try:
                response = await self._http.request(**tries.request())
            except httpx.TransportError as failed:
                error = failed
            pause_s = tries.pause_s(response, error)
            if pause_s is None:
                return tries.answer(response, error)
            await asyncio.sleep(pause_s)

    async def upload(self, file: str | Path) -> str:
        """As `Client.upload`."""
        return await self.done(calls.upload(Path(file)))

    async def submit(self, network: str | Path, **asked: Any) -> dict[str, Any]:
        """As `Client.submit`."""
        return await self.done(calls.submit(network, asked))

    async def tune(self, network: str | Path, **asked: Any) -> RunResult:
        """As `Client.tune`."""
        return result_of(await self.wait((await self.submit(network, kind="tune", **asked))["id"]))

    async def build(self, network: str | Path, **asked: Any) -> RunResult:
        """As `Client.build`."""
        return result_of(await self.wait((await self.submit(network, kind="build", **asked))["id"]))

    async def job(self, name: str) -> dict[str, Any]:
        """As `Client.job`."""
        return await self.done(calls.job(name))

    async def jobs(self, limit: int = 50, state: str = "") -> list[dict[str, Any]]:
        """As `Client.jobs`."""
        return await self.done(calls.jobs(limit, state))

    async def wait(self, name: str) -> dict[str, Any]:
        """As `Client.wait`."""
        return await self.done(calls.ended(name))

    async def events(self, name: str, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """As `Client.events`."""
        follower = calls.Follower()
        while True:
            page = await self.done(calls.events(name, after))
            for event in page:
                after = event["seq"]
                yield event
            if follower.is_over(page, "" if page else (await self.job(name))["state"]):
                return
            if follower.pause_s:
                await asyncio.sleep(follower.pause_s)

    async def pause(self, name: str) -> dict[str, Any]:
        """As `Client.pause`."""
        return await self.done(calls.asked_of(name, "pause"))

    async def resume(self, name: str) -> dict[str, Any]:
        """As `Client.resume`."""
        return await self.done(calls.asked_of(name, "resume"))

    async def cancel(self, name: str) -> dict[str, Any]:
        """As `Client.cancel`."""
        return await self.done(calls.asked_of(name, "cancel"))

    async def retry(self, name: str) -> dict[str, Any]:
        """As `Client.retry`."""
        return await self.done(calls.asked_of(name, "retry"))

    async def fetch(self, artifact: str, folder: str | Path = ".") -> Path:
        """As `Client.fetch`."""
        return await self.done(calls.fetch(artifact, Path(folder)))

    async def evaluate_artifact(self, artifact: str, rounds: int = 12) -> Evaluation:
        """As `Client.evaluate_artifact`."""
        return await self.done(operations.evaluate_artifact(artifact, rounds))

    async def run_artifact(self, artifact: str, arrays: Sequence[Any]) -> list[Any]:
        """As `Client.run_artifact`."""
        return await self.done(operations.run_artifact(artifact, arrays))

    async def call_artifact(
        self,
        artifact: str,
        inputs: Sequence[str | Path],
        repeat: int | None = None,
        out: str | Path | None = None,
    ) -> dict[str, Any]:
        """As `Client.call_artifact`."""
        place = None if out is None else Path(out)
        return await self.done(operations.call_artifact(artifact, inputs, repeat, place))

    async def place(
        self, network: str | Path, devices: Sequence[str] | Mapping[str, str], **asked: Any
    ) -> dict[str, Any]:
        """As `Client.place`."""
        return await self.done(operations.place(network, devices, asked))

    async def run_timeline(self, job: str) -> dict[str, Any]:
        """As `Client.run_timeline`."""
        return await self.done(calls.value_of(Call("GET", f"/v1/jobs/{job}/timeline")))

    async def devices(self) -> list[dict[str, Any]]:
        """As `Client.devices`."""
        found = await self.done(calls.value_of(Call("GET", "/v1/devices")))
        return found["devices"]  # type: ignore[no-any-return]

    async def best_records(self, operator: str = "") -> list[dict[str, Any]]:
        """As `Client.best_records`."""
        return await self.done(calls.pages("/v1/records/best", "records", operator=operator))

    async def webhooks(self) -> list[dict[str, Any]]:
        """As `Client.webhooks`."""
        return await self.done(webhooks.listed())

    async def add_webhook(self, url: str, events: Sequence[str] = ()) -> dict[str, Any]:
        """As `Client.add_webhook`."""
        return await self.done(webhooks.added(url, events))

    async def ping_webhook(self, webhook: str) -> dict[str, Any]:
        """As `Client.ping_webhook`."""
        return await self.done(webhooks.pinged(webhook))

    async def enable_webhook(self, webhook: str) -> dict[str, Any]:
        """As `Client.enable_webhook`."""
        return await self.done(webhooks.enabled(webhook))

    async def rotate_webhook(self, webhook: str, overlap_hours: float = 24.0) -> dict[str, Any]:
        """As `Client.rotate_webhook`."""
        return await self.done(webhooks.rotated(webhook, overlap_hours))

    async def deliveries(self, webhook: str, limit: int = 50) -> list[dict[str, Any]]:
        """As `Client.deliveries`."""
        return await self.done(webhooks.deliveries(webhook, limit))

    async def remove_webhook(self, webhook: str) -> None:
        """As `Client.remove_webhook`."""
        await self.done(webhooks.removed(webhook))
