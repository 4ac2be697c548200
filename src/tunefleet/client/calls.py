"""Operations as generators of calls: each yields a request and is sent the response. This way
the blocking and the async client share them."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tunefleet.client.packing import as_one_file
from tunefleet.errors import (
    InputError,
    InternalError,
    JobError,
    RetryElsewhereError,
    SetupError,
    TunefleetError,
    error_named,
)

T = TypeVar("T")

#: Bytes of an uploaded and of a downloaded part.
_PART_BYTES = 4 << 20
#: Seconds for which the service is asked to wait for events.
_WAIT_S = 25
#: Polls for the last event of a job that has ended, and the seconds between them.
_LAST_LOOKS, _LAST_LOOK_S = 4, 0.5
ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})
_DIGEST = re.compile("[0-9a-f]{64}")
_PART = "application/offset+octet-stream"
#: The status of a part with a wrong offset, such as one that was sent twice.
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `accepted`: error statuses that are returned instead of raised. `note`: what it
    does, for the user, if it may take long."""

    method: str
    path: str
    value: Any = None
    content: bytes | None = None
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def value(self) -> Any:
        """Its JSON. Raises SetupError where it is none, as from another server."""
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise SetupError(
                "what answers there is no tunefleet service", cure="see the address"
            ) from error


Calls = Generator[Call, Answer, T]


