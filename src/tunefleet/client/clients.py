"""A client of a service that waits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx2 as httpx

from tunefleet.client import calls, operations
from tunefleet.client.calls import Answer, Call, Calls
from tunefleet.client.tries import TIMEOUT, Tries, headers_of, result_of
from tunefleet.core.result import RunResult

if TYPE_CHECKING:
    from tunefleet.core.result import Evaluation

T = TypeVar("T")


def connect(url: str, token: str) -> Client:
    """A client of the service at a URL, by a token of `tunefleet login`."""
    return Client(url, token)


class Client:
    """Asks a service and waits. Not for several threads at once."""

    def __init__(self, url: str, token: str, **how: Any) -> None:
        self._http = httpx.Client(base_url=url, headers=headers_of(token), timeout=TIMEOUT, **how)

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
        """Send a network's file; its digest."""
        return self.done(calls.upload(Path(file)))

    def submit(self, network: str | Path, **asked: Any) -> dict[str, Any]:
        """Ask for a job, whose fields are those of the API (`AskedJob`); what is known of it."""
        return self.done(calls.submit(network, asked))

    def tune(self, network: str | Path, **asked: Any) -> RunResult:
        """Tune a network and wait for its result. Raises JobError where it fails."""
        return result_of(self.wait(self.submit(network, kind="tune", **asked)["id"]))

    def build(self, network: str | Path, **asked: Any) -> RunResult:
        """A module of what is known, without a search."""
        return result_of(self.wait(self.submit(network, kind="build", **asked)["id"]))

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
            if follower.is_over(page, "" if page else self.job(name)["state"]):
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

    def evaluate_artifact(self, artifact: str, rounds: int = 12) -> Evaluation:
        """Measure an artifact of the service again, beside its source framework."""
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
        """What `tunefleet run --json` gives for `.npy` files, done by the service; outputs go to
        `out`, as its `--output`."""
        place = None if out is None else Path(out)
        return self.done(operations.call_artifact(artifact, inputs, repeat, place))

    def place(
        self, network: str | Path, devices: Sequence[str] | Mapping[str, str], **asked: Any
    ) -> dict[str, Any]:
        """Where each task of a network should run, as `tunefleet place --json` gives it. `devices`
        are names, or names with their targets."""
        return self.done(operations.place(network, devices, asked))

    def run_timeline(self, job: str) -> dict[str, Any]:
        """Where and when the stages of a job ran, as `tunefleet timeline --json` gives it."""
        return self.done(calls.value_of(Call("GET", f"/v1/jobs/{job}/timeline")))

    def devices(self) -> list[dict[str, Any]]:
        """What measures."""
        return self.done(calls.value_of(Call("GET", "/v1/devices")))["devices"]  # type: ignore[no-any-return]

    def best_records(self, operator: str = "") -> list[dict[str, Any]]:
        """The fastest verified program of each task, as `tunefleet records best --json`."""
        return self.done(calls.pages("/v1/records/best", "records", operator=operator))
