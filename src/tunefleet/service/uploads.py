"""Uploads in parts, which resume after an interruption."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.requests import ClientDisconnect

from tunefleet.core.home import Home
from tunefleet.core.importing import DEFAULT_IMPORT
from tunefleet.errors import InputError, JobError, raise_disk_full
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.quotas import QUOTA_CURE, lack_of_quota
from tunefleet.runs.uploads import ARRAY_SUFFIXES, NETWORK_SUFFIXES, Admitted, admit
from tunefleet.service.admission import Admission, CheckedImports, user_folder
from tunefleet.service.problems import Refused, not_found
from tunefleet.store import KeptNetwork, Store, User
from tunefleet.system.unpacking import check_name

#: Seconds without a byte after which an unfinished upload is removed.
FORGOTTEN_S = 7 * 86_400.0
#: Unfinished uploads of one user.
_MOST_OPEN = 16
#: Refused uploads whose reason is kept.
_MOST_REFUSED = 1000
_READ_BYTES = 1 << 20
#: Seconds without a byte, and the bytes a second that are too few once so many seconds have passed.
_STILL_S, _SLOW_BYTES_PER_S, _SLOW_AFTER_S = 30.0, 1024, 60.0

#: The check of a file: `admit`, or a fake in tests.
UploadCheck = Callable[[Path, str, BenchmarkContext], Admitted]
_Key = tuple[str, str]
#: Errors after which a file has to be sent again.
_REFUSALS = (Refused, InputError, JobError)


@dataclass(frozen=True, slots=True)
class Upload:
    """An unfinished upload."""

    digest: str
    name: str
    size: int


class Uploads:
    """The unfinished uploads of all users, below a home. For one event loop, except `begin` and
    `offset`, which are thread-safe."""

    def __init__(
        self,
        home: Home,
        store: Store,
        most_bytes: int,
        admission: Admission,
        check: UploadCheck = admit,
    ) -> None:
        self._home = home
        self._store = store
        self._most_bytes = most_bytes
        self._admission = admission
        self._check = check
        self._sending: set[_Key] = set()
        self._refused: OrderedDict[_Key, Exception] = OrderedDict()

    def begin(self, user: User, asked: Upload) -> int:
        """Announce a file. Returns the number of bytes received so far. Raises Refused."""
        check_name(asked.name)
        endings = (*NETWORK_SUFFIXES, *ARRAY_SUFFIXES)
        if Path(asked.name).suffix.lower() not in endings:
            raise Refused(
                415,
                f"{asked.name} has none of the endings {', '.join(endings)}",
                cure="export the network to ONNX, or pack its folder as a zip archive",
            )
        if asked.size > self._most_bytes:
            raise Refused(
                413,
                f"{asked.name} has more than {self._most_bytes} bytes",
                cure="ask the operator for more: --max-upload-gib",
            )
        self._refused.pop((user.name, asked.digest), None)
        folder = self._folder(user)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep(folder)
        note = folder / f"{asked.digest}.json"
        if not note.exists():
            others = [self._known(other) for other in folder.glob("*.json")]
            if len(others) >= _MOST_OPEN:
                raise Refused(429, f"{len(others)} files are on their way", cure="end one of them")
            self._check_quota(user, asked.size + sum(other.size for other in others))
            note.write_text(json.dumps(asdict(asked)), encoding="utf-8")
        known = self._known(note)
        if known.size != asked.size:
            raise Refused(
                409,
                f"{known.digest[:12]} was begun with {known.size} bytes",
                cure="send the file whose digest that is",
            )
        return self.offset(user, asked.digest)[0]

    def offset(self, user: User, sha256: str) -> tuple[int, Upload]:
        """The number of bytes received of a file. Raises Refused for one that was not announced,
        and the reason for which one was refused."""
        note = self._folder(user) / f"{sha256}.json"
        if not note.exists():
            if (user.name, sha256) in self._refused:
                raise self._refused[user.name, sha256]
            raise not_found(f"upload {sha256[:12]}")
        part = note.with_suffix(".part")
        return part.stat().st_size if part.exists() else 0, self._known(note)

    async def append(
        self, user: User, sha256: str, offset: int, parts: AsyncIterator[bytes]
    ) -> tuple[int, Upload]:
        """Append bytes; those before an interruption are kept. Raises Refused."""
        there, upload = self.offset(user, sha256)
        if offset != there:
            raise Refused(
                409,
                f"{there} bytes are there, not {offset}",
                cure="ask for the offset and go on from it",
                headers={"Upload-Offset": str(there)},
            )
        part = self._folder(user) / f"{sha256}.part"
        with self._alone((user.name, sha256)):
            try:
                with part.open("ab") as file:
                    async for chunk in _in_time(parts):
                        there += len(chunk)
                        if there > upload.size:
                            raise Refused(
                                413,
                                f"more than the {upload.size} bytes that were announced",
                                cure="announce the file again with its size",
                            )
                        file.write(chunk)
            except ClientDisconnect as error:
                cure = "go on from the offset"
                raise Refused(400, "the connection was cut", cure=cure) from error
            except OSError as error:
                raise_disk_full(error)
                raise
        return there, upload

    @contextmanager
    def _alone(self, key: _Key) -> Iterator[None]:
        if key in self._sending:
            raise Refused(
                409, "a part of this file is being received", cure="send one after another"
            )
        self._sending.add(key)
        try:
            yield
        finally:
            self._sending.discard(key)

    async def complete(self, user: User, upload: Upload) -> KeptNetwork:
        """Check a complete file and keep it. Raises Refused where its content does not have its
        digest, and the errors of `runs.uploads.admit`; it must be sent again then."""
        key = (user.name, upload.digest)
        try:
            return await self._admission.checked(*key, lambda: self._admitted(user, upload))
        except _REFUSALS as error:
            self._refused[key] = error.with_traceback(None)
            while len(self._refused) > _MOST_REFUSED:
                self._refused.popitem(last=False)
            raise

    def _admitted(self, user: User, upload: Upload) -> KeptNetwork:
        """The check, in a thread of its own."""
        note = self._folder(user) / f"{upload.digest}.json"
        part = note.with_suffix(".part")
        context = BenchmarkContext(home=self._home.root, tenant=user.name)
        try:
            if sha256_of(part) != upload.digest:
                raise Refused(
                    422, f"{upload.name} has another digest than it was given", cure="send it again"
                )
            admitted = self._check(part, upload.name, context)
            self._check_quota(user, admitted.size)
        except _REFUSALS:
            self._forget(note)
            raise
        network = KeptNetwork(
            tenant=user.name,
            digest=upload.digest,
            name=upload.name,
            place=admitted.place,
            size=admitted.size,
            created_at=time.time(),
        )
        if not admitted.needs:
            CheckedImports(self._home.root, user.name).keep(upload.digest, DEFAULT_IMPORT)
        self._store.holdings.put_network(network)
        self._forget(note)
        return network

    def _forget(self, note: Path) -> None:
        note.with_suffix(".part").unlink(missing_ok=True)
        note.unlink(missing_ok=True)

    def _check_quota(self, user: User, further: int) -> None:
        lack = lack_of_quota(self._store, self._home.root, user.name, further)
        if lack:
            raise Refused(413, lack, cure=QUOTA_CURE)

    def _folder(self, user: User) -> Path:
        return user_folder(self._home.root, user.name)

    def _known(self, note: Path) -> Upload:
        return Upload(**json.loads(note.read_bytes()))

    def _sweep(self, folder: Path) -> None:
        for note in folder.glob("*.json"):
            part = note.with_suffix(".part")
            latest = max(path.stat().st_mtime for path in (note, part) if path.exists())
            if time.time() - latest > FORGOTTEN_S:
                self._forget(note)


async def _in_time(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The parts as they arrive. Raises Refused where they arrive too slowly, since each occupies
    a connection and a file of the service."""
    began, received = time.monotonic(), 0
    try:
        while True:
            async with asyncio.timeout(_STILL_S):
                chunk = await anext(parts)
            yield chunk
            received += len(chunk)
            seconds = time.monotonic() - began
            if seconds > _SLOW_AFTER_S and received < _SLOW_BYTES_PER_S * seconds:
                raise TimeoutError
    except StopAsyncIteration:
        return
    except TimeoutError:
        raise Refused(
            408, "its bytes come too slowly", cure="go on from the offset, by a faster connection"
        ) from None


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read in blocks."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            state.update(chunk)
    return state.hexdigest()
