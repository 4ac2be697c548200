"""The GPU of a server of TVM's RPC: what it is, and how programs are run on it. Nothing of this
package need be there, so the server's runtime times them by events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunefleet.compiler.code.packing import arguments_of
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.device import DeviceDescription, gpu_of_this_machine
from tunefleet.core.gpu import CUDA, Gpu
from tunefleet.core.printing import printable
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built
from tunefleet.devices._base import Array
from tunefleet.devices.local import CHECK_RUNS, LONG_RUN_S
from tunefleet.devices.rpc_session import RpcSession
from tunefleet.errors import DeviceError

#: What every NVIDIA GPU since Volta has, which TVM's runtime does not tell.
_REGISTERS_PER_BLOCK = 65536


def remote_gpu(session: RpcSession, number: int, host: DeviceDescription) -> DeviceDescription:
    """A GPU of a server, as TVM's runtime there describes it. Raises DeviceError where it has
    none."""
    device = session.device
    if not session.call(lambda: device.exist):
        raise DeviceError(
            f"{session.server.url} has no GPU {CUDA}:{number}, or TVM's CUDA runtime is not there",
            cure="start the server with a driver, CUDA's runtime and TVM",
        )
    try:
        major, minor = map(int, str(session.call(lambda: device.compute_version)).split("."))
        gpu = Gpu(
            number=number,
            uuid="",
            name=printable(str(session.call(lambda: device.device_name))),
            capability=(major, minor),
            memory_bytes=int(session.call(lambda: device.total_global_memory)),
            multiprocessors=int(session.call(lambda: device.multi_processor_count)),
            clock_khz=int(session.call(lambda: device.max_clock_rate)),
            memory_clock_khz=0,
            l2_bytes=int(session.call(lambda: device.l2_cache_size_bytes)),
            shared_memory_bytes=int(session.call(lambda: device.max_shared_memory_per_block)),
            threads_per_block=int(session.call(lambda: device.max_threads_per_block)),
            registers_per_block=_REGISTERS_PER_BLOCK,
            warp_size=int(session.call(lambda: device.warp_size)),
            driver="",
        )
        return gpu_of_this_machine(gpu, host).description
    except (TypeError, ValueError) as error:
        raise DeviceError(
            f"{session.server.url} does not say what its GPU is: {error}",
            cure="update TVM there",
        ) from error


class RemoteGpuRuns:
    """Runs a program on a server's GPU; where the network's weights are more than its L2 cache
    holds, or flushing is asked for, the cache is emptied before each run."""

    def __init__(
        self,
        session: RpcSession,
        built: Built,
        weights: TaskWeights,
        limit_s: float,
        arguments: Sequence[Any],
        gpu: Gpu,
    ) -> None:
        self._session = session
        self._limit_s = limit_s
        self._flush_bytes = gpu.flush_bytes
        self._module, _ = session.load(built.path, entry=False)
        self._is_cold = bool(weights.arguments) and weights.between > gpu.l2_bytes
        self._arguments = list(arguments) or session.kept(
            tuple(built.args), lambda: [session.random(*types) for types in built.args]
        )

    def __call__(self, *, number: int, repeat: int, preprocess: str) -> list[float]:
        if not (self._is_cold or preprocess):
            return self._timed(number, repeat)
        full, other = (self._session.empty((self._flush_bytes,), "uint8") for _ in range(2))
        seconds = []
        for _ in range(repeat):
            self._session.call(full.copyto, other)
            seconds += self._timed(1, 1)
        return seconds

    def _timed(self, number: int, repeat: int) -> list[float]:
        evaluator = self._module.time_evaluator("main", self._session.device, number, repeat)
        results = self._session.watched(lambda: evaluator(*self._arguments), self._limit_s)
        return [float(s) for s in results.results]


class RemoteGpuProgram:
    """A program on a server's GPU, to be compared with another."""

    def __init__(self, session: RpcSession, built: Built, limit_s: float) -> None:
        self._session = session
        self._limit_s = limit_s
        self._built = built
        self._module, _ = session.load(built.path, entry=False)

    def run(self, arrays: Sequence[Array]) -> tuple[Array, float]:
        session = self._session
        arguments = list(map(session.send, arguments_of(self._built, arrays)))
        evaluator = self._module.time_evaluator("main", session.device, 1, 1)

        def timed() -> float:
            results = session.watched(lambda: evaluator(*arguments), self._limit_s)
            return float(results.results[0])

        fastest = timed()
        if fastest <= LONG_RUN_S:
            fastest = min([fastest, *(timed() for _ in range(CHECK_RUNS - 1))])
        shape, dtype = self._built.args[-1]
        output: Array = session.fetch(arguments[-1], nbytes(shape, dtype))
        return output, fastest
