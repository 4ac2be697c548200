from __future__ import annotations

import pytest

from tunefleet.core.roofline import (
    Bandwidth,
    bandwidth_for,
    least_seconds,
    levels_to_read,
    without_dips,
)

MIB = 2**20
LEVELS = (Bandwidth("L2", 4 * MIB, 100.0), Bandwidth("memory", 0, 10.0))


def test_caches_of_cores_count_for_each_thread_and_shared_ones_once() -> None:
    caches = (("L3", 16 * MIB), ("L1", 32 * 1024), ("L2", MIB))
    expected = (
        ("L1", 128 * 1024, 64 * 1024),
        ("L2", 4 * MIB, 2 * MIB),
        ("L3", 16 * MIB, 8 * MIB),
        ("memory", 0, 64 * MIB),
    )
    assert expected == levels_to_read(caches, threads=4)


def test_beyond_a_huge_cache_nothing_is_read() -> None:
    assert levels_to_read((("L3", 300 * MIB),), 2) == (("L3", 300 * MIB, 16 * MIB),)


def test_a_level_that_was_measured_slower_than_a_larger_one_was_disturbed() -> None:
    levels = [Bandwidth("L1", 1, 184.0), Bandwidth("L2", 2, 230.0), Bandwidth("L3", 3, 47.0)]
    assert [each.gb_s for each in without_dips(levels)] == [230.0, 230.0, 47.0]


def test_data_come_from_the_smallest_level_that_holds_them() -> None:
    sizes = (1, 4 * MIB, 4 * MIB + 1)
    names = [level.level for size in sizes if (level := bandwidth_for(size, LEVELS))]
    assert names == ["L2", "L2", "memory"]
    assert bandwidth_for(5 * MIB, LEVELS[:1]) is None


@pytest.mark.parametrize(
    ("flops", "size", "expected"),
    [(2e9, 10**6, 0.02), (2e9, 10**9, 0.1), (0.0, 2 * 10**6, 2e-5)],
    ids=["bound by computing", "bound by the memory", "copies only"],
)
def test_a_task_takes_what_its_computing_or_its_data_take(flops, size, expected) -> None:
    assert least_seconds(flops, size, 100.0, LEVELS) == pytest.approx(expected)


def test_without_a_peak_or_a_bandwidth_there_is_no_limit() -> None:
    assert least_seconds(1e9, 10**6, None, LEVELS) is None
    assert least_seconds(1e9, 10**6, 100.0, ()) is None


def test_no_data_flow_is_no_bandwidth() -> None:
    with pytest.raises(ValueError, match="no bandwidth"):
        Bandwidth("L1", 1, 0.0)
