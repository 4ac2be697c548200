"""What memory there is, what a network needs, and what is said where that is too much."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefleet.core.network import Footprint
from tunefleet.errors import JobError
from tunefleet.workers.memory import Memory, check_fits, machine_memory, needed, worker_bytes

GIB = 2**30


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    meminfo = f"MemTotal: {8 * GIB // 1024} kB\nMemAvailable: {6 * GIB // 1024} kB\n"
    (folder / "meminfo").write_text(meminfo)
    return folder


def _group(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def test_without_control_groups_it_is_what_the_machine_has(proc: Path, tmp_path: Path) -> None:
    assert Memory(8 * GIB, 6 * GIB) == machine_memory(proc, tmp_path / "none")


def test_the_tightest_group_around_the_process_counts(proc: Path, tmp_path: Path) -> None:
    (proc / "self" / "cgroup").write_text("0::/outer/inner\n")
    groups = tmp_path / "groups"
    stat = f"anon 1\ninactive_file {GIB}"
    _group(groups / "outer", memory__max=4 * GIB, memory__current=3 * GIB, memory__stat=stat)
    _group(
        groups / "outer" / "inner", memory__max="max", memory__current=GIB, memory__stat="anon 1"
    )
    assert Memory(4 * GIB, 2 * GIB) == machine_memory(proc, groups)


def test_groups_of_the_first_version_count_as_well(proc: Path, tmp_path: Path) -> None:
    (proc / "self" / "cgroup").write_text("9:name=systemd:/\n4:memory:/not/visible/here\n")
    groups = tmp_path / "groups"
    _group(
        groups / "memory",
        memory__limit_in_bytes=5 * GIB,
        memory__usage_in_bytes=4 * GIB,
        memory__stat="total_inactive_file 0",
    )
    assert Memory(5 * GIB, GIB) == machine_memory(proc, groups)


def test_a_network_that_fits_is_taken() -> None:
    check_fits("net", Footprint(GIB, GIB), Memory(24 * GIB, 8 * GIB))


def test_a_network_too_large_for_the_machine_is_told_what_it_needs() -> None:
    with pytest.raises(JobError, match=r"net needs 9\.5 GiB .*4\.0 GiB of weights.*has 8\.0 GiB"):
        check_fits("net", Footprint(4 * GIB), Memory(8 * GIB, 8 * GIB))


def test_a_network_too_large_for_what_is_free_is_told_so() -> None:
    with pytest.raises(JobError, match=r"3\.0 GiB of this machine's 24\.0 GiB are free; end"):
        check_fits("net", Footprint(4 * GIB), Memory(24 * GIB, 3 * GIB))


def test_what_a_network_needs_is_within_what_is_promised() -> None:
    for weights in (2**20, GIB, 4 * GIB):
        assert needed(Footprint(weights)) <= 3 * weights + 2 * GIB


def test_the_limit_of_a_worker_has_room_for_the_network_in_several_modules() -> None:
    assert worker_bytes(8 * GIB, Footprint(0)) == 8 * GIB
    assert worker_bytes(8 * GIB, Footprint(4 * GIB, GIB)) >= (8 + 4 * 4 + 1) * GIB
