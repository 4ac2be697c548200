"""Limits of the cores' time, as Docker and Kubernetes set them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefleet.system.cgroups import cpu_quota, throttled_s


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc"


def _group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_groups_nothing_is_limited(proc: Path, tmp_path: Path) -> None:
    assert cpu_quota(proc, tmp_path / "none") is None
    assert throttled_s(proc, tmp_path / "none") == 0.0


def test_the_tightest_group_counts(proc: Path, tmp_path: Path) -> None:
    (proc / "self" / "cgroup").write_text("0::/pod/container\n")
    stat = "usage_usec 9\nnr_throttled 3\nthrottled_usec 250000\n"
    _group(tmp_path / "pod", cpu__max="400000 100000\n", cpu__stat="usage_usec 9\n")
    _group(tmp_path / "pod" / "container", cpu__max="150000 100000\n", cpu__stat=stat)
    assert cpu_quota(proc, tmp_path) == 1.5
    assert throttled_s(proc, tmp_path) == 0.25
    _group(tmp_path / "pod" / "container", cpu__max="max 100000\n")
    assert cpu_quota(proc, tmp_path) == 4.0


def test_groups_of_the_first_version(proc: Path, tmp_path: Path) -> None:
    (proc / "self" / "cgroup").write_text("5:cpu,cpuacct:/docker/not-visible\n0::/\n")
    _group(
        tmp_path / "cpu",
        cpu__cfs_quota_us="50000\n",
        cpu__cfs_period_us="100000\n",
        cpu__stat="nr_throttled 3\nthrottled_time 1500000000\n",
    )
    assert cpu_quota(proc, tmp_path) == 0.5
    assert throttled_s(proc, tmp_path) == 1.5
    _group(tmp_path / "cpu", cpu__cfs_quota_us="-1\n")
    assert cpu_quota(proc, tmp_path) is None
