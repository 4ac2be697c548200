"""Files that come in parts, and go on after a cut where they were."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.requests import ClientDisconnect

from tunefleet.artifacts.blobs import keep, open_blobs
from tunefleet.core.home import Home
from tunefleet.core.ids import digest
from tunefleet.errors import raise_disk_full
from tunefleet.service.problems import Refused, not_found
from tunefleet.store import KeptNetwork, Store, User

#: Endings of files that hold a whole network.
FORMATS = (".onnx", ".pt2", ".tflite", ".keras")
#: Seconds after which a file that did not become complete is forgotten.
FORGOTTEN_S = 7 * 86_400.0
#: Files of one user that are on their way at once.
_MOST_OPEN = 16
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on its way."""

    digest: str
    name: str
    size: int


class Uploads:
    """The files on their way of all users, below a home."""

    def __init__(self, home: Home, store: Store, most_bytes: int) -> None:
        self._home = home
        self._store = store
        self._most_bytes = most_bytes

    def begin(self, user: User, asked: Upload) -> int:
        """How many bytes of a file are there; it is expected from then on. Raises Refused."""
        name = Path(asked.name)
        if name.name != asked.name or not asked.name.isprintable() or asked.name.startswith("."):
            raise Refused(422, f"{asked.name!r} is no name of a file", cure="leave out its folder")
        if name.suffix.lower() not in FORMATS:
            raise Refused(
                415,
                f"{asked.name} has none of the endings {', '.join(FORMATS)}",
                cure="export the network to ONNX as one file",
            )
        if asked.size > self._most_bytes:
            raise Refused(413, f"{asked.name} has more than {self._most_bytes} bytes")
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
            raise Refused(409, f"{known.digest[:12]} was begun with {known.size} bytes")
        return self.offset(user, asked.digest)[0]

    def offset(self, user: User, sha256: str) -> tuple[int, Upload]:
        """How many bytes of a file are there. Raises Refused for one that was not begun."""
        note = self._folder(user) / f"{sha256}.json"
        if not note.exists():
            raise not_found(f"upload {sha256[:12]}")
        part = note.with_suffix(".part")
        return part.stat().st_size if part.exists() else 0, self._known(note)

    async def append(
        self, user: User, sha256: str, offset: int, parts: AsyncIterator[bytes]
    ) -> tuple[int, Upload]:
        """Write bytes behind those that are there; what came before a cut stays. Raises Refused."""
        there, upload = self.offset(user, sha256)
        if offset != there:
            raise Refused(
                409,
                f"{there} bytes are there, not {offset}",
                cure="ask for the offset and go on from it",
                headers={"Upload-Offset": str(there)},
            )
        part = self._folder(user) / f"{sha256}.part"
        try:
            with part.open("ab") as file:
                async for chunk in parts:
                    there += len(chunk)
                    if there > upload.size:
                        raise Refused(413, f"more than the {upload.size} bytes that were announced")
                    file.write(chunk)
        except ClientDisconnect as error:
            raise Refused(400, "the connection was cut", cure="go on from the offset") from error
        except OSError as error:
            raise_disk_full(error)
            raise
        return there, upload

    def complete(self, user: User, upload: Upload) -> KeptNetwork:
        """Make a network of a file that is there whole. Raises Refused where its content is not
        what its digest says; it has to be sent again."""
        note = self._folder(user) / f"{upload.digest}.json"
        part = note.with_suffix(".part")
        if sha256_of(part) != upload.digest:
            part.unlink(missing_ok=True)
            raise Refused(
                422, f"{upload.name} has another digest than it was given", cure="send it again"
            )
        file = part.with_name(f"{upload.digest}.whole")
        os.replace(part, file)
        blobs = open_blobs(self._home.networks)
        blob = keep(blobs, {upload.name: (file, upload.digest)})
        network = KeptNetwork(
            tenant=user.name,
            digest=upload.digest,
            name=upload.name,
            place=str(Path(self._home.networks.name, blob, upload.name)),
            size=upload.size,
            created_at=time.time(),
        )
        self._store.holdings.put_network(network)
        file.unlink(missing_ok=True)
        note.unlink(missing_ok=True)
        return network

    def _check_quota(self, user: User, further: int) -> None:
        most = user.quota.stored_bytes
        if most is not None and self._store.holdings.stored_bytes(user.name) + further > most:
            raise Refused(
                413, f"your networks may have {most} bytes together", cure="delete some of them"
            )

    def _folder(self, user: User) -> Path:
        return self._home.uploads / digest(["uploads", user.name])

    def _known(self, note: Path) -> Upload:
        return Upload(**json.loads(note.read_bytes()))

    def _sweep(self, folder: Path) -> None:
        for note in folder.glob("*.json"):
            part = note.with_suffix(".part")
            latest = max(path.stat().st_mtime for path in (note, part) if path.exists())
            if time.time() - latest > FORGOTTEN_S:
                part.unlink(missing_ok=True)
                note.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Of a file, read in pieces."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            state.update(chunk)
    return state.hexdigest()
