"""What every benchmark shares: options, recorded data, checks, the JSON it writes."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["condition", "aim"]

#: Whether this run was asked to be small, by `run`.
_quick = False

#: Measurements that others published. Not part of the repository: it lies beside it.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Skip(Exception):
    """This machine lacks what the benchmark needs; the text says what."""


def need_data() -> None:
    if not DATA.is_dir():
        raise Skip(f"no recorded measurements: {DATA} is missing")


@dataclass(frozen=True)
class Check:
    """One line of what must be shown. `bound` is what `value` is held against; `ok` is None where
    a quick run cannot decide it."""

    name: str
    value: float | str | None
    bound: str
    kind: Kind
    ok: bool | None


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", type=Path, help="write figures and checks to this file")
    made.add_argument("--quick", action="store_true", help="smaller: shows the path, not a figure")
    return made


def at_least(name: str, value: float, bound: float, kind: Kind, *, any_size: bool = False) -> Check:
    """`any_size`: a small run has to hold it as well, since it counts what is wrong. What is
    fast, near or many enough only a whole run shows."""
    ok = value >= bound if any_size or not _quick else None
    return Check(name, round(value, 4), f">= {bound:g}", kind, ok)


def at_most(name: str, value: float, bound: float, kind: Kind, *, any_size: bool = False) -> Check:
    """As `at_least`."""
    ok = value <= bound if any_size or not _quick else None
    return Check(name, round(value, 4), f"<= {bound:g}", kind, ok)


def not_measured(name: str, bound: str, kind: Kind) -> Check:
    """What was to be compared is not there: a whole run misses its bound."""
    return Check(name, None, bound, kind, None if _quick else False)


def table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Print rows as an aligned table."""
    cells = [[_text(row.get(c)) for c in columns] for row in rows]
    widths = [max(len(c), *(len(r[i]) for r in cells)) for i, c in enumerate(columns)]
    for line in [columns, *cells]:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return "-" if value is None else str(value)


def finish(
    name: str, started: float, figures: dict[str, Any], checks: list[Check], json_path: Path | None
) -> int:
    """Print the checks, write the JSON; 0 always: a missed bound is a figure, not a crash."""
    print()
    for check in checks:
        mark = {True: "ok  ", False: "MISS", None: "--  "}[check.ok]
        bound = f"{check.bound}, not in quick" if check.ok is None else check.bound
        print(f"{mark} {check.kind:9} {check.name}: {check.value} ({bound})")
    if json_path is not None:
        value = {
            "benchmark": name,
            "command": " ".join(sys.argv),
            "machine": {"processor": _processor(), "python": platform.python_version()},
            "wall_s": time.time() - started,
            "figures": figures,
            "checks": [asdict(check) for check in checks],
        }
        json_path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return 0


def _processor() -> str:
    from tunefleet.hardware.processor import cpu_info

    cpu = cpu_info()
    return f"{cpu.facts.name}, {len(cpu.cores)} cores"


def run(main: Callable[[argparse.Namespace], int], options: argparse.ArgumentParser) -> None:
    """Exit non-zero only when the benchmark itself failed; what is skipped is told, with why."""
    global _quick
    given = options.parse_args()
    _quick = given.quick
    try:
        code = main(given)
    except Skip as reason:
        print(f"skipped: {reason}")
        code = 0
    sys.exit(code)
