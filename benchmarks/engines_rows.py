"""Figures of `engines.py` gathered over days and machines, and the page's result made of them.

`engines.py --rows FILE` puts a row for each network into the file, in place of an earlier one of
the same network, processor, budget, threads and batch. This command makes the result from it:

    python benchmarks/engines_rows.py docs/results/rows/engines.json docs/results/engines.json
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

#: Most of the fastest engine's time that is asked.
ASKED = 1.10
#: Most of a budget that a command may take beyond it.
BEYOND = 0.15
#: Since then a search leaves as much time to the other steps as they take on a slow machine.
_LEFT_SINCE = "2026-12-01"
OURS = "tunefleet"
_NAMES = {
    OURS: "tunefleet", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO",
    "eager": "PyTorch eager", "compile": "torch.compile", "litert": "LiteRT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One network on one processor: milliseconds of each engine, and ours as a multiple of the
    fastest's with right outputs (median of rounds, 95 % interval)."""

    network: str
    processor: str
    isa: str
    minutes: float
    threads: int
    batch: int
    date: str
    ms: dict[str, float]
    fastest: str
    ratio: float
    low: float
    high: float
    difference: float
    trials: int
    #: None where the clock of the command was wrong.
    command_s: float | None
    disturbed: float
    over_tasks: float | None = None

    @property
    def key(self) -> tuple[str, str, str, float, int, int]:
        """What a newer row has, too."""
        return self.network, self.processor, self.isa, self.minutes, self.threads, self.batch

    @property
    def setting(self) -> tuple[int, int, float, str]:
        """What is judged together, of all processors: batch, threads, minutes, vectors."""
        return self.batch, self.threads, self.minutes, self.isa.removesuffix(" alone")


def read(path: Path) -> list[EngineRow]:
    if not path.exists():
        return []
    return [EngineRow(**row) for row in json.loads(path.read_text(encoding="utf-8"))]


def merge(path: Path, rows: Sequence[EngineRow]) -> None:
    """New rows take the place of those of the same network, processor and setting."""
    new = {row.key for row in rows}
    kept = [row for row in read(path) if row.key not in new]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(asdict(row)) for row in [*kept, *rows])
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def row_of(name: str, figure: dict[str, Any], minutes: float, batch: int, isa: str) -> EngineRow:
    """From what `engines.py` found of a network."""
    by_engine = {row["engine"]: row for row in figure["rows"]}
    anchor = figure["anchor"]
    return EngineRow(
        network=name, processor=_processor(), isa=isa, minutes=minutes,
        threads=figure["threads"], batch=batch, date=time.strftime("%Y-%m-%d"),
        ms={engine: round(row["ms"], 3) for engine, row in by_engine.items()},
        fastest=anchor["engine"], ratio=round(anchor["ours/this"], 3),
        low=round(anchor["from"], 3), high=round(anchor["to"], 3),
        difference=by_engine[OURS]["difference"], trials=figure["trials"],
        command_s=round(60 * figure["minutes"], 1), disturbed=round(figure["disturbed"], 3),
        over_tasks=None if figure["over tasks"] is None else round(figure["over tasks"], 3),
    )  # fmt: skip


def _processor() -> str:
    """This machine's, with LLVM's name of its design: AMD EPYC (znver5)."""
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.hardware.processor import cpu_info

    words = cpu_info().facts.name.replace("(R)", "").replace("(TM)", "").split()
    name = " ".join(word for word in words if word not in ("Processor", "CPU"))
    return f"{name} ({native_target().mcpu})"


_ROWS = "docs/results/rows/engines.json"


def result(rows: Sequence[EngineRow]) -> dict[str, Any]:
    """The file of docs/results: a check for each setting, and a table of all rows."""
    ordered = sorted(rows, key=lambda row: (*row.setting, row.isa, row.processor))
    checks = []
    for setting, of_setting in groupby(ordered, lambda row: row.setting):
        checks += _checks(setting, list(of_setting))
    columns = ["network", *_NAMES.values(), "over the fastest (95 %)", "setting", "trials", "date"]
    caption = (
        "**Networks and other engines**, float32, measured in turn: milliseconds; the ratio is "
        "the median of rounds. Setting: minutes of search, threads, batch, vectors, processor. "
        "AVX2: a processor without AVX-512; AVX2 alone: one with AVX-512, which is hidden from "
        "all engines (`--avx2`). "
        '`pip install -e ".[test,engines]"` first; a command resumes where it stopped.'
    )
    return {
        "command": f"benchmarks/engines.py --folder engines --minutes 4 --rows {_ROWS}",
        "processor": ", ".join(sorted({row.processor for row in rows})),
        "date": max(row.date for row in rows),
        "checks": checks,
        "table": {"caption": caption, "columns": columns, "rows": [_cells(r) for r in ordered]},
    }


