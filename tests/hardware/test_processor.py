import os
from collections.abc import Iterator

import pytest

from tunefleet.hardware import processor
from tunefleet.hardware.processor import (
    CpuInfo,
    MachineFacts,
    cpu_info,
    device_identity,
    identity_of,
    machine_facts,
    machine_layout,
    usable_cores,
)

PI = """processor\t: 0
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
"""
FILES = {
    "/proc/cpuinfo": PI,
    "/proc/meminfo": "MemTotal:        8000000 kB\n",
    "/sys/devices/system/cpu/online": "0-3\n",
    "/proc/self/status": "Name:\tx\nCpus_allowed_list:\t1-2\n",
}


def read(path: str) -> str:
    return FILES.get(path, "")


def test_a_board_is_known_by_its_part() -> None:
    identity = identity_of(machine_facts(read, "aarch64"), "aarch64")
    assert identity.name == "Cortex-A72"
    assert identity.isa == ("asimd",)
    assert identity.cores == 4
    assert identity.memory_gib == 8


def test_the_kernels_words_tell_features_where_the_file_is_anothers() -> None:
    facts = machine_facts(lambda path: "model name : Xeon\n", "aarch64", (1 << 1 | 1 << 20, 0))
    assert facts.flags == {"asimd", "asimddp"}
    with pytest.raises(ValueError, match="neither a processor name"):
        identity_of(facts, "aarch64")


def test_the_cores_that_may_be_used_are_read() -> None:
    assert usable_cores(read) == (1, 2)
    assert usable_cores(lambda path: "") == ()


@pytest.fixture
def _pinned() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    cpu_info.cache_clear()
    yield
    os.sched_setaffinity(0, before)
    cpu_info.cache_clear()


def test_a_pinned_process_runs_on_the_same_device(request: pytest.FixtureRequest) -> None:
    whole = device_identity()
    request.getfixturevalue("_pinned")
    assert len(cpu_info().cores) == 1
    assert device_identity() == whole


@pytest.mark.parametrize("gives", [True, False])
def test_tiles_are_there_where_the_kernel_gives_them(
    monkeypatch: pytest.MonkeyPatch, gives: bool
) -> None:
    flags = frozenset({"avx2", "amx_tile", "amx_int8", "amx_bf16"})
    facts = processor.MachineFacts("Some Xeon", flags, 1, (), 1)
    monkeypatch.setattr(processor, "machine_facts", lambda read, machine: facts)
    monkeypatch.setattr(processor, "_gives_tiles", lambda: gives)
    processor.cpu_info.cache_clear()
    try:
        assert processor.cpu_info().facts.flags == (flags if gives else {"avx2"})
    finally:
        processor.cpu_info.cache_clear()


@pytest.mark.parametrize(
    ("quota", "granted", "physical"),
    [
        (None, (0, 1, 2, 3), 2),
        (4.0, (0, 1, 2, 3), 2),
        (3.9, (0, 1, 2), 2),
        (2.5, (0, 1), 2),
        (1.0, (0,), 1),
        (0.5, (0,), 1),
    ],
)
def test_as_many_cores_are_granted_as_a_quota_is_enough_for(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, granted: tuple[int, ...], physical: int
) -> None:
    hyperthreads = ((0, 0), (1, 1), (2, 0), (3, 1))
    cpu = CpuInfo(MachineFacts("x", frozenset(), 4, (), 8), hyperthreads, quota=quota)
    assert (cpu.granted, cpu.physical_cores) == (granted, physical)
    monkeypatch.setattr(processor, "cpu_info", lambda: cpu)
    choice = machine_layout()
    assert choice.layout.device_cores == granted
    assert ("a container limits" in choice.reason) == (len(granted) < 4)
    assert machine_layout(1, host_cores=(2,), device_cores=(3,)).layout.device_cores == (3,)
