"""The pages of benchmarks from the files of docs/results: the current figure of each claim.

A file has the checks that `benchmarks/*.py --json` writes (`benchmarks/common.py`, `Check`), the
command, processor and date that they are of, and a table or pictures where one line is too little.
`page.json` has for each page its head, its sections and their order. A new figure replaces the old
one.

    python checks/results_page.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Check:
    """One claim. `bound`, `kind` and `ok` are those of a benchmark's check, or all left out."""

    name: str
    value: str
    bound: str = ""
    kind: Literal["condition", "aim", ""] = ""
    ok: bool | None = None
    short: str = ""

    def __post_init__(self) -> None:
        if bool(self.bound) != bool(self.kind) or bool(self.bound) != (self.ok is not None):
            raise ValueError(f"{self.name}: bound, kind and ok belong together")

    @property
    def judged(self) -> str:
        parts = []
        if self.bound:
            word = "asked" if self.kind == "condition" else "aimed"
            parts.append(f"{word} {self.bound}: {'held' if self.ok else '**missed**'}")
        return "; ".join([*parts, *([self.short] if self.short else [])])


@dataclass(frozen=True)
class Result:
    """The checks of one command, on one processor, of one day."""

    command: str
    processor: str
    date: str
    checks: tuple[Check, ...]
    table: dict[str, Any] | None = None
    pictures: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Result:
        value = json.loads(path.read_text(encoding="utf-8"))
        value["checks"] = tuple(Check(**check) for check in value["checks"])
        value["pictures"] = tuple((text, file) for text, file in value.get("pictures", ()))
        return cls(**value)


def pages(results: Path) -> dict[str, str]:
    """The text of each page by its name. Raises ValueError where a result has no place, or two."""
    outlines = json.loads((results / "page.json").read_text(encoding="utf-8"))
    named = [
        name
        for outline in outlines.values()
        for section in outline["sections"]
        for name in section["results"]
    ]
    there = sorted(path.stem for path in results.glob("*.json") if path.stem != "page")
    if sorted(named) != there:
        odd = sorted(set(named) ^ set(there)) or "a file twice"
        raise ValueError(f"page.json and the files beside it differ: {odd}")
    return {name: _page(results, **outline) for name, outline in outlines.items()}


def _page(results: Path, head: list[str], sections: list[dict[str, Any]]) -> str:
    lines = list(head)
    for section in sections:
        found = [Result.read(results / f"{name}.json") for name in section["results"]]
        lines += ["", f"## {section['title']}", "", *_claims(found)]
        for result in found:
            lines += _details(result)
    return "\n".join(lines) + "\n"


def _claims(results: list[Result]) -> list[str]:
    lines = ["| | found | asked, aimed | command | processor, date |", "|---|---|---|---|---|"]
    for result in results:
        command = result.command
        command = command if command.startswith("by hand") else f"`{command}`"
        where = f"{result.processor}, {result.date}"
        for number, check in enumerate(result.checks):
            of = ["as above", where] if number else [command, where]
            lines.append(_row([check.name, check.value, check.judged, *of]))
    return lines


def _details(result: Result) -> list[str]:
    lines = []
    for note in result.notes:
        lines += ["", note]
    if result.table is not None:
        columns = result.table["columns"]
        lines += ["", result.table["caption"], "", _row(columns), "|---" * len(columns) + "|"]
        lines += [_row(row) for row in result.table["rows"]]
    for text, file in result.pictures:
        lines += ["", f"![{text}]({file})"]
    return lines


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    for _name, _text in pages(_RESULTS).items():
        (_RESULTS.parent / _name).write_text(_text, encoding="utf-8")
