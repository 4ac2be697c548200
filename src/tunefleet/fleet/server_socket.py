"""The socket of a home's server: a Unix socket that only its user may open, one request and one
reply for each connection."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tunefleet.core.home import Home
from tunefleet.errors import InputError, SetupError, internal

#: Seconds for a request and its reply, and the most bytes of either.
_WAIT_S, _MOST_BYTES = 10.0, 1 << 20


def own_version() -> str:
    return metadata.version("tunefleet")


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """`hello` asks who is there, `take` says that jobs are in the store, `stop` ends the server
    after its trials."""

    verb: str
    job_ids: tuple[str, ...] = ()
    version: str = field(default_factory=own_version)


@dataclass(frozen=True, slots=True)
class ServerReply:
    """`jobs` are under way; `error` says why a request is refused."""

    jobs: int = 0
    pid: int = 0
    version: str = field(default_factory=own_version)
    error: str = ""


class ServerSocket:
    """Replies to each request by `answer`, which runs in a thread of the socket. One server at a
    time has the socket of a home: the caller has made sure of that by a lease."""

    def __init__(self, home: Home, answer: Callable[[ServerRequest], ServerReply]) -> None:
        self.path = home.server_socket
        self._answer = answer
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(
            target=self._serve, name="tunefleet-server-socket", daemon=True
        )
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self.path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listening.fileno(), 0o600)  # the permissions of what `bind` makes
            with _reachable(self.path) as name:
                listening.bind(name)
            listening.listen()
        except OSError as error:
            listening.close()
            raise SetupError(
                f"no socket can be made at {self.path}: {error.strerror}",
                cure="use a --home on a local disk",
            ) from error
        self._socket = listening
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._socket is not None
        self.path.unlink(missing_ok=True)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        if self._error is not None and error is None:
            raise internal(self._error)

    def _serve(self) -> None:
        assert self._socket is not None
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            try:
                with connection:
                    self._converse(connection)
            except OSError:
                continue  # whoever asked has gone
            except Exception as error:
                self._error = error
                return

    def _converse(self, connection: socket.socket) -> None:
        connection.settimeout(_WAIT_S)
        asked = _asked(_line(connection))
        if isinstance(asked, ServerReply):
            answer = asked
        elif asked.version != own_version() and asked.verb != "stop":
            answer = ServerReply(error="another version")
        else:
            answer = self._answer(asked)
        connection.sendall(_text({**asdict(answer), "pid": os.getpid()}))


def _asked(line: bytes) -> ServerRequest | ServerReply:
    """A request, or why it is none."""
    try:
        value = json.loads(line)
        verb, ids, version = value["verb"], value["job_ids"], value["version"]
        if verb not in ("hello", "take", "stop") or not all(isinstance(i, str) for i in ids):
            raise ValueError
        return ServerRequest(verb, tuple(ids), str(version))
    except (ValueError, LookupError, TypeError, RecursionError):
        return ServerReply(error="that is no request")


def ask(home: Home, asked: ServerRequest) -> ServerReply | None:
    """What the server of a home answers; None where there is none.

    Raises InputError where one of another version is there.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(_WAIT_S)
        try:
            connection.connect(stack.enter_context(_reachable(home.server_socket)))
            connection.sendall(_text(asdict(asked)))
            value = json.loads(_line(connection))
            answer = ServerReply(**value)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            # A socket that a killed server left, or one that has just ended.
            return None
    if answer.version != own_version() and asked.verb != "stop":
        raise InputError(
            f"process {answer.pid} serves this home with version {answer.version} of tunefleet, "
            f"this is {own_version()}",
            cure="end it after its trials: tunefleet serve --stop",
        )
    return answer


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _line(connection: socket.socket) -> bytes:
    parts = b""
    while not parts.endswith(b"\n") and len(parts) < _MOST_BYTES:
        part = connection.recv(65536)
        if not part:
            break
        parts += part
    return parts


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """A name of a socket that is short enough for the kernel, however deep its folder lies."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
