"""What every device does, of a GPU: `test_cuda.py` runs this file on an emulated driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import servers
from tunefleet.core.device import DeviceKind, DeviceSpec, RpcAddress
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.target import Target
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement
from tunefleet.devices import call_limit_s, open_device
from tunefleet.hardware.gpu import gpus
from tunefleet.stages import work
from tunefleet.testing import programs
from tunefleet.testing.device_conformance import SETTINGS, DeviceConformance, ended
from tunefleet.workers.pool import CallEnd

#: Threads write far behind the memory of the result, as no schedule does.
_BEYOND = """
@T.prim_func(s_tir=True)
def main(out: T.Buffer((32,), "float32")):
    for thread in T.thread_binding(32, thread="threadIdx.x"):
        with T.sblock("write"):
            i = T.axis.spatial(32, thread)
            T.writes(out[0:32])
            out[i + {far}] = T.float32(1)
"""
_ENDLESS = """
@T.prim_func(s_tir=True)
def main(out: T.Buffer((32,), "float32")):
    for thread in T.thread_binding(32, thread="threadIdx.x"):
        with T.sblock("write"):
            i = T.axis.spatial(32, thread)
            T.reads(out[0:32])
            T.writes(out[0:32])
            while out[i] > T.float32(-1):
                out[i] = out[i] * T.float32(0.5) + T.float32(1)
"""


def target() -> Target:
    from tunefleet.compiler.toolchain.host import parse_target

    return parse_target(f"cuda/{gpus()[0].arch}")


class TestLocalCuda(DeviceConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls) -> DeviceSpec:
        return DeviceSpec(DeviceKind.CUDA)

    @staticmethod
    def target() -> Target | None:
        return target()

    def test_it_describes_this_machine(self, call: Callable[..., Any]) -> None:
        (gpu, *_) = gpus()
        description = call(work.describe_device)
        assert description.gpu == gpu
        assert description.identity == gpu.identity
        assert description.identity.isa == (gpu.arch,)

    def test_latencies_are_those_of_this_machine(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        """By events: those of two thousand times the work are longer."""
        small, large = (
            call(work.profile_candidate, self.of_steps(folder, steps), SETTINGS, None)
            for steps in (1, 2000)
        )
        assert 1e-9 < small.latency_s < large.latency_s < 1

    def of_steps(self, folder: Path, steps: int) -> Built:
        text = _ENDLESS.replace("while out[i] > T.float32(-1)", f"for _ in range({steps})")
        return programs.of_script(folder, f"steps{steps}", text, target())

    def test_a_network_gives_what_it_gives_here(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        from tunefleet.artifacts.tensors import array_of
        from tunefleet.artifacts.weights import read_weights, weights_path

        path, inputs = programs.network(folder, target())
        (weight,) = (array_of(w) for w in read_weights(weights_path(path), "main"))
        product, largest = call(work.run_network, path, "main", inputs)
        np.testing.assert_allclose(product, inputs[0] @ weight, rtol=1e-5)
        np.testing.assert_array_equal(largest, (inputs[0] @ weight).argmax(1))

    def test_an_illegal_address_costs_the_program_alone(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        built = programs.of_script(folder, "beyond", _BEYOND.format(far=1 << 28), target())
        failed = call(work.profile_candidate, built, SETTINGS, None)
        assert ended(failed, CallEnd.CRASH, FailureKind.RUN_CRASH)
        self._still_works(call, folder)

    def test_a_kernel_that_hangs_costs_the_program_alone(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        built = programs.of_script(folder, "endless", _ENDLESS, target())
        limit_s = self.limit_s(SETTINGS)
        failed = call(work.profile_candidate, built, SETTINGS, None, timeout_s=limit_s)
        assert ended(failed, CallEnd.TIMEOUT, FailureKind.RUN_TIMEOUT)
        self._still_works(call, folder)

    def test_what_does_not_fit_into_its_memory_is_told_as_that(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        built = self.product(folder)
        most = gpus()[0].memory_bytes
        large = replace(built, args=((((1 << 12) + most // 4,), "float32"), *built.args[1:]))
        failed = call(work.profile_candidate, large, SETTINGS, None)
        assert isinstance(failed, Failure)
        assert failed.kind is FailureKind.RUN_MEMORY
        self._still_works(call, folder)

    def test_a_number_that_no_gpu_has_is_told(
        self, call: Callable[..., Any], spec: DeviceSpec
    ) -> None:
        from tunefleet.errors import DeviceError

        call(work.reset_device)  # a server has one session at a time
        with pytest.raises(DeviceError, match="has no GPU cuda:99"):
            open_device(replace(spec, number=99), 1).describe()

    def test_weights_that_the_cache_does_not_hold_are_read_cold(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        from tunefleet.core.task import TaskWeights

        cold = TaskWeights((1,), 2 * gpus()[0].l2_bytes)
        measured = call(work.profile_candidate, self.product(folder), SETTINGS, None, cold)
        assert isinstance(measured, Measurement)


class TestRpcCuda(TestLocalCuda):
    """The same GPU behind TVM's own server."""

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls) -> Iterator[DeviceSpec]:
        with servers.served() as server:
            yield DeviceSpec(DeviceKind.CUDA, RpcAddress("127.0.0.1", server.port))

    @staticmethod
    def limit_s(settings: MeasureSettings) -> float:
        return call_limit_s(DeviceSpec(rpc=RpcAddress("there", 1)), settings.timeout_s)

    def test_it_describes_this_machine(self, call: Callable[..., Any]) -> None:
        (gpu, *_) = gpus()
        description = call(work.describe_device)
        assert description.identity == gpu.identity
        assert replace(description.gpu, uuid=gpu.uuid, driver=gpu.driver, memory_clock_khz=0) == (
            replace(gpu, memory_clock_khz=0)
        )
