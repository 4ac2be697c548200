"""Servers that run programs of devices, and what pretends to be one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tunefleet.core.device import DeviceDescription, DeviceSpec, RegisteredDevice, RpcAddress
from tunefleet.core.home import Home
from tunefleet.devices.registry import DeviceRegistry
from tunefleet.hardware.processor import device_identity


def absent(home: Path) -> str:
    """Name a device like this machine, `gone`, where nobody listens; its address."""
    spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", free_port()))
    here = DeviceDescription(device_identity(), os.uname().machine, (0,))
    DeviceRegistry(Home(home).devices).add(RegisteredDevice("gone", spec, here, 0.0))
    return spec.url


class Server:
    """TVM's own RPC server (or tracker) in processes of its own, which end with it."""

    def __init__(
        self,
        *arguments: str,
        port: int = 0,
        what: str = "rpc_server",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.port = port or free_port()
        self._environment = {**os.environ, **environment}
        self._command = [
            sys.executable, "-m", f"tvm.exec.{what}", "--host", "127.0.0.1",
            "--port", str(self.port), "--port-end", str(self.port + 1), *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until(lambda: answers(self.port), 60)

    def signal(self, number: int) -> None:
        """To all of its processes."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
            until(lambda: not answers(self.port), 10)


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that answers each connection so, and then ends it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=once, args=(connection,), daemon=True).start()

        def once(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError, struct.error):
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


def babbling(seed: int) -> Callable[[socket.socket], None]:
    """The handshake of TVM's RPC server, and random bytes after it."""
    numbers = np.random.default_rng(seed)

    def answer(connection: socket.socket) -> None:
        magic, size = struct.unpack("<ii", connection.recv(8, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
        key = b"server:babbling"
        connection.sendall(struct.pack("<ii", magic, len(key)) + key)
        for _ in range(64):
            connection.sendall(struct.pack("<Q", int(numbers.integers(1, 64))) + numbers.bytes(256))
            time.sleep(0.01)

    return answer


def tracking(answer: Any) -> Callable[[socket.socket], None]:
    """The handshake of a tracker, and a text or JSON."""
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def said(connection: socket.socket) -> None:
        connection.sendall(connection.recv(4, socket.MSG_WAITALL))
        (size,) = struct.unpack("<i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
        connection.sendall(struct.pack("<i", len(text)) + text)

    return said


@contextlib.contextmanager
def served(*arguments: str, **options: Any) -> Iterator[Server]:
    server = Server(*arguments, **options)
    try:
        yield server
    finally:
        server.kill()


#: Before a server opens the kernel's list of processors.
_OTHER_PROCESSOR = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
int open(const char *path, int flags, ...) {
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    return real(strcmp(path, "/proc/cpuinfo") ? path : getenv("BOARD_CPUINFO"), flags, mode);
}
"""


@contextlib.contextmanager
def another_board(folder: Path) -> Iterator[Server]:
    """A server on this machine that reports another name of its processor."""
    library, source, said = (folder / f"board.{end}" for end in ("so", "c", "cpuinfo"))
    source.write_text(_OTHER_PROCESSOR)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    said.write_text(
        re.sub(r"(?m)^(model name|Model|uarch)(\s*): .*$", r"\1\2: emulated board", text)
    )
    more = {"LD_PRELOAD": str(library), "BOARD_CPUINFO": str(said)}
    with served(environment=more) as server:
        yield server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether somebody listens; a connection without a word is no session."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def until(holds: Callable[[], bool], limit_s: float) -> None:
    ends = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {limit_s} s")
        time.sleep(0.05)
