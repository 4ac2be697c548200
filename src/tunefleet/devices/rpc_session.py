"""One session with a server of TVM's RPC: connected within a time, its programs guarded."""

from __future__ import annotations

import gc
import itertools
import os
import posixpath
import secrets
import signal
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.device import RpcAddress
from tunefleet.devices._base import Transfers
from tunefleet.devices.probing import machine_of, probe_library
from tunefleet.devices.rpc_line import NoAnswerError, RpcLine, connected
from tunefleet.devices.runners import RANDOM_BYTES, random_array
from tunefleet.errors import DeviceError, InternalError, raise_mistake

tvm = load_tvm()

T = TypeVar("T")

#: Seconds of silence after which a session ends by itself, so that a cut cable frees the board.
IDLE_S = 600.0
#: What a server may take to answer anything short, and for each byte that goes there.
_ANSWER_S, _SLOWEST_BYTES_PER_S = 20.0, 100e3
#: How long after the end of its time a program that hangs must have been ended.
_GRACE_S = 10.0
_FILE_BYTES = 1 << 18
#: Repeats that there is memory for from the beginning.
_SECONDS = 64
#: Any Linux has it: its header tells the machine where its server has no compiler to ask.
_PROGRAM = "/proc/self/exe"


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
        self._line = RpcLine()
        wanted = after.server if after else None
        self._session, self.server = connected(address, patience_s, away_s, self._line, wanted)
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
