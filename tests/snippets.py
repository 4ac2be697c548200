"""Code blocks of the pages for users, and what they may be marked with.

A block that cannot be run is marked by a comment on the line before its fence:

    <!-- not run: needs a board -->    the block is not run; console lines are still parsed

The Python blocks of a page run in their order in one interpreter, so later ones may use the names
of earlier ones. They start with a home of their own, in a folder that has `model.onnx`, `a.onnx`
and `b.onnx`, `x.npy` (an input of all of them), `data.npz` (inputs by name), `my-artifact` (the
network of `model.onnx`) and `resnet50.json.gz` (a log of auto_scheduler).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]

_BLOCK = re.compile(
    r"(?:^<!-- *(?P<mark>[^\n]*?) *-->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_NOT_RUN = "not run:"
#: What separates commands of one line.
_BETWEEN = {"&&", ";", "|"}


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    mark: str

    @property
    def is_run(self) -> bool:
        return not self.mark.startswith(_NOT_RUN)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path, language: str) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        if match["language"] == language:
            line = text.count("\n", 0, match.start("text")) + 1
            page = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
            found.append(Block(page, line, language, match["text"], match["mark"] or ""))
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each `tunefleet` command of a console block: lines after `$`, also those that go
    on after a backslash; without variables before it, pipes and what goes into files."""
    shown = re.sub(r"\\\n\s*(?:> )?", " ", block.text)
    for line in shown.splitlines():
        if not re.match(r"\$ |\w+\$ ", line):
            continue
        words = shlex.split(line.split("$ ", 1)[1], comments=True)
        for part in _parts(words):
            while part and re.match(r"[A-Z_]+=", part[0]):
                part = part[1:]
            if part and Path(part[0]).name == "tunefleet":
                yield part[1:]


def _parts(words: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word in _BETWEEN:
            yield part
            part = []
        elif word in {">", "&", "2>"}:
            break
        else:
            part.append(word)
    yield part
