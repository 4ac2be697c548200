from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.core.budget import Budget
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.ids import canonical_json, digest, seed_of
from tunefleet.core.settings import MeasureSettings, SearchSettings, TuneSettings
from tunefleet.core.statistics import interval
from tunefleet.core.target import Target

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


def test_tunefleets_version_does_not_invalidate_records() -> None:
    assert replace(TOOLCHAIN, tunefleet="2").exact == TOOLCHAIN.exact


@pytest.mark.parametrize("change", [{"llvm": "23"}, {"measure_version": 2}])
def test_toolchain_changes_leave_the_exact_tier(change: dict[str, object]) -> None:
    assert replace(TOOLCHAIN, **change).exact != TOOLCHAIN.exact


def test_settings_survive_json() -> None:
    settings = TuneSettings(
        SearchSettings(batch=7), measure=MeasureSettings(repeats=3), transfer=False
    )
    assert TuneSettings.from_json(settings.to_json()) == settings


def test_target_survives_json() -> None:
    target = Target("znver4", 2, mattr=("-gfni", "-avx512f"))
    assert Target.from_json(target.to_json()) == target


def test_threads_are_part_of_a_target() -> None:
    assert str(Target("znver4", 1)) != str(Target("znver4", 2))


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(trials=10), {"trials": 9, "seconds": 1e9, "latency_s": None}, ""),
        (Budget(trials=10), {"trials": 10, "seconds": 0, "latency_s": None}, "all 10 trials"),
        (Budget(seconds=60), {"trials": 0, "seconds": 60, "latency_s": None}, "1 minutes"),
        (
            Budget(trials=10, target_latency_s=1e-3),
            {"trials": 1, "seconds": 1, "latency_s": 9e-4},
            "target latency",
        ),
    ],
)
def test_budget_ends_with_the_first_limit(budget: Budget, spent: dict, reason: str) -> None:
    assert reason in budget.spent(**spent)
    assert bool(reason) == bool(budget.spent(**spent))


@pytest.mark.parametrize("values", [{}, {"trials": 0}, {"seconds": -1.0}])
def test_budget_needs_a_positive_limit(values: dict) -> None:
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
def test_digest_depends_on_content_only(value: dict) -> None:
    assert digest(value) == digest(dict(reversed(value.items())))


def test_not_a_number_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match=r"[Oo]ut of range"):
        canonical_json(float("nan"))


def test_seed_depends_on_every_part() -> None:
    assert len({seed_of(a, b) for a in range(5) for b in range(5)}) == 25
