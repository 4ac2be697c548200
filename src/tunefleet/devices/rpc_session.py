"""One session with a server of TVM's RPC: connected within a time, its programs guarded."""

from __future__ import annotations

import gc
import itertools
import os
import posixpath
import queue
import secrets
import signal
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tunefleet.compiler.code.build import one_line
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.device import DeviceSpec, RpcAddress
from tunefleet.devices import tracker
from tunefleet.devices._base import Transfers
from tunefleet.devices.health import cause_of, health_of, unreachable
from tunefleet.devices.probing import machine_of, probe_library
from tunefleet.devices.runners import RANDOM_BYTES, random_array
from tunefleet.errors import (
    DeviceError,
    ForeignError,
    InternalError,
    RetryElsewhereError,
    raise_mistake,
)

tvm = load_tvm()

T = TypeVar("T")

#: Seconds of silence after which a session ends by itself, so that a cut cable frees the board.
IDLE_S = 600.0
#: What a server may take to answer anything short, and for each byte that goes there.
_ANSWER_S, _SLOWEST_BYTES_PER_S = 20.0, 100e3
#: How long after the end of its time a program that hangs must have been ended.
_GRACE_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
#: For which a server that a tracker lent before is waited for. It is free when its session ended.
_SAME_S = 10.0
_FILE_BYTES = 1 << 18
#: Repeats that there is memory for from the beginning.
_SECONDS = 64
#: Any Linux has it: its header tells the machine where its server has no compiler to ask.
_PROGRAM = "/proc/self/exe"


class NoAnswerError(ForeignError):
    """A call did not come back in its time: it may still hang in its thread."""


