"""What the control groups around a process, such as a container's, let it have of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def groups_of(
    controller: str, proc: Path = _PROC, groups: Path = _GROUPS
) -> Iterator[tuple[Path, bool]]:
    """The folder of each control group around this process, from the innermost on, and whether it
    is of the second version."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Inside a container the group's own path is not visible, its limit lies at the root.
        root = groups / controller if controllers else groups
        inner = root / path.lstrip("/")
        for folder in [inner, *inner.parents]:
            if folder.is_relative_to(root):
                yield folder, not controllers


def cpu_quota(proc: Path = _PROC, groups: Path = _GROUPS) -> float | None:
    """Seconds of all cores together that this process and its group may have in a second; None
    where nothing limits them."""
    found = []
    for folder, second in groups_of("cpu", proc, groups):
        names = ("cpu.max",) if second else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        try:
            most, period = " ".join(
                (folder / name).read_text(encoding="utf-8") for name in names
            ).split()
        except (OSError, ValueError):
            continue
        if most.isdigit() and period.isdigit() and int(period):
            found.append(int(most) / int(period))
    return min(found, default=None)


def throttled_s(proc: Path = _PROC, groups: Path = _GROUPS) -> float:
    """Seconds of cores, all together, in which a group had to wait since it began, as it had used
    up its quota; the most of all groups."""
    found = [0.0]
    for folder, second in groups_of("cpu", proc, groups):
        try:
            lines = (folder / "cpu.stat").read_text(encoding="utf-8").splitlines()
            told = {name: int(value) for name, value in (line.split() for line in lines)}
        except (OSError, ValueError):
            continue
        found.append(
            told.get("throttled_usec", 0) / 1e6 if second else told.get("throttled_time", 0) / 1e9
        )
    return max(found)
