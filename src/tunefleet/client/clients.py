"""Clients of a service: one that waits, one that awaits."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2 as httpx

from tunefleet.client import calls
from tunefleet.client.calls import Answer, Call, Calls
from tunefleet.core.result import RunResult
from tunefleet.errors import JobError, RetryElsewhereError
from tunefleet.report.result import read_result

T = TypeVar("T")

#: Seconds of a connection and of an answer, and between two tries of a call that got none.
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, *[3.0] * 8)
#: Further tries of a call that waits anyway, as for the end of a job: a service may begin again.
_WAITS = 80
_NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout)
#: The service is busy, or begins.
_LATER = (429, 502, 503, 504)


def connect(url: str, token: str) -> Client:
    """A client of the service at a URL, by a token of `tunefleet login`."""
    return Client(url, token)


class _Tries:
    """The tries of one call: each call may be sent again, since the service knows it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._is_wait = "Prefer" in call.headers
        self._begin()

    def _begin(self) -> None:
        self._left = [*_PAUSES_S, *[_PAUSES_S[-1]] * (_WAITS * self._is_wait)]

    def request(self) -> dict[str, Any]:
        call = self._call
        return {
            "method": call.method,
            "url": call.path,
            "params": dict(call.params),
            "headers": dict(call.headers),
            **({"json": call.value} if call.value is not None else {}),
            **({"content": call.content} if call.content is not None else {}),
        }

    def pause_s(
        self, response: httpx.Response | None, error: httpx.TransportError | None
    ) -> float | None:
        """How long to wait before the call is sent again; None where it is answered."""
        if self._is_wait and error is not None and not isinstance(error, _NOT_REACHED):
            self._begin()  # the service was there, and ended while it waited
        least = response.headers.get("retry-after", "") if response is not None else ""
        later = response is None or response.status_code in _LATER or least
        if not (later and self._left):
            return None
        # Not all clients at the same moment: a service that begins again has them all at once.
        pause_s = self._left.pop(0) * random.uniform(0.5, 1.5)
        return max(pause_s, float(least) if least.isdigit() else 0.0)

    def answer(self, response: httpx.Response | None, error: Exception | None) -> Answer:
        """Raises what the service refuses, and RetryElsewhereError where it does not answer."""
        if response is None:
            cure = "see its address, and that it runs"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                cure = "name the file of the authority that signed it: SSL_CERT_FILE=FILE"
            raise RetryElsewhereError(f"the service does not answer: {error}", cure=cure) from error
        answer = Answer(response.status_code, dict(response.headers), response.content)
        if response.is_success or answer.status in self._call.accepted:
            return answer
        raise calls.error_of(answer)


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _result(view: dict[str, Any]) -> RunResult:
    """Of a job that has ended. Raises JobError for one that did not succeed."""
    if view["state"] != "succeeded":
        reason = (view["reason"] or {}).get("text") or view["state"]
        raise JobError(f"job {view['id'][:8]} has {view['state']}: {reason}", cure="see its log")
    return read_result(view["result"] or {}, f"job {view['id'][:8]}")


class Client:
    """Asks a service and waits. Not for several threads at once."""

    def __init__(self, url: str, token: str, **how: Any) -> None:
        self._http = httpx.Client(base_url=url, headers=_headers(token), timeout=_TIMEOUT, **how)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def done(self, operation: Calls[T]) -> T:
        """The result of an operation of `client.calls`."""
        try:
            call = next(operation)
            while True:
                call = operation.send(self._answer(call))
        except StopIteration as end:
            value: T = end.value
            return value

    def _answer(self, call: Call) -> Answer:
        tries = _Tries(call)
        while True:
            response, error = None, None
            try:
                response = self._http.request(**tries.request())
            except httpx.TransportError as failed:
                error = failed
            pause_s = tries.pause_s(response, error)
            if pause_s is None:
                return tries.answer(response, error)
            time.sleep(pause_s)

    def upload(self, file: str | Path) -> str:
        """Send a network's file; its digest."""
        return self.done(calls.upload(Path(file)))

    def submit(self, network: str | Path, **asked: Any) -> dict[str, Any]:
        """Ask for a job, whose fields are those of the API (`AskedJob`); what is known of it."""
        return self.done(calls.submit(network, asked))

    def tune(self, network: str | Path, **asked: Any) -> RunResult:
        """Tune a network and wait for its result. Raises JobError where it fails."""
        return _result(self.wait(self.submit(network, kind="tune", **asked)["id"]))

    def build(self, network: str | Path, **asked: Any) -> RunResult:
        """A module of what is known, without a search."""
        return _result(self.wait(self.submit(network, kind="build", **asked)["id"]))

    def job(self, name: str) -> dict[str, Any]:
        """What is known of a job."""
        return self.done(calls.job(name))

    def jobs(self, limit: int = 50, state: str = "") -> list[dict[str, Any]]:
        """The newest jobs."""
        return self.done(calls.jobs(limit, state))

    def wait(self, name: str) -> dict[str, Any]:
        """What is known of a job when it has ended."""
        return self.done(calls.ended(name))

    def events(self, name: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """The events of a job behind a number, as they come, until it has ended. A cut is not
        noticed: it goes on behind the last one."""
        follower = calls.Follower()
        while True:
            page = self.done(calls.events(name, after))
            for event in page:
                after = event["seq"]
                yield event
            state = "" if page else self.done(calls.job(name, 1))["state"]
            if follower.is_over(page, state):
                return
            if follower.pause_s:
                time.sleep(follower.pause_s)

    def pause(self, name: str) -> dict[str, Any]:
        """What runs finishes, nothing more starts."""
        return self.done(calls.asked_of(name, "pause"))

    def resume(self, name: str) -> dict[str, Any]:
        """Continue a paused job."""
        return self.done(calls.asked_of(name, "resume"))

    def cancel(self, name: str) -> dict[str, Any]:
        """End a job now; its records are kept."""
        return self.done(calls.asked_of(name, "cancel"))

    def retry(self, name: str) -> dict[str, Any]:
        """Ask for a job that has ended again; the new one."""
        return self.done(calls.asked_of(name, "retry"))

    def fetch(self, artifact: str, folder: str | Path = ".") -> Path:
        """An artifact in a folder of its name below `folder`, compared with its digests."""
        return self.done(calls.fetch(artifact, Path(folder)))


class AsyncClient:
    """As `Client`, to be awaited."""

    def __init__(self, url: str, token: str, **how: Any) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, headers=_headers(token), timeout=_TIMEOUT, **how
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
        tries = _Tries(call)
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
        return _result(await self.wait((await self.submit(network, kind="tune", **asked))["id"]))

    async def build(self, network: str | Path, **asked: Any) -> RunResult:
        """As `Client.build`."""
        return _result(await self.wait((await self.submit(network, kind="build", **asked))["id"]))

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
            state = "" if page else (await self.done(calls.job(name, 1)))["state"]
            if follower.is_over(page, state):
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