def error_of(answer: Answer) -> TunefleetError:
    """The error of the tree for a problem."""
    try:
        problem = json.loads(answer.content)
        detail, cure = str(problem["detail"]), str(problem.get("cure", ""))
        kind = str(problem.get("kind", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return SetupError(
            f"the server answers {answer.status}, and not as tunefleet does",
            cure="see the address, and what stands between",
        )
    if kind:
        return error_named(kind)(detail, cure=cure)
    if answer.status in (429, 503):
        return RetryElsewhereError(detail, cure=cure)
    if answer.status >= 500:
        return JobError(f"the service has a bug: {detail}", cure=cure)
    return InputError(detail, cure=cure)


def value_of(call: Call) -> Calls[dict[str, Any]]:
    """The JSON value of one call."""
    value: dict[str, Any] = (yield call).value
    return value


def done_by(call: Call) -> Calls[None]:
    """One call without a result."""
    yield call


def me() -> Calls[dict[str, Any]]:
    """The user of the token."""
    return (yield from value_of(Call("GET", "/v1/me")))


def pages(path: str, name: str, **params: str) -> Calls[list[dict[str, Any]]]:
    """The items of all pages of a list, under a key."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (yield Call("GET", path, params={**params, "cursor": cursor})).value
        found += page[name]
        cursor = page["next"]
    return found


def upload(path: Path) -> Calls[str]:
    """Upload a network or arrays, a folder as an archive; returns its digest. Files that the
    service has are not sent again. Raises InputError for what cannot be read, or is refused."""
    try:
        with as_one_file(path) as file:
            return (yield from _sent(file))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}", cure="name a file of a network"
        ) from error


def _sent(file: Path) -> Calls[str]:
    with file.open("rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        size = file.stat().st_size
        asked = {"digest": sha256, "name": file.name, "size": size}
        status = (yield Call("POST", "/v1/uploads", asked)).value
        path = f"/v1/uploads/{sha256}"
        while status["network"] is None:
            offset = status["offset"]
            opened.seek(offset)
            headers = {"Upload-Offset": str(offset), "Content-Type": _PART}
            part = opened.read(_PART_BYTES)
            note = f"uploading {file.name}: {100 * offset // max(size, 1)} %"
            if offset + len(part) >= size:
                note = f"uploading the end of {file.name} and checking it"
            answer = yield Call(
                "PATCH",
                path,
                content=part,
                headers=headers,
                accepted=(_CONFLICT,),
                note=note,
            )
            if answer.status == _CONFLICT:  # a part arrived though its answer did not
                answer = yield Call("GET", path)
            status = answer.value
    return sha256


def submit(network: str | Path, asked: Mapping[str, Any]) -> Calls[dict[str, Any]]:
    """Submit a job; files of the network, of `calibrate` and of `inputs` are uploaded. Returns
    the job (`JobView`)."""
    sent = {**asked, "network": (yield from digest_of(network))}
    if asked.get("calibrate"):
        sent["calibrate"] = yield from digest_of(asked["calibrate"])
    if asked.get("inputs"):
        sent["inputs"] = []
        for file in asked["inputs"]:
            sent["inputs"].append((yield from digest_of(file)))
    return (yield from submit_named(sent))


def digest_of(given: str | Path) -> Calls[str]:
    """The digest of a file, which is uploaded; a digest or a name of the zoo is returned
    unchanged."""
    text = str(given)
    if text.startswith("zoo:") or (_DIGEST.fullmatch(text) and not Path(text).exists()):
        return text
    return (yield from upload(Path(given)))


def submit_named(asked: Mapping[str, Any]) -> Calls[dict[str, Any]]:
    """Submit a job of files that the service has. Retries do not create a second job."""
    key = {"Idempotency-Key": uuid.uuid4().hex}
    value: dict[str, Any] = (yield Call("POST", "/v1/jobs", asked, headers=key)).value
    return value


def job(name: str, wait_s: int = 0) -> Calls[dict[str, Any]]:
    """A job (`JobView`); with `wait_s` when it has ended, or after that many seconds."""
    headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
    value: dict[str, Any] = (yield Call("GET", f"/v1/jobs/{name}", headers=headers)).value
    return value


def ended(name: str) -> Calls[dict[str, Any]]:
    """A job when it has ended."""
    while (view := (yield from job(name, _WAIT_S)))["state"] not in ENDED:
        pass
    return view


def value_of_job(view: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a job that has ended. Raises the error that ended it where that is known,
    else JobError for one that did not succeed."""
    if view["state"] != "succeeded":
        reason = (view["reason"] or {}).get("text") or view["state"]
        kind = error_named(view.get("error") or "")
        if not issubclass(kind, (JobError, InternalError)):
            raise kind(reason)
        raise JobError(f"job {view['id'][:8]} has {view['state']}: {reason}", cure="see its log")
    return dict(view["result"] or {})


def events(name: str, after: int) -> Calls[list[dict[str, Any]]]:
    """The next events of a job after a number; empty after a long time without one."""
    headers = {"Prefer": f"wait={_WAIT_S}"}
    call = Call("GET", f"/v1/jobs/{name}/events", params={"after": after}, headers=headers)
    page: list[dict[str, Any]] = (yield call).value["events"]
    return page


class Follower:
    """Decides when the events of a job are complete: the last one may be stored a moment after
    the end of the job."""

    def __init__(self) -> None:
        self._last = ""
        self._looks = _LAST_LOOKS
        #: Seconds to wait before the next poll.
        self.pause_s = 0.0

    def is_over(self, page: Sequence[Mapping[str, Any]], state: str) -> bool:
        """Call after each page of events; `state` is that of the job after an empty one."""
        self.pause_s = 0.0
        if page:
            self._last = str(page[-1]["event"])
        elif state in ENDED:
            self._looks -= 1
            self.pause_s = _LAST_LOOK_S
        return not page and (self._last == "JobEnded" or not self._looks)


def jobs(limit: int, state: str = "") -> Calls[list[dict[str, Any]]]:
    """The newest jobs."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None and len(found) < limit:
        params: dict[str, str | int] = {"limit": min(100, limit), "cursor": cursor}
        page = yield Call("GET", "/v1/jobs", params=params | ({"state": state} if state else {}))
        found += page.value["jobs"]
        cursor = page.value["next"]
    return found[:limit]


def asked_of(name: str, verb: str) -> Calls[dict[str, Any]]:
    """Pause, resume, cancel or retry a job."""
    value: dict[str, Any] = (yield Call("POST", f"/v1/jobs/{name}/{verb}")).value
    return value


def fetch(artifact: str, folder: Path) -> Calls[Path]:
    """Download an artifact's files into a folder of its name below `folder`; complete files are
    kept, partial ones continued. Raises InputError where a file does not have its digest."""
    found = (yield Call("GET", f"/v1/artifacts/{artifact}")).value
    place = folder / str(found["id"])
    for each in found["files"]:
        target = place / each["name"]
        if not target.resolve().is_relative_to(place.resolve()):
            raise InputError(f"{each['name']} would lie outside of {place}", cure="trust it not")
        yield from _file(f"/v1/artifacts/{found['id']}/files/{each['name']}", each, target)
    return place


def _file(path: str, file: Mapping[str, Any], target: Path) -> Calls[None]:
    if target.is_file() and _sha256(target) == file["sha256"]:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with part.open("ab") as out:
        while (there := out.tell()) < file["bytes"]:
            last = min(there + _PART_BYTES, file["bytes"]) - 1
            answer = yield Call("GET", path, headers={"Range": f"bytes={there}-{last}"})
            if answer.status == 200:  # the whole of it
                out.truncate(0)
            out.write(answer.content)
    if _sha256(part) != file["sha256"]:
        part.unlink()
        raise InputError(f"{file['name']} was changed on its way", cure="fetch it again")
    part.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
