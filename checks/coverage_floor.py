"""Branch coverage by room, against the floors of `[tool.tunefleet.coverage]` in pyproject.toml.

A room is a package of src/tunefleet; `tunefleet` are the modules beside them. A floor may be of
several rooms together: their names with spaces between them. `make coverage` does the same at its
end (tests/conftest.py). What worker processes run is not measured: they are ended by
SIGKILL.

    python -m pytest --cov && python checks/coverage_floor.py
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import coverage


@dataclass(frozen=True)
class Room:
    """`floor` in percent of its branches; None where pyproject.toml has none."""

    name: str
    taken: int
    branches: int
    floor: float | None

    @property
    def percent(self) -> float:
        return 100 * self.taken / self.branches if self.branches else 100.0

    @property
    def too_low(self) -> bool:
        return self.floor is None or self.percent < self.floor

    def __str__(self) -> str:
        floor = "no floor" if self.floor is None else f"{self.floor:8.0f}"
        mark = "  BELOW" if self.too_low else ""
        return f"{self.name:24} {self.branches:8} {self.percent:8.1f} {floor}{mark}"


HEADER = f"{'room':24} branches  taken, %    floor"


def rooms(root: Path) -> list[Room]:
    """What the last `pytest --cov` in a checkout saw of each room."""
    settings = root / "pyproject.toml"
    floors = tomllib.loads(settings.read_text(encoding="utf-8"))["tool"]["tunefleet"]["coverage"]
    measured = coverage.Coverage(config_file=str(settings))
    measured.load()
    source = root / "src" / "tunefleet"
    together = {room: names for names in floors for room in names.split()}
    counts: dict[str, list[tuple[int, int]]] = {}
    for file in measured.get_data().measured_files():
        *packages, _ = Path(file).relative_to(source).parts
        room = (packages or ["tunefleet"])[0]
        branches = measured.branch_stats(file).values()
        counts.setdefault(together.get(room, room), []).extend(branches)
    return [
        Room(name, sum(taken for _, taken in of), sum(all_ for all_, _ in of), floors.get(name))
        for name, of in sorted(counts.items())
    ]


def main() -> int:
    found = rooms(Path.cwd())
    print(HEADER, *found, sep="\n")
    return int(any(room.too_low for room in found))


if __name__ == "__main__":
    sys.exit(main())
