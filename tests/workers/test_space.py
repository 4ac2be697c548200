"""A full disk holds a job until there is space; it fails no candidate and loses nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tunefleet.core.events import Event, JobContinued, JobHeld
from tunefleet.errors import DiskFullError, SetupError, raise_disk_full
from tunefleet.workers import space


def test_a_step_that_meets_a_full_disk_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "_LOOK_S", 0.01)
    left, told, looks = [DiskFullError("full"), DiskFullError("full")], list[Event](), []

    def step() -> int:
        if left:
            raise left.pop()
        return 42

    assert space.with_space(step, [tmp_path], told.append, lambda: looks.append(1)) == 42
    assert told == [JobHeld("full"), JobContinued()]
    assert len(looks) == 2


def test_nothing_begins_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    monkeypatch.setattr(space, "_LEAST_BYTES", 2 * free)
    monkeypatch.setattr(space, "_LOOK_S", 0.01)
    told: list[Event] = []

    def look() -> None:
        monkeypatch.setattr(space, "_LEAST_BYTES", 1)

    assert space.with_space(lambda: len(told), [tmp_path], told.append, look) == 1
    assert isinstance(told[0], JobHeld)
    assert f"the disk of {tmp_path} has" in told[0].reason


def test_the_waiting_ends_when_the_user_wants(tmp_path: Path) -> None:
    def step() -> None:
        raise DiskFullError("full")

    def cancelled() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        space.with_space(step, [tmp_path], lambda event: None, cancelled)


def test_a_network_that_a_disk_cannot_hold_is_refused(tmp_path: Path) -> None:
    space.check_space("net", tmp_path, 1 << 20)
    with pytest.raises(SetupError, match=r"net needs 1048576\.0 GiB of disk in .* TMPDIR"):
        space.check_space("net", tmp_path, 1 << 50)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ""),
        (RuntimeError("ld failed"), "ld: final link failed: No space left on device"),
        (RuntimeError("IO failure on output stream: No space left on device"), ""),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), ""),
    ],
)
def test_a_full_disk_is_known_by_what_programs_say(error: Exception, text: str) -> None:
    with pytest.raises(DiskFullError):
        raise_disk_full(error, text)


def test_other_errors_are_no_full_disk() -> None:
    raise_disk_full(OSError(errno.EACCES, "Permission denied"))
    raise_disk_full(RuntimeError("no space for registers"))