class _Line:
    """A thread that makes the calls of one session, so that who asks can stop waiting for one."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def call(self, function: Callable[[], T], limit_s: float) -> T:
        """Raises NoAnswerError after `limit_s`; what the call gives later is dropped."""
        values: list[T] = []
        errors: list[BaseException] = []
        ended = threading.Event()

        def make() -> None:
            try:
                value = function()
                if not ended.is_set():
                    values.append(value)
            except BaseException as error:
                errors.append(error)
            ended.set()

        self._calls.put(make)
        if not ended.wait(limit_s):
            ended.set()
            raise NoAnswerError
        if errors:
            raise errors.pop()  # or it would hold itself, and with it the session
        return values[0]

    def _work(self) -> None:
        while True:
            self._calls.get()()


class RpcSession:
    """A session of one server, whose process there runs programs on `threads` threads.

    `server` is where it runs: one that a tracker lends where `address` is that of a tracker, and
    rather that of the session `after`. `device` is where programs have their tensors: the server's
    processor, or its GPU of the number `gpu`. Raises RetryElsewhereError where no server answers in
    `patience_s`, or takes a connection in `away_s`.
    """

    server: RpcAddress
    _numbers = itertools.count()

    def __init__(
        self,
        address: RpcAddress,
        threads: int,
        patience_s: float,
        away_s: float,
        transfers: Transfers,
        after: RpcSession | None = None,
        gpu: int | None = None,
    ) -> None:
        self._transfers = transfers
        self._line = _Line()
        wanted = after.server if after else None
        self._session, self.server = _connected(address, patience_s, away_s, self._line, wanted)
        self._patterns: dict[str, Any] = {}
        self._kept: tuple[Hashable, Any] = (None, None)
        self._seconds: Any = None
        self._host = self._session.cpu()
        self.gpu = gpu
        self.device = self._host if gpu is None else self._session.cuda(gpu)
        place = self.call(lambda: self._session.get_function(_WORK_PATH)("session"))
        self._folder = posixpath.dirname(str(place))
        self.machine = self._machine_of_server()
        self.probe, _ = self._loaded(str(probe_library(self.machine)))
        # Beside the session's own folder, which goes with it.
        self.reason_path = f"{posixpath.dirname(self._folder)}/tunefleet-{secrets.token_hex(8)}"
        self._ask("guard", self.reason_path)
        self._ask("watch", IDLE_S, 1)
        self._set_threads(threads)

    def call(self, function: Callable[..., T], *args: Any, limit_s: float = _ANSWER_S) -> T:
        return self._line.call(lambda: function(*args), limit_s)

    def lives(self) -> bool:
        """Whether the server's process still answers. Raises NoAnswerError."""
        try:
            self._ask("watch", IDLE_S, 1)
        except NoAnswerError:
            raise
        except Exception as error:
            raise_mistake(error)
            return False
        return True

    def close(self) -> None:
        """Let go of the server, which serves nobody else while anything holds the session."""
        self.probe = self.device = self._host = self._session = self._seconds = None
        self._kept = (None, None)
        self._patterns.clear()
        gc.collect()  # programs that an error's traceback holds

    def load(self, path: str, *, entry: bool = True) -> tuple[Any, int]:
        """Upload a library and load it there: the module, and where its function `main` is, 0
        without `entry`. The file goes, the program stays as long as the module."""
        module, name = self._loaded(path)
        if entry:
            return module, self._ask("address", f"{self._folder}/{name}")
        self.call(self._session.remove, name)
        return module, 0

    def _loaded(self, path: str) -> tuple[Any, str]:
        content = bytearray(Path(path).read_bytes())
        name = f"{next(self._numbers)}-{os.path.basename(path)}"

        def loaded() -> Any:
            self._session.upload(content, name)
            return self._session.load_module(name)

        limit_s = _ANSWER_S + len(content) / _SLOWEST_BYTES_PER_S
        return self._moved(loaded, len(content), limit_s), name

    def kept(self, key: Hashable | None, make: Callable[[], T]) -> T:
        """What was made for the key, where it is that of the call before: programs of a task come
        one after the other, and memory for each would take longer than many of them run. None is
        nobody's key. What was kept for another goes before anything is made."""
        if key is None or self._kept[0] != key:
            self._kept = (None, None)
            self._kept = (key, make())
        value: T = self._kept[1]
        if key is None:
            self._kept = (None, None)
        return value

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._empty(shape, dtype, self.device)

    def _empty(self, shape: tuple[int, ...], dtype: str, device: Any) -> Any:
        return self.call(lambda: tvm.runtime.empty(shape, dtype, device))

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor there with random numbers, which were sent once per type; to a GPU each time."""
        if self.gpu is not None:
            return self.send(random_array(shape, dtype, 0))
        tensor = self.empty(shape, dtype)
        self.fill(tensor, dtype)
        return tensor

    def fill(self, tensor: Any, dtype: str, begin: int = 0, size: int = -1) -> None:
        self._ask("fill", tensor, self._pattern(dtype), begin, size)

    def send(self, array: Any) -> Any:
        """An array as a tensor there."""
        tensor = self.empty(array.shape, str(array.dtype))
        self.put(array, tensor)
        return tensor

    def _send_to_host(self, array: Any) -> Any:
        tensor = self._empty(array.shape, str(array.dtype), self._host)
        self.put(array, tensor)
        return tensor

    def wait(self) -> None:
        """Until the GPU has done everything; raises what it says of what it did."""
        self.call(self.device.sync)

    def put(self, array: Any, tensor: Any) -> None:
        """Copy an array into a tensor there, of its shape and type."""
        local = tvm.runtime.tensor(array)
        limit_s = _ANSWER_S + array.nbytes / _SLOWEST_BYTES_PER_S
        self._moved(lambda: tensor.copyfrom(local), array.nbytes, limit_s)

    def fetch(self, tensor: Any, size: int) -> Any:
        return self._moved(tensor.numpy, size, _ANSWER_S + size / _SLOWEST_BYTES_PER_S)

    def time(
        self, address: int, number: int, repeat: int, limit_s: float, rotation: Any, args: Any
    ) -> list[float]:
        """Seconds per run of each repeat. `rotation`: memory, begins, step, copies of weights."""
        if self._seconds is None or repeat > self._seconds.shape[0]:
            self._seconds = self._empty((max(repeat, _SECONDS),), "float64", self._host)
        own = self._seconds
        ask = ("time", address, number, repeat, float(limit_s), IDLE_S, own, *rotation, *args)
        self._ask(*ask, limit_s=limit_s + _GRACE_S)
        return [float(s) for s in self.call(own.numpy)[:repeat]]

    def watched(self, function: Callable[[], T], limit_s: float) -> T:
        """A call that runs a program by other means than `time`."""
        self._ask("watch", float(limit_s), 0)
        value = self.call(function, limit_s=limit_s + _GRACE_S)
        self._ask("watch", IDLE_S, 1)
        return value

    def read(self, path: str) -> str:
        """A file there as text; "" where it cannot be read."""
        buffer = self._empty((_FILE_BYTES,), "uint8", self._host)
        size = self._asked("read", path, buffer)
        if size <= 0:
            return ""
        return bytes(self.call(buffer.numpy)[:size]).decode(errors="replace")

    def hwcaps(self) -> tuple[int, int]:
        return self._asked("hwcap", 0), self._asked("hwcap", 1)

    def kernel_machine(self) -> str:
        """The architecture as its kernel names it."""
        buffer = self._send_to_host(np.zeros(64, np.uint8))
        self._ask("machine", buffer)
        return bytes(self.call(buffer.numpy)).split(b"\0", 1)[0].decode(errors="replace")

    def reason(self, path: str) -> tuple[str, bool] | None:
        """Why an earlier session ended, and whether a program ran; None where nobody says."""
        text = self.read(path)
        if len(text) < 3 or not text[:2].isdigit():
            return None
        self.call(self._session.remove, path)
        try:
            return signal.Signals(int(text[:2])).name, text[2] == "b"
        except ValueError:
            return None

    def _pattern(self, dtype: str) -> Any:
        if dtype not in self._patterns:
            count = RANDOM_BYTES // nbytes((1,), dtype)
            numbers = np.ascontiguousarray(random_array((count,), dtype, 0))
            self._patterns[dtype] = self._send_to_host(numbers.view(np.uint8))
        return self._patterns[dtype]

    def _set_threads(self, threads: int) -> None:
        """As `artifacts.runtime.set_threads`, before the first kernel runs there."""
        for name, value in (("TVM_NUM_THREADS", str(threads)), ("TVM_BIND_THREADS", "0")):
            self._ask("environment", name, value)
        self.call(self._session.get_function("runtime.config_threadpool"), 1, threads)
        got = int(self.call(self._session.get_function("runtime.NumThreads")))
        if got != threads:
            raise DeviceError(
                f"the server runs kernels on {got} threads instead of {threads}",
                cure=f"start it with TVM_NUM_THREADS={threads}",
            )

    def _machine_of_server(self) -> str:
        try:
            triple = self.call(lambda: self._session.get_function(_TRIPLE)())
            return str(triple).split("-", 1)[0]
        except NoAnswerError:
            raise
        except Exception as error:  # a server with the runtime alone
            raise_mistake(error)
            return self._machine_of_program()

    def _machine_of_program(self) -> str:
        return machine_of(bytes(self.call(self._session.download, _PROGRAM)[:64]))

    def _asked(self, name: str, *args: Any, limit_s: float = _ANSWER_S) -> int:
        value = self.call(lambda: self.probe[name](*args), limit_s=limit_s)
        if not isinstance(value, int):
            raise DeviceError(
                f"{self.server.url} answers what the probe does not say: {type(value).__name__}",
                cure="see what listens there, or start the server again",
            )
        return value

    def _ask(self, name: str, *args: Any, limit_s: float = _ANSWER_S) -> int:
        result = self._asked(name, *args, limit_s=limit_s)
        if result < 0:
            raise InternalError(f"the probe's {name} failed: {os.strerror(-result)}")
        return result

    def _moved(self, move: Callable[[], T], size: int, limit_s: float) -> T:
        started = time.perf_counter()
        value = self.call(move, limit_s=limit_s)
        self._transfers.count += 1
        self._transfers.bytes += size
        self._transfers.seconds += time.perf_counter() - started
        return value


_TRIPLE = "target.llvm_get_system_triple"
_WORK_PATH = "tvm.rpc.server.workpath"


def _connected(
    address: RpcAddress,
    patience_s: float,
    away_s: float,
    line: _Line,
    wanted: RpcAddress | None,
) -> tuple[Any, RpcAddress]:
    """A session of TVM's and its server; tried again, at growing intervals, until the patience
    ends, or that with a server that takes no connection."""
    started = time.monotonic()
    ends = started + patience_s
    wait_s = _FIRST_WAIT_S
    while True:
        left_s = max(ends - time.monotonic(), _FIRST_WAIT_S)
        try:
            server = _lent(address, left_s, wanted) if address.tracker else address
            place = (server.host, server.port, server.key)
            return line.call(lambda: tvm.rpc.connect(*place), left_s), server  # noqa: B023
        except RetryElsewhereError:
            raise
        except NoAnswerError:
            raise RetryElsewhereError(
                f"{address.url} takes connections and answers none: another session has it, or it "
                "hangs",
                cure="wait for the other, or start the server again",
            ) from None
        except Exception as error:
            if time.monotonic() + wait_s >= started + min(patience_s, away_s):
                raise unreachable(address, _cause(address, error)) from error
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _lent(address: RpcAddress, wait_s: float, wanted: RpcAddress | None) -> RpcAddress:
    """A server of a tracker, if possible the wanted one: others that it lends meanwhile are given
    back. Raises RetryElsewhereError where none is free, and OSError or what no tracker says."""
    others: list[RpcAddress] = []
    try:
        ends = time.monotonic() + min(wait_s, _SAME_S)
        while wanted is not None:
            try:
                server = tracker.lent(address, max(ends - time.monotonic(), _FIRST_WAIT_S))
            except tracker.NoneFreeError:
                break
            if (server.host, server.port) == (wanted.host, wanted.port):
                return server
            others.append(server)
        return others.pop() if others else tracker.lent(address, wait_s)
    except tracker.NoneFreeError:
        raise RetryElsewhereError(
            f"{address.url} lends no server: none is free",
            cure="wait for who has them, or start another server",
        ) from None
    finally:
        for other in others:
            # It begins a session and ends it, after which the server offers itself anew.
            health_of(DeviceSpec(rpc=other))


def _cause(address: RpcAddress, error: Exception) -> str:
    """Why nobody answers, where TVM only says that nobody does."""
    if isinstance(error, OSError):
        return cause_of(error)
    try:
        tracker.knock(address).close()
    except OSError as refused:
        return cause_of(refused)
    return one_line(error)
