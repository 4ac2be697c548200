from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.core.budget import Budget
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.ids import canonical_json, digest, seed_of
from tunefleet.core.settings import MeasureSettings, SearchSettings, TuneSettings
from tunefleet.core.statistics import interval
from tunefleet.core.target import CpuTarget, CudaTarget, Target

DEVICE = DeviceIdentity(
    kind="cpu", name="EPYC", isa=("avx2", "fma"), cores=2, caches=(("L1", 32768),), memory_gib=24
)
TOOLCHAIN = ToolchainIdentity(tunefleet="1", tvm="0.27.0.post1", llvm="22", measure_version=1)


def test_device_survives_json() -> None:
    assert DeviceIdentity.from_json(DEVICE.to_json()) == DEVICE


def test_the_users_key_separates_devices_exactly_and_not_compatibly() -> None:
    other = replace(DEVICE, key="rack-7")
    assert (DEVICE.exact != other.exact, DEVICE.compatible == other.compatible) == (True, True)


def test_another_instruction_set_is_not_compatible() -> None:
    assert replace(DEVICE, isa=("avx2",)).compatible != DEVICE.compatible


def test_order_of_features_does_not_matter() -> None:
    assert replace(DEVICE, isa=("fma", "avx2")).exact == DEVICE.exact


def test_a_toolchain_for_gpus_is_another_and_one_without_is_as_ever() -> None:
    assert TOOLCHAIN.exact == digest(["0.27.0.post1", "22", 1])
    assert "cuda" not in TOOLCHAIN.to_json()
    assert ToolchainIdentity.from_json(TOOLCHAIN.to_json()) == TOOLCHAIN
    gpu = replace(TOOLCHAIN, cuda="13.0.88", driver="13.0")
    assert ToolchainIdentity.from_json(gpu.to_json()) == gpu
    others = (TOOLCHAIN, replace(gpu, cuda="12.9.1"), replace(gpu, driver="12.9"))
    assert gpu.exact not in {other.exact for other in others}


def test_tunefleets_version_does_not_invalidate_records() -> None:
    assert replace(TOOLCHAIN, tunefleet="2").exact == TOOLCHAIN.exact


@pytest.mark.parametrize("change", [{"llvm": "23"}, {"measure_version": 2}])
def test_toolchain_changes_leave_the_exact_tier(change: dict[str, Any]) -> None:
    assert replace(TOOLCHAIN, **change).exact != TOOLCHAIN.exact


def test_settings_survive_json() -> None:
    settings = TuneSettings(
        SearchSettings(batch=7), measure=MeasureSettings(repeats=3), transfer=False
    )
    assert TuneSettings.from_json(settings.to_json()) == settings


ZEN = CpuTarget("znver4", 2, mattr=("-gfni", "-avx512f"))
BOARD = CpuTarget("cortex-a72", 4, ("+neon", "+dotprod"), "aarch64-linux-gnu")
GPU = CudaTarget("sm_80", ZEN)


@pytest.mark.parametrize(
    "target", [ZEN, BOARD, GPU, CudaTarget("sm_90a", BOARD, threads_per_block=512)]
)
def test_target_survives_json(target: Target) -> None:
    assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target
    assert Target.from_json(target.to_json()) == target


def test_targets_of_cpus_are_written_as_they_always_were() -> None:
    """Stored jobs, fingerprints and artifacts hold these."""
    assert str(ZEN) == "llvm -mcpu=znver4 -mattr=-avx512f,-gfni -num-cores=2"
    assert (
        canonical_json(ZEN.to_json())
        == '{"kind":"llvm","mattr":["-avx512f","-gfni"],"mcpu":"znver4","threads":2}'
    )
    assert list(ZEN.to_json()) == ["mcpu", "threads", "mattr", "kind"]


def test_targets_of_other_kinds_have_a_text_each() -> None:
    assert str(BOARD) == (
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+dotprod,+neon -num-cores=4"
    )
    assert str(CudaTarget("sm_80", CpuTarget("znver4", 1))) == "cuda -arch=sm_80 -host-mcpu=znver4"
    smaller = replace(GPU, shared_memory_bytes=32768)
    assert "-max_shared_memory_per_block=32768 " in str(smaller)
    assert str(smaller) != str(GPU)


def test_a_gpus_target_knows_its_host_and_its_capability() -> None:
    assert (GPU.cpu, GPU.threads) == (ZEN, 2)
    assert CudaTarget("sm_120a", ZEN).capability == (12, 0)


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "opencl"},
        {"kind": "cuda", "arch": "80", "host": ZEN.to_json()},
        {"kind": "cuda", "arch": "sm_80", "host": ZEN.to_json(), "threads_per_block": 0},
        {"kind": "cuda", "arch": "sm_80", "host": ZEN.to_json(), "warp_size": "x"},
    ],
)
def test_what_is_no_target_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"kind|sm_80|positive"):
        Target.from_json(value)


def test_threads_are_part_of_a_target() -> None:
    assert str(CpuTarget("znver4", 1)) != str(CpuTarget("znver4", 2))


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(trials=10), {"trials": 9, "seconds": 1e9}, ""),
        (Budget(trials=10), {"trials": 10, "seconds": 0}, "all 10 trials"),
        (Budget(seconds=60), {"trials": 0, "seconds": 60}, "1 minutes"),
        (
            Budget(device_seconds=90),
            {"trials": 9, "seconds": 200, "device_s": 90.0},
            "the 1.5 minutes of its device are over",
        ),
        (
            Budget(device_seconds=90),
            {"trials": 9, "seconds": 200, "device_s": 89.0},
            "",
        ),
    ],
)
def test_budget_ends_with_the_first_limit(
    budget: Budget, spent: dict[str, Any], reason: str
) -> None:
    assert reason in budget.spent(**spent)
    assert bool(reason) == bool(budget.spent(**spent))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"target_latency_s": 1e-3},
        {"trials": 0},
        {"trials_per_task": 0},
        {"seconds": -1.0},
        {"device_seconds": 0.0},
    ],
)
def test_budget_needs_a_positive_limit(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"budget|positive"):
        Budget(**values)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60))
def test_interval_holds_its_median(values: list[float]) -> None:
    found = interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_interval_narrows_with_more_values() -> None:
    values = [float(i) for i in range(100)]
    found = interval(values)
    assert 35 < found.low < found.high < 65


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_digest_depends_on_content_only(value: dict[str, Any]) -> None:
    assert digest(value) == digest(dict(reversed(value.items())))


def test_not_a_number_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match=r"[Oo]ut of range"):
        canonical_json(float("nan"))


def test_seed_depends_on_every_part() -> None:
    assert len({seed_of(a, b) for a in range(5) for b in range(5)}) == 25
