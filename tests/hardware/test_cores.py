"""Processors whose cores are not all alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tunefleet.hardware import processor
from tunefleet.hardware.cores import slower_cores
from tunefleet.hardware.processor import CpuInfo, MachineFacts, device_identity, machine_layout


def _slower(cores: int, files: Mapping[str, str]) -> set[int]:
    known = {"/sys/devices/system/cpu/online": f"0-{cores - 1}\n", **files}
    return set(slower_cores(lambda path: known.get(path, "")))


def _of(name: str, values: list[int]) -> dict[str, str]:
    cpu = "/sys/devices/system/cpu/cpu"
    return {f"{cpu}{core}/{name}": f"{value}\n" for core, value in enumerate(values)}


def _capacities(*values: int) -> dict[str, str]:
    return _of("cpu_capacity", list(values))


def _frequencies(*values: int) -> dict[str, str]:
    return _of("cpufreq/cpuinfo_max_freq", list(values))


INTEL = {"/sys/devices/cpu_core/cpus": "0-15\n", "/sys/devices/cpu_atom/cpus": "16-23\n"}


@pytest.mark.parametrize(
    ("cores", "files", "slower"),
    [
        (4, {}, set()),
        (4, _capacities(1024, 1024, 1024, 1024), set()),
        # Twelfth generation of Intel's: 8 performance cores of two threads, 8 efficient ones.
        (24, INTEL, set(range(16, 24))),
        (24, INTEL | {"/sys/devices/cpu_lowpower/cpus": "14-15"}, set(range(14, 24))),
        # RK3588: the little ones come first.
        (8, _capacities(530, 530, 530, 530, 1024, 1024, 1024, 1024), {0, 1, 2, 3}),
        # One core of its own kind, three a little slower, four little ones.
        (8, _capacities(250, 250, 250, 250, 780, 780, 780, 1024), {0, 1, 2, 3}),
        # Two fast cores are less than six that are not much slower.
        (6, _frequencies(4900, 4900, 3500, 3500, 3500, 3500), set()),
        # The best two of eight like cores are allowed some more turbo.
        (8, _frequencies(5200, 5200, 5000, 5000, 5000, 5000, 5000, 5000), set()),
        (4, {**_capacities(400, 1024, 1024), **_frequencies(2, 2, 2, 2)}, set()),
    ],
)
def test_cores_that_are_left_to_others(
    cores: int, files: Mapping[str, str], slower: set[int]
) -> None:
    assert _slower(cores, files) == slower


def test_a_kernel_that_tells_nothing_has_no_slower_cores() -> None:
    assert slower_cores(lambda path: "") == frozenset()


@pytest.fixture
def hybrid(monkeypatch: pytest.MonkeyPatch) -> CpuInfo:
    """Two performance cores of two hyperthreads, two efficient cores."""
    facts = MachineFacts("Hybrid", frozenset({"avx2"}), 6, (), 8)
    siblings = ((0, 0), (1, 0), (2, 2), (3, 2), (4, 4), (5, 5))
    cpu = CpuInfo(facts, siblings, frozenset({4, 5}))
    monkeypatch.setattr(processor, "cpu_info", lambda: cpu)
    return cpu


def test_code_is_tuned_for_the_fast_cores_and_built_on_the_others(hybrid: CpuInfo) -> None:
    choice = machine_layout()
    assert hybrid.physical_cores == choice.threads == 2
    assert choice.layout.device_cores == (0, 1, 2, 3)
    assert choice.layout.host_cores == (4, 5)
    assert choice.reason.endswith("; slower than others: 4-5")
    assert machine_layout(1).layout.device_cores == (2, 3)
    assert machine_layout(3).layout.device_cores == (0, 1, 2, 3, 5)


def test_records_of_slower_cores_are_another_devices(hybrid: CpuInfo) -> None:
    fast, slow, both = (
        device_identity("", machine_layout(1, device_cores=cores).layout.device_cores)
        for cores in ((2, 3), (4, 5), (3, 4))
    )
    assert fast == device_identity()
    assert len({fast.exact, slow.exact, both.exact}) == 3
    assert (slow.name, both.name) == ("Hybrid (slower cores)", "Hybrid (cores of several kinds)")


def test_a_process_that_has_slower_cores_alone_uses_them(
    monkeypatch: pytest.MonkeyPatch, hybrid: CpuInfo
) -> None:
    pinned = replace(hybrid, siblings=((4, 4), (5, 5)))
    monkeypatch.setattr(processor, "cpu_info", lambda: pinned)
    choice = machine_layout()
    assert pinned.physical_cores == choice.threads == 2
    assert choice.layout.device_cores == (4, 5)
    assert device_identity("", choice.layout.device_cores).name == "Hybrid (slower cores)"


def test_a_quota_is_spent_on_fast_cores(hybrid: CpuInfo) -> None:
    assert replace(hybrid, quota=2.0).granted == (0, 2)
    assert replace(hybrid, quota=5.0).granted == (0, 1, 2, 3, 4)
