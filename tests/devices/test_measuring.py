"""Measuring, on a device that is none: how often programs are run, and what is made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tunefleet.core.settings import MeasureSettings
from tunefleet.core.trial import Built, Failure, Measurement
from tunefleet.errors import DeviceError

pytestmark = pytest.mark.tvm

#: What a program takes, and what the device's clock counts in, in seconds.
RUN_S, TICK_S = 0.3e-6, 1e-6
BUILT = Built("a", "a.so", (), 0.0)


def runs(*, number: int, repeat: int, preprocess: str) -> list[float]:
    return [int(number * RUN_S / TICK_S) * TICK_S / number] * repeat


@pytest.fixture
def device() -> Any:
    from tunefleet.devices.measuring import MeasuringDevice

    class CoarseClock(MeasuringDevice):
        def describe(self) -> Any: ...

        def load(self, built: Built, limit_s: float) -> Any: ...

        def _runs(self, *_: Any) -> Any:
            return runs

        def _in_turn(self, candidates: Sequence[Built]) -> list[Any]:
            return [() for _ in candidates]

        def _blame(self, error: Exception) -> Failure | None: ...

    return CoarseClock()


def test_programs_that_are_shorter_than_a_tick_of_the_clock_are_measured(device: Any) -> None:
    settings = MeasureSettings()
    measured = [device.measure(BUILT, settings, None)]
    measured += device.measure_interleaved([BUILT, BUILT], settings)
    for each in measured:
        assert isinstance(each, Measurement)
        assert each.latency_s == pytest.approx(RUN_S, rel=0.01)


@pytest.mark.parametrize("seconds", [[-1e-3] * 3, [1e-3, -1e-3], [math.nan], [math.inf], [0.0] * 9])
@pytest.mark.parametrize("what", ["measure", "measure_interleaved", "reference", "peak"])
def test_a_clock_that_gives_no_time_is_the_devices_fault(
    device: Any, what: str, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.devices import reference

    monkeypatch.setattr(reference, "reference_kernel", lambda *_: BUILT)
    monkeypatch.setattr(reference, "peak_kernels", lambda *_: [(1e9, BUILT)])
    device._runs = lambda *_: lambda **_: seconds
    arguments = {
        "measure": (BUILT, MeasureSettings(), None),
        "measure_interleaved": ([BUILT], MeasureSettings()),
    }
    with pytest.raises(DeviceError, match="clock"):
        getattr(device, what)(*arguments.get(what, (None, "")))


def test_a_clock_that_was_set_once_costs_no_trial(device: Any) -> None:
    readings = iter([[-5.0], [-5.0]])
    device._runs = lambda *_: lambda **asked: next(readings, None) or runs(**asked)
    assert isinstance(device.measure(BUILT, MeasureSettings(), None), Measurement)