#: Where the command's own measurement was disturbed, the ratio is of that.
_WHY_LONGER = (
    "the kernels alone take as long: in a network activations are colder; above 1.3 other "
    "programs disturbed it"
)
_WHY_NO_LESS = (
    "products and 1x1 convolutions alone take 0.81 to 0.98 of OpenVINO's time, which is near the "
    "peak (`register_tiles.py`)"
)


def aim_of(minutes: float) -> float:
    """The geometric mean that is aimed for after so many minutes of search."""
    return 0.80 if minutes >= 15 else 0.85


def _checks(setting: tuple[int, int, float, str], rows: list[EngineRow]) -> list[Any]:
    batch, threads, minutes, vectors = setting
    several = "s" if threads > 1 else ""
    of = f"{minutes:g} minutes, {threads} thread{several}, batch {batch}, {vectors}"
    networks = len({row.network for row in rows})
    ratios = [row.ratio for row in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    above = [f"{row.network} {row.ratio:.2f} on {row.processor}" for row in rows if row.ratio > 1]
    slower = sum(ratio > ASKED for ratio in ratios)
    timed = [row for row in rows if row.command_s]
    within = sorted(row.over_tasks for row in rows if row.over_tasks is not None)
    aimed = aim_of(minutes)
    return [
        {"name": f"{of}, {networks} networks, {len(rows)} rows: time over the fastest engine's",
         "value": f"{min(ratios):.2f} to {max(ratios):.2f}", "bound": "<= 1.10 on all",
         "kind": "condition", "ok": not slower, "short": ", ".join(above)},
        {"name": "geometric mean", "value": f"{mean:.2f}", "bound": f"<= {aimed:.2f}",
         "kind": "aim", "ok": mean <= aimed, "short": "" if mean <= aimed else _WHY_NO_LESS},
        *([_beyond(timed)] if timed else ()),
        {"name": "largest difference from PyTorch, of the largest output",
         "value": f"{max(row.difference for row in rows):.1g}"},
        *([{"name": "the module's latency over the sum of its tasks': median, most",
            "value": f"{within[len(within) // 2]:.2f}, {within[-1]:.2f}", "short": _WHY_LONGER}]
          if within else ()),
    ]  # fmt: skip


def _beyond(rows: list[EngineRow]) -> dict[str, Any]:
    """The time of commands beyond their budgets."""
    shares = [(row.command_s or 0.0) / 60 / row.minutes - 1 for row in rows]
    ordered = sorted(shares)
    late = [(row, share) for row, share in zip(rows, shares, strict=True) if share > BEYOND]
    short = [f"{row.network} {share:.0%} on {row.processor}" for row, share in late]
    if late and all(row.date < _LEFT_SINCE for row, _ in late):
        short.append(f"all before {_LEFT_SINCE}, when searches left the other steps less time")
    return {"name": "the command beyond its budget: median, most",
            "value": f"{ordered[len(ordered) // 2]:.0%}, {ordered[-1]:.0%}", "bound": "<= 15 %",
            "kind": "condition", "ok": not late,
            "short": "; ".join(short)}  # fmt: skip


def _cells(row: EngineRow) -> list[str]:
    times = [f"{row.ms[engine]:.3g}" if engine in row.ms else "-" for engine in _NAMES]
    ratio = f"{row.ratio:.2f} ({row.low:.2f}-{row.high:.2f}), {_NAMES[row.fastest]}"
    setting = f"{row.minutes:g}, {row.threads}, {row.batch}, {row.isa}, {row.processor}"
    return [row.network, *times, ratio, setting, f"{row.trials:,}", row.date]


if __name__ == "__main__":
    _rows, _page = map(Path, sys.argv[1:])
    _page.write_text(json.dumps(result(read(_rows)), indent=1), encoding="utf-8")
