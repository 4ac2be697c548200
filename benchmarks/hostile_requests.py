"""Hostile ways to send a file: slow, cut off, with digests that lie, out of turn."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx

import hostile_valid as valid

_PART = "application/offset+octet-stream"
#: What a file may take that comes too slowly, in seconds.
_SLOW_S = 120.0


class Attacker:
    """Calls of one user of a service."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.http = httpx.Client(base_url=url, timeout=300.0, headers=self.headers)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def begin(self, digest: str, name: str, size: Any) -> httpx.Response:
        return self.http.post("/v1/uploads", json={"digest": digest, "name": name, "size": size})

    def part(self, digest: str, offset: int, content: Any, **headers: str) -> httpx.Response:
        sent = {"Content-Type": _PART, "Upload-Offset": str(offset), **headers}
        return self.http.patch(f"/v1/uploads/{digest}", content=content, headers=sent)

    def send(self, name: str, content: bytes) -> httpx.Response:
        """The last answer on a whole file."""
        digest = hashlib.sha256(content).hexdigest()
        begun = self.begin(digest, name, len(content))
        return begun if begun.is_error else self.part(digest, 0, content)

    def raw(self, digest: str, announced: int, parts: list[bytes], pause_s: float) -> bytes:
        """Send parts with pauses by a connection of its own; the first bytes of the answer, none
        where there is none in time. A last pause is waited out."""
        place = urlsplit(self.url)
        head = (
            f"PATCH /v1/uploads/{digest} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: {_PART}\r\n"
            f"Upload-Offset: 0\r\nContent-Length: {announced}\r\n\r\n"
        )
        with socket.create_connection((place.hostname or "", place.port or 80)) as connection:
            connection.sendall(head.encode())
            connection.settimeout(pause_s)
            for part in parts:
                try:
                    connection.sendall(part)
                    if answer := connection.recv(65536):
                        return answer + _rest(connection)
                except TimeoutError:
                    continue
                except OSError:
                    break
        return b""


def _rest(connection: socket.socket) -> bytes:
    """What comes until the connection is closed, or for a while nothing."""
    content = b""
    try:
        while more := connection.recv(65536):
            content += more
    except OSError:
        pass
    return content


@dataclass(frozen=True)
class HostileRequest:
    """`ask` returns the response to check. `slow`: takes a minute and runs concurrently."""

    name: str
    ask: Callable[[Attacker], httpx.Response]
    slow: bool = False


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lying(attacker: Attacker) -> httpx.Response:
    content, other = valid.convolution(), _digest(b"another")
    attacker.begin(other, "lying.onnx", len(content))
    return attacker.part(other, 0, content)


def _another_half(attacker: Attacker) -> httpx.Response:
    """Cut off, and gone on with bytes of another file."""
    content = valid.convolution() + b"x"
    digest, half = _digest(content), len(content) // 2
    attacker.begin(digest, "half.onnx", len(content))
    attacker.raw(digest, len(content), [content[:half]], 0.5)
    there = attacker.http.get(f"/v1/uploads/{digest}").json()["offset"]
    return attacker.part(digest, there, bytes(len(content) - there))


def _never_whole(attacker: Attacker) -> httpx.Response:
    """Cut off, and a job asked of what came."""
    content = valid.convolution() + b"yy"
    digest = _digest(content)
    attacker.begin(digest, "cut.onnx", len(content))
    attacker.raw(digest, len(content), [content[:100]], 0.5)
    return attacker.http.post("/v1/jobs", json={"network": digest})


def _more(attacker: Attacker) -> httpx.Response:
    digest = _digest(b"more")
    attacker.begin(digest, "more.onnx", 10)
    return attacker.part(digest, 0, bytes(1 << 20))


def _begun(attacker: Attacker, name: str, offset: int, content: bytes, **headers: str) -> Any:
    digest = _digest(name.encode())
    attacker.begin(digest, f"{name}.onnx", 1000)
    return attacker.part(digest, offset, content, **headers)


def _at_once(attacker: Attacker) -> httpx.Response:
    """Twenty connections send the same file: all but one are refused, and none mixes."""
    content = valid.convolution() + b"zzz"
    digest = _digest(content)
    attacker.begin(digest, "same.onnx", len(content))
    answers: list[bytes] = []

    def send() -> None:
        answers.append(attacker.raw(digest, len(content), [content[:50], content[50:]], 1.0))

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if sum(b" 409 " in answer[:20] for answer in answers) < 15:
        raise AssertionError(f"not refused: {[answer[:20] for answer in answers]}")
    return attacker.part(digest, 0, content)


def _many(attacker: Attacker) -> httpx.Response:
    return [attacker.begin(_digest(b"%d" % n), "many.onnx", 100) for n in range(20)][-1]


def _too_slow(pause_s: float, count: int) -> Callable[[Attacker], httpx.Response]:
    def ask(attacker: Attacker) -> httpx.Response:
        digest = _digest(b"slow %f" % pause_s)
        attacker.begin(digest, "slow.onnx", 10**6)
        began = time.monotonic()
        answer = attacker.raw(digest, 10**6, [b"x"] * count, pause_s)
        if time.monotonic() - began > _SLOW_S:
            raise AssertionError(f"held for {time.monotonic() - began:.0f} s")
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.decode("latin1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        headers = {k: v for k, v in headers.items() if k.lower() != "transfer-encoding"}
        return httpx.Response(int(lines[0].split()[1]), headers=headers, content=body)

    return ask


def _posted(content: bytes, kind: str = "application/json") -> Callable[[Attacker], Any]:
    return lambda attacker: attacker.http.post(
        "/v1/uploads", content=content, headers={"Content-Type": kind}
    )


def requests() -> list[HostileRequest]:
    begun = "a" * 64
    return [
        HostileRequest("bytes that never come", _too_slow(40.0, 2), slow=True),
        HostileRequest("a byte each 2 s", _too_slow(2.0, 60), slow=True),
        HostileRequest("a digest that lies", _lying),
        HostileRequest("cut off, then bytes of another file", _another_half),
        HostileRequest("a job of a file that was cut off", _never_whole),
        HostileRequest("more bytes than announced", _more),
        HostileRequest("an offset beyond what is there", lambda a: _begun(a, "far", 500, b"x")),
        HostileRequest("a negative offset", lambda a: _begun(a, "negative", -1, b"x")),
        HostileRequest("an offset of 2^70", lambda a: _begun(a, "huge", 2**70, b"x")),
        HostileRequest("a part as a form", lambda a: _begun(
            a, "form", 0, b"x", **{"Content-Type": "multipart/form-data"})),
        HostileRequest("one file by 20 connections", _at_once),
        HostileRequest("a part of nothing announced", lambda a: a.part(begun, 0, b"x")),
        HostileRequest("20 files at once", _many),
        HostileRequest("2^62 bytes announced", lambda a: a.begin(begun, "a.onnx", 2**62)),
        HostileRequest("-1 bytes announced", lambda a: a.begin(begun, "a.onnx", -1)),
        HostileRequest("10^400 bytes announced", lambda a: a.begin(begun, "a.onnx", 10**400)),
        HostileRequest("a digest as a path", lambda a: a.begin("../" * 21 + "a", "a.onnx", 5)),
        HostileRequest("JSON 100,000 deep", _posted(b'{"digest":' * 100_000)),
        HostileRequest("JSON that is none", _posted(b"\xff\xfe{")),
        HostileRequest("pickle as a request", _posted(b"\x80\x04cos\nsystem\n.", "text/plain")),
    ]  # fmt: skip
