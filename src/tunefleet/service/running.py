"""The HTTP server of a home, in a thread beside the scheduler."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tunefleet.errors import InputError, SetupError, internal
from tunefleet.service.app import ServiceSettings, service_app
from tunefleet.store import SqlStore, open_store

if TYPE_CHECKING:
    import uvicorn

_START_S = 30.0
_LOOPBACK = "127.0.0.1"
#: Seconds for which requests under way may go on at the end.
_END_S = 3


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the service listens. `certificate` and `key` are files for TLS; the headers
    `X-Forwarded-For` and `X-Forwarded-Proto` are used from the addresses `proxies` alone."""

    host: str = _LOOPBACK
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    proxies: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Listening:
        """`HOST:PORT`, `[::1]:PORT` or `PORT` of this machine alone. Raises InputError."""
        host, _, port = text.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            raise InputError(f"{text!r} is no address", cure="such as 127.0.0.1:8080")
        return cls(host.strip("[]") or _LOOPBACK, int(port))

    @property
    def is_local(self) -> bool:
        """Whether other machines cannot reach it."""
        return self.host in (_LOOPBACK, "::1", "localhost")


class HttpService:
    """Serves HTTP for a home within a `with` block."""

    def __init__(
        self,
        home: Path,
        listening: Listening,
        settings: ServiceSettings,
        wake: Callable[[Sequence[str]], None],
    ) -> None:
        self._home = home
        self._listening = listening
        self._settings = settings
        self._wake = wake
        self._error: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self._store: SqlStore | None = None
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="tunefleet-http", daemon=True)

    @property
    def url(self) -> str:
        """Its base URL."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if self._listening.certificate else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def __enter__(self) -> Self:
        import uvicorn

        _get_ready()
        self._socket = _bound(self._listening)
        try:
            self._store = open_store(self._home)
            # Those that an earlier process was asked, and did not answer, may be sent again.
            self._store.holdings.forget_unanswered()
            config = uvicorn.Config(
                service_app(self._home, self._store, self._settings, self._wake),
                log_config=None,
                access_log=False,
                server_header=False,
                ssl_certfile=self._listening.certificate,
                ssl_keyfile=self._listening.key,
                proxy_headers=bool(self._listening.proxies),
                forwarded_allow_ips=list(self._listening.proxies),
                timeout_graceful_shutdown=_END_S,
            )
            config.load()
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise InputError(
                    f"TLS cannot be had with {self._listening.certificate}: {error}",
                    cure="give the files of a certificate and of its key",
                ) from error
            raise
        self._server = uvicorn.Server(config)
        self._thread.start()
        end = time.monotonic() + _START_S
        while not self._server.started:
            if self._error is not None or time.monotonic() > end or not self._thread.is_alive():
                raise internal(self._error or RuntimeError("the HTTP server does not begin"))
            time.sleep(0.01)
        return self

    def _serve(self) -> None:
        assert self._server is not None
        assert self._socket is not None
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:
            self._error = error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._server is not None
        assert self._store is not None
        self._server.should_exit = True
        self._thread.join(2 * _END_S)
        with suppress(OSError):
            if self._socket is not None:
                self._socket.close()
        self._store.close()


def _get_ready() -> None:
    """Load what the first jobs need before they arrive: after a restart they arrive together."""
    import tunefleet.compiler.frontends
    import tunefleet.features.tilings
    import tunefleet.runs.pretrained  # noqa: F401
    from tunefleet.compiler.toolchain.host import native_target, toolchain_of

    toolchain_of(native_target())


def _bound(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((listening.host, listening.port))
        made.listen(1024)
    except OSError as error:
        made.close()
        raise SetupError(
            f"nothing can listen at {listening.host}:{listening.port}: {error.strerror or error}",
            cure="choose another address: --http HOST:PORT",
        ) from error
    return made
