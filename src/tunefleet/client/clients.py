"""The blocking client of a service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def connect(url: str, token: str) -> Client:
    """A client of the service at a URL, by a token of `tunefleet login`."""
    return Client(url, token)


def _ignore(note: str) -> None:
    """Default of `Client.notify`."""


class Client:
    """A client that blocks. Not thread-safe."""

    def __init__(self, url: str, token: str, **how: Any) -> None:
        self._http = httpx.Client(base_url=url, headers=headers_of(token), timeout=TIMEOUT, **how)
        #: Called with the note of each call that may take long.
        self.notify: Callable[[str], None] = _ignore

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
        if call.note:
            self.notify(call.note)
        tries = Tries(call)
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
        """Upload a network's file; returns its digest."""
        return self.done(calls.upload(Path(file)))

    def submit(self, network: str | Path, **asked: Any) -> dict[str, Any]:
        """Submit a job; `asked` are fields of the API (`AskedJob`). Returns the job (`JobView`)."""
        return self.done(calls.submit(network, asked))

    def tune(self, network: str | Path, **asked: Any) -> RunResult:
        """Tune a network and wait for its result. Raises the error of a job that fails."""
        return result_of(self.wait(self.submit(network, kind="tune", **asked)["id"]))

    def build(self, network: str | Path, **asked: Any) -> RunResult:
        """A module from existing results, without a search."""
        return result_of(self.wait(self.submit(network, kind="build", **asked)["id"]))

    def job(self, name: str) -> dict[str, Any]:
        """A job (`JobView`)."""
        return self.done(calls.job(name))

    def jobs(self, limit: int = 50, state: str = "") -> list[dict[str, Any]]:
        """The newest jobs."""
        return self.done(calls.jobs(limit, state))

    def wait(self, name: str) -> dict[str, Any]:
        """A job when it has ended."""
        return self.done(calls.ended(name))

    def events(self, name: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """The events of a job after a number, as they arrive, until it has ended. Resumes after
        interruptions."""
        follower = calls.Follower()
        while True:
            page = self.done(calls.events(name, after))
            for event in page:
                after = event["seq"]
                yield event
            if follower.is_over(page, "" if page else self.job(name)["state"]):
                return
            if follower.pause_s:
                time.sleep(follower.pause_s)

    def pause(self, name: str) -> dict[str, Any]:
        """Pause a job: running stages finish, no more start."""
        return self.done(calls.asked_of(name, "pause"))

    def resume(self, name: str) -> dict[str, Any]:
        """Resume a paused job."""
        return self.done(calls.asked_of(name, "resume"))

    def cancel(self, name: str) -> dict[str, Any]:
        """End a job now; its records are kept."""
        return self.done(calls.asked_of(name, "cancel"))

    def retry(self, name: str) -> dict[str, Any]:
        """Submit the request of a job that has ended again; returns the new job."""
        return self.done(calls.asked_of(name, "retry"))

    def fetch(self, artifact: str, folder: str | Path = ".") -> Path:
        """Download an artifact into a folder of its name below `folder` and verify its digests."""
        return self.done(calls.fetch(artifact, Path(folder)))

    def evaluate_artifact(self, artifact: str, rounds: int = 12) -> Evaluation:
        """Measure an artifact of the service again, and its source framework in the same rounds."""
        return self.done(operations.evaluate_artifact(artifact, rounds))

    def run_artifact(self, artifact: str, arrays: Sequence[Any]) -> list[Any]:
        """Outputs of an artifact of the service for one set of inputs, NumPy arrays."""
        return self.done(operations.run_artifact(artifact, arrays))

    def call_artifact(
        self,
        artifact: str,
        inputs: Sequence[str | Path],
        repeat: int | None = None,
        out: str | Path | None = None,
    ) -> dict[str, Any]:
        """Run an artifact of the service on `.npy` files; returns the value of `tunefleet run
        --json`. Outputs go to `out`, as with its `--output`."""
        place = None if out is None else Path(out)
        return self.done(operations.call_artifact(artifact, inputs, repeat, place))

    def place(
        self, network: str | Path, devices: Sequence[str] | Mapping[str, str], **asked: Any
    ) -> dict[str, Any]:
        """Where each task of a network should run, as `tunefleet place --json`. `devices` are
        names, or names with their targets."""
        return self.done(operations.place(network, devices, asked))

    def run_timeline(self, job: str) -> dict[str, Any]:
        """Where and when the stages of a job ran, as `tunefleet timeline --json`."""
        return self.done(calls.value_of(Call("GET", f"/v1/jobs/{job}/timeline")))

    def devices(self) -> list[dict[str, Any]]:
        """The devices of the service (`DeviceView`)."""
        return self.done(calls.value_of(Call("GET", "/v1/devices")))["devices"]  # type: ignore[no-any-return]

    def best_records(self, operator: str = "") -> list[dict[str, Any]]:
        """The fastest verified program of each task, as `tunefleet records best --json`."""
        return self.done(calls.pages("/v1/records/best", "records", operator=operator))

    def webhooks(self) -> list[dict[str, Any]]:
        """One's webhooks, each with the result of its last delivery."""
        return self.done(webhooks.listed())

    def add_webhook(self, url: str, events: Sequence[str] = ()) -> dict[str, Any]:
        """A new webhook for these types of events, or for all; `secret` is not shown again."""
        return self.done(webhooks.added(url, events))

    def ping_webhook(self, webhook: str) -> dict[str, Any]:
        """Send a webhook a `ping`; whether it was `delivered`, with the HTTP `status`."""
        return self.done(webhooks.pinged(webhook))

    def enable_webhook(self, webhook: str) -> dict[str, Any]:
        """Enable a webhook that was disabled; it receives the events from now on."""
        return self.done(webhooks.enabled(webhook))

    def rotate_webhook(self, webhook: str, overlap_hours: float = 24.0) -> dict[str, Any]:
        """Replace a webhook's secret; `secret` is the new one. Messages are signed with the old one
        as well for so many hours, a week at most."""
        return self.done(webhooks.rotated(webhook, overlap_hours))

    def deliveries(self, webhook: str, limit: int = 50) -> list[dict[str, Any]]:
        """Past deliveries of a webhook (`DeliveryView`), the newest event first."""
        return self.done(webhooks.deliveries(webhook, limit))

    def remove_webhook(self, webhook: str) -> None:
        """Remove a webhook."""
        self.done(webhooks.removed(webhook))
