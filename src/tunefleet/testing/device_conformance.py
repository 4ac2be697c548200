"""What every kind of device does, whatever it is and wherever it stands."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.core.device import DeviceSpec
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.step import Rounds
from tunefleet.core.target import Target
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement
from tunefleet.stages import work
from tunefleet.testing import programs
from tunefleet.workers.pool import CallEnd, CallFailure, WorkerConfig, WorkerPool

SETTINGS = MeasureSettings(timeout_s=2.0, final_repeats=10)
#: Of one and the same machine, busy with other work meanwhile.
NOISE = 1.35
_IN_A_ROW = 3
_ROUNDS = 30


def _agree(ratio: Callable[[], float]) -> bool:
    """Whether the latencies of a ratio are the same but for noise: other work comes and goes, and
    stays for longer than one round takes."""
    ratios: list[float] = []
    for _ in range(_ROUNDS):
        ratios.append(ratio())
        if len(ratios) >= _IN_A_ROW and 1 / NOISE < np.median(ratios[-_IN_A_ROW:]) < NOISE:
            return True
    return False


class DeviceConformance:
    """Subclasses give a fixture `spec`, a DeviceSpec of a device that is this machine.

    Devices are opened and used as the stages do it: in a worker, which a bad program may end.
    """

    @staticmethod
    def target() -> Target | None:
        """What programs are compiled for; None for this machine's processor."""
        return None

    def product(self, folder: Path, factor: float = 1.0) -> Built:
        return programs.matmul(folder, factor, self.target())

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("programs")

    @pytest.fixture(scope="class")
    @classmethod
    def pool(cls, folder: Path) -> Any:
        with WorkerPool(1, WorkerConfig(1, 8.0, str(folder / "log"))) as made:
            yield made

    @pytest.fixture
    def call(self, spec: DeviceSpec, pool: WorkerPool) -> Callable[..., Any]:
        def call(function: Callable[..., Any], *args: Any, timeout_s: float = 60.0) -> Any:
            place = (spec, 1, None, function, args)
            return pool.call(work.on_device, *place, timeout_s=timeout_s, lives=1)

        return call

    def test_it_describes_this_machine(self, call: Callable[..., Any]) -> None:
        from tunefleet.hardware.processor import device_identity

        description = call(work.describe_device)
        assert device_identity() == description.identity
        # Those that its process may use, which need not be those of this one.
        assert set(description.cores) <= set(range(os.cpu_count() or 0))

    def test_latencies_are_those_of_this_machine(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        from tunefleet.devices.cpu import LocalCpu

        built, here = self.product(folder), LocalCpu(1)

        def ratio() -> float:
            expected = here.measure(built, SETTINGS, None)
            measured = call(work.profile_candidate, built, SETTINGS, None)
            assert isinstance(measured, Measurement)
            assert isinstance(expected, Measurement)
            return measured.latency_s / expected.latency_s

        assert _agree(ratio)

    def test_cold_weights_are_measured(self, call: Callable[..., Any], folder: Path) -> None:
        built = self.product(folder)
        measured = call(work.profile_candidate, built, SETTINGS, None, TaskWeights((1,), 8 * 2**20))
        assert isinstance(measured, Measurement)

    def test_a_network_gives_what_it_gives_here(
        self, call: Callable[..., Any], folder: Path
    ) -> None:
        from tunefleet.artifacts.network import LoadedNetwork

        path, inputs = programs.network(folder, self.target())
        expected = LoadedNetwork(path).run(inputs)
        given = call(work.run_network, path, "main", inputs)
        assert len(given) == len(expected) == 2
        for ours, theirs in zip(expected, given, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)

    def test_networks_are_timed_in_turn(self, call: Callable[..., Any], folder: Path) -> None:
        path, inputs = programs.network(folder, self.target())
        rounds, share = call(
            work.time_networks, [path, path], "main", inputs, 1, Rounds(3, turn_s=0.01)
        )
        assert [len(of) for of in rounds] == [3, 3]
        assert all(0 < second < 1 for of in rounds for second in of)
        assert 0 <= share <= 1

    def test_the_hopeless_is_cut_short(self, call: Callable[..., Any], folder: Path) -> None:
        measured = call(work.profile_candidate, self.product(folder), SETTINGS, 1e-6)
        assert len(measured.latencies_s) == SETTINGS.slow_repeats

    def test_caches_are_flushed_where_asked(self, call: Callable[..., Any], folder: Path) -> None:
        flushing = replace(SETTINGS, flush_cache=True)
        measured = call(work.profile_candidate, self.product(folder), flushing, None)
        assert isinstance(measured, Measurement)

    def test_finalists_take_turns(self, call: Callable[..., Any], folder: Path) -> None:
        built = [self.product(folder), programs.no_library(folder), self.product(folder)]

        def ratio() -> float:
            first, bad, second = call(work.profile_interleaved, built, SETTINGS)
            assert bad.kind == FailureKind.RUN_ERROR
            return float(first.latency_s / second.latency_s)

        assert _agree(ratio)

    def test_what_is_no_library_fails_alone(self, call: Callable[..., Any], folder: Path) -> None:
        failed = call(work.profile_candidate, programs.no_library(folder), SETTINGS, None)
        assert failed.kind == FailureKind.RUN_ERROR
        self._still_works(call, folder)

    def test_a_crash_costs_the_program_alone(self, call: Callable[..., Any], folder: Path) -> None:
        failed = call(work.profile_candidate, programs.crashing(folder), SETTINGS, None)
        assert ended(failed, CallEnd.CRASH, FailureKind.RUN_CRASH)
        assert "SIGSEGV" in failed.text
        self._still_works(call, folder)

    def test_a_hang_costs_the_program_alone(self, call: Callable[..., Any], folder: Path) -> None:
        built = programs.hanging(folder)
        failed = call(
            work.profile_candidate, built, SETTINGS, None, timeout_s=self.limit_s(SETTINGS)
        )
        assert ended(failed, CallEnd.TIMEOUT, FailureKind.RUN_TIMEOUT)
        self._still_works(call, folder)

    def test_equal_programs_agree(self, call: Callable[..., Any], folder: Path) -> None:
        check = call(work.check_output, self.product(folder), self.product(folder), 1)
        assert check.difference == ""
        assert 0 < check.default_s < 1

    def test_a_wrong_program_differs(self, call: Callable[..., Any], folder: Path) -> None:
        check = call(work.check_output, self.product(folder), self.product(folder, 1.5), 1)
        assert "differ by" in check.difference

    def test_the_reference_kernel_is_steady(self, call: Callable[..., Any], folder: Path) -> None:
        from tunefleet.compiler.toolchain.host import native_target

        target = self.target() or native_target(1)

        def ratio() -> float:
            first, second = (call(work.measure_reference, target, str(folder)) for _ in range(2))
            return float(first / second)

        assert _agree(ratio)

    def test_a_reset_device_goes_on(self, call: Callable[..., Any], folder: Path) -> None:
        for _ in range(2):
            call(work.reset_device)
        self._still_works(call, folder)

    @staticmethod
    def limit_s(settings: MeasureSettings) -> float:
        """What the pool gives one measurement."""
        return settings.timeout_s

    def _still_works(self, call: Callable[..., Any], folder: Path) -> None:
        measured = call(work.profile_candidate, self.product(folder), SETTINGS, None)
        assert isinstance(measured, Measurement)


def ended(outcome: object, end: CallEnd, kind: FailureKind) -> bool:
    """By the worker's end or by what the device told."""
    if isinstance(outcome, CallFailure):
        return outcome.end is end
    return isinstance(outcome, Failure) and outcome.kind is kind
