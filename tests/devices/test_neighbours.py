"""Cores that slow each other down, as measured by fakes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tunefleet.core.statistics import Interval
from tunefleet.devices import neighbours
from tunefleet.devices.neighbours import (
    JoinedCores,
    core_pairs,
    find_joined,
    joined_cores,
    save_joined,
    this_machine,
)
from tunefleet.errors import SetupError
from tunefleet.hardware.processor import cpu_info, device_identity, machine_layout
from tunefleet.runs.context import BenchmarkContext

HYPERTHREADS = JoinedCores((0, 1), Interval(1.6, 1.5, 1.7))


class FakeCores:
    """A pair's slowdowns, one after the other; others are not slowed."""

    def __init__(self, slowdowns: dict[tuple[int, int], list[float]]) -> None:
        self._slowdowns = slowdowns
        self.measured: list[tuple[int, int]] = []

    def measure(self, first: int, second: int) -> tuple[float, float]:
        pair = (first, second)
        slowdowns = self._slowdowns.get(pair, [1.0])
        slowdown = slowdowns[self.measured.count(pair) % len(slowdowns)]
        self.measured.append(pair)
        return 1e-3, slowdown * 1e-3


def test_few_cores_are_compared_in_all_pairs_but_known_hyperthreads() -> None:
    assert core_pairs({0: 0, 1: 0, 2: 2, 3: 3}) == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_many_cores_are_compared_with_likely_hyperthreads() -> None:
    pairs = core_pairs({core: core for core in range(64)})
    assert len(pairs) == 64
    assert {(0, 1), (0, 32), (62, 63), (31, 63)} <= set(pairs)
    assert (1, 2) not in pairs


def test_cores_that_always_slow_each_other_are_joined() -> None:
    cores = FakeCores({(0, 1): [1.6, 1.5, 1.7]})
    (joined,) = find_joined([(0, 1), (0, 2)], cores.measure)
    assert joined == JoinedCores((0, 1), Interval(1.6, 1.5, 1.7))


@pytest.mark.parametrize(
    "slowdowns",
    [[1.0, 1.0, 2.5], [1.2], [1.0, 1.05, 1.4, 1.6], [1.6, 1.0, 1.6, 1.6, 1.6, 1.0, 1.6]],
)
def test_noise_joins_nothing(slowdowns: list[float]) -> None:
    assert not find_joined([(0, 1)], FakeCores({(0, 1): slowdowns}).measure)


def test_independent_cores_take_few_repeats() -> None:
    cores = FakeCores({})
    find_joined([(0, 1)], cores.measure)
    assert len(cores.measured) == 3


def test_one_disturbed_repeat_hides_no_hyperthreads() -> None:
    cores = FakeCores({(0, 1): [1.0, 1.6, 1.6, 1.6, 1.6, 1.6, 1.6, 1.6, 1.6]})
    assert len(find_joined([(0, 1)], cores.measure)) == 1


def test_what_was_measured_is_found_in_its_home_only(tmp_path: Path) -> None:
    save_joined([HYPERTHREADS], tmp_path / "home")
    assert joined_cores(tmp_path / "home") == ((0, 1),)
    assert joined_cores(tmp_path / "other") == ()


def test_a_later_measurement_replaces_an_earlier_one(tmp_path: Path) -> None:
    save_joined([HYPERTHREADS], tmp_path)
    save_joined([], tmp_path)
    assert joined_cores(tmp_path) == ()


def test_a_measurement_of_another_processor_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_joined([HYPERTHREADS], tmp_path)
    other = replace(device_identity(), name="another processor")
    monkeypatch.setattr(neighbours, "device_identity", lambda: other)
    assert joined_cores(tmp_path) == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-9],
        lambda text: "[]",
        lambda text: text.replace("neighbours/1", "neighbours/9"),
        lambda text: json.dumps(json.loads(text) | {"joined": [{"cores": [0]}]}),
    ],
)
def test_a_file_that_cannot_be_read_is_ignored(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    save_joined([HYPERTHREADS], tmp_path)
    path = this_machine(tmp_path)
    path.write_text(damage(path.read_text()))
    assert joined_cores(tmp_path) == ()


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(SetupError, match="cannot write"):
        save_joined([HYPERTHREADS], tmp_path / "home")


@pytest.mark.skipif(len(cpu_info().granted) < 2, reason="one core")
def test_the_layout_of_a_context_has_joined_cores_as_one_unit(tmp_path: Path) -> None:
    first, second = cpu_info().granted[:2]
    context = BenchmarkContext(host_cores=[first], device_cores=[second], threads=1, home=tmp_path)
    before = context.layout
    save_joined([replace(HYPERTHREADS, cores=(first, second))], tmp_path)
    joined = context.layout
    assert (before.time_shared, joined.time_shared) == (False, True)
    assert before.device_cores == joined.device_cores


@pytest.mark.skipif(len(cpu_info().granted) < 2, reason="one core")
def test_joined_cores_leave_the_number_of_threads_and_give_the_reason() -> None:
    pairs = [cpu_info().granted[:2]]
    choice = machine_layout(pairs=pairs)  # type: ignore[arg-type]
    assert choice.threads == machine_layout().threads
    assert "measured to slow each other down" in choice.reason


@pytest.mark.tvm
@pytest.mark.skipif(len(cpu_info().granted) < 2, reason="one core")
def test_threads_that_measure_stay_on_their_cores_and_this_one_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable, pair = os.sched_getaffinity(0), cpu_info().granted[:2]
    settled: list[set[int]] = []
    settle = neighbours._settle

    def settle_and_look(core: int) -> None:
        settle(core)
        settled.append(os.sched_getaffinity(0))

    monkeypatch.setattr(neighbours, "_settle", settle_and_look)
    joined = neighbours.measure_joined([(pair[0], pair[1])], str(tmp_path))
    assert [{core} for core in pair] == settled[:2]
    assert all(each.cores == pair for each in joined)
    assert os.sched_getaffinity(0) == usable
