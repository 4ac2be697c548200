"""Where stages work: one machine for jobs of every target."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fleet.jobs import home_of
from tunefleet.artifacts.runtime import threads_here
from tunefleet.core.settings import BuildSettings, MeasureSettings
from tunefleet.core.target import CpuTarget
from tunefleet.stages.place import DeviceWorker, StageContext, Workplace

pytestmark = pytest.mark.tvm

GIB = 2**30


def context(machine: Any, threads: int, remote: DeviceWorker | None = None) -> StageContext:
    store: Any = None
    target = CpuTarget("generic", threads)
    return Workplace(store, machine, home_of(machine), remote=remote).for_target(target)


def called(device: DeviceWorker, function: Any, *args: Any) -> Any:
    return device.call(function, *args, timeout_s=30)


@pytest.fixture
def shared(machine: Any) -> Iterator[Any]:
    """The machine of all tests, whose workers are as they were afterwards."""
    before = machine.device.config, machine.host.config
    yield machine
    machine.device.config, machine.host.config = before
    machine.device.restart()
    machine.host.restart()


def test_the_devices_worker_has_as_many_threads_as_the_target_of_the_job(shared: Any) -> None:
    assert called(context(shared, 2).device, threads_here) == 2
    assert called(context(shared, 1).device, threads_here) == 1
    assert context(shared, 64).device.threads == 2  # no more than the device has cores


def test_a_device_elsewhere_has_the_threads_of_the_target(machine: Any) -> None:
    remote = DeviceWorker(machine.device, 1)
    assert context(machine, 16, remote).device == replace(remote, threads=16)


def test_each_job_says_what_its_programs_may_take(shared: Any) -> None:
    place = context(shared, 1)

    def limit(device: DeviceWorker) -> float:
        return float(called(device, resource.getrlimit, resource.RLIMIT_AS)[0] / GIB)

    less, more = (place.measuring(MeasureSettings(memory_gib=gib)) for gib in (1.0, 2.0))
    assert limit(more) - limit(less) == pytest.approx(1.0, abs=0.1)
    assert limit(place.device) == limit(less)


def test_each_job_says_what_its_builds_may_take(shared: Any) -> None:
    one, much = BuildSettings(memory_gib=1.0), BuildSettings(memory_gib=1e6)
    workers = shared.builders(one)
    assert workers is shared.builders(one)
    assert shared.builders(much).config.memory_gib == shared.at_most(1e6) < 1e6
